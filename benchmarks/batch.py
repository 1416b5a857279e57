"""Work through a list of tasks with the services of one server, several at a time, and keep a row for each.

What `published_kernels.py`, `honest_kernels.py` and `audit_tasks.py` share. Rows go to a file of JSON lines as they come,
and what is in it already is not done again, so a run that was cut short goes on where it stopped.
"""

import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import Policy, RegisterRequest, VerifyRequest
from adaexplore_mcp.services.connect import connect
from adaexplore_mcp.services.container import Collaborators
from adaexplore_mcp.settings import load_settings

__all__ = ["Row", "judged", "rows_of", "work_through"]

T = TypeVar("T")
Row = dict[str, Any]


def rows_of(out: Path) -> list[Row]:
    """Return what was done so far."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


async def work_through(
    todo: Sequence[T],
    do: Callable[[Collaborators, T], Awaitable[Row]],
    out: Path,
    *,
    parallel: int,
    device: str,
    target: str = "sm_90",
    first: Callable[[Collaborators], Awaitable[None]] | None = None,
) -> None:
    """Do everything in a list and write its rows.

    Args:
        todo: What there is to do, in order.
        do: Does one of it.
        out: Where rows go.
        parallel: How many at a time.
        device: Which GPUs to use; empty for those that there are, `none` for none.
        target: What to compile for without a GPU.
        first: Done before all of it.
    """
    left = list(todo)
    with tempfile.TemporaryDirectory() as home:
        devices = [device] if device else []
        settings = load_settings({"home": home, "target": target, "parallel": parallel, "devices": devices})
        services = connect(settings, Store(settings.database))

        async def work() -> None:
            while left:
                row = await do(services, left.pop(0))
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print("  ".join(_shown(value) for value in row.values())[:230], flush=True)

        started = time.monotonic()
        try:
            if first is not None:
                await first(services)
            async with anyio.create_task_group() as group:
                for _ in range(parallel):
                    group.start_soon(work)
        finally:
            await services.evaluations.aclose()
        print(f"{time.monotonic() - started:.0f} s in all, {parallel} at a time")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:6.2f} s"
    return f"{value:14}" if isinstance(value, str) else ""


async def judged(
    services: Collaborators, name: str, task: Path, kernel: Path, *, precision: str, timeout_s: float
) -> Row:
    """Register a task and judge one kernel for it; a refused task is a row too."""
    row: Row = {"name": name, "precision": precision, "status": "", "register_s": 0.0, "verify_s": 0.0}
    started = time.monotonic()
    try:
        registered = await services.tasks.register(
            RegisterRequest(name=name, source=task.read_bytes(), policy=Policy(precision=precision)),
            lambda _: None,
        )
        row["register_s"] = round(time.monotonic() - started, 2)
        started = time.monotonic()
        outcome = await services.evaluations.verify(
            VerifyRequest(task_id=registered.task_id, source=kernel.read_bytes(), timeout_s=timeout_s),
            lambda _: None,
        )
        row |= {"status": outcome.status, "summary": outcome.summary}
        row |= {"outcome": outcome.to_wire(), "seconds": outcome.seconds, "findings": registered.findings}
    except AdaExploreError as error:
        row |= {"status": f"refused: {type(error).__name__}", "summary": str(error)}
    row["verify_s"] = round(time.monotonic() - started, 2)
    return row
