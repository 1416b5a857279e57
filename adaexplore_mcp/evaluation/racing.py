"""Time a candidate that was found right against its baselines, at every workload of its task's own.

Where its task has one workload, everybody is made ready where the candidate was judged: its trials are there still, and nobody
waits for memory a second time.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Built
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.references import References, again_if_lost
from adaexplore_mcp.evaluation.reporting import WorkloadResult
from adaexplore_mcp.evaluation.scheduling import Devices, Place
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing.ahead import built_ahead
from adaexplore_mcp.evaluation.timing.baselines import Contender
from adaexplore_mcp.evaluation.timing.benchmark import Benchmark, Ready, WorkloadTimes
from adaexplore_mcp.evaluation.timing.clock import Ceilings
from adaexplore_mcp.evaluation.timing.intervals import ALPHA
from adaexplore_mcp.evaluation.timing.report import Timed, doubted
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE
from adaexplore_mcp.evaluation.trials import TrialSet
from adaexplore_mcp.models import Effort, Outcome

__all__ = ["Race", "Racing"]

CeilingsOf = Callable[[Gpu, Callable[[str], None]], Awaitable[Ceilings]]


@dataclass(frozen=True)
class Race:
    """What a candidate is timed against once it is right.

    Args:
        baselines: In the order in which they are reported.
        effort: How narrow the intervals are to be.
    """

    baselines: Sequence[Contender]
    effort: Effort


class Racing:
    """One race on one GPU.

    Args:
        pool: Worker processes.
        devices: Who is on the GPUs.
        references: Knows the task.
        definition: The task.
        race: Against what.
        candidate: What is timed.
        known_ceilings: What GPUs are known to do, by UUID.
        ceilings_of: Finds out what one can do, alone on it.
        timeout_s: Limit of each stage of each process.
        jobs: Configurations to compile side by side.
        timeline: Told what is being done.
    """

    def __init__(
        self,
        pool: WorkerPool,
        devices: Devices,
        references: References,
        *,
        definition: Definition,
        race: Race,
        candidate: Candidate,
        known_ceilings: Mapping[str, Ceilings],
        ceilings_of: CeilingsOf,
        timeout_s: float,
        jobs: int,
        timeline: Timeline,
    ) -> None:
        self._pool = pool
        self._devices = devices
        self._references = references
        self._definition = definition
        self._race = race
        self._candidate = candidate
        self._known_ceilings = known_ceilings
        self._ceilings_of = ceilings_of
        self._timeout_s = timeout_s
        self._jobs = jobs
        self._timeline = timeline
        self._ready: Ready | None = None

    @property
    def contenders(self) -> int:
        """How many of them are on the GPU side by side."""
        return 1 + len(self._race.baselines)

    async def begin(self, plan: Plan, place: Place, trials: TrialSet, built: Built, verdict: Outcome) -> None:
        """Make everybody ready at a place on the GPU that has memory for all of them; left for later where that does not work.

        Args:
            plan: Of the only workload.
            place: Where the candidate was judged.
            trials: With which; in use.
            built: What was compiled of it.
            verdict: What was found.
        """
        # Ceilings are measured alone, where a place of ours would be in the way; compiling would keep it for nothing.
        if place.gpu.uuid not in self._known_ceilings or any(
            each.tunes_triton for each in self._race.baselines
        ):
            return
        await self.close()  # of a try before, which a lost worker ended
        benchmark = await self._benchmark(place.gpu, self._known_ceilings[place.gpu.uuid])
        with contextlib.suppress(DeviceFullError, WorkerLostError):
            self._ready = await benchmark.prepare(
                plan,
                trials,
                _contender(self._candidate, verdict),
                self._race.baselines,
                built={CANDIDATE: built},
                needs=self._needs(plan),
                place=place,
            )

    async def times(
        self,
        gpu: Gpu,
        compiled: Mapping[str, Built],
        results: Sequence[WorkloadResult],
        verdict: Outcome,
    ) -> Timed:
        """Return what everybody took; the result of a workload at which a timed call was wrong says so.

        Args:
            gpu: Where the candidate was judged.
            compiled: What was compiled of it, by workload.
            results: What was found at each.
            verdict: What all that means.

        Raises:
            WorkerError: Workers of ours failed, or the GPU has too little memory to find out what it can do.
            TaskError: Inputs had to be made anew, and the reference is at fault.
        """
        try:
            ceilings = await self._ceilings_of(gpu, self._timeline.begin)
        except DeviceFullError as error:
            msg = f"{gpu.label} has too little memory to measure what it can do: {error}."
            raise WorkerError(msg) from error
        benchmark = await self._benchmark(gpu, ceilings)
        properties = await self._pool.properties(gpu)
        candidate = _contender(self._candidate, verdict)
        own = [result for result in results if not result.plan.hidden]
        timed = Timed(gpu, self._race.effort, ceilings, [each.name for each in self._race.baselines])
        for result in own:
            plan = result.plan
            async with built_ahead(
                self._pool,
                self._race.baselines,
                plan,
                target=properties,
                timeout_s=self._timeout_s,
                jobs=self._jobs,
                report=self._timeline.begin,
            ) as others:
                timing = partial(
                    benchmark.workload,
                    plan,
                    partial(self._references.gpu_trials, self._definition, plan),
                    candidate,
                    self._race.baselines,
                    built={CANDIDATE: compiled[plan.workload.name], **others},
                    alpha=ALPHA / len(own),
                    doubted=partial(doubted, self._definition, plan, ceilings),
                )
                times = await self._with_room(gpu, plan, timing)
            timed.workloads[plan.workload.name] = plan, times
            if not times.seen.clean:
                result.numerics = times.seen
                break
        return timed

    async def close(self) -> None:
        """End whoever is ready."""
        ready, self._ready = self._ready, None
        if ready is not None:
            await ready.aclose()

    async def _with_room(
        self, gpu: Gpu, plan: Plan, timing: Callable[..., Awaitable[WorkloadTimes]]
    ) -> WorkloadTimes:
        """Time them; without neighbours where these may have taken the memory."""

        async def timed(needs: Needs) -> WorkloadTimes:
            ready, self._ready = self._ready, None  # once: a lost worker takes them along
            return await timing(needs=needs, ready=ready)

        try:
            return await again_if_lost(partial(timed, self._needs(plan)))
        except DeviceFullError:
            await self._references.make_room(gpu)
        try:
            return await again_if_lost(partial(timed, Needs(gpu.memory_bytes)))
        except DeviceFullError as error:  # it is right all the same
            why = f"the GPU has too little memory for all that are timed side by side ({error})"
            names = [each.name for each in self._race.baselines]
            return WorkloadTimes(plan.workload.name, failed=dict.fromkeys(names, why))

    def _needs(self, plan: Plan) -> Needs:
        return self._references.timing_needs(self._definition, plan, self.contenders)

    async def _benchmark(self, gpu: Gpu, ceilings: Ceilings) -> Benchmark:
        properties = await self._pool.properties(gpu)
        return Benchmark(
            self._pool,
            self._devices,
            gpu,
            l2_bytes=int(properties["l2_bytes"]),
            ceilings=ceilings,
            effort=self._race.effort,
            timeout_s=self._timeout_s,
            timeline=self._timeline,
        )


def _contender(candidate: Candidate, verdict: Outcome) -> Contender:
    return Contender(CANDIDATE, candidate, tunes=bool(verdict.facts and verdict.facts.autotuned))
