"""Have worker processes draw synthetic tasks, and keep those that are tasks and differ from each other.

Drafts are made in waves of a fixed number, whatever the number of processes: what steers a wave is the coverage before it, so
equal seeds give equal tasks on any machine with the same torch.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from adaexplore_mcp.errors import WorkerError
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.session import Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.synthesis import Siblings, SyntheticTask

__all__ = ["WAVE", "Drawn", "Operators", "Synthesizer"]

DRAWING = 2
"""Counted up where other operators, or other arguments, are tried: kept findings of another one are not used."""
WAVE = 8
"""Drafts that are steered by the same coverage."""
DRAFT_S = 180.0
"""Far beyond what one takes on a busy machine: a draft that is given up there would be a task on another."""
OPERATORS_S = 120.0
MOST_WAVES = 10
"""Waves beyond one for each task wanted: then something is wrong with this torch."""


@dataclass(frozen=True)
class Operators:
    """The operators of the installed torch.

    Args:
        names: Those that are drawn.
        left_out: By name, why others are not.
    """

    names: tuple[str, ...]
    left_out: Mapping[str, str]


@dataclass
class Drawn:
    """What some waves came to.

    Args:
        tasks: In the order of their drafts.
        next_number: The first draft of the next wave.
        rejected: Drafts that came to nothing, by reason.
        tried: Steps that did not work on the way, by reason.
    """

    next_number: int
    tasks: list[SyntheticTask] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)


class Synthesizer:
    """Draws synthetic tasks.

    Args:
        pool: Worker processes.
        target: What registration imitates without a GPU.
        processes: That work side by side.
    """

    def __init__(self, pool: WorkerPool, target: str, processes: int = 2) -> None:
        self._pool = pool
        self._target = target
        self._processes = processes
        self._operators: Operators | None = None
        self._finding = anyio.Lock()

    async def version(self) -> str:
        """Return what decides which operators there are: the installed torch, and the way in which they are tried.

        Raises:
            WorkerError: No worker can be had.
        """
        torch = (await self._pool.workers()).versions.get("torch", "?")
        return f"torch {torch}, drawing {DRAWING}"

    def use(self, operators: Operators) -> None:
        """Take operators that were found before by the same version."""
        self._operators = operators

    async def operators(self) -> Operators:
        """Return the operators of the installed torch; looked for once.

        Raises:
            WorkerError: No worker can be had.
        """
        if self._operators is None:
            async with self._finding, self._pool.session("synthesis", "interpret") as session:
                if self._operators is None:
                    await self._find(session)
        assert self._operators is not None
        return self._operators

    async def _find(self, session: Session) -> None:
        try:
            reply = (await session.request({"op": "operators"}, timeout_s=OPERATORS_S)).body["ok"]
        except (SessionEndedError, SessionTimeoutError) as error:
            msg = f"The operators of the installed torch could not be tried: {error}. Run `adaexplore-mcp doctor`."
            raise WorkerError(msg) from error
        self._operators = Operators(tuple(reply["operators"]), dict(reply["left_out"]))

    async def draw(self, seed: int, first: int, siblings: Siblings, wanted: int) -> Drawn:
        """Make whole waves until there are as many tasks as wanted, or far too many drafts came to nothing.

        Args:
            seed: Of all drafts.
            first: Number of the first draft: `next_number` of what was drawn before.
            siblings: All tasks kept before, under this seed; what is drawn is added.
            wanted: Tasks, at least.

        Raises:
            WorkerError: No worker can be had.
        """
        operators = await self.operators()
        drawn = Drawn(first)
        async with self._sessions() as sessions:
            while len(drawn.tasks) < wanted and drawn.next_number < first + WAVE * (MOST_WAVES + wanted):
                request = {
                    "op": "draft",
                    "seed": seed,
                    "coverage": siblings.coverage.to_wire(),
                    "operators": operators.names,
                    "target": self._target,
                }
                for number, reply in (await self._wave(sessions, request, drawn.next_number)).items():
                    drawn.tried.update(reply["tried"])
                    problem = reply["problem"]
                    if not problem:
                        task = SyntheticTask(number, reply["source"], tuple(reply["operators"]))
                        if siblings.add(task):
                            drawn.tasks.append(task)
                            continue
                        problem = "like one before"
                    drawn.rejected[problem] += 1
                drawn.next_number += WAVE
        return drawn

    @asynccontextmanager
    async def _sessions(self) -> AsyncIterator["list[_Worker]"]:
        workers = [_Worker(self._pool) for _ in range(self._processes)]
        async with AsyncExitStack() as stack:  # each is ended, also where ending another is cancelled
            for worker in workers:
                stack.push_async_callback(worker.aclose)
            yield workers

    async def _wave(
        self, workers: "list[_Worker]", request: Mapping[str, Any], first: int
    ) -> dict[int, dict[str, Any]]:
        replies: dict[int, dict[str, Any]] = {}
        waiting = iter(range(first, first + WAVE))
        lost: list[WorkerError] = []  # a task group would wrap it into a group

        async def work(worker: "_Worker") -> None:
            try:
                for number in waiting:
                    replies[number] = await worker.draft({**request, "number": number})
            except WorkerError as error:
                lost.append(error)

        async with anyio.create_task_group() as group:
            for worker in workers:
                group.start_soon(work, worker)
        if lost:
            raise lost[0]
        return dict(sorted(replies.items()))


class _Worker:
    """One process after the other: a draft that ends its process costs that alone."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._context: Any = None
        self._session: Session | None = None

    async def draft(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._session is None:
            self._context = self._pool.session("synthesis", "interpret")
            self._session = await self._context.__aenter__()
        try:
            reply: dict[str, Any] = (await self._session.request(request, timeout_s=DRAFT_S)).body["ok"]
        except (SessionEndedError, SessionTimeoutError) as error:
            await self.aclose()
            ended = isinstance(error, SessionEndedError)
            return {"problem": "ends its process" if ended else "takes too long", "tried": {}}
        return reply

    async def aclose(self) -> None:
        if self._session is not None:
            self._session = None
            await self._context.__aexit__(None, None, None)
