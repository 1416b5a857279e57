"""Judge candidates: on a GPU, or without one by Triton's interpreter and its compiler.

The one class that the services use; below it, each step has its module: `planning` and `preparation` (the task), `verification` and
`gpu_verification` (the candidate), `verdict` (what it all means).
"""

import contextlib
import hashlib
import itertools
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adaexplore_mcp.errors import TaskError, WorkerLostError
from adaexplore_mcp.evaluation.buffers import Buffers, DeviceFullError, GpuBuffers, HostBuffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes, tensor_bytes
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_verification import GpuVerification, bytes_needed
from adaexplore_mcp.evaluation.hidden import HIDDEN, draw, neighbours
from adaexplore_mcp.evaluation.judging import audit
from adaexplore_mcp.evaluation.kept import KeptTrials
from adaexplore_mcp.evaluation.planning import collect, examine
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.preparation import Between, make_gpu_trials, make_trials, trial_count
from adaexplore_mcp.evaluation.profile_run import ProfileRun
from adaexplore_mcp.evaluation.profiles import Profiled
from adaexplore_mcp.evaluation.reporting import Environment, WorkloadResult
from adaexplore_mcp.evaluation.scheduling import Devices, Place
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing.baselines import Contender
from adaexplore_mcp.evaluation.timing.benchmark import Benchmark
from adaexplore_mcp.evaluation.timing.clock import Ceilings
from adaexplore_mcp.evaluation.timing.intervals import ALPHA
from adaexplore_mcp.evaluation.timing.report import Timed, with_times
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE
from adaexplore_mcp.evaluation.trials import Audit, TrialSet
from adaexplore_mcp.evaluation.verdict import decide
from adaexplore_mcp.evaluation.verification import Verification
from adaexplore_mcp.models import Effort, Outcome, Target, Workload

if TYPE_CHECKING:
    from adaexplore_mcp.evaluation.counters.counting import Counted

__all__ = ["CPU", "Evaluation", "Evaluator", "Race"]

DEFAULT_WORKLOAD = "default"
HIDDEN_USES = 20  # after this many candidates a task's hidden workloads are drawn anew
TOLD_FACTOR = 8  # trials are used no more once an eighth of an output may have been told
NEIGHBOURS = 6  # sizes that are tried for one near a task's own
KEPT_SHARE = 0.3  # of a GPU's memory: trials kept there
CPU = "cpu"
GOOD = frozenset({"correct", "plausible"})

T = TypeVar("T")
Report = Callable[[str], None]
_Judged = tuple[list[WorkloadResult], dict[str, TrialSet], Environment, dict[str, Any], Timed | None]
"""What a candidate showed, by workload the trials used, the machine, fields of the receipt, and its times."""


@dataclass(frozen=True)
class Race:
    """What a candidate is timed against once it is right.

    Args:
        baselines: In the order in which they are reported.
        effort: How narrow the intervals are to be.
        ceilings: What GPUs can do, by UUID, as far as it is known.
    """

    baselines: Sequence[Contender]
    effort: Effort
    ceilings: Mapping[str, Ceilings] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """An outcome and what is to be kept beside it.

    Args:
        outcome: As the caller gets it; ids are added when it is stored.
        receipt: Enough to run it again, and its timeline.
        texts: Long texts to keep aside: (kind, text).
    """

    outcome: Outcome
    receipt: dict[str, Any]
    texts: list[tuple[str, str]] = field(default_factory=list)


class Evaluator:
    """Judges candidates on this machine.

    Args:
        pool: Worker processes.
        target: What to compile for unless a request says otherwise, where there is no GPU.
        memory_bytes: What a process may take.
        devices: The GPUs, and who is on them.
        jobs: Configurations of an autotuner to compile side by side.
    """

    def __init__(
        self,
        pool: WorkerPool,
        target: Target,
        memory_bytes: int,
        devices: Devices | None = None,
        jobs: int = 1,
    ) -> None:
        self.pool = pool
        self.devices = devices or Devices([], {})
        self._target = target
        self._memory_bytes = memory_bytes
        self._jobs = jobs
        self._lowered: dict[str, Plan] = {}
        self._hidden: dict[str, tuple[list[Plan], int]] = {}
        self._chance = random.SystemRandom()
        self._ceilings: dict[str, Ceilings] = {}
        self._uncounted: dict[str, Counted] = {}
        self._kept = KeptTrials({gpu.uuid: int(KEPT_SHARE * gpu.memory_bytes) for gpu in self.devices.gpus})

    # --- tasks

    async def collect(self, path: Path, import_root: Path | None) -> tuple[dict[str, str], str]:
        """Return the files that a task in a user's package consists of, and the name of its module.

        Raises:
            TaskError: They cannot be taken.
        """
        return await collect(self.pool, path, import_root)

    async def examine(self, definition: Definition, report: Report) -> list[Plan]:
        """Find out how each workload of a task is judged here; refuse what is no task.

        Raises:
            TaskError: The reference is at fault, or cannot be run on this machine.
        """
        plans = []
        for workload in definition.workloads or [Workload(name=DEFAULT_WORKLOAD)]:
            report(f"examining workload {workload.name}")
            plans.append(await self._plan(definition, workload, report))
        if not definition.vary:
            plans[0] = plans[0].model_copy(update={"elsewhere": await self._elsewhere(definition, plans[0])})
        await self._hidden_plans(
            definition, plans, report
        )  # a range at which the reference fails shows at once
        return plans

    async def _plan(self, definition: Definition, workload: Workload, report: Report) -> Plan:
        """Find out how one workload is judged here.

        Raises:
            TaskError: The reference is at fault.
        """
        plan = await _again_if_lost(
            partial(
                examine,
                self.pool,
                definition,
                workload,
                target=self._target,
                memory_bytes=self._memory_bytes,
                lower=not self.devices.gpus,
            )
        )
        trials, audited = await self._audited_trials(definition, plan, report)
        undeclared = set(trials.mutated) - set(definition.mutates)
        if undeclared and definition.mutates:
            names = ", ".join(sorted(undeclared))
            msg = f"The reference also changes {names} in place, which `mutates` does not name."
            raise TaskError(msg, f"Register it with mutates={sorted({*definition.mutates, *undeclared})}.")
        return plan.model_copy(
            update={
                "mutates": trials.mutated,
                # What is changed in place is written too.
                "bytes": plan.bytes
                + sum(tensor_bytes(each) for each in plan.inputs if each.name in trials.mutated),
                "constant": trials.constant,
                **asdict(audited),
                "independent": trials.independent,
                "fixed": trials.fixed,
                "not_wide": trials.not_wide,
            }
        )

    async def _elsewhere(self, definition: Definition, plan: Plan) -> Plan | None:
        """Return the plan of a task at sizes near its own, at which its reference works, best with the same parameters."""
        if plan.reduced or plan.values_needed:
            return None
        found = None
        for workload in itertools.islice(neighbours(plan.constants, plan.workload), NEIGHBOURS):
            try:
                other = await examine(
                    self.pool,
                    definition,
                    workload,
                    target=self._target,
                    memory_bytes=self._memory_bytes,
                    lower=False,
                )
            except TaskError:  # sizes that do not go together
                continue
            usable = other.inputs != plan.inputs and self._fits_beside(other, plan)
            if usable and other.parameters == plan.parameters:
                return other.model_copy(update={"once": True})
            if usable and found is None:
                found = other.model_copy(update={"once": True})
        return found

    def _fits_beside(self, other: Plan, plan: Plan) -> bool:
        """Tell whether a trial at other sizes can be kept beside a task's own, and computed here."""
        gpus = self.devices.gpus
        if not gpus:
            return not other.too_large
        kept = trial_count(plan, gpus[0]) * plan.trial_bytes + other.trial_bytes
        return kept < KEPT_SHARE * min(gpu.memory_bytes for gpu in gpus)

    async def _hidden_plans(
        self, definition: Definition, plans: Sequence[Plan], report: Report
    ) -> list[Plan]:
        """Return the plans of hidden workloads; drawn anew after some candidates, and after one that was told of them.

        Raises:
            TaskError: The reference fails at sizes that its own range allows.
        """
        unknown = set(definition.vary) - set(plans[0].constants)
        if not definition.vary or unknown:  # which registration refuses by name
            return []
        known, uses = self._hidden.get(definition.digest, ([], 0))
        if known and uses < HIDDEN_USES:
            self._hidden[definition.digest] = known, uses + 1
            return known
        drawn = []
        for number in range(1, HIDDEN + 1):
            workload = draw(definition.vary, plans[0].workload, number, self._chance)
            report(f"examining {workload.name}")
            try:
                plan = await self._plan(definition, workload, report)
                drawn.append(plan.model_copy(update={"hidden": True}))
            except TaskError as error:
                msg = f"At {_sizes(workload)}, which vary allows: {error.problem}"
                raise TaskError(msg, "Narrow the range in vary, or mend the reference there.") from error
        self._hidden[definition.digest] = drawn, 1
        return drawn

    async def _audited_trials(
        self, definition: Definition, plan: Plan, report: Report
    ) -> tuple[TrialSet, Audit]:
        """Return trials of a task, on the kind of machine that candidates will be judged on, and what the judge sees in them.

        Raises:
            TaskError: There is too little memory for them.
        """
        if not self.devices.gpus:
            trials = await self._trials(definition, plan.workload, plan.edits)
            return trials, await self._audit(HostBuffers(self.pool), definition, trials)
        for needed in (self._needs(definition, plan), max(gpu.memory_bytes for gpu in self.devices.gpus)):
            try:
                async with self.devices.use(bytes_needed=needed, report=report) as place:
                    trials = await self._gpu_trials(definition, plan, place.gpu, place.give_way)
                    return trials, await self._audit(GpuBuffers(self.pool, place.gpu), definition, trials)
            except DeviceFullError as error:  # once more, without neighbours
                full = error
        msg = f"The GPU has too little memory for this task: {full}; one trial takes {plan.trial_bytes >> 20} MiB."
        raise TaskError(msg, "Free memory of the GPU, or register smaller sizes.") from full

    @staticmethod
    async def _audit(buffers: Buffers, definition: Definition, trials: TrialSet) -> Audit:
        with trials.used():
            return await audit(buffers, trials.trials[0], definition.policy, trials.accumulation)

    def _needs(self, definition: Definition, plan: Plan) -> int:
        """Return the GPU memory that a workload takes, beside the trials that are kept."""
        gpus = self.devices.gpus
        made = any(_on_gpu(definition, plan, gpu) in self._kept for gpu in gpus)
        return bytes_needed(plan, 0 if made else trial_count(plan, gpus[0]))

    async def _trials(
        self, definition: Definition, workload: Workload, edits: Sizes, *, once: bool = False
    ) -> TrialSet:
        """Return the trials of a task at some sizes, in memory files, from those kept where possible."""
        most = {"most": 1} if once else {}
        make = partial(
            _again_if_lost,
            partial(make_trials, self.pool, definition, workload, edits, target=self._target, **most),
        )
        return await self._kept.get(
            f"{definition.operation} {workload.model_dump_json()} {sorted(edits.items())}", make
        )

    async def _trials_elsewhere(self, definition: Definition, plan: Plan) -> TrialSet | None:
        """Return the first trial of a task at sizes near its own, where there is one."""
        if plan.elsewhere is None or plan.elsewhere.too_large:
            return None
        with contextlib.suppress(TaskError):  # it is for information
            return await self._trials(definition, plan.elsewhere.workload, {}, once=True)
        return None

    async def _gpu_trials(
        self, definition: Definition, plan: Plan, gpu: Gpu, between: Between | None = None
    ) -> TrialSet:
        """Return the trials of a workload on a GPU, from those kept where possible."""
        make = partial(_again_if_lost, partial(make_gpu_trials, self.pool, definition, plan, gpu, between))
        try:
            return await self._kept.get(_on_gpu(definition, plan, gpu), make)
        except DeviceFullError:
            if plan.once:
                raise
            self._kept.forget_gpu(gpu.uuid)
            return await self._kept.get(_on_gpu(definition, plan, gpu), make)

    async def _make_room(self, gpu: Gpu) -> None:
        """Give back what is kept on a GPU for later."""
        self._kept.forget_gpu(gpu.uuid)
        await self.pool.judge({"op": "trim"}, [], gpu=gpu)

    # --- candidates

    async def verify(
        self,
        definition: Definition,
        plans: Sequence[Plan],
        source: bytes,
        *,
        task_id: str,
        target: Target | None = None,
        device: str = "",
        timeout_s: float,
        report: Report,
        race: Race | None = None,
    ) -> Evaluation:
        """Judge one candidate over the workloads of a task, until one fails.

        Args:
            definition: The task.
            plans: As `examine` made them on this machine.
            source: The candidate, any bytes.
            task_id: For the outcome.
            target: What to compile for, without a GPU; the default otherwise.
            device: A GPU's label, index or UUID; cpu for none; empty for any, unless there is none or a target is given.
            timeout_s: Limit of each stage, in seconds.
            report: Told what is being done.
            race: Time it against these once it is right; on a GPU only.

        Raises:
            RequestError: There is no such GPU.
            TaskError: The reference is at fault.
            WorkerError: Workers of ours failed, twice.
        """
        on_gpu = bool(device and device != CPU) or (not device and not target and bool(self.devices.gpus))
        timeline = Timeline(report)
        candidate = Candidate(source, definition.format, definition.candidate_entry, definition.policy)
        with contextlib.suppress(TaskError):  # of sizes that were not tried before: no candidate is to blame
            plans = [*plans, *await self._hidden_plans(definition, plans, timeline.begin)]
        judged = (
            self._verify_on_gpu(
                definition, plans, candidate, device, timeout_s=timeout_s, timeline=timeline, race=race
            )
            if on_gpu
            else self._verify_without(
                definition, plans, candidate, target or self._target, timeout_s=timeout_s, timeline=timeline
            )
        )
        results, trials, environment, receipt, timed = await judged
        workers = await self.pool.workers()
        outcome = decide(definition, results, environment, task_id=task_id)
        if timed is not None:
            outcome = with_times(outcome, definition, timed)
            receipt["timing"] = timed.to_wire()
        seconds = {**outcome.seconds, "total": round(timeline.seconds, 3)}
        outcome = outcome.model_copy(update={"seconds": seconds})
        if outcome.status not in GOOD and results[-1].plan.hidden:
            sizes = _sizes(results[-1].plan.workload)
            told = f"{outcome.summary} This is at {sizes}, a hidden workload within the task's vary."
            outcome = outcome.model_copy(update={"summary": told})
        if any(result.plan.hidden and (_texts(result) or not result.numerics.clean) for result in results):
            self._hidden.pop(definition.digest, None)  # now they are known, or could be
        receipt |= {
            "task": definition.digest,
            "candidate_sha256": hashlib.sha256(source).hexdigest(),
            "policy": definition.policy.to_wire(),
            "target": environment.target,
            "timeout_s": timeout_s,
            "versions": dict(workers.versions),
            "isolation": environment.isolation,
            "layers": dict(workers.layers.state),
            "workloads": {
                result.name: _seeds(trials[result.name], result.plan)
                for result in results
                if result.name in trials
            },
            "seconds": seconds,
            "timeline": timeline.to_wire(),
        }
        return Evaluation(outcome, receipt, _texts(results[-1]))

    def spend_trials(self, ids: Collection[str]) -> None:
        """Draw other trials for the candidates that come next: somebody was told the seeds of these."""
        self._kept.spend(frozenset(ids))

    async def _environment(self, target: str) -> Environment:
        """Say what every outcome says about the machine."""
        workers = await self.pool.workers()
        layers = ", ".join(name for name in workers.layers.ORDER if workers.layers.on(name))
        return Environment(
            versions={
                name: workers.versions[name] for name in ("torch", "triton") if name in workers.versions
            },
            isolation=f"{workers.layers.level} ({layers})" if layers else workers.layers.level,
            target=target,
        )

    async def _verify_without(
        self,
        definition: Definition,
        plans: Sequence[Plan],
        candidate: Candidate,
        target: Target,
        *,
        timeout_s: float,
        timeline: Timeline,
    ) -> "_Judged":
        """Judge by the interpreter and the compiler."""
        environment = await self._environment(target)
        results: list[WorkloadResult] = []
        used: dict[str, TrialSet] = {}
        larger: list[TrialSet] = []

        async def trials_at(workload: Workload, edits: Sizes) -> TrialSet:
            larger.append(await self._trials(definition, workload, edits))
            return larger[-1]

        verification = Verification(
            self.pool,
            candidate,
            trials_at,
            target=target,
            timeout_s=timeout_s,
            report=timeline.begin,
        )
        try:
            for each in plans:
                plan = await self._for_cpu(definition, each)
                trials = used[plan.workload.name] = await self._trials(definition, plan.workload, plan.edits)
                with contextlib.ExitStack() as using:
                    using.enter_context(trials.used())
                    elsewhere = await self._trials_elsewhere(definition, plan)
                    if elsewhere is not None:
                        using.enter_context(elsewhere.used())
                    results.append(await verification.workload(plan, trials, elsewhere))
                _spend([each for each in (trials, elsewhere, *larger) if each is not None], results[-1])
                larger.clear()
                if decide(definition, results, environment, task_id="").status not in GOOD:
                    break
        finally:
            await verification.close()
        return results, used, environment, {}, None

    async def _for_cpu(self, definition: Definition, plan: Plan) -> Plan:
        """Return a plan with sizes that a CPU can compute; one made on a machine with a GPU has none."""
        if plan.lowering_tried or not plan.too_large:
            return plan
        key = f"{definition.operation} {plan.workload.model_dump_json()}"
        if key not in self._lowered:
            made = await examine(
                self.pool,
                definition,
                plan.workload,
                target=self._target,
                memory_bytes=self._memory_bytes,
                lower=True,
            )
            kept = {
                "mutates": plan.mutates,
                "bytes": plan.bytes,
                "constant": plan.constant,
                "fixed": plan.fixed,
            }
            self._lowered[key] = made.model_copy(update=kept)
        return self._lowered[key]

    async def _verify_on_gpu(
        self,
        definition: Definition,
        plans: Sequence[Plan],
        candidate: Candidate,
        device: str,
        *,
        timeout_s: float,
        timeline: Timeline,
        race: Race | None = None,
    ) -> "_Judged":
        """Judge on a GPU; what does not compile never reaches it."""
        timed: Timed | None = None
        if not device and len({(gpu.name, gpu.capability) for gpu in self.devices.gpus}) > 1:
            device = self.devices.gpus[0].label  # what is compiled for one kind is of no use on another
        first = self.devices.find(device)
        properties = await self.pool.properties(first)
        results: list[WorkloadResult] = []

        async def trials_on(plan: Plan, place: Place) -> TrialSet:
            return await self._gpu_trials(definition, plan, place.gpu, place.give_way)

        def take(needed: int) -> AbstractAsyncContextManager[Place]:
            # The workloads that follow stay where the first was judged.
            pinned = verification.gpu.label if verification.gpu is not None else device
            return self.devices.use(pinned, bytes_needed=needed, report=timeline.begin)

        verification = GpuVerification(
            self.pool,
            candidate,
            trials_on,
            take,
            devices=self.devices,
            make_room=self._make_room,
            needs=partial(self._needs, definition),
            target=properties,
            timeout_s=timeout_s,
            jobs=self._jobs,
            timeline=timeline,
        )
        environment = await self._environment(str(properties["name"]))
        try:
            for plan in plans:
                results.append(await verification.workload(plan))
                _spend(verification.used, results[-1])
                if (verdict := decide(definition, results, environment, task_id="")).status not in GOOD:
                    break
            else:
                if race is not None:
                    timed = await self._race(
                        definition,
                        race,
                        verification,
                        results,
                        verdict,
                        timeout_s=timeout_s,
                        timeline=timeline,
                    )
        finally:
            await verification.close()
        receipt = {"device": {**properties, **verification.described()}}
        return results, verification.trials, environment, receipt, timed

    async def _race(
        self,
        definition: Definition,
        race: Race,
        verification: GpuVerification,
        results: list[WorkloadResult],
        verdict: Outcome,
        *,
        timeout_s: float,
        timeline: Timeline,
    ) -> Timed:
        """Time a candidate that is right at every workload of its task's own, on the GPU where that was found out."""
        gpu = verification.gpu
        assert gpu is not None
        ceilings = race.ceilings.get(gpu.uuid) or await self.ceilings(gpu, timeline.begin)
        tunes = bool(verdict.facts and verdict.facts.autotuned)
        candidate = Contender(CANDIDATE, verification.candidate, tunes=tunes)
        properties = await self.pool.properties(gpu)
        benchmark = Benchmark(
            self.pool,
            self.devices,
            gpu,
            l2_bytes=int(properties["l2_bytes"]),
            flush_us=ceilings.flush_us,
            copy_bytes_per_s=ceilings.copy_bytes_per_s,
            effort=race.effort,
            timeout_s=timeout_s,
            timeline=timeline,
        )
        own = [result for result in results if not result.plan.hidden]
        timed = Timed(gpu, race.effort, ceilings, [each.name for each in race.baselines])
        for result in own:
            plan = result.plan
            trials = await self._gpu_trials(definition, plan, gpu)
            compilation, compiled = verification.compiled[plan.workload.name]
            with trials.used():
                times = await benchmark.workload(
                    plan,
                    trials,
                    candidate,
                    race.baselines,
                    compilation=compilation,
                    compiled=compiled,
                    needed_bytes=bytes_needed(plan, 0),
                    alpha=ALPHA / len(own),
                )
            timed.workloads[plan.workload.name] = plan, times
            if not times.seen.clean:
                result.numerics = times.seen
                break
        return timed

    def measured_ceilings(self) -> dict[str, Ceilings]:
        """Return what was measured in this process, by UUID."""
        return dict(self._ceilings)

    async def ceilings(self, gpu: Gpu, report: Report) -> Ceilings:
        """Measure what a GPU can do, alone on it.

        Raises:
            WorkerError: Its judge failed.
            DeviceFullError: It has too little memory.
        """
        if gpu.uuid not in self._ceilings:
            properties = await self.pool.properties(gpu)
            async with self.devices.alone(gpu, report):
                report("measuring what the GPU can do")
                body = {"op": "ceilings", "l2_bytes": int(properties["l2_bytes"])}
                found = (await GpuBuffers(self.pool, gpu).judge(body, [])).body
            self._ceilings[gpu.uuid] = Ceilings(**found)
        return self._ceilings[gpu.uuid]

    async def profile(
        self,
        definition: Definition,
        plan: Plan,
        source: bytes,
        *,
        target: Target | None,
        timeout_s: float,
        report: Report,
        count: bool = False,
    ) -> Profiled:
        """Compile one candidate at one workload's own sizes, and return what its code and launches show.

        Args:
            definition: The task.
            plan: Of the workload.
            source: The candidate.
            target: What to compile for; the GPU that is used, or the default, otherwise.
            timeout_s: Limit of the compilation, and of importing it on the GPU.
            report: Told what is being done.
            count: Read the counters of one call too, where it compiles for a GPU that is used.

        Raises:
            TaskError: The task's reference is at fault.
            WorkerError: Workers of ours failed.
        """
        gpu = self.devices.gpus[0] if target is None and self.devices.gpus else None
        run = ProfileRun(
            self.pool,
            self.devices,
            Candidate(source, definition.format, definition.candidate_entry, definition.policy),
            plan,
            target or self._target,
            gpu,
            timeout_s,
            report,
            self._jobs,
        )
        if gpu is None or not count:
            return await run.compiled()

        async def trials_on(gpu: Gpu) -> TrialSet:
            once = plan.model_copy(update={"once": True})
            make = partial(_again_if_lost, partial(make_gpu_trials, self.pool, definition, once, gpu))
            return await self._kept.get(f"{_on_gpu(definition, plan, gpu)} to profile", make)

        return await run.counted(trials_on, bytes_needed(plan, 1), self._uncounted)

    # --- life

    async def release_idle(self, after_s: float) -> None:
        """End the workers and close all files if nobody has used them for `after_s` seconds."""
        if await self.pool.release_idle(after_s):
            self.close_files()

    async def aclose(self) -> None:
        """End all workers and close all files."""
        self.close_files()
        await self.pool.aclose()

    def close_files(self) -> None:
        """Close the files of all kept trials."""
        self._kept.close()


def _sizes(workload: Workload) -> str:
    """Return a workload's sizes in words."""
    return ", ".join(f"{name}={value}" for name, value in workload.sizes.items())


def _on_gpu(definition: Definition, plan: Plan, gpu: Gpu) -> str:
    """Return what tells the trials of a workload on a GPU from all others."""
    return f"{definition.operation} {plan.workload.model_dump_json()} {gpu.uuid}"


async def _again_if_lost(work: Callable[[], Awaitable[T]]) -> T:
    """Do something once more where a worker of ours was lost on the way."""
    try:
        return await work()
    except WorkerLostError:
        return await work()


def _spend(used: Sequence[TrialSet], result: WorkloadResult) -> None:
    """Let trials be used no more of which a candidate may have told what they are.

    Args:
        used: All that it was called with at one workload: at its own sizes, lowered ones, larger ones, others.
        result: What is told of it: what it printed and raised can be read, and could hold inputs.
    """
    looks = [each for each in (result.first_look, result.numerics, result.larger) if each is not None]
    spoke = bool(_texts(result)) or any(look.failure is not None or look.elsewhere for look in looks)
    told = [look.mismatch for look in looks if look.mismatch is not None]
    for trials in used:
        trials.spent |= spoke
        # One element of an output: of a scalar, all there is.
        trials.told += sum(mismatch.evidence.get("expected") is not None for mismatch in told)
        trials.spent |= bool(trials.told) and TOLD_FACTOR * trials.told >= trials.smallest_output


def _seeds(trials: TrialSet, plan: Plan) -> dict[str, Any]:
    return {
        "trials": trials.id,
        "edits": {} if plan.hidden else plan.edits,
        "construct": [trials.construct_seed, trials.other_seed],
        "inputs": {trial.name: trial.seed for trial in trials.trials},
    }


def _texts(result: WorkloadResult) -> list[tuple[str, str]]:
    """Return what is worth reading in full: tracebacks, and what the candidate printed."""
    texts = []
    for failure in (result.numerics.failure, result.compilation.failure):
        if failure is not None and failure.traceback:
            texts.append(("traceback", failure.traceback))
            break
    for name, stream in (
        ("stdout", result.numerics.report.stdout),
        ("stderr", result.numerics.report.stderr),
    ):
        with contextlib.suppress(KeyError):
            head, tail, total = stream["head"], stream["tail"], stream["total"]
            cut = total - len(head.encode()) - len(tail.encode())
            middle = f"\n… {cut} bytes left out …\n" if cut > 0 else ""
            if total:
                texts.append((name, f"{head}{middle}{tail}"))
    return texts
