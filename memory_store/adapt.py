"""The Adapt stage: which synthetic tasks were drawn, who attempted what, and how each kernel did."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.handles import new_handle
from adaexplore_mcp.memory_store.records import from_json, to_json

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["AdaptTable", "AttemptKernel", "AttemptRecord", "Campaign", "SyntheticRecord"]


@dataclass(frozen=True, slots=True)
class SyntheticRecord:
    """A task that was drawn."""

    draft: int
    """Which draft of its seed it was."""
    name: str
    source: str
    operators: tuple[str, ...]
    task_id: str = ""
    """Under which it is registered; empty before an agent took it."""
    refused: str = ""
    """Why registration refused it; empty if it did not."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """All that was drawn from one seed."""

    seed: int
    next_draft: int = 0
    known_operators: int = 0
    """Operators of the torch that it was drawn with; 0 before the first draft."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Drafts that came to nothing, by reason."""
    tasks: tuple[SyntheticRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptKernel:
    """One kernel of an attempt."""

    number: int
    candidate_id: str
    status: str
    own: bool = True
    """It did not leave all the work to torch."""
    rule_id: str = ""
    """What it taught; empty without a lesson."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A task in the hands of one agent."""

    attempt_id: str
    task_id: str
    agent: str
    """Label of who took it."""
    submissions: tuple[AttemptKernel, ...] = ()


class AdaptTable:
    """The campaigns and attempts of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- what is drawn

    async def campaign(self, seed: int) -> Campaign:
        """Return what was drawn from a seed, in the order of drafts."""
        return await self._database.read(lambda sqlite: _campaign(sqlite, seed))

    async def keep_drawn(
        self,
        before: Campaign,
        next_draft: int,
        known_operators: int,
        rejected: Mapping[str, int],
        tasks: Sequence[SyntheticRecord],
    ) -> Campaign:
        """Keep what was drawn after a campaign as it was, all or nothing.

        Where another process has drawn meanwhile, its tasks stand: the same seed gives the same ones.

        Returns:
            The campaign as it is now.
        """
        total = {
            reason: before.rejected.get(reason, 0) + rejected.get(reason, 0)
            for reason in {*before.rejected, *rejected}
        }

        def keep(sqlite: "Sqlite") -> Campaign:
            if _campaign(sqlite, before.seed).next_draft == before.next_draft:
                now = time.time()
                sqlite.conn.execute(
                    "INSERT INTO adapt_campaigns (seed, next_draft, known_operators, rejected) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (seed) DO UPDATE SET next_draft = excluded.next_draft,"
                    " known_operators = excluded.known_operators, rejected = excluded.rejected",
                    [before.seed, next_draft, known_operators, to_json(total)],
                )
                sqlite.conn.executemany(
                    "INSERT INTO adapt_tasks (seed, draft, name, source, operators, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                    [
                        (before.seed, each.draft, each.name, each.source, " ".join(each.operators), now)
                        for each in tasks
                    ],
                )
            return _campaign(sqlite, before.seed)

        return await self._database.write(keep)

    async def operators(self, torch: str) -> tuple[tuple[str, ...], dict[str, str]] | None:
        """Return the operators that were found to work, and why others are left out; None for another torch or way to draw."""

        def operators(sqlite: "Sqlite") -> tuple[tuple[str, ...], dict[str, str]] | None:
            rows = sqlite.query("SELECT names, left_out FROM adapt_operators WHERE torch = ?", [torch])
            return next(((tuple(row["names"].split()), from_json(row["left_out"])) for row in rows), None)

        return await self._database.read(operators)

    async def keep_operators(self, torch: str, names: Sequence[str], left_out: Mapping[str, str]) -> None:
        """Keep which operators work: trying them takes seconds."""

        def keep(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "INSERT OR REPLACE INTO adapt_operators (torch, names, left_out, found_at) VALUES (?, ?, ?, ?)",
                [torch, " ".join(names), to_json(left_out), time.time()],
            )

        await self._database.write(keep)

    async def refuse(self, seed: int, draft: int, why: str) -> None:
        """Note that registration refused a task, so that nobody is given it."""

        def refuse(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "UPDATE adapt_tasks SET refused = ? WHERE seed = ? AND draft = ?", [why, seed, draft]
            )

        await self._database.write(refuse)

    # --- attempts

    async def begin(self, task_id: str, agent: str, drawn: tuple[int, int] | None = None) -> str:
        """Give a task to an agent and return the attempt_id.

        Args:
            task_id: A registered task.
            agent: Label of who takes it.
            drawn: Seed and draft, where it is a synthetic one.

        Returns:
            Empty where somebody else has just taken the synthetic one.
        """
        attempt_id = new_handle("att")

        def begin(sqlite: "Sqlite") -> str:
            if drawn is not None:
                taken = sqlite.conn.execute(
                    "UPDATE adapt_tasks SET task_id = ? WHERE seed = ? AND draft = ? AND task_id = ''",
                    [task_id, *drawn],
                )
                if not taken.rowcount:
                    return ""
            sqlite.conn.execute(
                "INSERT INTO adapt_attempts (attempt_id, task_id, agent, created_at) VALUES (?, ?, ?, ?)",
                [attempt_id, task_id, agent, time.time()],
            )
            return attempt_id

        return await self._database.write(begin)

    async def attempt(self, attempt_id: str) -> AttemptRecord | None:
        """Return an attempt with its kernels in order, or None where there is none with this id."""

        def attempt(sqlite: "Sqlite") -> AttemptRecord | None:
            return next(_attempts(sqlite, "WHERE attempt_id = ?", [attempt_id]), None)

        return await self._database.read(attempt)

    async def attempts(self) -> list[AttemptRecord]:
        """Return all attempts, oldest first."""
        return await self._database.read(lambda sqlite: list(_attempts(sqlite, "", [])))

    async def attempt_ids(self, limit: int = 1000) -> list[str]:
        """Return the latest attempt ids, to find the one that was meant."""

        def ids(sqlite: "Sqlite") -> list[str]:
            rows = sqlite.query("SELECT attempt_id FROM adapt_attempts ORDER BY number DESC LIMIT ?", [limit])
            return [str(row["attempt_id"]) for row in rows]

        return await self._database.read(ids)

    async def submit(self, attempt_id: str, candidate_id: str, status: str, *, own: bool = True) -> None:
        """Keep how a kernel of an attempt did, and whether it did some of the work itself."""

        def submit(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "INSERT INTO adapt_submissions (attempt_id, candidate_id, status, own, created_at)"
                " VALUES (?, ?, ?, ?, ?)",
                [attempt_id, candidate_id, status, own, time.time()],
            )

        await self._database.write(submit)

    async def taught(self, number: int, rule_id: str) -> None:
        """Note which rule a kernel's lesson went to."""

        def taught(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "UPDATE adapt_submissions SET rule_id = ? WHERE number = ? AND rule_id = ''",
                [rule_id, number],
            )

        await self._database.write(taught)


def _campaign(sqlite: "Sqlite", seed: int) -> Campaign:
    row = next(sqlite.query("SELECT * FROM adapt_campaigns WHERE seed = ?", [seed]), None)
    if row is None:
        return Campaign(seed)
    tasks = tuple(
        SyntheticRecord(
            draft=each["draft"],
            name=each["name"],
            source=each["source"],
            operators=tuple(each["operators"].split()),
            task_id=each["task_id"],
            refused=each["refused"],
        )
        for each in sqlite.query("SELECT * FROM adapt_tasks WHERE seed = ? ORDER BY draft", [seed])
    )
    return Campaign(seed, row["next_draft"], row["known_operators"], from_json(row["rejected"]), tasks)


def _attempts(sqlite: "Sqlite", where: str, values: Sequence[Any]) -> Iterator[AttemptRecord]:
    kernels: dict[str, list[AttemptKernel]] = {}
    for row in sqlite.query(f"SELECT * FROM adapt_submissions {where} ORDER BY number", values):  # noqa: S608 - ours
        kernels.setdefault(row["attempt_id"], []).append(
            AttemptKernel(row["number"], row["candidate_id"], row["status"], bool(row["own"]), row["rule_id"])
        )
    for row in sqlite.query(f"SELECT * FROM adapt_attempts {where} ORDER BY number", values):  # noqa: S608 - ours
        yield AttemptRecord(
            row["attempt_id"], row["task_id"], row["agent"], tuple(kernels.get(row["attempt_id"], ()))
        )
