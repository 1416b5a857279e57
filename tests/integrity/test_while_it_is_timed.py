"""Attacks on times, and honest measurements that look like them: processes that are made up, against the benchmark as it is.

Numbers are those of the kinds of attack; `test_every_kind.py` counts them.
"""

import itertools
from dataclasses import replace

import pytest
from contenders import FLUSH_US, GPU, Bench, side

from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.timing.clock import Burst, Ceilings
from adaexplore_mcp.evaluation.timing.report import Timed, with_times
from adaexplore_mcp.models import Evidence, Outcome, Workload

pytestmark = pytest.mark.anyio
KINDS = {36, 37}
"""Of the tests below that are no rows."""

PLAN = Plan(workload=Workload(name="default"))
TASK = Definition(format="kernelbench", files={"task.py": "class Model: ..."}, entry="Model")
CEILINGS = Ceilings(4e12, {"fp32": 50e12}, FLUSH_US, 0.0)


def answering(name, answer, latency_us=100.0):
    """Return a contender that answers what `answer` makes of the truth; it is told how many bursts there were."""
    made = side(name, latency_us=latency_us)
    truth, numbers = made.burst, itertools.count()

    async def burst(count, *, check):
        return answer(await truth(count, check=check), next(numbers))

    made.burst = burst
    return made


async def verdict(monkeypatch, *sides):
    bench = Bench(monkeypatch, *sides)
    times = await bench.times()
    right = Outcome(summary="Correct.", status="correct", evidence=Evidence(precision_class="fp32"))
    timed = Timed(GPU, "quick", CEILINGS, ["eager"], {"default": (PLAN, times)})
    return with_times(right, TASK, timed)


def slower(burst, factor):
    """Return a burst whose calls really took so many times as long."""
    more = (factor - 1) * sum(burst.device_us)
    return replace(
        burst,
        device_us=[factor * each for each in burst.device_us],
        total_us=burst.total_us + more,
        wall_us=burst.wall_us + more,
    )


def after_the_last_event(burst, _):
    count = len(burst.device_us)
    return replace(burst, device_us=[5.0] * count, total_us=count * (5.0 + FLUSH_US))


def events_that_tell_a_tenth(burst, _):
    return replace(burst, device_us=[each / 10 for each in burst.device_us])


def all_in_the_first_call(burst, _):
    count = len(burst.device_us)
    return replace(burst, device_us=[sum(burst.device_us) - (count - 1), *[1.0] * (count - 1)])


def calls_longer_than_the_burst(burst, _):
    return replace(burst, total_us=0.5 * sum(burst.device_us))


ATTACKS = [
    pytest.param(after_the_last_event, "rejected", id="1 work after the last event"),
    pytest.param(events_that_tell_a_tenth, "rejected", id="4 events that tell a tenth of the time"),
    pytest.param(all_in_the_first_call, "unconfirmed", id="7 the work of all calls done in the first"),
    pytest.param(
        calls_longer_than_the_burst, "rejected", id="37 a counter by which calls last longer than all of them"
    ),
]


@pytest.mark.parametrize(("answer", "found"), ATTACKS)
async def test_what_a_candidate_says_of_its_time_is_not_believed(monkeypatch, answer, found):
    outcome = await verdict(monkeypatch, answering("candidate", answer), side("eager", latency_us=150.0))
    if found == "rejected":
        assert (outcome.status, outcome.check) == ("rejected", "clock"), outcome.timing
    else:
        assert "times not confirmed by the judge's clock" in outcome.summary


async def test_a_candidate_that_is_slow_to_call_is_told_so(monkeypatch):
    """37: what passes on the host around a quick kernel is no device time; it stands beside it."""
    candidate = side(latency_us=20.0)

    async def call_times_us():
        return [900.0]

    candidate.call_times_us = call_times_us
    outcome = await verdict(monkeypatch, candidate, side("eager", latency_us=40.0))
    (latency,) = outcome.timing.latencies.values()
    assert (latency.median_us, latency.call_us) == (20.0, 900.0)


# --- 36: weak, swapped and drifted baselines -----------------------------------------------------------------


def waiting(burst, _):
    """Say that it took three times as long as it did."""
    return replace(burst, device_us=[3 * each for each in burst.device_us])


async def test_a_baseline_that_says_it_is_slow_is_left_out(monkeypatch):
    outcome = await verdict(monkeypatch, side(), answering("eager", waiting))
    assert not outcome.timing.speedups
    assert "judge's clock contradicts" in outcome.timing.notes[0]


def drifting(burst, number):
    """Return what a GPU gives that gets slower all the time, by a third in forty rounds."""
    return slower(burst, 1 + number / 120)


async def test_a_gpu_that_gets_slower_makes_nobody_faster(monkeypatch):
    sides = answering("candidate", drifting), answering("eager", drifting)
    (speedup,) = (await verdict(monkeypatch, *sides)).timing.speedups
    assert speedup.conclusion == "same"


async def test_whoever_comes_second_in_a_round_is_not_slower_for_it(monkeypatch):
    turn = itertools.count()

    def second_is_slower(burst, _):
        return slower(burst, 1.02 if next(turn) % 2 else 1.0)

    sides = answering("candidate", second_is_slower), answering("eager", second_is_slower)
    (speedup,) = (await verdict(monkeypatch, *sides)).timing.speedups
    assert speedup.conclusion in {"same", "inconclusive"}
    assert speedup.low < 1 < speedup.high


async def test_of_bursts_that_are_as_they_say_all_is_confirmed(monkeypatch):
    def honest(burst, _):
        return Burst(burst.device_us, burst.total_us, burst.wall_us, burst.held_us)

    outcome = await verdict(monkeypatch, answering("candidate", honest), side("eager", latency_us=150.0))
    (speedup,) = outcome.timing.speedups
    assert (outcome.status, speedup.conclusion) == ("correct", "faster")
    assert speedup.speedup == pytest.approx(1.5, rel=1e-3)
    assert "not confirmed" not in speedup.sentence
