"""A race: what is made ready at once and what later, and what becomes of a verdict where nothing can be timed."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation import racing as module
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Built
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.racing import Race, Racing
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing.baselines import baseline
from adaexplore_mcp.evaluation.timing.benchmark import Ready, WorkloadTimes
from adaexplore_mcp.evaluation.timing.clock import Ceilings
from adaexplore_mcp.models import Outcome, Policy, Workload

pytestmark = pytest.mark.anyio

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1 << 37, (9, 0))
TASK = Definition(format="kernelbench", files={"task.py": "class Model: ..."}, entry="Model", module="task")
PLAN = Plan(workload=Workload(name="default"))
CEILINGS = Ceilings(4e12, {}, 30.0, 1.3)
RIGHT = Outcome(summary="Correct.", status="correct")
NEEDS = Needs(7 << 20)
FULL = DeviceFullError("12 of 10240 MiB are free")


class World:
    """A race whose tries to time end as they are told to, and what was asked for."""

    def __init__(self, monkeypatch, *ends, prepares=None, known=True):
        world = self
        self.ends = iter(ends)
        self.asked = []
        self.seen = []
        self.ready = Ready(WorkloadTimes("default"))
        self.ready.processes.callback(self.seen.append, "ended")

        class Benchmark:
            def __init__(self, *_, **__): ...

            async def prepare(self, *_, **given):
                world.seen.append("prepared")
                if prepares is not None:
                    raise prepares
                return world.ready

            async def workload(self, *_, **given):
                world.asked.append((given["needs"].own_bytes, given["ready"]))
                if isinstance(end := next(world.ends), Exception):
                    raise end
                return end

        @asynccontextmanager
        async def built_ahead(*_, **__):
            yield {}

        monkeypatch.setattr(module, "Benchmark", Benchmark)
        monkeypatch.setattr(module, "built_ahead", built_ahead)
        self.racing = Racing(
            SimpleNamespace(properties=self.properties),
            None,
            SimpleNamespace(
                gpu_trials=lambda *_: None, make_room=self.make_room, timing_needs=lambda *_: NEEDS
            ),
            definition=TASK,
            race=Race([baseline("eager", TASK)], "quick"),
            candidate=Candidate(b"", "kernelbench", "ModelNew", Policy()),
            known_ceilings={GPU.uuid: CEILINGS} if known else {},
            ceilings_of=self.ceilings_of,
            timeout_s=5,
            jobs=1,
            timeline=Timeline(str),
        )

    async def properties(self, _):
        return {"l2_bytes": 1 << 26}

    async def ceilings_of(self, *_):
        return CEILINGS

    async def make_room(self, _):
        self.seen.append("room")

    async def begin(self):
        place = SimpleNamespace(gpu=GPU)
        await self.racing.begin(PLAN, place, None, Built(), RIGHT)

    async def times(self):
        timed = await self.racing.times(GPU, {"default": Built()}, [SimpleNamespace(plan=PLAN)], RIGHT)
        return timed.workloads["default"][1]


async def test_who_is_made_ready_where_the_candidate_was_judged_is_timed_and_nobody_twice(monkeypatch):
    seen = WorkloadTimes("default")
    world = World(monkeypatch, WorkerLostError("lost"), seen)
    await world.begin()
    assert world.seen == ["prepared"]
    assert await world.times() is seen
    assert [ready for _, ready in world.asked] == [world.ready, None]  # a worker lost takes them along


async def test_who_is_ready_and_never_timed_is_ended(monkeypatch):
    world = World(monkeypatch)
    await world.begin()
    await world.racing.close()
    assert world.seen[-1] == "ended"


@pytest.mark.parametrize("error", [FULL, WorkerLostError("lost")])
async def test_what_cannot_be_made_ready_at_once_is_made_ready_later(monkeypatch, error):
    seen = WorkloadTimes("default")
    world = World(monkeypatch, seen, prepares=error)
    await world.begin()
    assert await world.times() is seen
    assert world.asked == [(NEEDS.own_bytes, None)]
    await world.racing.close()


async def test_nobody_is_made_ready_while_it_is_unknown_what_the_gpu_can_do(monkeypatch):
    """It is measured alone, where our own place would be in the way for good."""
    world = World(monkeypatch, known=False)
    await world.begin()
    assert world.seen == []


async def test_who_finds_too_little_memory_is_timed_without_neighbours(monkeypatch):
    seen = WorkloadTimes("default")
    world = World(monkeypatch, FULL, seen)
    assert await world.times() is seen
    assert [needed for needed, _ in world.asked] == [NEEDS.own_bytes, GPU.memory_bytes]
    assert world.seen == ["room"]


async def test_a_gpu_too_full_to_time_on_costs_no_verdict(monkeypatch):
    times = await World(monkeypatch, FULL, FULL).times()
    assert "12 of 10240 MiB" in times.failed["eager"]
    assert times.seen.clean


async def test_a_worker_lost_while_timing_costs_no_verdict(monkeypatch):
    seen = WorkloadTimes("default")
    assert await World(monkeypatch, WorkerLostError("lost"), seen).times() is seen
    with pytest.raises(WorkerError):
        await World(monkeypatch, WorkerLostError("lost"), WorkerLostError("lost")).times()
