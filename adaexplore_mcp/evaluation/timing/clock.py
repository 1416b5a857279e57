"""What bounds a candidate's claim of how long its kernels took: the judge's clock, and what the GPU can do at all."""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
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
    "roofline_us",
    "typical_us",
]

DISAGREEMENT = 0.10
"""How far a claim may be from what the judge's clock shows."""
AROUND_US, FAR_US = 2_000.0, 20_000.0
"""What may pass around a burst: its request and reply, and until the device is held and the first kernel starts. Beyond the
first the host is too slow to confirm anything; beyond the second something was done there."""
BETWEEN_US = 4.0
"""What passes on the device between a call and the flush before it, beside both."""
FLUSH_SPREAD, RESTORE_SPREAD = 0.15, 0.5
"""Of the time of a flush: by how much it may differ between processes; and of what restoring inputs should take."""
SURE = 3.5
"""By how much more, in standard deviations of the sum of ranks, the larger bursts must show than the smaller ones allow. It rests
on no shape of the noise: of honest bursts, simulated with heavy tails and stalls, none of 54,000 measurements is rejected. Seven of
each size are too few for it, and contradict nothing."""
FEWEST = 4
"""Bursts of each size without which their difference says nothing."""
IMPOSSIBLE = 0.9
"""A latency below this share of the bound cannot be: ceilings are measured, and caches help a little."""


@dataclass(frozen=True)
class Burst:
    """Several calls, one right after the other on the device.

    Args:
        device_us: Of each call, by the device's events, without what a pair of events takes by itself.
        total_us: From before the first to after the last, what lies between them included, by the device's events.
        wall_us: From the request to the reply, by the server's clock, and what outputs were late.
        held_us: Of these, for how long the device was kept busy first, so that the host could run ahead.
        late: The device was let go before everything was launched: it may have waited for the host.
        restore_us: Restoring the inputs that a call changes, before each, and writing back what the call before left in the
            L2 cache; as the judge reckons.
        copied_us: What copying those inputs took before the burst, likewise.
        pair_us: What a pair of events takes by itself.
        unwritten_us: Writing back may take so much more, where a call leaves more than its outputs in the cache.
    """

    device_us: Sequence[float]
    total_us: float
    wall_us: float
    held_us: float = 0.0
    late: bool = False
    restore_us: float = 0.0
    copied_us: float = 0.0
    pair_us: float = 0.0
    unwritten_us: float = 0.0

    @functools.cached_property
    def median_us(self) -> float:
        """Of its calls, by the device's events."""
        return statistics.median(self.device_us)

    @property
    def spent_us(self) -> float:
        """Of the server's clock, what the calls and everything around them took."""
        return self.wall_us - self.held_us

    def calls_us(self, flush_us: float) -> float:
        """Return what of that is neither the flush nor what is restored before each call, nor its events."""
        return self.spent_us - len(self.device_us) * (flush_us + self.restore_us + self.pair_us)

    def beside_us(self, flush_us: float) -> float:
        """Return what of that is not the calls as they are claimed."""
        return self.calls_us(flush_us) - sum(self.device_us)


@dataclass(frozen=True)
class Ceilings:
    """What a GPU can do, measured on it.

    Args:
        copy_bytes_per_s: Bytes read and written by a copy.
        flops_per_s: By kind of arithmetic: fp64, fp32, tf32, fp16, bf16.
        flush_us: Microseconds in which a buffer of twice the L2 cache is read.
        pair_us: Microseconds between two events with nothing between them.
    """

    copy_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    flush_us: float
    pair_us: float


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
    return statistics.geometric_mean(burst.median_us for burst in bursts)


def estimate(bursts: Sequence[Burst], flush_us: float) -> Estimate | None:
    """Return what bursts of two sizes show of one call; None where there are too few that the device did not wait in."""
    return _one_more(bursts, lambda burst: burst.calls_us(flush_us))


def _one_more(bursts: Sequence[Burst], of: Callable[[Burst], float]) -> Estimate | None:
    """Return by how much something grows with every call more in a burst, from the smallest and the largest ones."""
    sizes: dict[int, list[float]] = {}
    for burst in bursts:
        if not burst.late:
            sizes.setdefault(len(burst.device_us), []).append(of(burst))
    if len(sizes) < 2:
        return None
    few, many = min(sizes), max(sizes)
    if min(len(sizes[few]), len(sizes[many])) < FEWEST:
        return None
    more = statistics.median(sizes[many]) - statistics.median(sizes[few])
    error = math.hypot(_error(sizes[few]), _error(sizes[many]))
    return Estimate(more / (many - few), error / (many - few))


def _error(values: Sequence[float]) -> float:
    """Return the standard error of a median of values that are nearly normal, their spread from the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return 1.2533 * (high - low) / 1.349 / math.sqrt(len(values))


def against_the_clock(bursts: Sequence[Burst], flush_us: float) -> Clock | None:
    """Tell whether the server's clock bears out what the process says its calls took; None if it contradicts.

    The device's total of a burst cannot be longer than the wall time, nor much shorter than it but for what passes around it;
    and what one call more adds to the wall time is the call and what comes before it. Where the clock is too coarse for that
    the claim is unconfirmed, and so it is where what speedups rest on is much shorter than the mean that the clock sees.

    Args:
        bursts: Of one contender.
        flush_us: What the flush before each call takes, as the judge measured it.
    """
    if any(burst.total_us <= 0 for burst in bursts):
        return None
    spent = sum(burst.spent_us for burst in bursts)
    total = sum(burst.total_us for burst in bursts)
    calls = sum(sum(burst.device_us) for burst in bursts)
    if total > spent * (1 + DISAGREEMENT) or calls > total * (1 + DISAGREEMENT):
        return None
    around = _around(bursts, flush_us)
    if around > FAR_US:
        return None
    # As the clock sees calls: all together. A burst is at times disturbed, so not the mean of them.
    claimed = statistics.median(statistics.fmean(burst.device_us) for burst in bursts)
    told = min(typical_us(bursts), statistics.median(value for burst in bursts for value in burst.device_us))
    fit = around <= AROUND_US and told >= (1 - DISAGREEMENT) * claimed
    if calls >= (1 - DISAGREEMENT) * spent:
        return "confirmed" if fit else "unconfirmed"
    more = _one_more(bursts, lambda burst: burst.beside_us(flush_us))
    if more is None:
        return "unconfirmed"
    restored_us = statistics.fmean(burst.restore_us for burst in bursts)
    between_us = DISAGREEMENT * claimed + BETWEEN_US
    allowed_us = between_us + FLUSH_SPREAD * flush_us + RESTORE_SPREAD * restored_us
    # What a call leaves in the cache, it has written.
    left_us = min(claimed, statistics.fmean(burst.unwritten_us for burst in bursts))
    if _surely_off(bursts, flush_us, more_us=allowed_us + left_us, less_us=allowed_us):
        return None
    fit = fit and abs(more.call_us) <= between_us and more.error_us < DISAGREEMENT * claimed
    return "confirmed" if fit else "unconfirmed"


def _around(bursts: Sequence[Burst], flush_us: float) -> float:
    """Return what passed around a burst, of four bursts the third longest: by its own total, and where that cannot be, by its calls.

    What a host that is busy otherwise adds differs from burst to burst; what a process does there it does in each.
    """
    by_total = [
        (1 - DISAGREEMENT) * burst.spent_us - burst.total_us - (1 + RESTORE_SPREAD) * burst.copied_us
        for burst in bursts
    ]
    by_calls = [
        burst.beside_us(flush_us)
        - DISAGREEMENT * burst.spent_us
        - len(burst.device_us) * (FLUSH_SPREAD * flush_us + RESTORE_SPREAD * burst.restore_us + BETWEEN_US)
        - (1 + RESTORE_SPREAD) * burst.copied_us
        for burst in bursts
        if not burst.late
    ]
    return max(_lower_quartile(by_total), _lower_quartile(by_calls))


def _lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4] if values else 0.0


def _surely_off(bursts: Sequence[Burst], flush_us: float, *, more_us: float, less_us: float) -> bool:
    """Tell whether the largest bursts show more beside their calls than smaller ones, or less, by more than is allowed of each."""
    ahead = [burst for burst in bursts if not burst.late]
    most = max(len(burst.device_us) for burst in ahead)

    def off(sign: float, allowed_us: float) -> bool:
        sizes: tuple[list[float], list[float]] = ([], [])
        for burst in ahead:
            count = len(burst.device_us)
            sizes[count == most].append(sign * burst.beside_us(flush_us) - allowed_us * count)
        return _ranks_higher(sizes[True], sizes[False]) > SURE

    return off(1.0, more_us) or off(-1.0, less_us)


def _ranks_higher(some: Sequence[float], others: Sequence[float]) -> float:
    """Return by how many standard deviations some values rank higher than others (Mann and Whitney's U)."""
    pairs = len(some) * len(others)
    won = sum((one > other) + (one == other) / 2 for one in some for other in others)
    return (won - pairs / 2) / math.sqrt(pairs * (len(some) + len(others) + 1) / 12)


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
