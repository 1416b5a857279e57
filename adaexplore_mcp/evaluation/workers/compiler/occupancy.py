"""How many blocks of a kernel fit a multiprocessor at once, and what keeps more of them out."""

from typing import NamedTuple

from adaexplore_mcp.evaluation.workers.targets import Target

__all__ = ["Occupancy", "occupancy"]

REGISTER_UNIT = 256
"""Registers are given out to a warp in multiples of this (CUDA's occupancy calculator, compute capability 8.0 to 10.0)."""
WARP_UNIT = 4
"""And to so many warps at a time: one for each scheduler."""
SHARED_UNIT = 128
RESERVED_SHARED = 1024
"""Of each block, kept by the system."""


class Occupancy(NamedTuple):
    """How full a multiprocessor can be.

    Args:
        share: Of the warps that it can hold, 0 to 1.
        limit: What keeps out one block more: registers, shared memory, threads or blocks.
    """

    share: float
    limit: str


def occupancy(target: Target, registers: int, threads: int, shared_bytes: int) -> Occupancy:
    """Return the theoretical occupancy of a kernel.

    Args:
        target: The GPU.
        registers: Per thread.
        threads: Per block.
        shared_bytes: Per block, static and dynamic.
    """
    warps = -(-threads // target.warp_size)
    per_warp = -(-max(1, registers) * target.warp_size // REGISTER_UNIT) * REGISTER_UNIT
    resident = target.registers_per_multiprocessor // per_warp // WARP_UNIT * WARP_UNIT
    shared = -(-(shared_bytes + RESERVED_SHARED) // SHARED_UNIT) * SHARED_UNIT
    fits = {
        "registers": resident // warps,
        "shared memory": target.shared_bytes_per_multiprocessor // shared,
        "threads": target.threads_per_multiprocessor // (warps * target.warp_size),
        "blocks": target.blocks_per_multiprocessor,
    }
    limit = min(fits, key=lambda name: (fits[name], name not in {"threads", "blocks"}))
    most = target.threads_per_multiprocessor // target.warp_size
    return Occupancy(min(1.0, fits[limit] * warps / most), limit)
