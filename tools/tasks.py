"""Register what kernels are judged against, and find it again."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.models import (
    Domain,
    JobView,
    Policy,
    RegisterRequest,
    SizeRange,
    TaskFormat,
    TaskSummary,
    Workload,
)
from adaexplore_mcp.services import Call, Report, Services
from adaexplore_mcp.services.files import allowed_folder, allowed_path, read_file
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.tools.answers import Answer, JobAnswer, answer
from adaexplore_mcp.tools.parameters import (
    DEFAULT_WAIT_S,
    MAX_TEXT,
    Ctx,
    Format,
    Wait,
    encoded,
    notifier,
    services_of,
    wait_of,
)

__all__ = ["list_tasks", "register_task"]

SENT_AGAIN = "… the text sent before …"
Source = Annotated[str, Field(max_length=MAX_TEXT)]


async def register_task(
    ctx: Ctx,
    *,
    name: Annotated[str, Field(max_length=120, description="Short label.")] = "",
    source: Annotated[
        Source,
        Field(
            description="Reference source text; or source_path. With both, it runs after the file: a place for make_inputs."
        ),
    ] = "",
    source_path: Annotated[
        str, Field(description="File below an allowed root; what it imports is taken along.")
    ] = "",
    entry: Annotated[
        str, Field(max_length=400, description="Class or function to use, or pkg/ops.py:name.")
    ] = "",
    import_root: Annotated[str, Field(description="Folder that imports start from.")] = "",
    format: Annotated[  # noqa: A002 - the contract's name
        TaskFormat,
        Field(
            description="kernelbench: class Model, get_inputs, get_init_inputs; candidate: class ModelNew. "
            "function: reference(*args), make_inputs(workload, device, seed); candidate: same function."
        ),
    ] = "kernelbench",
    workloads: Annotated[
        list[Workload], Field(max_length=32, description="Sizes to judge at; default: the source's own.")
    ] = [],  # noqa: B006 - never changed; the schema shows it
    vary: Annotated[
        dict[str, SizeRange],
        Field(
            max_length=32,
            description="Sizes that hidden workloads may change.",
        ),
    ] = {},  # noqa: B006 - as above
    domains: Annotated[
        dict[str, Domain],
        Field(
            max_length=64,
            description="Per input: keep, normal, nonnegative, probability or index(N) for 0..N-1.",
        ),
    ] = {},  # noqa: B006 - as above
    mutates: Annotated[list[str], Field(max_length=64, description="Inputs that it changes in place.")] = [],  # noqa: B006 - as above
    baseline: Annotated[Source, Field(description="Your own kernel; or baseline_path.")] = "",
    baseline_path: str = "",
    reward_baseline: Annotated[
        Literal["", "own", "eager", "compile", "max_autotune"],
        Field(description="What speedups are against; default: your own kernel, else eager."),
    ] = "",
    policy: Annotated[Policy, Field(description="What counts as right.")] = Policy(),  # noqa: B008 - immutable
    wait_seconds: Wait = DEFAULT_WAIT_S,
    response_format: Format = "concise",
) -> JobAnswer:
    """Register an operation to optimize; equal content and policy give the same task_id."""
    services = services_of(ctx)
    arguments = {
        "name": name,
        "source": source and SENT_AGAIN,
        "source_path": source_path,
        "entry": entry,
        "import_root": import_root,
        "format": format,
        "workloads": [workload.to_wire() for workload in workloads],
        "vary": {size: limits.to_wire() for size, limits in vary.items()},
        "domains": domains,
        "mutates": mutates,
        "baseline": baseline and SENT_AGAIN,
        "baseline_path": baseline_path,
        "reward_baseline": reward_baseline,
        "policy": policy.to_wire(),
    }
    file, entry = _split_entry(entry)
    if file and source_path and file != source_path:
        raise RequestError(
            f"entry names the file {shortened(file)}, source_path the file {shortened(source_path)}.",
            "Give the file once.",
        )
    text = encoded(source, "source")
    file_bytes, source_file = await _read(services, "source", "", source_path or file)
    if not text and source_file is None:
        raise RequestError("There is no reference.", "Give source (its text) or source_path (a file).")
    if import_root and source_file is None:
        raise RequestError(
            f"import_root {shortened(import_root)} was given without a file to import.",
            "Give source_path, or an entry such as pkg/ops.py:name.",
        )
    if baseline and baseline_path:
        raise RequestError("Both baseline and baseline_path were given.", "Give one of them.")
    baseline_bytes, _ = await _read(services, "baseline", baseline, baseline_path)
    request = RegisterRequest(
        name=name,
        source=file_bytes if source_file is not None else text,
        source_path=source_file,
        extra=text if source_file is not None else b"",
        import_root=allowed_folder(import_root, services.settings.roots) if import_root else None,
        entry=entry,
        format=format,
        workloads=_distinct(workloads),
        vary=vary,
        domains=domains,
        mutates=mutates,
        baseline=baseline_bytes,
        reward_baseline=reward_baseline,
        policy=policy,
    )

    async def register(report: Report) -> TaskSummary:
        return _announced(await services.tasks.register(request, report))

    result: TaskSummary | JobView = await services.jobs.run(
        Call("register_task", {key: value for key, value in arguments.items() if value}),
        register,
        wait_s=wait_of(services, wait_seconds),
        notify=notifier(ctx),
    )
    return answer(result.to_wire(), response_format)


async def list_tasks(
    ctx: Ctx,
    query: Annotated[str, Field(max_length=400)] = "",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    cursor: Annotated[str, Field(description="next_cursor of the page before.")] = "",
) -> Answer:
    """List registered and built-in tasks."""
    page = await services_of(ctx).tasks.list(query, limit, cursor)
    wire: dict[str, Any] = {
        "summary": _counted(len(page.tasks), query, more=page.has_more),
        "next_step": "Call compile_and_verify with a task_id." if page.tasks else "Call register_task.",
        "tasks": [_brief(task) for task in page.tasks],
        "has_more": page.has_more,
    }
    if page.next_cursor:
        wire["next_cursor"] = page.next_cursor
    return answer(wire)


def _counted(count: int, query: str, *, more: bool) -> str:
    matching = f" matching {shortened(query)}" if query else ""
    plural = "" if count == 1 else "s"
    return f"{count} task{plural}{matching}{', and there are more' if more else ''}."


def _brief(task: TaskSummary) -> dict[str, Any]:
    """Return what tells a task from the others."""
    wire = task.to_wire()
    row = {
        key: wire[key]
        for key in ("task_id", "name", "format", "entry", "description", "example")
        if key in wire
    }
    if len(row.get("description", "")) > 200:
        row["description"] = row["description"][:199] + "…"
    return row | {"workloads": [workload.name for workload in task.workloads]}


def _announced(task: TaskSummary) -> TaskSummary:
    """Add the sentence that answers a registration."""
    sizes = f"{len(task.workloads)} workload{'s' if len(task.workloads) != 1 else ''}"
    return task.model_copy(
        update={
            "summary": task.summary or f"Registered {task.name} ({task.format}, {sizes}) as {task.task_id}.",
            "next_step": task.next_step
            or f"Call compile_and_verify with task_id {task.task_id!r}; the candidate defines {_defined_by(task)}.",
        }
    )


def _defined_by(task: TaskSummary) -> str:
    return "class ModelNew" if task.format == "kernelbench" else f"function {task.entry}"


def _distinct(workloads: list[Workload]) -> list[Workload]:
    names = [workload.name for workload in workloads]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"Two workloads are named {shortened(name)}.", "Give each its own name.")
    return workloads


def _split_entry(entry: str) -> tuple[str, str]:
    """Split pkg/ops.py:name into a path and a name."""
    path, separator, name = entry.rpartition(":")
    if not name and separator:
        raise RequestError(
            f"entry {shortened(entry)} names nothing after the colon.", "Write pkg/ops.py:name."
        )
    if name and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise RequestError(
            f"entry {shortened(entry)} does not name a class or function.",
            "Write a name, or pkg/ops.py:name.",
        )
    return path, name


async def _read(services: Services, what: str, text: str, path: str) -> tuple[bytes, Path | None]:
    """Return source given as text or by path, and the file it was read from."""
    if not path:
        return encoded(text, what), None
    roots = services.settings.roots
    file = allowed_path(path, roots)
    return await anyio.to_thread.run_sync(read_file, file, roots), file
