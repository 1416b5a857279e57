"""Searches: runs, their steps and nodes, changed by several agents and several servers at once.

A submission is kept before it is judged, and what becomes of it in one transaction. Who judges one is written down with
it, so that another server can tell whether it still does.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.evaluations import keep_candidate
from adaexplore_mcp.memory_store.records import Owner, from_json, to_json
from adaexplore_mcp.memory_store.runrecords import FreshNode, NodeRecord, RunRecord, StepRecord, TreeRow

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["Claim", "RunState", "RunTable", "Submission", "Submitted"]

Gone = Callable[[StepRecord], bool]
"""Tells of a submitted step whether its owner can no longer finish it."""

TREE = "node, parent, kind, step, status, speedup, low, eligible, charged, roofline_share"


@dataclass(frozen=True, slots=True)
class RunState:
    """What a server needs to go on with a run, in one snapshot."""

    run: RunRecord
    steps: tuple[StepRecord, ...]
    """Those that are not answered, and the final ones of this round, in order."""
    nodes: tuple[TreeRow, ...]
    """In the order of recording, after the one that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A kernel for a step."""

    source: bytes
    digest: str
    idea: str = ""
    change: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission.

    accepted: it is kept, or was before. answered: the step has its answer. busy: another kernel of it is being judged.
    duplicate: `node` is the same kernel. closed: the run has stopped.
    """

    verdict: Literal["accepted", "answered", "busy", "duplicate", "closed"]
    step: StepRecord
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether a submission is the caller's to judge.

    claimed: it is. wait: somebody else judges it, or the same kernel. done: there is nothing to judge any more.
    duplicate: meanwhile `node` is the same kernel.
    """

    verdict: Literal["claimed", "wait", "done", "duplicate"]
    step: StepRecord
    node: int | None = None


class RunTable:
    """The searches of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def create(self, run: RunRecord, starts: Sequence[tuple[StepRecord, bytes]] = ()) -> None:
        """Keep a new run with the kernels that it begins with."""

        def create(sqlite: "Sqlite") -> None:
            now = time.time()
            sqlite.conn.execute(
                "INSERT INTO runs"
                " (run_id, task_id, settings, seed, max_steps, status, agent, device, created_at, updated_at)"
                " VALUES (?, ?, ?, ?, ?, 'open', ?, ?, ?, ?)",
                [
                    run.run_id,
                    run.task_id,
                    to_json(run.settings),
                    run.seed,
                    run.max_steps,
                    run.agent,
                    run.device,
                    now,
                    now,
                ],
            )
            for step, source in starts:
                _insert(sqlite, dataclasses.replace(step, candidate_id=keep_candidate(sqlite, source)))

        await self._database.write(create)

    async def get(self, run_id: str) -> RunRecord | None:
        """Return a run, or None where there is none with this id."""
        return await self._database.read(lambda sqlite: _run(sqlite, run_id))

    async def latest(self, limit: int = 20) -> list[tuple[RunRecord, int]]:
        """Return the latest runs, latest first, each with its number of nodes."""

        def latest(sqlite: "Sqlite") -> list[tuple[RunRecord, int]]:
            rows = sqlite.query(
                "SELECT *, (SELECT count(*) FROM nodes WHERE nodes.run_id = runs.run_id) AS nodes"
                " FROM runs ORDER BY number DESC LIMIT ?",
                [limit],
            )
            return [(_run_of(row), int(row["nodes"])) for row in rows]

        return await self._database.read(latest)

    async def ids(self, kind: Literal["run", "step"] = "run", run_id: str = "") -> list[str]:
        """Return the latest ids of runs, or of steps of one run where its id is given."""

        def ids(sqlite: "Sqlite") -> list[str]:
            of = " WHERE run_id = ?" if run_id else ""
            statement = f"SELECT {kind}_id AS id FROM {kind}s{of} ORDER BY number DESC LIMIT 1000"  # noqa: S608 - no input
            return [str(row["id"]) for row in sqlite.query(statement, [run_id] if run_id else [])]

        return await self._database.read(ids)

    async def state(self, run_id: str, after: int = 0) -> RunState | None:
        """Return a run with its open steps and the nodes recorded after a number; None where there is no such run."""

        def state(sqlite: "Sqlite") -> RunState | None:
            if (run := _run(sqlite, run_id)) is None:
                return None
            steps = sqlite.query(
                "SELECT * FROM steps WHERE run_id = ? AND (state IN ('open', 'submitted')"
                " OR purpose = 'final' AND step = ?) ORDER BY number",
                [run_id, run.round],
            )
            rows = sqlite.conn.execute(
                f"SELECT {TREE} FROM nodes WHERE run_id = ? AND node > ? ORDER BY node",  # noqa: S608 - no input
                [run_id, after],
            )
            return RunState(run, tuple(map(_step_of, steps)), tuple(map(_tree_of, rows)))

        return await self._database.read(state)

    async def stop(
        self, run_id: str, version: int, reason: str, finals: Sequence[tuple[StepRecord, bytes]]
    ) -> bool:
        """End a run and keep what is to be evaluated again; False if the run has changed since this version."""

        def stop(sqlite: "Sqlite") -> bool:
            if not _advance(sqlite, run_id, version):
                return False
            sqlite.conn.execute(
                "UPDATE runs SET status = 'stopped', stop_reason = ? WHERE run_id = ?", [reason, run_id]
            )
            for step, source in finals:
                _insert(sqlite, dataclasses.replace(step, candidate_id=keep_candidate(sqlite, source)))
            return True

        return await self._database.write(stop)

    async def resume(self, run_id: str, version: int, max_steps: int, charged_steps: int) -> bool:
        """Have a stopped run go on; False if it has changed since this version."""

        def resume(sqlite: "Sqlite") -> bool:
            if not _advance(sqlite, run_id, version):
                return False
            sqlite.conn.execute(
                "UPDATE runs SET status = 'open', stop_reason = '', max_steps = ?, resumed_at = ?, round = round + 1"
                " WHERE run_id = ?",
                [max_steps, charged_steps, run_id],
            )
            return True

        return await self._database.write(resume)

    # -- steps --------------------------------------------------------------------------------------------------------

    async def step(self, step_id: str) -> StepRecord | None:
        """Return a step, or None where there is none with this id."""
        return await self._database.read(lambda sqlite: _step(sqlite, step_id))

    async def propose(self, step: StepRecord, version: int, replaces: str = "") -> bool:
        """Keep an open proposal.

        Args:
            step: The proposal.
            version: Of the run for which it was made.
            replaces: Id of one whose time is up and that this one gives out again.

        Returns:
            Whether it is kept: False if the run has changed since.
        """

        def propose(sqlite: "Sqlite") -> bool:
            if not _advance(sqlite, step.run_id, version):
                return False
            if replaces:
                sqlite.conn.execute("UPDATE steps SET state = 'expired' WHERE step_id = ?", [replaces])
            else:
                sqlite.conn.execute(
                    "UPDATE runs SET next_step = next_step + 1 WHERE run_id = ?", [step.run_id]
                )
            _insert(sqlite, step)
            return True

        return await self._database.write(propose)

    async def renew(self, step_id: str, until: float) -> None:
        """Let an open proposal live on."""

        def renew(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "UPDATE steps SET leased_until = ? WHERE step_id = ? AND state = 'open'", [until, step_id]
            )

        await self._database.write(renew)

    async def submit(self, step_id: str, given: Submission, owner: Owner, gone: Gone) -> Submitted:
        """Keep a kernel for a step, before it is judged."""

        def submit(sqlite: "Sqlite") -> Submitted:
            step = _step(sqlite, step_id)
            assert step is not None, step_id
            if step.state == "answered":
                return Submitted("answered", step, step.node)
            if step.state == "submitted":
                if step.digest == given.digest:
                    return Submitted("accepted", step)
                if not gone(step):
                    return Submitted("busy", step)
            run = _run(sqlite, step.run_id)
            assert run is not None, step.run_id
            if run.status == "stopped":
                return Submitted("closed", step)
            if (node := _same(sqlite, step.run_id, given.digest)) is not None:
                _know(sqlite, step.run_id, given.agent, [node])
                _update(sqlite, step_id, node=node, answer="{}")
                return Submitted("duplicate", step, node)
            _update(
                sqlite,
                step_id,
                state="submitted",
                candidate_id=keep_candidate(sqlite, given.source),
                digest=given.digest,
                idea=given.idea,
                change=given.change,
                agent=given.agent,
                charged=int(step.charged and step.state != "expired"),
                node=None,
                owner_host=owner.host,
                owner_pid=owner.pid,
                owner_started=owner.started,
                claimed_at=0.0,
            )
            _touch(sqlite, step.run_id)
            kept = _step(sqlite, step_id)
            assert kept is not None
            return Submitted("accepted", kept)

        return await self._database.write(submit)

    async def claim(self, step_id: str, owner: Owner, gone: Gone) -> Claim:
        """Take up a submission to judge it, unless somebody does."""

        def claim(sqlite: "Sqlite") -> Claim:
            step = _step(sqlite, step_id)
            assert step is not None, step_id
            if step.state != "submitted":
                return Claim("done", step, step.node)
            if step.claimed_at and not gone(step):
                return Claim("wait", step)
            if step.purpose != "final":
                if (node := _same(sqlite, step.run_id, step.digest)) is not None:
                    return Claim("duplicate", _fold(sqlite, step, node), node)
                for row in sqlite.query(
                    "SELECT * FROM steps WHERE run_id = ? AND state = 'submitted' AND digest = ?"
                    " AND claimed_at > 0 AND step_id != ? AND purpose != 'final'",
                    [step.run_id, step.digest, step_id],
                ):
                    if not gone(_step_of(row)):
                        return Claim("wait", step)
            _update(
                sqlite,
                step_id,
                owner_host=owner.host,
                owner_pid=owner.pid,
                owner_started=owner.started,
                claimed_at=time.time(),
            )
            return Claim("claimed", step)

        return await self._database.write(claim)

    async def release(self, step_id: str, owner: Owner) -> None:
        """Leave a submission to whoever takes it up next."""

        def release(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "UPDATE steps SET owner_host = '', owner_pid = 0, owner_started = 0, claimed_at = 0"
                " WHERE step_id = ? AND state = 'submitted' AND owner_host = ? AND owner_pid = ? AND owner_started = ?",
                [step_id, owner.host, owner.pid, owner.started],
            )

        await self._database.write(release)

    async def abandon(self, step_id: str, owner: Owner, answer: Mapping[str, Any], until: float) -> bool:
        """Give up a submission that nobody judges: its proposal is open again, and nothing is charged.

        Args:
            step_id: The step.
            owner: Who gives it up.
            answer: What is kept of it, as JSON can carry it.
            until: How long the open proposal lives.

        Returns:
            False if somebody has taken it up, or it has ended.
        """

        def abandon(sqlite: "Sqlite") -> bool:
            step = _step(sqlite, step_id)
            assert step is not None, step_id
            if step.state != "submitted" or step.claimed_at or (step.owner.pid and step.owner != owner):
                return False
            _reopen(sqlite, step, until, answer)
            _touch(sqlite, step.run_id)
            return True

        return await self._database.write(abandon)

    async def finish(
        self, step_id: str, owner: Owner, fresh: FreshNode | None, answer: Mapping[str, Any], until: float
    ) -> StepRecord:
        """Keep what became of a claimed submission: all of it in one transaction.

        Args:
            step_id: The step.
            owner: Who judged it.
            fresh: The node that it becomes; None if it becomes none: then a proposal is open again.
            answer: The outcome, as JSON can carry it.
            until: How long a proposal that is open again lives.

        Returns:
            The step as it stands. If somebody else has finished it, nothing has changed.
        """

        def finish(sqlite: "Sqlite") -> StepRecord:
            step = _step(sqlite, step_id)
            assert step is not None, step_id
            if step.state != "submitted" or step.owner != owner:
                return step
            if step.purpose == "final" or (fresh is None and step.purpose == "start"):
                _update(sqlite, step_id, state="answered", answer=to_json(answer), claimed_at=0.0)
            elif fresh is None:
                _reopen(sqlite, step, until, answer)
            elif (node := _same(sqlite, step.run_id, step.digest)) is not None:
                _fold(sqlite, step, node)
            else:
                node = _grow(sqlite, step, fresh, answer)
                _update(sqlite, step_id, state="answered", answer=to_json(answer), node=node, claimed_at=0.0)
                if step.purpose != "start":  # a path was named: who named it may not have read it
                    _know(sqlite, step.run_id, step.agent, [node])
            _touch(sqlite, step.run_id)
            kept = _step(sqlite, step_id)
            assert kept is not None
            return kept

        return await self._database.write(finish)

    # -- nodes --------------------------------------------------------------------------------------------------------

    async def nodes(self, run_id: str, numbers: Iterable[int]) -> dict[int, NodeRecord]:
        """Return nodes of a run by number; those that do not exist are left out."""
        wanted = sorted(set(numbers))

        def nodes(sqlite: "Sqlite") -> dict[int, NodeRecord]:
            marks = ", ".join("?" * len(wanted))
            rows = sqlite.query(
                f"SELECT * FROM nodes WHERE run_id = ? AND node IN ({marks})",  # noqa: S608 - question marks
                [run_id, *wanted],
            )
            return {record.tree.node: record for record in map(_node_of, rows)}

        return await self._database.read(nodes) if wanted else {}

    async def history(self, run_id: str, after: int, limit: int) -> list[NodeRecord]:
        """Return nodes in the order of recording, after a number."""

        def history(sqlite: "Sqlite") -> list[NodeRecord]:
            rows = sqlite.query(
                "SELECT * FROM nodes WHERE run_id = ? AND node > ? ORDER BY node LIMIT ?",
                [run_id, after, limit],
            )
            return list(map(_node_of, rows))

        return await self._database.read(history)

    async def known(self, run_id: str, agent: str) -> set[int]:
        """Return the nodes that an agent got or wrote; 0 stands for the task."""

        def known(sqlite: "Sqlite") -> set[int]:
            rows = sqlite.query("SELECT node FROM shown WHERE run_id = ? AND agent = ?", [run_id, agent])
            return {int(row["node"]) for row in rows}

        return await self._database.read(known)

    async def know(self, run_id: str, agent: str, nodes: Iterable[int]) -> None:
        """Remember that an agent got nodes."""
        numbers = list(nodes)
        await self._database.write(lambda sqlite: _know(sqlite, run_id, agent, numbers))


def _run(sqlite: "Sqlite", run_id: str) -> RunRecord | None:
    return next(map(_run_of, sqlite.query("SELECT * FROM runs WHERE run_id = ?", [run_id])), None)


def _step(sqlite: "Sqlite", step_id: str) -> StepRecord | None:
    return next(map(_step_of, sqlite.query("SELECT * FROM steps WHERE step_id = ?", [step_id])), None)


def _advance(sqlite: "Sqlite", run_id: str, version: int) -> bool:
    """Count a change of a run, if it is still as it was at this version."""
    changed = sqlite.conn.execute(
        "UPDATE runs SET version = version + 1, updated_at = ? WHERE run_id = ? AND version = ?",
        [time.time(), run_id, version],
    )
    return bool(changed.rowcount == 1)


def _touch(sqlite: "Sqlite", run_id: str) -> None:
    sqlite.conn.execute(
        "UPDATE runs SET version = version + 1, updated_at = ? WHERE run_id = ?", [time.time(), run_id]
    )


def _insert(sqlite: "Sqlite", step: StepRecord) -> None:
    now = time.time()
    row = {
        field.name: getattr(step, field.name)
        for field in dataclasses.fields(step)
        if field.name not in {"context", "owner", "answer"}
    }
    row |= {
        "context": json.dumps(step.context),
        "forced": int(step.forced),
        "charged": int(step.charged),
        "created_at": now,
        "updated_at": now,
    }
    names = ", ".join(row)
    marks = ", ".join("?" * len(row))
    sqlite.conn.execute(f"INSERT INTO steps ({names}) VALUES ({marks})", list(row.values()))  # noqa: S608 - field names


def _update(sqlite: "Sqlite", step_id: str, **values: str | float | None) -> None:
    values["updated_at"] = time.time()
    names = ", ".join(f"{name} = ?" for name in values)
    sqlite.conn.execute(f"UPDATE steps SET {names} WHERE step_id = ?", [*values.values(), step_id])  # noqa: S608 - names


def _same(sqlite: "Sqlite", run_id: str, digest: str) -> int | None:
    """Return the node of a run that is the same kernel."""
    row = sqlite.conn.execute(
        "SELECT node FROM nodes WHERE run_id = ? AND digest = ?", [run_id, digest]
    ).fetchone()
    return None if row is None else int(row[0])


def _fold(sqlite: "Sqlite", step: StepRecord, node: int) -> StepRecord:
    """Answer a step from the node of the same kernel: a proposal is open again."""
    if step.purpose == "ask":
        _reopen(sqlite, step, step.leased_until, node=node)
    else:
        _update(sqlite, step.step_id, state="answered", node=node, claimed_at=0.0)
    _know(sqlite, step.run_id, step.agent, [node])
    _touch(sqlite, step.run_id)
    kept = _step(sqlite, step.step_id)
    assert kept is not None
    return kept


def _reopen(
    sqlite: "Sqlite",
    step: StepRecord,
    until: float,
    answer: Mapping[str, Any] | None = None,
    node: int | None = None,
) -> None:
    """Have a step wait for a kernel again, and keep why: an outcome that makes no node, or the node of the same kernel."""
    _update(
        sqlite,
        step.step_id,
        # One that had been given out again stays an extra.
        state="open" if step.charged else "expired",
        leased_until=until,
        candidate_id=None,
        digest="",
        idea="",
        change="",
        owner_host="",
        owner_pid=0,
        owner_started=0,
        claimed_at=0.0,
        answer=to_json(answer or {}),
        node=node,
    )


def _grow(sqlite: "Sqlite", step: StepRecord, fresh: FreshNode, answer: Mapping[str, Any]) -> int:
    """Add a node to a run's tree and return its number."""
    (last,) = sqlite.conn.execute(
        "SELECT coalesce(max(node), 0) FROM nodes WHERE run_id = ?", [step.run_id]
    ).fetchone()
    row = {
        "run_id": step.run_id,
        "node": int(last) + 1,
        "parent": step.parent,
        "kind": step.kind,
        "step": step.step,
        "status": fresh.status,
        "speedup": fresh.speedup,
        "low": fresh.low,
        "eligible": int(fresh.eligible),
        "charged": int(step.charged),
        "roofline_share": fresh.roofline_share,
        "digest": step.digest,
        "candidate_id": step.candidate_id,
        "idea": step.idea,
        "change": step.change,
        "path": step.path,
        "agent": step.agent,
        "outcome": to_json(answer),
        "created_at": time.time(),
    }
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    sqlite.conn.execute(f"INSERT INTO nodes ({names}) VALUES ({marks})", list(row.values()))  # noqa: S608 - names
    return int(last) + 1


def _know(sqlite: "Sqlite", run_id: str, agent: str, nodes: Iterable[int]) -> None:
    sqlite.conn.executemany(
        "INSERT OR IGNORE INTO shown (run_id, agent, node) VALUES (?, ?, ?)",
        [(run_id, agent, node) for node in nodes],
    )


def _run_of(row: dict[str, Any]) -> RunRecord:
    fields = {field.name: row[field.name] for field in dataclasses.fields(RunRecord)}
    return RunRecord(**{**fields, "settings": from_json(row["settings"])})


def _step_of(row: dict[str, Any]) -> StepRecord:
    fields = {
        field.name: row[field.name] for field in dataclasses.fields(StepRecord) if field.name != "owner"
    }
    return StepRecord(
        **{
            **fields,
            "context": tuple(json.loads(row["context"])),
            "forced": bool(row["forced"]),
            "charged": bool(row["charged"]),
            "answer": from_json(row["answer"]),
        },
        owner=Owner(row["owner_host"], row["owner_pid"], row["owner_started"]),
    )


def _tree_of(row: tuple[Any, ...]) -> TreeRow:
    node, parent, kind, step, status, speedup, low, eligible, charged, share = row
    return TreeRow(
        node=node,
        parent=parent,
        kind=kind,
        step=step,
        status=status,
        speedup=speedup,
        low=low,
        eligible=bool(eligible),
        charged=bool(charged),
        roofline_share=share,
    )


def _node_of(row: dict[str, Any]) -> NodeRecord:
    return NodeRecord(
        run_id=row["run_id"],
        tree=_tree_of(tuple(row[name] for name in TREE.split(", "))),
        digest=row["digest"],
        candidate_id=row["candidate_id"],
        idea=row["idea"],
        change=row["change"],
        path=row["path"],
        agent=row["agent"],
        outcome=from_json(row["outcome"]),
        created_at=row["created_at"],
    )
