"""What bounds a candidate's claim of how long its kernels took: the judge's clock, and what the GPU can do at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaexplore_mcp.models import Clock

__all__ = ["Burst", "Ceilings", "against_the_clock", "impossible", "least_us", "roofline_us"]

DISAGREEMENT = 0.10
"""Of the wall time: how far the device's time of a burst may be off."""
AROUND_US = 2_000.0
"""What may pass before and after a burst: its request and reply, and until the first kernel starts."""
CALLS_SHARE = 0.4
"""Of a burst's wall time: what the timed calls must come to for the clock to say anything about them."""
IMPOSSIBLE = 0.9
"""A latency below this share of the bound cannot be: ceilings are measured, and caches help a little."""


@dataclass(frozen=True)
class Burst:
    """Several calls, one right after the other on the device.

    Args:
        device_us: Of each call, by the device's events.
        total_us: From before the first to after the last, what lies between them included, by the device's events.
        wall_us: From the request to the reply, by the server's clock, and what outputs were late.
    """

    device_us: Sequence[float]
    total_us: float
    wall_us: float


@dataclass(frozen=True)
class Ceilings:
    """What a GPU can do, measured on it.

    Args:
        copy_bytes_per_s: Bytes read and written by a copy.
        flops_per_s: By kind of arithmetic: fp64, fp32, tf32, fp16, bf16.
    """

    copy_bytes_per_s: float
    flops_per_s: Mapping[str, float]


def against_the_clock(bursts: Sequence[Burst]) -> Clock | None:
    """Tell whether the server's clock bears out what the process says its calls took; None if it contradicts.

    The device's total of a burst cannot be longer than the wall time, nor much shorter than it but for what passes around
    it. Where the calls are a small part of the burst, that says little about them.
    """
    wall = sum(burst.wall_us for burst in bursts)
    total = sum(burst.total_us for burst in bursts)
    calls = sum(sum(burst.device_us) for burst in bursts)
    if total > wall or calls > total * (1 + DISAGREEMENT):
        return None
    missing = wall - total - AROUND_US * len(bursts)
    if missing > DISAGREEMENT * wall:
        return None
    return "confirmed" if calls >= CALLS_SHARE * wall else "unconfirmed"


def roofline_us(nbytes: int, flops: int, ceilings: Ceilings, arithmetic: str) -> float:
    """Return the least time for a task's bytes and FLOPs, in microseconds (Williams, Waterman and Patterson 2009).

    Args:
        nbytes: Each input, parameter and output once.
        flops: Of its matrix products and convolutions.
        ceilings: Of the GPU.
        arithmetic: In which the FLOPs may be done: fp32 for `match` on a float32 task, and so on.
    """
    return max(least_us(nbytes, flops, ceilings, arithmetic))


def least_us(nbytes: int, flops: int, ceilings: Ceilings, arithmetic: str) -> tuple[float, float]:
    """Return the least time for a task's bytes, and for its FLOPs, in microseconds; see `roofline_us`."""
    rate = ceilings.flops_per_s.get(arithmetic, 0.0)
    return 1e6 * nbytes / ceilings.copy_bytes_per_s, 1e6 * flops / rate if rate else 0.0


def impossible(median_us: float, bound_us: float) -> bool:
    """Tell whether a latency is below what the GPU can do."""
    return 0 < median_us < IMPOSSIBLE * bound_us
