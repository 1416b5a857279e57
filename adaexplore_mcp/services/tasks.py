"""Register tasks, find them, and load them again for judging."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from pydantic import ValidationError

from adaexplore_mcp.errors import NotFoundError, RequestError, TaskError
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.memory_store import Store, TaskRecord, candidate_id_of, content_handle
from adaexplore_mcp.models import RegisterRequest, TaskPage, TaskSummary, WorkloadReport
from adaexplore_mcp.services.builtin import Builtin, builtins
from adaexplore_mcp.services.findings import findings
from adaexplore_mcp.services.messages import nearest, nearest_handles, shortened
from adaexplore_mcp.services.ports import Report

__all__ = ["KnownTask", "TaskService", "task_id_of"]

PLAN_VERSION = 5
"""Plans of another version are made again."""
BASELINE_TIMEOUT_S = 120.0
GOOD_BASELINE = frozenset({"correct", "plausible", "unsupported"})
BUILTIN_PAGES = "builtin:"
"""Begins the cursor of a page that ended among the built-in tasks; others are the id of a registered one."""


def task_id_of(definition: Definition) -> str:
    """Return the id under which a task is known: equal content and policy, equal id."""
    return content_handle("task", definition.digest)


@dataclass
class KnownTask:
    """A task that can be judged against.

    Args:
        task_id: Its id.
        definition: Its content.
        plans: How each workload is judged here.
        summary: What callers see.
    """

    task_id: str
    definition: Definition
    plans: Sequence[Plan]
    summary: TaskSummary


class TaskService:
    """The tasks of one store, and those that come with the product.

    Args:
        store: Where they are kept.
        evaluator: Examines what is registered.
    """

    def __init__(self, store: Store, evaluator: Evaluator) -> None:
        self._store = store
        self._evaluator = evaluator
        self._builtins = {task_id_of(each.definition): each for each in builtins()}
        self._examples_kept = False
        self._examining: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    # --- registration

    async def register(self, request: RegisterRequest, report: Report) -> TaskSummary:
        """Load, examine and keep a task; equal content and policy give the same id.

        Raises:
            TaskError: It is not a task; says why.
        """
        definition = await self._define(request)
        task_id = task_id_of(definition)
        async with self._examining[task_id]:
            if (known := await self._load(task_id)) is not None:
                if known.definition.digest != definition.digest:  # an id has 59 bits of the digest
                    msg = f"The id of this task, {task_id}, is taken by another one ({known.summary.name})."
                    raise RequestError(msg, "Change a comment in its source and register it again.")
                if request.name and request.name != known.summary.name:
                    known.summary = known.summary.model_copy(update={"name": request.name})
                    await self._keep(known)
                return known.summary
            known = await self._examine(task_id, definition, request.name or definition.entry, report)
            await self._keep(known)
            return known.summary

    async def _define(self, request: RegisterRequest) -> Definition:
        files, module, extra = {"task.py": _text(request.source, "source")}, "task", ""
        entry = request.entry
        if request.source_path is not None:
            files, module = await self._evaluator.collect(request.source_path, request.import_root)
            extra = _text(request.extra, "source")
        if request.reward_baseline == "own" and not request.baseline:
            raise RequestError(
                "reward_baseline 'own' needs the owner's own kernel, and none was given.",
                "Give baseline or baseline_path, or another reward_baseline.",
            )
        if not entry:
            entry = "Model" if request.format == "kernelbench" else "reference"
        try:
            return Definition(
                format=request.format,
                files=files,
                module=module,
                entry=entry,
                extra=extra,
                workloads=request.workloads,
                vary=request.vary,
                domains=request.domains,
                mutates=sorted(request.mutates),
                policy=request.policy,
                baseline=_text(request.baseline, "baseline"),
                reward_baseline=request.reward_baseline,
            )
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RequestError(f"{where}: {first['msg']}.", "Fix it and register again.") from error

    async def _examine(
        self, task_id: str, definition: Definition, name: str, report: Report, builtin: Builtin | None = None
    ) -> KnownTask:
        plans = await self._evaluator.examine(definition, report)
        _check_names(definition, plans)
        noticed = list(findings(definition, plans))
        baseline = ""
        if definition.baseline:
            report("judging the baseline")
            evaluation = await self._evaluator.verify(
                definition,
                plans,
                definition.baseline.encode(),
                task_id=task_id,
                timeout_s=BASELINE_TIMEOUT_S,
                report=report,
            )
            baseline = evaluation.outcome.status
            if baseline not in GOOD_BASELINE:
                msg = f"The baseline does not hold against the reference: {evaluation.outcome.summary}"
                raise TaskError(msg, "Fix the baseline, or register the task without one.")
        summary = TaskSummary(
            task_id=task_id,
            name=name,
            format=definition.format,
            entry=definition.candidate_entry,
            description=builtin.description if builtin else "",
            workloads=[_workload_report(plan) for plan in plans],
            parameters=plans[0].parameters,
            mutates=plans[0].mutates,
            policy=definition.policy,
            findings=noticed,
            baseline=baseline,
            reward_baseline=definition.usual_baseline,
            example=candidate_id_of(builtin.kernel) if builtin else "",
        )
        return KnownTask(task_id, definition, plans, summary)

    async def _keep(self, known: KnownTask) -> None:
        content: dict[str, Any] = {
            "definition": known.definition.model_dump(mode="json"),
            "plan_version": PLAN_VERSION,
            "plans": [plan.model_dump(mode="json") for plan in known.plans],
        }
        await self._store.tasks.put(TaskRecord(known.task_id, content, known.summary))

    # --- finding

    async def list(self, query: str, limit: int, cursor: str) -> TaskPage:
        """Return registered tasks, latest first, then the built-in ones.

        Raises:
            NotFoundError: The cursor is not one of ours.
        """
        await self._keep_examples()
        within, _, after = cursor.rpartition(BUILTIN_PAGES)
        among_builtins = bool(cursor) and cursor != after
        known = after in ("", *self._builtins) if among_builtins else await self._store.tasks.get(after)
        if cursor and (within or not known):
            raise NotFoundError(
                f"There is no page after {shortened(cursor)}.", "Call list_tasks without a cursor."
            )
        shown: list[TaskSummary] = []
        if not among_builtins:
            records, more = await self._store.tasks.list(query, limit, after)
            shown = [record.summary for record in records]
            if more:
                return TaskPage(tasks=shown, has_more=True, next_cursor=shown[-1].task_id)
            after = ""
        builtin = [task_id async for task_id in self._builtins_after(after, query)]
        room = limit - len(shown)
        shown += [_brief(task_id, self._builtins[task_id]) for task_id in builtin[:room]]
        more = len(builtin) > room
        last = builtin[room - 1] if more and room else ""
        return TaskPage(tasks=shown, has_more=more, next_cursor=f"{BUILTIN_PAGES}{last}" if more else "")

    async def _builtins_after(self, task_id: str, query: str) -> AsyncIterator[str]:
        """Yield the built-in tasks behind one that match and were not stored yet."""
        words = query.lower().split()
        order = [*self._builtins]
        for each in order[order.index(task_id) + 1 if task_id else 0 :]:
            builtin = self._builtins[each]
            text = f"{each} {builtin.name} {builtin.description}".lower()
            if all(word in text for word in words) and await self._store.tasks.get(each) is None:
                yield each

    async def _keep_examples(self) -> None:
        """Keep the kernels that come with the built-in tasks, so that their ids can be used."""
        if not self._examples_kept:
            for each in self._builtins.values():
                await self._store.evaluations.keep_candidate(each.kernel)
            self._examples_kept = True

    async def get(self, task_id: str) -> TaskSummary:
        """Return one task.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
        """
        if (record := await self._store.tasks.get(task_id)) is not None:
            return record.summary
        if task_id in self._builtins:
            return _brief(task_id, self._builtins[task_id])
        raise await self._unknown(task_id)

    async def kept(self, task_id: str) -> TaskSummary:
        """Return one task once it is in the database, so that what is kept may name it; see `ports.Tasks`."""
        async with self._examining[task_id]:
            summary = await self.get(task_id)
            if await self._store.tasks.get(task_id) is None:
                # Without plans: they are made at its first use.
                definition = self._builtins[task_id].definition.model_dump(mode="json")
                await self._store.tasks.put(TaskRecord(task_id, {"definition": definition}, summary))
            return summary

    async def source(self, task_id: str) -> str:
        """Return what a task is, to be read: what of its contract is no default, in a comment, then its source, file by file.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
        """
        summary = await self.get(task_id)
        definition = await self.definition(task_id)
        contract = definition.model_dump(
            mode="json", exclude={"files", "extra", "baseline"}, exclude_defaults=True
        )
        parts = [f"# {json.dumps({'name': summary.name, **contract}, ensure_ascii=False)}"]
        parts += [f"# --- {path}\n{text}" for path, text in definition.files.items()]
        if definition.extra:
            parts.append(f"# --- source, run after the file\n{definition.extra}")
        return "\n\n".join(parts)

    async def definition(self, task_id: str) -> Definition:
        """Return what a task is, without examining it.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
        """
        record = await self._store.tasks.get(task_id)
        if record is not None:
            return Definition.model_validate(record.content["definition"])
        if task_id in self._builtins:
            return self._builtins[task_id].definition
        raise await self._unknown(task_id)

    async def known(self, task_id: str, report: Report) -> KnownTask:
        """Return a task ready to be judged against; a built-in one is examined at its first use.

        Raises:
            NotFoundError: There is none with this id; names the nearest.
            TaskError: Its reference cannot be run on this machine.
        """
        async with self._examining[task_id]:
            if (known := await self._load(task_id)) is not None:
                return known
            builtin = self._builtins.get(task_id)
            record = await self._store.tasks.get(task_id)
            if builtin is None and record is None:
                del self._examining[task_id]
                raise await self._unknown(task_id)
            if record is not None:  # its plans were made by another version
                definition = Definition.model_validate(record.content["definition"])
                known = await self._examine(task_id, definition, record.summary.name, report, builtin)
            else:
                assert builtin is not None
                await self._keep_examples()
                known = await self._examine(task_id, builtin.definition, builtin.name, report, builtin)
            await self._keep(known)
            return known

    async def _load(self, task_id: str) -> KnownTask | None:
        """Return a kept task whose plans this version understands."""
        record = await self._store.tasks.get(task_id)
        if record is None or record.content.get("plan_version") != PLAN_VERSION:
            return None
        content = record.content
        return KnownTask(
            task_id,
            Definition.model_validate(content["definition"]),
            [Plan.model_validate(plan) for plan in content["plans"]],
            record.summary,
        )

    async def _unknown(self, task_id: str) -> NotFoundError:
        names = {name: id_ for id_, name in await self._store.tasks.names()}
        names |= {each.name: id_ for id_, each in self._builtins.items()}
        if task_id in names:
            return NotFoundError(
                f"{shortened(task_id)} is a name, not an id.", f"Use task_id {names[task_id]!r}."
            )
        close = [*nearest_handles(task_id, names.values()), *nearest(task_id, names)][:3]
        meant = f" Did you mean {', '.join(f'{names.get(each, each)}' for each in close)}?" if close else ""
        return NotFoundError(
            f"There is no task {shortened(task_id)}.{meant}",
            "Call list_tasks, or register_task for a new one.",
        )


def _text(source: bytes, what: str) -> str:
    """Return a source as text.

    Raises:
        RequestError: It is not UTF-8.
    """
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        line = source[: error.start].count(b"\n") + 1
        msg = f"The {what} is not UTF-8 (byte 0x{source[error.start]:02x} in line {line})."
        raise RequestError(msg, "Save it as UTF-8.") from error


def _check_names(definition: Definition, plans: Sequence[Plan]) -> None:
    """Refuse domains, mutates and vary that name what the task does not have.

    Raises:
        TaskError: Names the valid ones.
    """
    inputs = [spec.name for spec in plans[0].inputs]
    for what, names, known, kind in (
        ("mutates", definition.mutates, inputs, "input"),
        ("domains", definition.domains, [*inputs, *plans[0].state], "input, parameter or buffer"),
        ("vary", definition.vary, [*plans[0].constants], "size constant"),
    ):
        for name in names:
            if name not in known:
                msg = f"{what} names {shortened(name)}, which is no {kind} of {definition.entry}."
                raise TaskError(msg, f"It has {', '.join(known[:40]) or 'none'}.")


def _workload_report(plan: Plan) -> WorkloadReport:
    return WorkloadReport(
        name=plan.workload.name,
        sizes=plan.workload.sizes,
        weight=plan.workload.weight,
        flops=plan.flops,
        bytes=plan.bytes,
        judged_at="reduced sizes" if plan.reduced else "own sizes",
        reduced=plan.lowered(),
        inputs=plan.inputs,
        outputs=plan.outputs,
    )


def _brief(task_id: str, builtin: Builtin) -> TaskSummary:
    """Describe a built-in task that has not been examined."""
    definition = builtin.definition
    return TaskSummary(
        task_id=task_id,
        name=builtin.name,
        format=definition.format,
        entry=definition.candidate_entry,
        description=builtin.description,
        workloads=[
            WorkloadReport(name=each.name, sizes=each.sizes, weight=each.weight)
            for each in definition.workloads
        ],
        mutates=definition.mutates,
        policy=definition.policy,
        example=candidate_id_of(builtin.kernel),
    )
