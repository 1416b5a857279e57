"""A benchmark's order of things, with contenders that are made up on a GPU that is none."""

import anyio
import pytest
from contenders import GPU, QUIET, TRIALS, Bench, side

from adaexplore_mcp.errors import WorkerLostError
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.claims import Event, Failure, Integrity
from adaexplore_mcp.evaluation.conversation import Decided
from adaexplore_mcp.evaluation.devices import Condition
from adaexplore_mcp.evaluation.scheduling import LEAVING
from adaexplore_mcp.evaluation.session import EndReport, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.timing.clock import Burst
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE
from adaexplore_mcp.models import TensorSpec

pytestmark = pytest.mark.anyio


async def test_everything_but_timing_and_tuning_is_done_beside_others(monkeypatch):
    bench = Bench(
        monkeypatch, side(), side("eager", latency_us=200.0), side("max_autotune", latency_us=150.0)
    )
    times = await bench.times(tunes={"max_autotune"})
    assert times.clock == "confirmed"
    assert len(times.rounds) == 20
    alone = bench.stages.index("waiting to time alone")
    assert bench.stages[:alone] == [
        "running the reference",
        "preparing candidate and eager and max_autotune",
        LEAVING,
    ]
    assert bench.stages[alone + 1] == "tuning max_autotune"
    first = [name for name, step in bench.world if step == "first calls"]
    assert sorted(first[:2]) == [CANDIDATE, "eager"]
    assert first[2] == "max_autotune"
    assert all(each.closed for each in bench.sides.values())
    assert bench.devices.running(GPU) == 0


async def test_inputs_are_made_at_a_place_and_memory_is_counted_until_the_last_process_has_ended(monkeypatch):
    bench = Bench(monkeypatch, side(), side("eager"))
    await bench.times()
    assert bench.world[0] == ("all", "trials beside 1")
    assert [step for _, step in bench.world[-3:]] == ["closed", "closed", "memory back"]
    assert TRIALS.users == 0


async def test_while_they_are_constructed_others_time_and_all_of_them_stand_still(monkeypatch):
    slow, lost = side(), side("eager", fails="resume", error=WorkerLostError("lost"))
    slow.constructs = anyio.Event()
    bench = Bench(monkeypatch, slow, lost)
    async with anyio.create_task_group() as group:
        group.start_soon(bench.times)
        await anyio.wait_all_tasks_blocked()
        async with bench.devices.alone(GPU, str):
            seen = [step for _, step in bench.world]
            slow.constructs.set()
    assert sorted(seen[-2:]) == ["pause", "pause"]
    assert "inputs" not in seen
    assert [step for _, step in bench.world].count("resume") == 2
    assert (CANDIDATE, "burst") in bench.world


async def test_who_fails_before_the_rounds_has_ended_when_the_place_is_left(monkeypatch):
    lost = side("eager", fails="construct", error=WorkerLostError("lost"))
    bench = Bench(monkeypatch, side(), lost)
    left = []
    leave = bench.devices._leave
    monkeypatch.setattr(
        bench.devices,
        "_leave",
        lambda *given: (left.append([each.closed for each in bench.sides.values()]), leave(*given)),
    )
    with pytest.raises(WorkerLostError):
        await bench.times()
    assert left == [[True, True]]


@pytest.mark.parametrize("fails", ["construct", "first calls", "burst"])
async def test_a_baseline_that_fails_costs_the_candidate_nothing(monkeypatch, fails):
    broken = side("compile", fails=fails, error=SessionEndedError(EndReport()))
    bench = Bench(monkeypatch, side(), side("eager", latency_us=200.0), broken)
    times = await bench.times()
    assert list(times.failed) == ["compile"]
    ended = bench.world.index(("compile", "end"))  # it may have left threads that use the GPU
    assert ended < bench.world.index((CANDIDATE, "burst")) or fails == "burst"
    assert times.seen.clean
    assert times.clock == "confirmed"
    assert times.rounds.interval("eager", 0.05).ratio == pytest.approx(2.0)


@pytest.mark.parametrize("fails", ["construct", "burst"])
async def test_memory_that_a_candidate_lacks_beside_its_baselines_is_not_held_against_it(monkeypatch, fails):
    short = side(fails=fails, error=Decided())
    short.seen.failure = Failure(kind="memory", type="OutOfMemoryError", message="CUDA out of memory")
    bench = Bench(monkeypatch, short, side("eager"))
    with pytest.raises(DeviceFullError, match="beside its baselines"):
        await bench.times()
    assert bench.devices.running(GPU) == 0


async def test_without_any_baseline_left_nothing_is_timed(monkeypatch):
    bench = Bench(monkeypatch, side(), side("eager", fails="construct", error=Decided()))
    times = await bench.times()
    assert times.failed == {"eager": "it gave a wrong result"}
    assert len(times.rounds) == 0
    assert times.seen.clean


MISCONDUCT = [
    Integrity(patched=["torch.empty"]),
    Integrity(events=[Event("signal", "run", "SIGSTOP to 7")]),
    Integrity(events=[Event("process", "run", "sh")]),
    Integrity(kept_bytes=1 << 20),
]


@pytest.mark.parametrize("did", MISCONDUCT)
@pytest.mark.parametrize("fails", ["construct", "burst"])
async def test_what_a_candidate_does_only_while_it_is_timed_is_held_against_it(monkeypatch, fails, did):
    bad = side(fails=fails, error=Decided())
    bad.seen.integrity = did
    bench = Bench(monkeypatch, bad, side("eager"))
    times = await bench.times()
    assert not times.seen.clean
    assert len(times.rounds) == 0
    assert not times.failed


@pytest.mark.parametrize("did", MISCONDUCT)
async def test_a_baseline_that_misbehaves_is_left_out_and_is_no_wrong_result(monkeypatch, did):
    bad = side("eager", fails="burst", error=Decided())
    bad.seen.integrity = did
    bench = Bench(monkeypatch, side(), bad, side("compile", latency_us=200.0))
    times = await bench.times()
    assert times.seen.clean
    assert "no kernel has a reason to do" in times.failed["eager"]
    assert times.rounds.interval("compile", 0.05).ratio == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("error", "shows"),
    [
        (SessionEndedError(EndReport()), lambda seen: seen.ended is not None),
        (SessionTimeoutError(EndReport(), 5), lambda seen: seen.timed_out_s == 5),
    ],
)
@pytest.mark.parametrize("fails", ["construct", "burst"])
async def test_a_candidate_that_fails_says_how(monkeypatch, fails, error, shows):
    bench = Bench(monkeypatch, side(fails=fails, error=error), side("eager"))
    times = await bench.times()
    assert shows(times.seen)
    assert not times.failed


async def test_claims_that_cannot_be_are_not_believed(monkeypatch):
    liar = side(latency_us=100.0)
    told = liar.burst

    async def burst(count, *, check):
        seen = await told(count, check=check)
        return Burst([5.0] * count, seen.total_us, seen.wall_us, seen.held_us)

    liar.burst = burst
    times = await Bench(monkeypatch, liar, side("eager")).times()
    assert times.clock is None


async def test_what_the_clock_is_too_coarse_for_is_timed_in_longer_bursts(monkeypatch):
    short = side(latency_us=30.0)
    short.noise_us = 200.0
    times = await Bench(monkeypatch, short, side("eager")).times()
    assert times.clock == "confirmed"
    assert len(times.rounds) == 20
    assert short.counts[-20:] == [16, 64] * 10
    tiny = side(latency_us=2.0)
    tiny.noise_us = 200.0
    assert (await Bench(monkeypatch, tiny, side("eager")).times()).clock == "unconfirmed"


async def test_times_that_are_doubted_are_held_against_the_clock_until_it_shows_something(monkeypatch):
    """A host that is busy for a moment must not condemn what is as fast as it says."""
    short = side(latency_us=2.0)
    short.noise_us = 200.0
    burst = short.burst
    asked = []

    async def calmer(count, *, check):
        if asked and len(short.counts) > asked[0] + 25:
            short.noise_us = 0.0
        return await burst(count, check=check)

    short.burst = calmer
    times = await Bench(monkeypatch, short, side("eager")).times(
        doubted=lambda _: asked.append(len(short.counts)) or True
    )
    assert times.clock == "confirmed"
    assert len(asked) == 1
    loud = side(latency_us=2.0)
    loud.noise_us = 200.0
    times = await Bench(monkeypatch, loud, side("eager")).times(doubted=lambda _: True)
    assert times.clock == "unconfirmed"
    assert loud.counts[-80:] == [16, 64] * 40


async def test_nothing_of_a_contender_runs_while_another_is_timed(monkeypatch):
    bench = Bench(monkeypatch, side(), side("eager"))
    await bench.times()
    steps = [step for _, step in bench.world]
    assert {name for name, step in bench.world if step == "sleep"} == {"candidate", "eager"}
    assert steps.index("burst") > max(place for place, step in enumerate(steps) if step == "sleep")
    # They wait without a place, while others may be timed.
    assert bench.stages.index(LEAVING) < bench.stages.index("waiting to time alone")
    assert bench.asleep_when_left == {"candidate", "eager"}


async def test_a_baseline_that_cannot_be_put_to_sleep_is_left_out(monkeypatch):
    lost = side("eager", fails="sleep", error=SessionEndedError(EndReport()))
    times = await Bench(monkeypatch, side(), lost, side("compile")).times()
    assert times.failed == {"eager": "its process ended"}
    assert set(times.rounds.bursts) == {"candidate", "compile"}


async def test_restoring_what_a_call_changes_is_reckoned_by_its_bytes(monkeypatch):
    bench = Bench(monkeypatch, side(), side("eager"))
    bench.inputs = [TensorSpec(name=name, dtype="float32", shape=[1_000, 1_000]) for name in ("x", "y")]
    await bench.times()
    assert bench.beside.restore_us == pytest.approx(2 + 2)  # 8 MB at 4 TB/s, and its launch


async def test_a_baseline_that_lies_is_left_out(monkeypatch):
    liar = side("eager", latency_us=100.0)
    told = liar.burst

    async def burst(count, *, check):
        seen = await told(count, check=check)
        return Burst([500.0] * count, seen.total_us, seen.wall_us, seen.held_us)

    liar.burst = burst
    times = await Bench(monkeypatch, side(), liar).times()
    assert times.clock == "confirmed"
    assert list(times.failed) == ["eager"]
    assert "judge's clock" in times.failed["eager"]


async def test_a_gpu_that_was_slowed_down_is_measured_again(monkeypatch):
    hot = Condition(sm_mhz=1_200, throttled=("hardware thermal slowdown",))
    bench = Bench(monkeypatch, side(), side("eager"), conditions=[QUIET, hot, QUIET, QUIET])
    times = await bench.times()
    assert times.dirty == ["default: hardware thermal slowdown, measured again"]
    assert times.after == QUIET


async def test_a_gpu_that_stays_slow_is_said_to_be(monkeypatch):
    slow = [QUIET, Condition(sm_mhz=1_500)] * 3
    times = await Bench(monkeypatch, side(), side("eager"), conditions=slow).times()
    assert len(times.dirty) == 3
    assert times.dirty[-1] == "default: the clock went from 1980 to 1500 MHz"
