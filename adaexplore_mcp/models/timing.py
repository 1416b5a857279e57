"""Timings: what is asked about a candidate's speed, and what was measured."""

from typing import Literal

from adaexplore_mcp.models.values import FiniteFloat, Value

__all__ = [
    "Clock",
    "Conclusion",
    "Effort",
    "Latency",
    "Speedup",
    "Timing",
    "WorkloadSpeedup",
]

Effort = Literal["quick", "full"]
"""quick: a fixed small budget; full: until the interval is narrow."""

Conclusion = Literal["faster", "slower", "same", "inconclusive"]
"""The interval of the speedup lies above 1.01, below 0.99, within; or none of these."""

Clock = Literal["confirmed", "unconfirmed"]
"""Whether the judge's own clock bears out the device time that the candidate's process took."""


class Latency(Value):
    """How long one call takes, over the timed calls, at one workload."""

    median_us: float
    p25_us: float
    p75_us: float
    calls: int
    call_us: float = 0.0
    """Median time of a whole call as its caller sees it, host code included, in microseconds."""
    clock: Clock = "confirmed"
    roofline_us: float = 0.0
    """The least time this GPU needs for the task's bytes and FLOPs, by measured ceilings; 0 where it is not known."""
    roofline_share: FiniteFloat = None
    """roofline_us over median_us, 0 to 1."""


class WorkloadSpeedup(Value):
    """Baseline's latency over the candidate's, at one workload."""

    speedup: float
    low: float
    high: float
    baseline_us: float
    """Median latency of the baseline in the same rounds."""
    rounds: int


class Speedup(Value):
    """How much faster a candidate is than one baseline."""

    baseline: str
    """own, eager, compile, max_autotune or node:<id>."""
    speedup: float
    """Weighted geometric mean over the workloads of the baseline's latency over the candidate's."""
    low: float
    """Lower end of its 95 % interval, valid whenever the measurement is stopped."""
    high: float
    conclusion: Conclusion
    worst_workload: str = ""
    """Where the speedup is smallest, if there are several."""
    workloads: dict[str, WorkloadSpeedup] = {}
    sentence: str = ""
    """All of it in words: speedup, interval, policy, class and baseline."""


class Timing(Value):
    """What a benchmark measured; device time, in microseconds."""

    effort: Effort
    device: str
    latencies: dict[str, Latency] = {}
    """Of the candidate, per workload."""
    speedups: list[Speedup] = []
    """In the order of the baselines asked for."""
    clocks: dict[str, float | str] = {}
    """SM and memory clock in MHz, temperature in °C, power in W, throttle reasons, around the measurement."""
    dirty: list[str] = []
    """What made measurements unfit and had them repeated, or mars the last ones."""
    notes: list[str] = []
