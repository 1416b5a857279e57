"""What an evaluation's time goes into: who is asked for what, how often, and for how long it is waited for.

`throughput.py --trips` prints it at its end. Times are what the server waits: that for a judge asked by several at once holds its
other answers, which stand in a line of their own, and that for a process the time for which it makes way.
"""

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from adaexplore_mcp.evaluation import pool
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.session import Session

__all__ = ["Trips", "counted", "table_of_trips"]

Trips = dict[tuple[str, str], list[float]]
"""Seconds, by where (alone on the GPU, or beside others) and what."""
BESIDE, ALONE = "beside others", "alone on the GPU"

_where: ContextVar[str] = ContextVar("where", default=BESIDE)


@contextlib.contextmanager
def counted() -> Iterator[Trips]:
    """Write down every round trip of this process for as long as the context lasts."""
    trips: Trips = defaultdict(list)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_patched(Session, "request", trips, lambda _, body, *__: f"ask: {body['op']}"))
        for name in ("pause", "resume", "end", "ready"):
            stack.enter_context(_patched(Session, name, trips, lambda *_, name=name: f"process: {name}"))
        stack.enter_context(_patched(WorkerPool, "judge", trips, lambda _, body, *__: f"judge: {body['op']}"))
        stack.enter_context(_patched(WorkerPool, "release", trips, lambda *_: "judge: release"))
        stack.enter_context(
            _patched(pool, "_asked", trips, lambda _, body, *__: f"judge answers: {body['op']}")
        )
        stack.enter_context(_patched(Devices, "step_aside", trips, lambda *_: "making way"))
        stack.enter_context(_placed())
        yield trips


@contextlib.contextmanager
def _patched(owner: Any, name: str, trips: Trips, key: Callable[..., str]) -> Iterator[None]:
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def timed(*arguments: Any, **more: Any) -> Any:
        started = time.perf_counter()
        try:
            return await original(*arguments, **more)
        finally:
            trips[_where.get(), key(*arguments)].append(time.perf_counter() - started)

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _placed() -> Iterator[None]:
    """Have round trips know whether they are made alone on the GPU."""
    original = Devices.alone

    @contextlib.asynccontextmanager
    async def alone(*arguments: Any, **more: Any) -> AsyncIterator[None]:
        async with original(*arguments, **more):
            before = _where.set(ALONE)
            try:
                yield
            finally:
                _where.reset(before)

    Devices.alone = alone  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Devices.alone = original  # type: ignore[method-assign]


def table_of_trips(trips: Mapping[tuple[str, str], Sequence[float]], evaluations: int) -> list[str]:
    """Return lines of a table: what takes longest first, for each place."""
    lines: list[str] = []
    for place in (BESIDE, ALONE):
        found = {what: taken for (where, what), taken in trips.items() if where == place}
        if not found:
            continue
        lines.append(f"  round trips {place}: times a kernel, milliseconds each (median), seconds a kernel")
        for what, taken in sorted(found.items(), key=lambda each: -sum(each[1])):
            each_ms = 1e3 * statistics.median(taken)
            lines.append(
                f"    {what:28} {len(taken) / evaluations:7.1f} {each_ms:9.1f} {sum(taken) / evaluations:8.3f}"
            )
    return lines
