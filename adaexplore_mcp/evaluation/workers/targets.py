"""The GPUs that code can be compiled for, and imitated as, on a machine that has none.

Limits per multiprocessor, block and thread are those of the CUDA C++ Programming Guide, "Compute Capabilities",
tables "Technical Specifications per Compute Capability". A capability says nothing of how many multiprocessors a board
has, nor of its memory: those numbers are of one common board of each capability, from its data sheet, and they matter
only to code that sizes its grid by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULT_TARGET", "TARGETS", "Target", "target"]

KIB = 1024
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Target:
    """One compilation target: what a kernel may use there, in the units of the CUDA documentation."""

    name: str
    """As the CUDA toolchain spells it: `sm_90`."""
    capability: tuple[int, int]
    """Compute capability: (major, minor)."""
    board: str
    """The board whose multiprocessors and memory are given."""
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_multiprocessor: int
    shared_bytes_per_block_optin: int
    """The most a block may ask for: the multiprocessor's, less 1 KiB that the system keeps per block."""
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_bytes_per_block: int = 48 * KIB
    """Without opting in. Triton always opts in."""
    registers_per_multiprocessor: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    warp_size: int = 32
    clock_khz: int = 0
    """The highest of the multiprocessors."""
    memory_clock_khz: int = 0
    memory_bus_bits: int = 0

    @property
    def arch(self) -> int:
        """The capability as Triton writes it: 90 for (9, 0)."""
        major, minor = self.capability
        return major * 10 + minor

    @property
    def device_name(self) -> str:
        """What `torch.cuda.get_device_name()` answers: a name that cannot be taken for a real device's."""
        return f"stand-in for {self.name} ({self.board} class, no GPU)"


TARGETS: dict[str, Target] = {
    each.name: each
    for each in (
        Target(
            name="sm_80",
            capability=(8, 0),
            board="A100",
            multiprocessors=108,
            memory_bytes=80 * GIB,
            l2_bytes=40 * KIB * KIB,
            shared_bytes_per_multiprocessor=164 * KIB,
            shared_bytes_per_block_optin=163 * KIB,
            threads_per_multiprocessor=2048,
            blocks_per_multiprocessor=32,
            clock_khz=1_410_000,
            memory_clock_khz=1_593_000,
            memory_bus_bits=5120,
        ),
        Target(
            name="sm_86",
            capability=(8, 6),
            board="A40",
            multiprocessors=84,
            memory_bytes=48 * GIB,
            l2_bytes=6 * KIB * KIB,
            shared_bytes_per_multiprocessor=100 * KIB,
            shared_bytes_per_block_optin=99 * KIB,
            threads_per_multiprocessor=1536,
            blocks_per_multiprocessor=16,
            clock_khz=1_740_000,
            memory_clock_khz=7_251_000,
            memory_bus_bits=384,
        ),
        Target(
            name="sm_89",
            capability=(8, 9),
            board="L40S",
            multiprocessors=142,
            memory_bytes=48 * GIB,
            l2_bytes=96 * KIB * KIB,
            shared_bytes_per_multiprocessor=100 * KIB,
            shared_bytes_per_block_optin=99 * KIB,
            threads_per_multiprocessor=1536,
            blocks_per_multiprocessor=24,
            clock_khz=2_520_000,
            memory_clock_khz=9_001_000,
            memory_bus_bits=384,
        ),
        Target(
            name="sm_90",
            capability=(9, 0),
            board="H100",
            multiprocessors=132,
            memory_bytes=80 * GIB,
            l2_bytes=50 * KIB * KIB,
            shared_bytes_per_multiprocessor=228 * KIB,
            shared_bytes_per_block_optin=227 * KIB,
            threads_per_multiprocessor=2048,
            blocks_per_multiprocessor=32,
            clock_khz=1_980_000,
            memory_clock_khz=2_619_000,
            memory_bus_bits=5120,
        ),
        Target(
            name="sm_100",
            capability=(10, 0),
            board="B200",
            multiprocessors=148,
            memory_bytes=180 * GIB,
            l2_bytes=126 * KIB * KIB,
            shared_bytes_per_multiprocessor=228 * KIB,
            shared_bytes_per_block_optin=227 * KIB,
            threads_per_multiprocessor=2048,
            blocks_per_multiprocessor=32,
            clock_khz=1_965_000,
            memory_clock_khz=3_996_000,
            memory_bus_bits=8192,
        ),
    )
}

DEFAULT_TARGET = TARGETS["sm_90"]


def target(name: str | Mapping[str, Any]) -> Target:
    """Return the target called `name`, such as `sm_90`; or the one whose fields are given, as a device describes itself.

    Raises:
        ValueError: There is none of that name; the message lists those there are.
    """
    if not isinstance(name, str):
        major, minor = name["capability"]
        return Target(**{**name, "capability": (major, minor)})
    try:
        return TARGETS[name]
    except KeyError:
        msg = f"unknown target {name!r}: the targets are {', '.join(TARGETS)}"
        raise ValueError(msg) from None
