"""Judge candidates: on a GPU, or without one by Triton's interpreter and its compiler.

The one class that the services use; below it, each step has its module: `references` (the task), `verification` and
`gpu_verification` (the candidate), `timing`, `verdict` (what it all means).
"""

import contextlib
import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.buffers import GpuBuffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Built
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import Needs, judging_bytes, making_bytes, trials_bytes
from adaexplore_mcp.evaluation.gpu_verification import GpuVerification
from adaexplore_mcp.evaluation.planning import collect
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.profile_run import ProfileRun
from adaexplore_mcp.evaluation.profiles import Profiled
from adaexplore_mcp.evaluation.racing import Race, Racing
from adaexplore_mcp.evaluation.references import References, sizes_in_words
from adaexplore_mcp.evaluation.reporting import Environment, WorkloadResult
from adaexplore_mcp.evaluation.scheduling import Devices, Place
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing.clock import Ceilings
from adaexplore_mcp.evaluation.timing.report import Timed, with_times
from adaexplore_mcp.evaluation.trials import TrialSet
from adaexplore_mcp.evaluation.verdict import decide
from adaexplore_mcp.evaluation.verification import Verification
from adaexplore_mcp.models import Outcome, Target, Workload

if TYPE_CHECKING:
    from adaexplore_mcp.evaluation.counters.counting import Counted

__all__ = ["CPU", "Evaluation", "Evaluator", "Race"]

TOLD_FACTOR = 8  # trials are used no more once an eighth of an output may have been told
CPU = "cpu"
CEILINGS_BYTES = 4 << 30  # what measuring a GPU takes: copies of 1 GiB, matrices of 256 MiB, and cuBLAS
GOOD = frozenset({"correct", "plausible"})

Report = Callable[[str], None]
_Judged = tuple[list[WorkloadResult], dict[str, TrialSet], Environment, dict[str, Any], Timed | None]
"""What a candidate showed, by workload the trials used, the machine, fields of the receipt, and its times."""


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

    `known_ceilings` holds what GPUs can do, by UUID: what was measured, and what its user put there.
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
        self._jobs = jobs
        self.known_ceilings: dict[str, Ceilings] = {}
        self._uncounted: dict[str, Counted] = {}
        self.references = References(pool, target, memory_bytes, self.devices)

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
        return await self.references.examine(definition, report)

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
        on_gpu = self.uses_gpu(device, target)
        timeline = Timeline(report)
        candidate = Candidate(source, definition.format, definition.candidate_entry, definition.policy)
        with contextlib.suppress(TaskError):  # of sizes that were not tried before: no candidate is to blame
            plans = [*plans, *await self.references.hidden_plans(definition, plans, timeline.begin)]
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
            sizes = sizes_in_words(results[-1].plan.workload)
            told = f"{outcome.summary} This is at {sizes}, a hidden workload within the task's vary."
            outcome = outcome.model_copy(update={"summary": told})
        if any(result.plan.hidden and (_texts(result) or not result.numerics.clean) for result in results):
            self.references.forget_hidden(definition)
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
            "began_at": timeline.began_at.isoformat(timespec="milliseconds"),
            "timeline": timeline.to_wire(),
        }
        return Evaluation(outcome, receipt, _texts(results[-1]))

    def uses_gpu(self, device: str, target: Target | None) -> bool:
        """Tell whether `verify` judges on a GPU when it is asked for this device and target."""
        return bool(device and device != CPU) or (not device and not target and bool(self.devices.gpus))

    def spend_trials(self, ids: Collection[str]) -> None:
        """Draw other trials for the candidates that come next: somebody was told the seeds of these."""
        self.references.spend(ids)

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

        async def trials_at(workload: Workload, edits: Sizes, *, once: bool) -> TrialSet:
            larger.append(await self.references.trials(definition, workload, edits, once=once))
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
                plan = await self.references.for_cpu(definition, each)
                trials = used[plan.workload.name] = await self.references.trials(
                    definition, plan.workload, plan.edits
                )
                with contextlib.ExitStack() as using:
                    using.enter_context(trials.used())
                    elsewhere = await self.references.trials_elsewhere(definition, plan)
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

        def take(needs: Needs) -> AbstractAsyncContextManager[Place]:
            # The workloads that follow stay where the first was judged.
            pinned = verification.gpu.label if verification.gpu is not None else device
            return self.devices.use(pinned, needs=needs, report=timeline.begin, mark=timeline.mark)

        racing = None
        if race is not None:
            racing = Racing(
                self.pool,
                self.devices,
                self.references,
                definition=definition,
                race=race,
                candidate=candidate,
                known_ceilings=self.known_ceilings,
                ceilings_of=self.ceilings,
                timeout_s=timeout_s,
                jobs=self._jobs,
                timeline=timeline,
            )
        at_once = racing if len(plans) == 1 else None

        async def right_there(result: WorkloadResult, place: Place, trials: TrialSet, built: Built) -> None:
            verdict = decide(definition, [result], environment, task_id="")
            if at_once is not None and verdict.status in GOOD:
                await at_once.begin(result.plan, place, trials, built, verdict)

        verification = GpuVerification(
            self.pool,
            candidate,
            partial(self.references.gpu_trials, definition),
            take,
            devices=self.devices,
            make_room=self.references.make_room,
            keeps_others=self.references.keeps_others,
            needs=partial(
                self.references.needs, definition, contenders=0 if at_once is None else at_once.contenders
            ),
            target=properties,
            timeout_s=timeout_s,
            jobs=self._jobs,
            timeline=timeline,
            at_once=None if at_once is None else right_there,
        )
        environment = await self._environment(str(properties["name"]))
        try:
            for plan in plans:
                results.append(await verification.workload(plan))
                _spend(verification.used, results[-1])
                if (verdict := decide(definition, results, environment, task_id="")).status not in GOOD:
                    break
            else:
                if racing is not None and verification.gpu is not None:
                    timed = await racing.times(verification.gpu, verification.compiled, results, verdict)
        finally:
            try:
                if racing is not None:
                    await racing.close()
            finally:
                await verification.close()
                self.references.tidy()
        receipt = {"device": {**properties, **verification.described()}}
        return results, verification.trials, environment, receipt, timed

    async def ceilings(self, gpu: Gpu, report: Report) -> Ceilings:
        """Return what a GPU can do; measure it, alone on it, where that is not among `known_ceilings`.

        Raises:
            WorkerError: Its judge failed.
            DeviceFullError: It has too little memory.
        """
        if gpu.uuid not in self.known_ceilings:
            properties = await self.pool.properties(gpu)
            async with self.devices.alone(gpu, report, needs=Needs(CEILINGS_BYTES)):
                report("measuring what the GPU can do")
                self.references.tidy()
                body = {"op": "ceilings", "l2_bytes": int(properties["l2_bytes"])}
                found = (await GpuBuffers(self.pool, gpu).judge(body, [])).body
            self.known_ceilings[gpu.uuid] = Ceilings(**found)
        return self.known_ceilings[gpu.uuid]

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

        trials_on = partial(self.references.trials_to_profile, definition, plan)
        needs = Needs(max(making_bytes(plan), judging_bytes(plan)) + trials_bytes(plan, 1))
        return await run.counted(trials_on, needs, self._uncounted, self.references.tidy)

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
        self.references.close()


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
