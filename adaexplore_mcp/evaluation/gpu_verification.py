"""Judge one candidate on a GPU: compile it on CPU cores first, then run it at the task's own sizes."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio.to_thread

from adaexplore_mcp.errors import TaskError, WorkerLostError
from adaexplore_mcp.evaluation.buffers import DeviceFullError, GpuBuffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import Failure
from adaexplore_mcp.evaluation.compilation import CONFIGURATIONS_ALONE_S, Built, Compilation, CompileReport
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.devices import Gpu, Usage, usage
from adaexplore_mcp.evaluation.gpu_memory import Needs, judging_bytes, making_bytes, trials_bytes
from adaexplore_mcp.evaluation.numerics import NumericsReport, Setting, run_numerics
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.reporting import WorkloadResult
from adaexplore_mcp.evaluation.scheduling import Devices, Place
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.trials import TrialSet

__all__ = ["GpuVerification", "occupants"]

RESERVED_BYTES = 1 << 30  # of the GPU, for the judge and for what others allocate meanwhile
SMALLEST_SHARE = 0.05

TakeGpu = Callable[[Needs], AbstractAsyncContextManager[Place]]
"""Waits for a place on a GPU, given the memory that is needed there."""
GpuTrials = Callable[[Plan, Place], Awaitable[TrialSet]]
"""Makes, or finds, the trials of a workload on a GPU."""
AtOnce = Callable[[WorkloadResult, Place, TrialSet, Built], Awaitable[None]]
"""Goes on with a candidate at the place where it was found right."""


class GpuVerification:
    """The verification of one candidate on one GPU.

    Args:
        pool: Worker processes.
        candidate: What is judged.
        trials_on: Makes its task's trials.
        take: Waits for a place on the GPU.
        devices: Tells who else of ours came to a GPU.
        make_room: Gives back what is kept on a GPU for later.
        keeps_others: Tells whether anything is kept there that is of no use to this candidate.
        needs: Tells how much GPU memory a workload takes.
        target: The GPU as its judge describes it.
        timeout_s: Limit of each stage.
        jobs: Configurations to compile side by side.
        timeline: Told what is being done.
        at_once: What to do at the same place with a candidate that is right; nothing without.
    """

    def __init__(
        self,
        pool: WorkerPool,
        candidate: Candidate,
        trials_on: GpuTrials,
        take: TakeGpu,
        *,
        devices: Devices,
        make_room: Callable[[Gpu], Awaitable[None]],
        keeps_others: Callable[[Gpu], bool],
        needs: Callable[[Plan], Needs],
        target: Mapping[str, Any],
        timeout_s: float,
        jobs: int,
        timeline: Timeline,
        at_once: AtOnce | None = None,
    ) -> None:
        self._pool = pool
        self._at_once = at_once
        self.candidate = candidate
        self._trials_on = trials_on
        self._take = take
        self._timeout_s = timeout_s
        self._timeline = timeline
        self._compilation = Compilation(
            pool,
            candidate,
            target=target,
            timeout_s=timeout_s,
            report=timeline.begin,
            jobs=jobs,
            launchers=True,
            configurations_s=CONFIGURATIONS_ALONE_S,
        )
        self._devices = devices
        self._make_room = make_room
        self._keeps_others = keeps_others
        self._needs = needs
        self._crowded = False
        self.gpu: Gpu | None = None
        self.usage = Usage()
        self.trials: dict[str, TrialSet] = {}
        self.used: list[TrialSet] = []
        self.compiled: dict[str, Built] = {}

    async def workload(self, plan: Plan) -> WorkloadResult:
        """Judge at one workload; try again once where a worker of ours, not the candidate, was lost.

        Raises:
            WorkerError: It was lost twice, or failed.
            TaskError: The reference is at fault.
        """
        self.used = []
        try:
            return await self._once(plan)
        except WorkerLostError:
            await self._compilation.close()
            return await self._once(plan)

    def described(self) -> dict[str, Any]:
        """Return what a receipt says of the GPU, beside its properties."""
        gpu = self.gpu
        if gpu is None:
            return {"used": False}
        return {
            "used": True,
            "label": gpu.label,
            "uuid": gpu.uuid,
            "driver": gpu.driver,
            "free_bytes": self.usage.free_bytes,
            "others": [each._asdict() for each in self.usage.others or ()],
        }

    async def close(self) -> None:
        """End its processes."""
        for built in self.compiled.values():
            built.close()
        self.compiled.clear()
        await self._compilation.close()

    async def _once(self, plan: Plan) -> WorkloadResult:
        built = await self._compilation.at(plan)
        if built.report.decides:
            return WorkloadResult(plan, {}, NumericsReport(), built.report)
        try:
            numerics = await self._run(plan, built, alone=False)
            crowded = self._crowded or (self.gpu is not None and self._keeps_others(self.gpu))
            if numerics.short_of_memory and crowded:
                # It may have been a neighbour that took the memory, or what is kept for one: once more, without any.
                numerics = await self._run(plan, built, alone=True)
        finally:
            self.compiled.pop(plan.workload.name, Built()).close()
            self.compiled[plan.workload.name] = built
        return self._result(plan, numerics, built)

    def _result(self, plan: Plan, numerics: NumericsReport, built: Built) -> WorkloadResult:
        trials = self.trials.get(plan.workload.name)
        return WorkloadResult(
            plan,
            {},
            numerics,
            built.report,
            constant=trials is not None and trials.constant,
            gpu=self.gpu,
            left_out=[] if trials is None else trials.left_out,
            occupants=occupants(self.usage),
        )

    async def _run(self, plan: Plan, built: Built, *, alone: bool) -> NumericsReport:
        """Run it on a GPU, once there is a place for what it needs; `alone`: on the same GPU again, all of it."""
        self._timeline.begin("waiting for the GPU")
        needs = Needs(self.gpu.memory_bytes) if alone and self.gpu is not None else self._needs(plan)
        async with self._take(needs) as place:
            gpu = self.gpu = place.gpu
            beside, arrivals = self._devices.running(gpu) > 1, self._devices.arrivals(gpu)
            if alone:
                await self._make_room(gpu)
            try:
                return await self._placed(plan, place, built)
            finally:
                self._crowded = beside or self._devices.arrivals(gpu) != arrivals

    async def _placed(self, plan: Plan, place: Place, built: Built) -> NumericsReport:
        gpu = place.gpu
        try:
            self._timeline.begin("running the reference")
            trials = await self._trials_on(plan, place)
            self.trials[plan.workload.name] = trials
            with contextlib.ExitStack() as using:
                self.used = [trials]
                using.enter_context(trials.used())  # at once: others may make the cache let go of them
                elsewhere = await self._elsewhere(plan, place)
                if elsewhere is not None:
                    self.used.append(elsewhere)
                    using.enter_context(elsewhere.used())
                self.usage = await anyio.to_thread.run_sync(lambda: usage(gpu, self._pool.pids()))
                numerics = await self._numbers(place, built, trials, elsewhere)
                if self._at_once is not None and numerics.clean:
                    await self._at_once(self._result(plan, numerics, built), place, trials, built)
                return numerics
        except DeviceFullError as error:
            self.usage = await anyio.to_thread.run_sync(lambda: usage(gpu, self._pool.pids()))
            return NumericsReport(failure=self._full(plan, gpu, error))

    async def _elsewhere(self, plan: Plan, place: Place) -> TrialSet | None:
        """Return the first trial at sizes near the task's own, where there is one, and room for it."""
        if plan.elsewhere is None:
            return None
        with contextlib.suppress(TaskError, DeviceFullError, WorkerLostError):  # it is for information
            return await self._trials_on(plan.elsewhere, place)
        return None

    async def _numbers(
        self,
        place: Place,
        built: Built,
        trials: TrialSet,
        elsewhere: TrialSet | None,
    ) -> NumericsReport:
        gpu = place.gpu
        free = self.usage.free_bytes
        share = 1.0 if free is None else (free - RESERVED_BYTES) / gpu.memory_bytes
        setting = Setting(
            GpuBuffers(self._pool, gpu),
            {"memory_share": min(max(share, SMALLEST_SHARE), 1.0), "tuned": built.report.tuned},
            self._timeout_s,
            self._timeline.begin,
            files=built.files,
            measure=self.candidate.policy.library_ops == "forbid"
            or not (built.report.faked and built.report.compiled),
            configurations=_ready(built.report),
            place=place,
        )
        return await run_numerics(setting, self.candidate, trials, elsewhere=elsewhere)

    def _full(self, plan: Plan, gpu: Gpu, error: DeviceFullError) -> Failure:
        """Say what does not fit, and who has the rest."""
        needed = max(making_bytes(plan), judging_bytes(plan)) + trials_bytes(plan, 1)
        message = (
            f"{gpu.label} ({gpu.name}, {gpu.memory_bytes >> 20} MiB): {error}; judging it takes about "
            f"{needed >> 20} MiB (one trial {plan.trial_bytes >> 20})"
        )
        message += f"; on it are {', '.join(found)}" if (found := occupants(self.usage)) else ""
        return Failure(kind="no_room", message=message)


def occupants(used: Usage) -> list[str]:
    """Say in words which processes that are not ours use a GPU, eight at most."""
    return [
        f"process {each.pid}" + ("" if each.used_bytes is None else f" ({each.used_bytes >> 20} MiB)")
        for each in (used.others or ())[:8]
    ]


def _ready(compilation: CompileReport) -> list[int] | None:
    """Return the positions of an autotuner's configurations that were compiled ahead; None if none was tuned.

    The others do not build, or would be compiled one after the other while the candidate holds the GPU.
    """
    if not compilation.tuned:
        return None
    longest = max(compilation.tuned.values(), key=len)
    return [position for position, good in enumerate(longest) if good]
