"""What bounds a candidate's claim of how long its kernels took: the judge's clock, and what the GPU can do at all."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaexplore_mcp.models import Clock

__all__ = [
    "Burst",
    "Ceilings",
    "Estimate",
    "against_the_clock",
    "estimate",
    "impossible",
    "least_us",
    "restore_us",
    "roofline_us",
    "typical_us",
]

DISAGREEMENT = 0.10
"""How far a claim may be from what the judge's clock shows."""
AROUND_US = 2_000.0
"""What may pass around a burst: its request and reply, and until the device is held and the first kernel starts."""
BETWEEN_US = 4.0
"""What passes on the device between a call and what comes before it, beside both."""
LEAD_SPREAD = 0.15
"""Of the time of a flush and of restoring inputs: by how much it may differ between processes."""
SURE = 3.0
"""Standard errors by which a claim must be off before it is called false."""
FEWEST = 4
"""Bursts of each size without which their difference says nothing."""
IMPOSSIBLE = 0.9
"""A latency below this share of the bound cannot be: ceilings are measured, and caches help a little."""


@dataclass(frozen=True)
class Burst:
    """Several calls, one right after the other on the device.

    Args:
        device_us: Of each call, by the device's events.
        total_us: From before the first to after the last, what lies between them included, by the device's events.
        wall_us: From the request to the reply, by the server's clock, and what outputs were late.
        held_us: Of these, for how long the device was kept busy first, so that the host could run ahead.
        late: The device was let go before everything was launched: it may have waited for the host.
    """

    device_us: Sequence[float]
    total_us: float
    wall_us: float
    held_us: float = 0.0
    late: bool = False

    @property
    def spent_us(self) -> float:
        """Of the server's clock, what the calls and everything around them took."""
        return self.wall_us - self.held_us


@dataclass(frozen=True)
class Ceilings:
    """What a GPU can do, measured on it.

    Args:
        copy_bytes_per_s: Bytes read and written by a copy.
        flops_per_s: By kind of arithmetic: fp64, fp32, tf32, fp16, bf16.
        flush_us: Microseconds in which a buffer of twice the L2 cache is read.
    """

    copy_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    flush_us: float


@dataclass(frozen=True)
class Estimate:
    """How long one call takes by the server's clock.

    Args:
        call_us: From bursts of two sizes: what one call more takes, without what comes before it.
        error_us: Its standard error.
    """

    call_us: float
    error_us: float


def typical_us(bursts: Sequence[Burst]) -> float:
    """Return the latency on which a speedup rests, in microseconds: the geometric mean of the bursts' medians.

    A median of all calls would hide claims that are false in less than half of the bursts.
    """
    return statistics.geometric_mean(statistics.median(burst.device_us) for burst in bursts)


def restore_us(nbytes: int, ceilings: Ceilings) -> float:
    """Return how long it takes to restore inputs that a call changes, in microseconds.

    Args:
        nbytes: Of these inputs.
        ceilings: Of the GPU.
    """
    return 2e6 * nbytes / ceilings.copy_bytes_per_s


def estimate(bursts: Sequence[Burst], lead_us: float) -> Estimate | None:
    """Return what bursts of two sizes show of one call; None where there are too few that the device did not wait in.

    Args:
        bursts: Of one contender.
        lead_us: What comes before each call takes: the flush, and restoring inputs that it changes.
    """
    sizes: dict[int, list[float]] = {}
    for burst in bursts:
        if not burst.late:
            sizes.setdefault(len(burst.device_us), []).append(burst.spent_us)
    if len(sizes) < 2:
        return None
    few, many = min(sizes), max(sizes)
    if min(len(sizes[few]), len(sizes[many])) < FEWEST:
        return None
    more = statistics.median(sizes[many]) - statistics.median(sizes[few])
    error = math.hypot(_error(sizes[few]), _error(sizes[many]))
    return Estimate(more / (many - few) - lead_us, error / (many - few))


def _error(values: Sequence[float]) -> float:
    """Return the standard error of a median of values that are nearly normal, their spread from the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return 1.2533 * (high - low) / 1.349 / math.sqrt(len(values))


def against_the_clock(bursts: Sequence[Burst], lead_us: float) -> Clock | None:
    """Tell whether the server's clock bears out what the process says its calls took; None if it contradicts.

    The device's total of a burst cannot be longer than the wall time, nor much shorter than it but for what passes around it;
    and what one call more adds to the wall time is the call and what comes before it. Where the clock is too coarse for that
    the claim is unconfirmed. What passes around a burst is held against geometric means: one burst in which the server had to wait
    for its CPU says nothing of the others.

    Args:
        bursts: Of one contender.
        lead_us: What comes before each call takes, as the judge measured it: the flush, and restoring inputs.
    """
    if any(burst.total_us <= 0 for burst in bursts):
        return None
    spent = sum(burst.spent_us for burst in bursts)
    total = sum(burst.total_us for burst in bursts)
    calls = sum(sum(burst.device_us) for burst in bursts)
    if total > spent * (1 + DISAGREEMENT) or calls > total * (1 + DISAGREEMENT):
        return None
    usual = statistics.geometric_mean(max(burst.spent_us, burst.total_us) for burst in bursts)
    around = usual - statistics.geometric_mean(burst.total_us for burst in bursts)
    if around > DISAGREEMENT * usual + AROUND_US:
        return None
    claimed = typical_us(bursts)
    if calls >= (1 - DISAGREEMENT) * spent:
        return "confirmed"
    seen = estimate(bursts, lead_us)
    if seen is None:
        return "unconfirmed"
    off = abs(seen.call_us - claimed) - DISAGREEMENT * claimed
    if off > SURE * seen.error_us + LEAD_SPREAD * lead_us + BETWEEN_US:
        return None
    return "confirmed" if off <= BETWEEN_US and seen.error_us < DISAGREEMENT * claimed else "unconfirmed"


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
