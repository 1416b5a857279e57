import random
from dataclasses import dataclass, field

import pytest

from adaexplore_mcp.evaluation.timing.clock import Burst
from adaexplore_mcp.evaluation.timing.intervals import FIRST_LOOK, between_processes
from adaexplore_mcp.evaluation.timing.rounds import (
    CANDIDATE,
    MOST_CALLS,
    MOST_ROUNDS,
    MOST_S,
    WARM_S,
    quartiles,
    take_turns,
    warm_up,
)

pytestmark = pytest.mark.anyio


@dataclass
class Gpu:
    """A clock that only calls move, and the order in which they were made."""

    seconds: float = 0.0
    order: list = field(default_factory=list)

    def now(self):
        return self.seconds


@dataclass
class Kernel:
    """A contender whose calls take as long as one says, more or less."""

    gpu: Gpu
    name: str
    latency_us: float
    noise: float = 0.0
    seed: int = 1
    checked: int = 0
    slow_start: float = 1.0

    def __post_init__(self):
        self.chance = random.Random(self.seed)

    async def burst(self, count, *, check):
        self.gpu.order.append(self.name)
        self.checked += check
        times = [
            self.latency_us * self.slow_start * max(0.05, 1 + self.chance.gauss(0, self.noise))
            for _ in range(count)
        ]
        self.slow_start = max(1.0, self.slow_start * 0.7)
        self.gpu.seconds += (sum(times) + 500) / 1e6
        return Burst(times, sum(times), sum(times) + 500)


def pair(ours_us=100.0, theirs_us=200.0, noise=0.01, seed=1):
    gpu = Gpu()
    return gpu, {
        CANDIDATE: Kernel(gpu, CANDIDATE, ours_us, noise, seed=seed),
        "eager": Kernel(gpu, "eager", theirs_us, noise, seed=seed + 1),
    }


async def timed(gpu, contenders, effort, seed=3):
    counts = dict.fromkeys(contenders, 4)
    chance = random.Random(seed)
    return await take_turns(
        contenders, counts, effort, alpha=0.05, chance=chance, now=gpu.now, report=lambda _: None
    )


async def test_every_other_burst_has_half_as_many_calls():
    gpu, contenders = pair()
    rounds = await timed(gpu, contenders, "quick")
    assert [len(burst.device_us) for burst in rounds.bursts["eager"]] == [4, 2] * (FIRST_LOOK // 2)


async def test_quick_ends_after_the_first_look():
    gpu, contenders = pair(noise=0.3)
    rounds = await timed(gpu, contenders, "quick")
    assert len(rounds) == FIRST_LOOK


async def test_full_goes_on_until_the_ratio_is_narrow():
    gpu, contenders = pair(noise=0.02)
    rounds = await timed(gpu, contenders, "full")
    assert FIRST_LOOK < len(rounds) < MOST_ROUNDS
    assert rounds.interval("eager", 0.05).half_width <= 0.005


async def test_full_ends_where_it_would_never_be_narrow():
    gpu, contenders = pair(noise=0.9)
    contenders["eager"].latency_us = 50_000
    await timed(gpu, contenders, "full")
    assert gpu.seconds < 2 * MOST_S


async def test_every_round_times_everybody_once_in_an_order_left_to_chance():
    gpu, contenders = pair()
    await timed(gpu, contenders, "quick")
    rounds = [tuple(gpu.order[i : i + 2]) for i in range(0, len(gpu.order), 2)]
    assert all(sorted(each) == [CANDIDATE, "eager"] for each in rounds)
    assert len(set(rounds)) == 2


async def test_outputs_of_the_candidate_alone_are_judged_and_at_least_twice():
    for seed in range(20):
        gpu, contenders = pair()
        rounds = await timed(gpu, contenders, "quick", seed)
        assert rounds.checked == contenders[CANDIDATE].checked >= 2
        assert contenders["eager"].checked == 0


async def test_the_ratio_is_that_of_the_latencies():
    found = []
    for seed in range(0, 80, 2):
        gpu, contenders = pair(100.0, 150.0, seed=seed)
        found.append((await timed(gpu, contenders, "full")).interval("eager", 0.05))
    assert all(each.ratio == pytest.approx(1.5, rel=0.01) for each in found)
    assert sum(each.low < 1.5 < each.high for each in found) >= 37  # 95 % are to hold 1.5


async def test_warming_up_goes_on_until_times_are_steady_and_sizes_the_bursts():
    gpu, contenders = pair(5.0, 20_000.0, noise=0.0)
    contenders[CANDIDATE].slow_start = 16.0
    counts = await warm_up(contenders, gpu.now)
    assert contenders[CANDIDATE].slow_start == 1.0
    assert counts == {CANDIDATE: MOST_CALLS, "eager": 1}
    assert gpu.seconds >= WARM_S


def test_quartiles_of_one_value_are_that_value():
    assert quartiles([3.0, 3.0]) == (3.0, 3.0, 3.0)


async def test_full_does_not_look_closer_than_two_processes_differ():
    rounds = {}
    for latency_us in (4.0, 40.0):
        gpu, contenders = pair(latency_us, latency_us, noise=0.03)
        rounds[latency_us] = await timed(gpu, contenders, "full")
    short, longer = (each.interval("eager", 0.05).half_width for each in rounds.values())
    assert len(rounds[4.0]) < len(rounds[40.0])
    assert longer <= 0.01 < short <= between_processes(4.0, 4.0) / 2
