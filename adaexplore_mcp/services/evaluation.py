"""Judge candidates and keep what became of them; say what this machine can do."""

import shutil
import time
from typing import get_args

from adaexplore_mcp.errors import AdaExploreError, WorkerError
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import Check, Device, Outcome, Target, VerifyRequest
from adaexplore_mcp.services.builtin import builtins
from adaexplore_mcp.services.ports import Report
from adaexplore_mcp.services.tasks import TaskService
from adaexplore_mcp.settings import Settings

__all__ = ["EvaluationService"]

DOCTOR_TASK = "softmax"
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
    """

    def __init__(self, settings: Settings, store: Store, tasks: TaskService, evaluator: Evaluator) -> None:
        self._settings = settings
        self._store = store
        self._tasks = tasks
        self._evaluator = evaluator

    async def verify(self, request: VerifyRequest, report: Report) -> Outcome:
        """Judge one candidate and keep the outcome with its receipt and artifacts.

        Raises:
            NotFoundError: There is no such task.
            TaskError: Its reference is at fault.
            WorkerError: A worker of ours failed; the candidate is not to blame.
        """
        started = time.monotonic()
        task = await self._tasks.known(request.task_id, report)
        evaluation = await self._evaluator.verify(
            task.definition,
            task.plans,
            request.source,
            task_id=task.task_id,
            target=request.target or None,
            timeout_s=request.timeout_s,
            report=report,
        )
        return await self._store.evaluations.record(
            evaluation.outcome,
            request.source,
            receipt=evaluation.receipt,
            texts=evaluation.texts,
            agent=request.agent,
            elapsed_s=time.monotonic() - started,
        )

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
        return Device(
            summary=f"No GPU is used: numbers by Triton's interpreter on the CPU, compilation for {target}; {level} isolation.",
            target=target,
            targets=targets,
            isolation=level,
            layers=dict(workers.layers.state),
            versions=dict(workers.versions),
            cannot=CANNOT,
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
            _gpu(),
            _isolation(workers.layers.level, workers.layers.state),
        ]
        return [*checks, await self._real_run()]

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


def _gpu() -> Check:
    if shutil.which("nvidia-smi") is None:
        return Check(
            name="gpu", state="warn", detail="none found", remedy="Nothing to do: this version uses none."
        )
    return Check(
        name="gpu", state="warn", detail="found, not used yet", remedy="Verdicts are reached on the CPU."
    )


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
