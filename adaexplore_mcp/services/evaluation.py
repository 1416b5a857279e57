"""Judge candidates and keep what became of them; say what this machine can do."""

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, fields
from typing import get_args

import anyio.to_thread

from adaexplore_mcp import __version__
from adaexplore_mcp.errors import AdaExploreError, NotFoundError, RequestError, WorkerError
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.counters.counting import NEEDED_LAYERS
from adaexplore_mcp.evaluation.counters.ncu import find as find_ncu
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.devices import Gpu, usage
from adaexplore_mcp.evaluation.evaluator import CPU, Evaluator, Race
from adaexplore_mcp.evaluation.gpu_verification import occupants
from adaexplore_mcp.evaluation.profiles import Least, Profiled, differences, profile_of
from adaexplore_mcp.evaluation.sandbox import Layers
from adaexplore_mcp.evaluation.timing.baselines import NODE, OWN, baseline
from adaexplore_mcp.evaluation.timing.clock import Ceilings, least_us
from adaexplore_mcp.evaluation.timing.report import arithmetic_of
from adaexplore_mcp.memory_store import Store, candidate_id_of
from adaexplore_mcp.models import (
    BenchmarkRequest,
    Check,
    Device,
    DeviceState,
    Outcome,
    Profile,
    Target,
    VerifyRequest,
)
from adaexplore_mcp.services.builtin import builtins
from adaexplore_mcp.services.messages import known_candidate, shortened
from adaexplore_mcp.services.ports import Report
from adaexplore_mcp.services.rules import RuleService
from adaexplore_mcp.services.standing import Asked, standing
from adaexplore_mcp.services.tasks import TaskService
from adaexplore_mcp.settings import Settings

__all__ = ["EvaluationService"]

DOCTOR_TASK = "softmax"
CANNOT_ON_GPU = ["see races and accesses beyond a tensor that do not show in a few calls"]
CANNOT = [
    "time a kernel",
    "see races that only show when programs run at the same time",
    "run CUDA C++, CUDA graphs and inline assembly",
    "judge a task larger than this CPU can compute at more than reduced sizes",
]


class EvaluationService:
    """The judge of candidates.

    Args:
        settings: Of this process.
        store: Where outcomes are kept.
        tasks: Where tasks come from.
        evaluator: Who judges.
        rules: What failures taught.
    """

    def __init__(
        self, settings: Settings, store: Store, tasks: TaskService, evaluator: Evaluator, rules: RuleService
    ) -> None:
        self._settings = settings
        self._store = store
        self._tasks = tasks
        self._evaluator = evaluator
        self._rules = rules
        self._told = 0

    async def verify(self, request: VerifyRequest, report: Report) -> Outcome:
        """Judge one candidate and keep the outcome with its receipt and artifacts.

        Raises:
            NotFoundError: There is no such task.
            TaskError: Its reference is at fault.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        self._refuse_absent(request.device)
        return await self._judge(request, report)

    @property
    def times(self) -> bool:
        """Whether candidates can be timed here: on a GPU."""
        return bool(self._evaluator.devices.gpus)

    def place(self, pinned: str) -> str:
        """Say in a few words where candidates are judged; see `ports.Evaluations`."""
        gpus = [gpu for gpu in self._evaluator.devices.gpus if pinned in {"", gpu.uuid}]
        if not gpus:
            return f"a CPU, by Triton's interpreter, and compiled for {self._settings.target}"
        return " or ".join(dict.fromkeys(f"{gpu.name} ({gpu.arch})" for gpu in gpus))

    def gpu(self, pinned: str) -> str:
        """Return the UUID of the GPU that a label, an index or a UUID means.

        Raises:
            RequestError: There is no such GPU, or none at all.
        """
        self._refuse_absent(pinned)
        return self._evaluator.devices.find(pinned).uuid

    def _refuse_absent(self, device: str) -> None:
        """Refuse a GPU that is named where there is none; where there are some, whoever looks for it says which."""
        if device not in {"", CPU} and not self.times:
            raise RequestError(
                f"There is no GPU {shortened(device)}: this server uses none.",
                "Leave device out; `adaexplore-mcp doctor` says why there is none.",
            )

    async def benchmark(self, request: BenchmarkRequest, report: Report) -> Outcome:
        """Judge one candidate and, once it is right, time it against baselines; see `ports.Evaluations`.

        Raises:
            NotFoundError: There is no such task or node.
            RequestError: There is no such baseline, or the task has none.
            TaskError: The task's reference is at fault.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        task = await self._tasks.known(request.task_id, report)
        self._refuse_absent(request.device)
        names = list(dict.fromkeys(request.baselines or [task.definition.usual_baseline]))
        contenders = [baseline(name, task.definition, await self._node(name)) for name in names]
        if not self.times or request.device == CPU:
            return Outcome(
                summary="Unsupported: nothing is timed without a GPU, and no number is made up.",
                next_step="compile_and_verify judges it here; time it on a machine with an NVIDIA GPU.",
                status="unsupported",
                task_id=request.task_id,
                candidate_id=candidate_id_of(request.source),
                reason="no_gpu",
            )
        async with self._ceilings_kept():
            return await self._judge(request, report, Race(contenders, request.effort))

    async def profile(
        self, request: VerifyRequest, workload: str, report: Report, against: str = ""
    ) -> Profile:
        """Say what holds one candidate back at one workload; see `ports.Evaluations`.

        Raises:
            NotFoundError: There is no such task, workload or node.
            RequestError: The task has no kernel of its owner's to compare with.
            TaskError: The task's reference is at fault.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        task = await self._tasks.known(request.task_id, report)
        definition = task.definition
        names = [plan.workload.name for plan in task.plans]
        if workload and workload not in names:
            raise NotFoundError(
                f"The task has no workload {shortened(workload)}; it has {', '.join(names[:10])}.",
                "Name one of these.",
            )
        plan = task.plans[names.index(workload) if workload else 0]
        other = b""
        if against:
            named = against if against == OWN or against.startswith(NODE) else f"{NODE}{against}"
            other = baseline(named, definition, await self._node(named)).candidate.source

        async def profiled(source: bytes) -> Profiled:
            return await self._evaluator.profile(
                definition,
                plan,
                source,
                target=request.target or None,
                timeout_s=request.timeout_s,
                report=report,
                count=request.device != CPU,
            )

        found = await profiled(request.source)
        compared = differences(await profiled(other), found) if other else []
        given = {
            "task_id": request.task_id,
            "candidate_id": candidate_id_of(request.source),
            "workload": plan.workload.name,
            "target": found.machine.name,
            "against": against,
            "differences": compared,
        }
        profile = profile_of(found, await self._least(definition, plan, found, report), given)
        raw = found.counted.raw if found.counted is not None else ""
        kept = [("counters", raw)] if raw else []
        return await self._store.evaluations.keep_profile(profile, request.source, kept)

    async def _least(self, definition: Definition, plan: Plan, found: Profiled, report: Report) -> Least:
        """Return the least time for a task's bytes and FLOPs where something was measured to compare it with."""
        if found.gpu is None or not found.measured_us:
            return Least()
        try:
            async with self._ceilings_kept():
                ceilings = await self._evaluator.ceilings(found.gpu, report)
        except DeviceFullError:
            return Least()
        return Least(*least_us(plan.bytes, plan.flops, ceilings, arithmetic_of(definition, plan, None)))

    @asynccontextmanager
    async def _ceilings_kept(self) -> AsyncIterator[None]:
        """Have the evaluator know what was measured of the GPUs before, and keep what it measures meanwhile."""
        software = await self._software()
        stored = await self._store.ceilings.all(software)
        names = {each.name for each in fields(Ceilings)}
        # What another version measured less of is measured anew.
        kept = {uuid: Ceilings(**found) for uuid, found in stored.items() if found.keys() == names}
        known = self._evaluator.known_ceilings
        known.update(kept)
        yield
        for uuid, ceilings in known.items():
            if uuid not in kept:
                await self._store.ceilings.put(uuid, software, asdict(ceilings))

    async def _node(self, name: str) -> bytes:
        """Return the source behind a baseline `node:<id>`; nothing for the others.

        Raises:
            NotFoundError: There is no such candidate.
        """
        if not name.startswith(NODE):
            return b""
        next_step = "Use the candidate_id of an earlier answer."
        return await known_candidate(self._store, name.removeprefix(NODE), next_step)

    async def _software(self) -> str:
        """Return the versions that what a GPU can do depends on."""
        versions = (await self._evaluator.pool.workers()).versions
        driver = next((gpu.driver for gpu in self._evaluator.devices.gpus), "")
        return f"torch {versions.get('torch', '?')}, driver {driver}"

    async def _asked(self, request: VerifyRequest, race: Race | None) -> Asked:
        """Return what a request asks for, beside task and source."""
        versions = (await self._evaluator.pool.workers()).versions
        software = {"adaexplore-mcp": __version__, **versions}
        words = ", ".join(f"{name} {version}" for name, version in sorted(software.items()))
        gpus: list[str] = []
        if self._evaluator.uses_gpu(request.device, request.target or None):
            devices = self._evaluator.devices
            gpus = (
                [devices.find(request.device).uuid] if request.device else [gpu.uuid for gpu in devices.gpus]
            )
            words += f", driver {devices.gpus[0].driver}"
        return Asked(
            words,
            request.target or self._settings.target,
            gpus,
            [each.name for each in race.baselines] if race else [],
            race.effort if race else "quick",
        )

    async def _judge(self, request: VerifyRequest, report: Report, race: Race | None = None) -> Outcome:
        started = time.monotonic()
        task = await self._tasks.known(request.task_id, report)
        asked = await self._asked(request, race)
        if not request.again:
            kept = await self._store.evaluations.receipts(task.task_id, candidate_id_of(request.source))
            if (found := standing(kept, asked)) is not None:
                return await self._rules.learned(found, request.source)
        told, self._told = await self._store.evaluations.told_since(self._told)
        self._evaluator.spend_trials(told)
        if warnings := await self._rules.warnings(request.source):
            report(f"{len(warnings)} known rules touch this source; {warnings[0]}")
        evaluation = await self._evaluator.verify(
            task.definition,
            task.plans,
            request.source,
            task_id=task.task_id,
            target=request.target or None,
            device=request.device,
            timeout_s=request.timeout_s,
            report=report,
            race=race,
        )
        outcome = await self._store.evaluations.record(
            evaluation.outcome,
            request.source,
            receipt=evaluation.receipt | {"asked": asked.to_wire()},
            texts=evaluation.texts,
            agent=request.agent,
            elapsed_s=time.monotonic() - started,
        )
        return await self._rules.learn(outcome, request.source, request.agent, request.edits)

    async def device(self) -> Device:
        """Say what this machine can judge, and what it cannot."""
        target, targets = self._settings.target, list(get_args(Target))
        try:
            workers = await self._evaluator.pool.workers()
        except WorkerError as error:
            return Device(
                summary=f"No candidate can be judged: {error}",
                target=target,
                targets=targets,
                cannot=["judge anything"],
            )
        level = workers.layers.level
        states = [await self._state(gpu) for gpu in self._evaluator.devices.gpus]
        if states:
            names = ", ".join(f"{state.label} ({state.name})" for state in states)
            summary = f"Candidates are compiled on the CPU, then run on {names}; {level} isolation."
        else:
            summary = f"No GPU is used: numbers by Triton's interpreter on the CPU, compilation for {target}; {level} isolation."
        return Device(
            summary=summary,
            gpu=states[0].name if states else "",
            devices=states,
            target=states[0].arch if states else target,
            targets=targets,
            isolation=level,
            layers=dict(workers.layers.state),
            versions=dict(workers.versions),
            cannot=CANNOT_ON_GPU if states else CANNOT,
        )

    async def _state(self, gpu: Gpu) -> DeviceState:
        """Say what a GPU is, and who uses it now."""
        devices = self._evaluator.devices
        used = await anyio.to_thread.run_sync(lambda: usage(gpu, self._evaluator.pool.pids()))
        return DeviceState(
            label=gpu.label,
            name=gpu.name,
            uuid=gpu.uuid,
            arch=gpu.arch,
            driver=gpu.driver,
            memory_mib=gpu.memory_bytes >> 20,
            free_mib=None if used.free_bytes is None else used.free_bytes >> 20,
            running=devices.running(gpu),
            waiting=devices.waiting(gpu),
            others=occupants(used),
            lock=devices.lock_of(gpu),
        )

    async def checks(self) -> list[Check]:
        """Examine the installation for the doctor."""
        python = str(self._settings.worker_python)
        try:
            workers = await self._evaluator.pool.workers()
        except WorkerError as error:
            return [Check(name="workers", state="fail", detail=python, remedy=str(error))]
        versions = workers.versions
        checks = [
            Check(
                name="worker interpreter",
                state="ok",
                detail=f"{python} (Python {versions.get('python', '?')})",
            ),
            Check(name="torch", state="ok", detail=versions.get("torch", "?")),
            Check(name="triton", state="ok", detail=versions.get("triton", "?")),
            *(await self._gpus()),
            *(await self._counters(workers.layers)),
            _isolation(workers.layers.level, workers.layers.state),
        ]
        return [*checks, await self._real_run()]

    async def _gpus(self) -> list[Check]:
        """Examine every GPU: its driver, its lock, memory by descriptor, a context."""
        gpus = self._evaluator.devices.gpus
        if not gpus:
            remedy = "Nothing to do: verdicts are reached on the CPU." + (
                " nvidia-smi is here: does it list a GPU, and does --device name it?"
                if shutil.which("nvidia-smi")
                else ""
            )
            return [Check(name="gpu", state="warn", detail="none found", remedy=remedy)]
        checks = []
        for gpu in gpus:
            detail = f"{gpu.label}: {gpu.name}, {gpu.arch}, driver {gpu.driver}, {self._evaluator.devices.lock_of(gpu)}"
            try:
                await self._evaluator.pool.properties(gpu)
            except WorkerError as error:
                remedy = f"{error} `--device none` judges without it."
                checks.append(Check(name="gpu", state="fail", detail=detail, remedy=remedy))
                continue
            if gpu.exclusive:
                remedy = "Its compute mode lets one process use it; a reference, a judge and a candidate need three."
                checks.append(Check(name="gpu", state="fail", detail=detail, remedy=remedy))
                continue
            checks.append(Check(name="gpu", state="ok", detail=detail))
        return checks

    async def _counters(self, layers: Layers) -> list[Check]:
        """Examine whether hardware counters may be read on the GPUs; a profile is less sharp without."""
        if not self._evaluator.devices.gpus:
            return []
        tool = await anyio.to_thread.run_sync(find_ncu)
        missing = ", ".join(name for name in NEEDED_LAYERS if not layers.on(name))
        if not tool.problem and not missing:
            return [Check(name="counters", state="ok", detail=f"Nsight Compute {tool.version} ({tool.path})")]
        why = tool.problem or f"a profiler is not let near a candidate without {missing}"
        remedy = "profile_kernel goes by compiled code, and by torch's profiler for times."
        return [Check(name="counters", state="warn", detail=why, remedy=remedy)]

    async def _real_run(self) -> Check:
        """Judge a kernel that is known to be right."""
        builtin = next(each for each in builtins() if each.name == DOCTOR_TASK)
        small = builtin.definition.model_copy(update={"workloads": builtin.definition.workloads[:1]})
        started = time.monotonic()
        try:
            plans = await self._evaluator.examine(small, lambda _: None)
            evaluation = await self._evaluator.verify(
                small, plans, builtin.kernel, task_id="", timeout_s=60, report=lambda _: None
            )
        except AdaExploreError as error:
            return Check(name="compile and run", state="fail", detail=DOCTOR_TASK, remedy=str(error))
        outcome = evaluation.outcome
        took = f"{DOCTOR_TASK}: {outcome.status} in {time.monotonic() - started:.1f} s"
        if outcome.status in {"correct", "plausible"}:
            return Check(name="compile and run", state="ok", detail=took)
        return Check(name="compile and run", state="fail", detail=took, remedy=outcome.summary)

    async def release_idle(self, after_s: float) -> None:
        """End worker processes that have not been used for `after_s` seconds."""
        await self._evaluator.release_idle(after_s)

    def shutdown_now(self) -> None:
        """End every worker process at once; called from a signal handler."""
        self._evaluator.pool.shutdown_now()

    async def aclose(self) -> None:
        """End every worker process and remove what they left."""
        await self._evaluator.aclose()


def _isolation(level: str, state: dict[str, str] | object) -> Check:
    layers = dict(state) if isinstance(state, dict) else {}
    missing = [f"{name}: {reason}" for name, reason in layers.items() if reason != "on" and name != "nobody"]
    if level == "strong":
        return Check(name="isolation", state="ok", detail="strong")
    return Check(
        name="isolation",
        state="warn",
        detail=f"{level} ({'; '.join(missing)})",
        remedy="Run on a kernel with Landlock and user namespaces, or judge only candidates you trust.",
    )
