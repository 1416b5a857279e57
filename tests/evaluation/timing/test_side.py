"""What a contender's process is asked for, and what of its answers is believed."""

import itertools
from types import SimpleNamespace

import pytest

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.conversation import Setting
from adaexplore_mcp.evaluation.timing.side import AGAIN, LEAST_HELD_US, MOST_HELD_US, Beside, Side
from adaexplore_mcp.evaluation.wire import FrameError
from adaexplore_mcp.models import Policy

pytestmark = pytest.mark.anyio


class Process:
    """Answers as a candidate's process on a GPU does."""

    def __init__(self, *, launch_us=50.0, late=(), times=lambda count: {"device_ns": [10_000] * count}):
        self.launch_us, self.late, self.times = launch_us, list(late), times
        self.asked = []
        self.put = []
        self.count = 0

    async def ask(self, op, files=(), *, timeout_s, **fields):
        self.asked.append((op, fields))
        if op == "burst":
            self.count = fields["count"]
            return {"host_ns": round(self.launch_us * 1e3), "late": self.late.pop(0) if self.late else False}
        return {"total_ns": 40_000 * self.count} | self.times(self.count)

    @property
    def bursts(self):
        return [fields for op, fields in self.asked if op == "burst"]


BESIDE = Beside()


def made(process, *, trials=4, nbytes=1 << 20, beside=BESIDE):
    kept = [
        SimpleNamespace(name=f"trial {i}", inputs=SimpleNamespace(message={"size": nbytes}))
        for i in range(trials)
    ]
    given = SimpleNamespace(named=lambda _: kept, mutated=[])
    setting = Setting(SimpleNamespace(gpu=object()), {}, 5.0, lambda _: None)
    side = Side(setting, None, Candidate(b"", "kernelbench", "Model", Policy()), given, beside)

    async def put(trial, slot):
        process.put.append((slot, trial.name))

    side._ask, side._put = process.ask, put
    return side


async def test_what_passes_beside_calls_is_no_part_of_them():
    burst = await made(Process(), beside=Beside(pair_us=1.5, restore_us=20.0, written_us=7.0)).burst(
        4, check=False
    )
    assert list(burst.device_us) == [8.5] * 4
    assert (burst.pair_us, burst.restore_us, burst.copied_us) == (1.5, 27.0, 60.0)


async def test_a_claim_no_longer_than_two_events_leaves_next_to_nothing():
    burst = await made(Process(), beside=Beside(pair_us=11.0)).burst(2, check=False)
    assert list(burst.device_us) == [0.001] * 2


async def test_a_side_that_sleeps_is_awake_only_while_it_is_asked():
    process = Process()
    side = made(process)
    told = []

    async def pause():
        told.append("pause")

    async def resume():
        told.append("resume")

    side.session = SimpleNamespace(pause=pause, resume=resume)
    await side.first_calls()
    assert told == []
    await side.sleep()
    await side.burst(2, check=False)
    await side.burst(2, check=False)
    assert told == ["pause", *["resume", "pause"] * 2]


async def test_times_come_in_microseconds_with_what_the_device_was_held_for():
    process = Process()
    burst = await made(process).burst(4, check=False)
    assert (list(burst.device_us), burst.total_us, burst.late) == ([10.0] * 4, 160.0, False)
    assert burst.held_us == process.bursts[0]["held_us"] > LEAST_HELD_US
    assert burst.wall_us > 0


async def test_the_device_is_held_for_as_long_as_launching_takes():
    process = Process(launch_us=1_000.0)
    side = made(process)
    for _ in range(12):
        await side.burst(16, check=False)
    assert process.bursts[-1]["held_us"] == pytest.approx(LEAST_HELD_US + 1.3 * 1_000 * 16)
    process.launch_us = 10_000.0
    await side.burst(16, check=False)
    await side.burst(16, check=False)
    assert process.bursts[-1]["held_us"] == MOST_HELD_US


async def test_a_burst_that_waited_for_the_host_is_made_again():
    process = Process(late=[True, False])
    burst = await made(process).burst(4, check=False)
    assert len(process.bursts) == 2
    assert not burst.late


async def test_one_that_always_does_says_so():
    process = Process(late=[True] * 9)
    assert (await made(process).burst(4, check=False)).late
    assert len(process.bursts) == 1 + AGAIN


async def test_no_address_has_the_values_that_it_had_before():
    process = Process()
    side = made(process, trials=3)
    for _ in range(20):
        await side.burst(1, check=False)
    for slot in range(3):
        names = [name for at, name in process.put if at == slot]
        assert len(names) >= 6
        assert all(one != other for one, other in itertools.pairwise(names))


async def test_inputs_that_fill_the_gpu_are_put_there_once():
    process = Process()
    side = made(process, nbytes=5 << 30)
    await side.burst(1, check=False)
    assert process.bursts[0]["slots"] == [0]


@pytest.mark.parametrize(
    "times",
    [
        {},
        {"device_ns": [10_000] * 3},
        {"device_ns": [10_000] * 3 + [0]},
        {"device_ns": [10_000] * 3 + [-5]},
        {"device_ns": [10_000] * 3 + ["x"]},
        {"device_ns": "10000"},
        {"device_ns": [True] * 4},
        {"device_ns": [float("nan")] * 4},
        {"device_ns": [float("inf")] * 4},
    ],
)
async def test_what_are_no_times_is_no_answer_of_ours(times):
    with pytest.raises(FrameError):
        await made(Process(times=lambda _: times)).burst(4, check=False)
