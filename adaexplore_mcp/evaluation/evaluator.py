"""Judge candidates without a GPU: numbers by Triton's interpreter and language by its compiler, at the same time.

The one class that the services use; below it, each step has its module: `preparation` (the task), `numerics` and
`compilation` (the candidate), `verdict` (what it all means).
"""

import contextlib
import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio

from adaexplore_mcp.errors import TaskError, WorkerLostError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.definition import Definition, Plan, Sizes
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.preparation import collect, examine, make_trials
from adaexplore_mcp.evaluation.reporting import Environment, WorkloadResult
from adaexplore_mcp.evaluation.trials import TrialSet
from adaexplore_mcp.evaluation.verdict import decide
from adaexplore_mcp.evaluation.verification import TrialSource, Verification
from adaexplore_mcp.models import Outcome, Target, TensorSpec, Workload

__all__ = ["Evaluation", "Evaluator"]

DEFAULT_WORKLOAD = "default"
KEPT_BYTES = 1 << 30  # of trials kept for later candidates
KEPT_FILES = 400  # a set has 8 to 17, and many systems allow a process 1,024 descriptors
USES = 50  # after this many candidates a task's trials are drawn anew
GOOD = frozenset({"correct", "plausible"})

T = TypeVar("T")
Report = Callable[[str], None]


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
        target: What to compile for unless a request says otherwise.
        memory_bytes: What a process may take.
    """

    def __init__(self, pool: WorkerPool, target: Target, memory_bytes: int) -> None:
        self.pool = pool
        self._target = target
        self._memory_bytes = memory_bytes
        self._kept: OrderedDict[str, tuple[TrialSet, int]] = OrderedDict()
        self._making: dict[str, anyio.Lock] = {}  # two candidates of a new task would both run its reference

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
            plan = await _again_if_lost(
                partial(
                    examine,
                    self.pool,
                    definition,
                    workload,
                    target=self._target,
                    memory_bytes=self._memory_bytes,
                )
            )
            trials = await self._trials(definition, plan.workload, plan.edits)
            undeclared = set(trials.mutated) - set(definition.mutates)
            if undeclared and definition.mutates:
                names = ", ".join(sorted(undeclared))
                msg = f"The reference also changes {names} in place, which `mutates` does not name."
                raise TaskError(
                    msg, f"Register it with mutates={sorted({*definition.mutates, *undeclared})}."
                )
            plans.append(
                plan.model_copy(
                    update={
                        "mutates": trials.mutated,
                        # What is changed in place is written too.
                        "bytes": plan.bytes
                        + sum(_bytes(each) for each in plan.inputs if each.name in trials.mutated),
                        "constant": trials.constant,
                        "zeros_pass": trials.zeros_pass,
                        "fixed": trials.fixed,
                        "not_wide": trials.not_wide,
                    }
                )
            )
        return plans

    async def _trials(self, definition: Definition, workload: Workload, edits: Sizes) -> TrialSet:
        """Return the trials of a task at some sizes, from those kept where possible."""
        key = hashlib.sha256(
            f"{definition.digest} {workload.model_dump_json()} {sorted(edits.items())}".encode()
        ).hexdigest()
        lock = self._making.setdefault(key, anyio.Lock())
        try:
            async with lock:
                known, uses = self._kept.pop(key, (None, 0))
                if known is not None and uses < USES and not known.spent:
                    self._kept[key] = known, uses + 1
                    return known
                if known is not None:
                    known.close()
                trials = await _again_if_lost(
                    partial(make_trials, self.pool, definition, workload, edits, target=self._target)
                )
                self._kept[key] = trials, 1
                self._forget()
                return trials
        finally:
            if not lock.statistics().tasks_waiting:
                self._making.pop(key, None)

    def _trials_of(self, definition: Definition) -> TrialSource:
        """Return what makes trials of a task at other sizes."""

        async def at(workload: Workload, edits: Sizes) -> TrialSet:
            return await self._trials(definition, workload, edits)

        return at

    def _forget(self) -> None:
        """Close the trials used longest ago while there are too many; never the latest."""
        size = sum(trials.size for trials, _ in self._kept.values())
        files = sum(trials.files for trials, _ in self._kept.values())
        while len(self._kept) > 1 and (size > KEPT_BYTES or files > KEPT_FILES):
            _, (oldest, _) = self._kept.popitem(last=False)
            size, files = size - oldest.size, files - oldest.files
            oldest.close()

    # --- candidates

    async def verify(
        self,
        definition: Definition,
        plans: Sequence[Plan],
        source: bytes,
        *,
        task_id: str,
        target: Target | None = None,
        timeout_s: float,
        report: Report,
    ) -> Evaluation:
        """Judge one candidate over the workloads of a task, until one fails.

        Args:
            definition: The task.
            plans: As `examine` made them on this machine.
            source: The candidate, any bytes.
            task_id: For the outcome.
            target: What to compile for; the default otherwise.
            timeout_s: Limit of each stage, in seconds.
            report: Told what is being done.

        Raises:
            TaskError: The reference is at fault.
            WorkerError: Workers of ours failed, twice.
        """
        started = time.monotonic()
        chosen = target or self._target
        candidate = Candidate(source, definition.format, definition.candidate_entry, definition.policy)
        workers = await self.pool.workers()
        layers = ", ".join(name for name in workers.layers.ORDER if workers.layers.on(name))
        environment = Environment(
            versions={
                name: workers.versions[name] for name in ("torch", "triton") if name in workers.versions
            },
            isolation=f"{workers.layers.level} ({layers})" if layers else workers.layers.level,
            target=chosen,
        )
        results: list[WorkloadResult] = []
        seeds: dict[str, Any] = {}
        verification = Verification(
            self.pool,
            candidate,
            self._trials_of(definition),
            target=chosen,
            timeout_s=timeout_s,
            report=report,
        )
        try:
            for plan in plans:
                trials = await self._trials(definition, plan.workload, plan.edits)
                with trials.used():
                    results.append(await verification.workload(plan, trials))
                # What it printed can be read, and could hold the inputs: the next candidate gets others.
                texts = _texts(results[-1])
                trials.spent |= bool(texts)
                seeds[plan.workload.name] = _seeds(trials, plan)
                outcome = decide(definition, results, environment, task_id=task_id)
                if outcome.status not in GOOD:
                    break
        finally:
            await verification.close()
        seconds = {**outcome.seconds, "total": round(time.monotonic() - started, 3)}
        outcome = outcome.model_copy(update={"seconds": seconds})
        receipt = {
            "task": definition.digest,
            "candidate_sha256": hashlib.sha256(source).hexdigest(),
            "policy": definition.policy.to_wire(),
            "target": chosen,
            "timeout_s": timeout_s,
            "versions": dict(workers.versions),
            "isolation": environment.isolation,
            "layers": dict(workers.layers.state),
            "workloads": seeds,
            "seconds": seconds,
        }
        return Evaluation(outcome, receipt, texts)

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
        while self._kept:
            self._kept.popitem()[1][0].close()


async def _again_if_lost(work: Callable[[], Awaitable[T]]) -> T:
    """Do something once more where a worker of ours was lost on the way."""
    try:
        return await work()
    except WorkerLostError:
        return await work()


def _bytes(tensor: TensorSpec) -> int:
    """Return the bytes that a tensor's elements take; names of dtypes say how many bits one has."""
    bits = re.search(r"\d+", tensor.dtype)
    return math.prod(tensor.shape) * (int(bits.group()) // 8 if bits else 1)


def _seeds(trials: TrialSet, plan: Plan) -> dict[str, Any]:
    return {
        "edits": plan.edits,
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
