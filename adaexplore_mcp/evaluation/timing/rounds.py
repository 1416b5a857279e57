"""Take turns: in every round each contender is timed once, in random order, until the ratios are known well enough."""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adaexplore_mcp.evaluation.timing.clock import Burst
from adaexplore_mcp.evaluation.timing.intervals import (
    FIRST_LOOK,
    Interval,
    between_processes,
    interval_of,
)
from adaexplore_mcp.models import Effort

__all__ = ["CANDIDATE", "Rounds", "Timed", "quartiles", "take_turns", "warm_up"]

CANDIDATE = "candidate"
MOST_ROUNDS, MOST_S = 400, 20.0
"""After these a full measurement ends, however wide the intervals are."""
LONG_US = 50.0
NARROW, NARROW_LONG = 0.01, 0.005
"""Half-widths at which a full measurement ends: of calls up to `LONG_US`, and of longer ones. Half of what differs between processes
is narrow enough too: more rounds make that no less."""
BURST_US = 1_500.0
MOST_CALLS = 16
"""In a burst. Behind more the host, which launches them while the device is held, would be what takes time."""
LONE_US = 10_000.0
"""Calls from this length on are timed one by one: the judge's clock sees each. Of shorter ones every other burst has twice as
many, so that it sees the difference."""
WARM_S, MOST_WARM_S = 0.04, 0.5
STEADY, STEADY_US = 0.02, 0.3
"""Two bursts of one contender differ by less than this share, or by less than that: it is warm."""
CHECKED_SHARE = 0.1
"""Of the rounds, by chance: in these the outputs of a timed call are judged; always in two of them."""


class Timed(Protocol):
    """Whoever can be timed."""

    async def burst(self, count: int, *, check: bool) -> Burst:
        """Time calls, one right after the other, and have the outputs of one of them judged if asked to."""
        ...


@dataclass
class Rounds:
    """What all rounds showed.

    Args:
        bursts: By contender, one for each round.
        checked: Timed calls of the candidate whose outputs were judged.
    """

    bursts: dict[str, list[Burst]] = field(default_factory=dict)
    checked: int = 0

    def __len__(self) -> int:
        """Return how many rounds there were."""
        return min(map(len, self.bursts.values()), default=0)

    def log_ratios(self, baseline: str) -> list[float]:
        """Return per round the logarithm of the baseline's median latency over the candidate's."""
        pairs = zip(self.bursts[baseline], self.bursts[CANDIDATE], strict=True)
        return [math.log(theirs.median_us / ours.median_us) for theirs, ours in pairs]

    def interval(self, baseline: str, alpha: float) -> Interval:
        """Return the ratio to a baseline."""
        return interval_of(self.log_ratios(baseline), alpha)

    def between_processes(self, baseline: str) -> float:
        """Return by how much the ratio to a baseline may differ in other processes; see `intervals.between_processes`."""
        return between_processes(self.median_us(baseline), self.median_us(CANDIDATE))

    def median_us(self, name: str) -> float:
        """Return the median device time of all calls, in microseconds."""
        return statistics.median(self.latencies(name))

    def latencies(self, name: str) -> list[float]:
        """Return the device time of every call, in microseconds."""
        return [value for burst in self.bursts[name] for value in burst.device_us]


async def warm_up(
    contenders: Mapping[str, Timed], now: Callable[[], float] = time.monotonic
) -> dict[str, int]:
    """Call each until its times are steady, for the GPU's clock rises with work; return how many calls a burst has.

    Args:
        contenders: By name.
        now: The time in seconds.
    """
    counts = dict.fromkeys(contenders, 2)
    before: dict[str, float] = {}
    began = now()
    while now() - began < MOST_WARM_S:
        latest = {
            name: (await each.burst(counts[name], check=False)).median_us for name, each in contenders.items()
        }
        counts = {name: _calls(value) for name, value in latest.items()}
        steady = all(
            abs(value - before.get(name, math.inf)) < max(STEADY * value, STEADY_US)
            for name, value in latest.items()
        )
        if steady and now() - began >= WARM_S:
            break
        before = latest
    return counts


def _calls(latency_us: float) -> int:
    """Return how many calls a burst has at most."""
    if latency_us >= LONE_US:
        return 1
    return max(2, min(MOST_CALLS, round(BURST_US / latency_us)))


async def take_turns(
    contenders: Mapping[str, Timed],
    counts: Mapping[str, int],
    effort: Effort,
    *,
    alpha: float,
    chance: random.Random,
    now: Callable[[], float] = time.monotonic,
    report: Callable[[str], None],
) -> Rounds:
    """Time contenders in rounds until the effort is spent.

    Args:
        contenders: By name; one is the candidate, the others baselines.
        counts: Calls of each in a burst; every other burst has half as many.
        effort: quick ends after the first look, full when every ratio is narrow.
        alpha: Error allowed of each ratio's interval.
        chance: Orders rounds, and chooses those that are judged.
        now: The time in seconds.
        report: Told how far it is.
    """
    rounds = Rounds({name: [] for name in contenders})
    judged = set(chance.sample(range(1, FIRST_LOOK + 1), 2))
    began = now()
    while True:
        number = len(rounds) + 1
        order = chance.sample(list(contenders), len(contenders))
        check = number in judged or chance.random() < CHECKED_SHARE
        for name in order:
            looked = check and name == CANDIDATE
            count = counts[name] if number % 2 else max(1, counts[name] // 2)
            rounds.bursts[name].append(await contenders[name].burst(count, check=looked))
            rounds.checked += looked
        if number % FIRST_LOOK == 0:
            report(f"timing: {number} rounds")
        if number >= FIRST_LOOK and _enough(rounds, effort, alpha, now() - began):
            return rounds


def _enough(rounds: Rounds, effort: Effort, alpha: float, took_s: float) -> bool:
    if effort == "quick" or len(rounds) >= MOST_ROUNDS or took_s > MOST_S:
        return True
    ours = rounds.median_us(CANDIDATE)
    narrow = NARROW_LONG if ours > LONG_US else NARROW

    def enough(name: str) -> bool:
        # The GPU is held meanwhile: medians over all calls only where they may decide.
        width = rounds.interval(name, alpha).half_width
        return width <= narrow or width <= between_processes(rounds.median_us(name), ours) / 2

    return all(enough(name) for name in rounds.bursts if name != CANDIDATE)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
