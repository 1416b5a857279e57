"""See one candidate for its profile: compile it at its task's own sizes and, on a GPU, read the counters of one call."""

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio.to_thread

from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Compilation, CompileReport
from adaexplore_mcp.evaluation.counters import ncu
from adaexplore_mcp.evaluation.counters.counting import Counted, Profiler, Work
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.profiles import Profiled
from adaexplore_mcp.evaluation.profiling import Machine, Seen
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.trials import Attachment, TrialSet
from adaexplore_mcp.evaluation.workers.targets import target as target_of

__all__ = ["ProfileRun"]


@dataclass(frozen=True)
class ProfileRun:
    """One candidate at one workload.

    Args:
        pool: Worker processes.
        devices: Who is on the GPUs.
        candidate: What is looked at.
        plan: Of the workload.
        target: What to compile for, by name; empty for `gpu`.
        gpu: The GPU to compile for and to run on; None for neither.
        timeout_s: Limit of the compilation, and of importing it on the GPU.
        report: Told what is being done.
        jobs: Configurations of an autotuner to compile side by side.
    """

    pool: WorkerPool
    devices: Devices
    candidate: Candidate
    plan: Plan
    target: str
    gpu: Gpu | None
    timeout_s: float
    report: Callable[[str], None]
    jobs: int = 1

    async def compiled(self) -> Profiled:
        """Return what its code and launches show.

        Raises:
            WorkerError: Workers of ours failed.
        """
        async with contextlib.AsyncExitStack() as stack:
            return (await self._compile(stack, packed=False))[0]

    async def counted(
        self,
        trials_on: Callable[[Gpu], Awaitable[TrialSet]],
        needs: Needs,
        uncounted: dict[str, Counted],
        make_room: Callable[[], None],
    ) -> Profiled:
        """Return that, and the counters of one call, where it compiles.

        Args:
            trials_on: Makes inputs for it, which no verdict rests on: what a profiler says may hold them.
            needs: GPU memory that this takes.
            uncounted: By UUID, why no counter can be read on a GPU, as far as that is known; added to.
            make_room: Gives back what is kept on a GPU beyond what may be there.

        Raises:
            TaskError: The task's reference is at fault.
            WorkerError: Workers of ours failed.
        """
        assert self.gpu is not None
        async with contextlib.AsyncExitStack() as stack:
            seen, files = await self._compile(stack, packed=True)
            if not seen.compiled.compiled:
                return seen
            try:
                async with self.devices.use(self.gpu.label, needs=needs, report=self.report):
                    trials = stack.enter_context((await trials_on(self.gpu)).used())
                work = Work(self.candidate, trials, seen.compiled, files, self.timeout_s, self.report)
                counted = await self._alone(self.gpu, work, uncounted, needs, make_room)
            except DeviceFullError as error:
                counted = Counted(problem=f"the GPU has too little memory: {error}")
            return Profiled(seen.compiled, seen.seen, seen.machine, counted, self.gpu)

    async def _alone(
        self,
        gpu: Gpu,
        work: Work,
        uncounted: dict[str, Counted],
        needs: Needs,
        make_room: Callable[[], None],
    ) -> Counted:
        """Read counters, or at least take times, alone on the GPU: the work of other processes would be counted too."""
        profiler = Profiler(self.pool, gpu, await anyio.to_thread.run_sync(ncu.find))
        async with self.devices.alone(gpu, self.report, needs=needs):
            make_room()
            counted = uncounted.get(gpu.uuid) or await profiler.unusable() or await profiler.count(work)
            if counted.ours:
                uncounted[gpu.uuid] = counted
            return await profiler.times(work, counted) if counted.problem else counted

    async def _compile(self, stack: contextlib.AsyncExitStack, *, packed: bool) -> tuple[Profiled, list[int]]:
        """Compile it; return also what was compiled, as files that the stack closes."""
        described: str | Mapping[str, Any] = self.target
        if self.gpu is not None:
            described = await self.pool.properties(self.gpu)
        compilation = Compilation(
            self.pool,
            self.candidate,
            target=described,
            timeout_s=self.timeout_s,
            report=self.report,
            jobs=self.jobs,
            launchers=packed,
        )
        files: list[int] = []
        try:
            report = await compilation.run(
                changes=self.plan.changes,
                init=Attachment(self.plan.init_outline, None),
                inputs=Attachment(self.plan.inputs_outline, None),
                fake=True,
            )
            if packed and report.compiled and (file := await compilation.packed()) is not None:
                stack.callback(os.close, file)
                files.append(file)
        finally:
            await compilation.close()
        known = target_of(described)
        machine = Machine(known.name, known.multiprocessors)
        return Profiled(report, self._seen(report), machine), files

    def _seen(self, report: CompileReport) -> Seen:
        return Seen(self.plan, report.builds, report.facts, report.launch_bytes)
