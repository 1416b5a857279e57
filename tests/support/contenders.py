"""Contenders that are made up, and a benchmark of them on a GPU that is none."""

from contextlib import asynccontextmanager

import anyio

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.conversation import NumericsReport
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.devices import Condition, Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.scheduling import LEAVING, Devices
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing import benchmark
from adaexplore_mcp.evaluation.timing.baselines import Contender
from adaexplore_mcp.evaluation.timing.benchmark import Benchmark
from adaexplore_mcp.evaluation.timing.clock import Burst, Ceilings
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE
from adaexplore_mcp.evaluation.trials import Attachment, TrialSet
from adaexplore_mcp.models import Policy, Workload

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1 << 37, (9, 0))
QUIET = Condition(sm_mhz=1_980)
NOTHING = Attachment({}, None)
FLUSH_US = 30.0
TRIALS = TrialSet(1, 2, NOTHING, NOTHING, {}, [], ["x"], {}, 1, [])


class Lock:
    how = "a lock"

    @asynccontextmanager
    async def shared(self, report):
        yield

    alone = shared


class Made:
    """Stands for `Side`: a contender whose calls take a microsecond count, and which fails where it is told to."""

    def __init__(self, world, name, latency_us=100.0, fails=None, error=None):
        self.world, self.name, self.latency_us, self.fails, self.error = world, name, latency_us, fails, error
        self.seen = NumericsReport()
        self.candidate = Candidate(b"", "kernelbench", "Model", Policy())
        self.closed = False
        self.noise_us = 0.0
        self.counts = []
        self.session = self
        self.constructs = None

    async def _do(self, step):
        self.world.append((self.name, step))
        await anyio.lowlevel.checkpoint()
        if step == self.fails:
            raise self.error

    async def construct(self):
        await self._do("construct")
        if self.constructs is not None:
            await self.constructs.wait()

    async def fill_slots(self):
        await self._do("inputs")

    async def pause(self):
        await self._do("pause")

    async def resume(self):
        await self._do("resume")

    async def end(self):
        await self._do("end")

    async def first_calls(self):
        await self._do("first calls")

    async def sleep(self):
        await self._do("sleep")

    async def burst(self, count, *, check):
        await self._do("burst")
        self.counts.append(count)
        total = count * (self.latency_us + 30)
        noise = self.noise_us * (len(self.counts) * 7 % 10) / 10
        return Burst([self.latency_us] * count, total, 2_000 + total + 300 + noise, 2_000)

    async def call_times_us(self):
        return [self.latency_us + 40]

    def close(self):
        self.closed = True
        self.world.append((self.name, "closed"))


class Bench:
    def __init__(self, monkeypatch, *sides, conditions=()):
        self.world = []
        self.stages = []
        self.inputs = []
        self.settings = {}
        self.sides = {side.name: side for side in sides}
        for side in sides:
            side.world = self.world
        conditions = iter(conditions)
        monkeypatch.setattr(benchmark, "condition", lambda _: next(conditions, QUIET))
        self.devices = Devices([GPU], {GPU.uuid: Lock()})
        self.asleep_when_left = None
        self.benchmark = Benchmark(
            None,
            self.devices,
            GPU,
            l2_bytes=1 << 26,
            ceilings=Ceilings(4e12, {}, FLUSH_US, 0.0),
            effort="quick",
            timeout_s=5,
            timeline=Timeline(self._report),
        )

        async def opened(stack, each, setting, trials, beside):
            self.beside = beside
            self.settings[each.name] = setting
            stack.callback(self.sides[each.name].close)
            return self.sides[each.name]

        monkeypatch.setattr(self.benchmark, "_open", opened)
        count = self.devices.reserved

        @asynccontextmanager
        async def reserved(*memory):
            async with count(*memory):
                yield
            self.world.append(("all", "memory back"))

        monkeypatch.setattr(self.devices, "reserved", reserved)

    def _report(self, stage):
        if stage == LEAVING and self.asleep_when_left is None:
            self.asleep_when_left = {name for name, step in self.world if step == "sleep"}
        self.stages.append(stage)

    async def trials_on(self, place):
        self.world.append(("all", f"trials beside {self.devices.running(place.gpu)}"))
        return TRIALS

    async def times(self, *, tunes=(), built=None, doubted=lambda _: False):
        contenders = [
            Contender(name, side.candidate, tunes=name in tunes) for name, side in self.sides.items()
        ]
        return await self.benchmark.workload(
            Plan(workload=Workload(name="default"), inputs=self.inputs),
            self.trials_on,
            contenders[0],
            contenders[1:],
            built=built or {},
            needs=Needs(1 << 20),
            alpha=0.05,
            doubted=doubted,
        )


def side(name=CANDIDATE, **given):
    return Made([], name, **given)
