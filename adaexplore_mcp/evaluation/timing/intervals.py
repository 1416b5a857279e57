"""Speedups with intervals that hold whenever the measurement is stopped.

The unit is a round: baseline and candidate timed one right after the other, its logarithmic ratio one observation. The
interval around their mean is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas
(Time-uniform central limit theory and asymptotic confidence sequences, equation 13), widened for few rounds. A plain 95 %
interval, looked at after every round until it is narrow enough, would be wrong more often than it says.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaexplore_mcp.models import Conclusion

__all__ = ["ALPHA", "FIRST_LOOK", "Interval", "between_processes", "combine", "conclude", "interval_of"]

ALPHA = 0.05
FIRST_LOOK = 20
"""Rounds before there is an interval at all."""
TIGHTEST_AT = 40
"""Rounds for which the sequence is made narrowest."""
SMALL_SAMPLE = 2.0
"""The interval is wider by this over the number of rounds: the spread is estimated from the same rounds. With it, of 4,000
simulated measurements without a difference, stopped at the worst moment, 3 % at most left the truth outside (normal, Laplace,
Student's t with 3 degrees, 5 % outliers)."""
FASTER, SLOWER = 1.01, 0.99
BETWEEN_PROCESSES_US = 0.15
"""By how much the latencies of one kernel differ from process to process, however long it is: twice the standard deviation seen on
an H200 (docs/benchmarks.md). No number of rounds in the same processes shows it, so it is added to every interval."""
SHORT_MORE_US, SHORT_US = 0.35, 12.0
"""So much more for the shortest calls, less by a factor of e for every so many microseconds: one process in twenty differs from
the others by 0.4 µs at 5 µs, and none does at 50."""


@dataclass(frozen=True)
class Interval:
    """A ratio of latencies, baseline over candidate.

    Args:
        ratio: Geometric mean over the rounds.
        low: Lower end.
        high: Upper end.
    """

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width over the ratio, on the logarithmic scale on which it is symmetric."""
        return math.log(self.high / self.low) / 2

    def widened(self, by: float) -> "Interval":
        """Return it with so much more on either side, on that scale."""
        return Interval(self.ratio, self.low * math.exp(-by), self.high * math.exp(by))


def interval_of(log_ratios: Sequence[float], alpha: float = ALPHA) -> Interval:
    """Return the interval of a ratio after some rounds, each with its logarithmic ratio.

    Raises:
        ValueError: There are fewer than two rounds.
    """
    rounds = len(log_ratios)
    mean, spread = statistics.fmean(log_ratios), statistics.stdev(log_ratios)
    width = spread * (1 + SMALL_SAMPLE / rounds) * _radius(rounds, alpha)
    return Interval(math.exp(mean), math.exp(mean - width), math.exp(mean + width))


def between_processes(baseline_us: float, ours_us: float) -> float:
    """Return by how much a ratio may differ in other processes, on the logarithmic scale.

    Args:
        baseline_us: Latency of the baseline.
        ours_us: And of the candidate.
    """

    def share(latency_us: float) -> float:
        return (BETWEEN_PROCESSES_US + SHORT_MORE_US * math.exp(-latency_us / SHORT_US)) / latency_us

    return math.hypot(share(baseline_us), share(ours_us))


def _radius(rounds: int, alpha: float) -> float:
    """Return the half-width for a spread of one, equation 13; rho is chosen for `TIGHTEST_AT` as in their appendix."""
    rho = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / TIGHTEST_AT
    scaled = rounds * rho + 1
    return math.sqrt(2 * scaled / (rounds**2 * rho) * math.log(math.sqrt(scaled) / alpha))


def combine(intervals: Mapping[str, Interval], weights: Mapping[str, float]) -> Interval:
    """Return the weighted geometric mean over workloads.

    The ends are those of the workloads, combined alike: all of them hold together if each holds, so give each its part of
    the error (`alpha / len(intervals)`).
    """
    total = sum(weights[name] for name in intervals)

    def mean(of: Mapping[str, float]) -> float:
        return math.exp(sum(weights[name] * math.log(value) for name, value in of.items()) / total)

    return Interval(
        mean({name: each.ratio for name, each in intervals.items()}),
        mean({name: each.low for name, each in intervals.items()}),
        mean({name: each.high for name, each in intervals.items()}),
    )


def conclude(interval: Interval) -> Conclusion:
    """Say what an interval says: a difference of less than 1 % is none."""
    if interval.low > FASTER:
        return "faster"
    if interval.high < SLOWER:
        return "slower"
    if interval.low > SLOWER and interval.high < FASTER:
        return "same"
    return "inconclusive"
