"""Candidates, and what became of them: outcome, receipt and long texts, written together."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.handles import content_handle, new_handle
from adaexplore_mcp.memory_store.records import ArtifactRecord, ReceiptRecord, from_json, storable, to_json
from adaexplore_mcp.memory_store.runrecords import read_node_handle
from adaexplore_mcp.models import ArtifactRef, Outcome, Profile

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["EvaluationTable", "candidate_id_of", "keep_candidate"]


def candidate_id_of(source: bytes) -> str:
    """Return the handle under which this source is kept."""
    return content_handle("cand", hashlib.sha256(source).hexdigest())


class EvaluationTable:
    """The candidates, outcomes, receipts and artifacts of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep_candidate(self, source: bytes) -> str:
        """Keep a candidate's source, which may be any bytes, and return its candidate_id."""
        return await self._database.write(lambda sqlite: keep_candidate(sqlite, source))

    async def candidate(self, candidate_id: str) -> bytes | None:
        """Return the source of a candidate, or of a node of a search; None where there is none with this id."""
        node = read_node_handle(candidate_id)

        def candidate(sqlite: "Sqlite") -> bytes | None:
            if node is None:
                rows = sqlite.query("SELECT source FROM candidates WHERE candidate_id = ?", [candidate_id])
            else:
                rows = sqlite.query(
                    "SELECT source FROM nodes JOIN candidates USING (candidate_id) WHERE run_id = ? AND node = ?",
                    list(node),
                )
            return next((bytes(row["source"]) for row in rows), None)

        return await self._database.read(candidate)

    async def record(
        self,
        outcome: Outcome,
        source: bytes,
        *,
        receipt: Mapping[str, Any],
        texts: Sequence[tuple[str, str]] = (),
        agent: str = "",
        elapsed_s: float = 0.0,
    ) -> Outcome:
        """Keep an outcome with its candidate, receipt and long texts, in one transaction.

        Args:
            outcome: What became of the candidate; its task must be kept already.
            source: The candidate.
            receipt: Enough to run it again.
            texts: Kind and text of each artifact.
            agent: Label of who asked.
            elapsed_s: Wall time of the evaluation, in seconds.

        Returns:
            The outcome, completed with candidate_id, receipt_id and artifacts.
        """
        kept = [(new_handle("art"), kind, storable(text)) for kind, text in texts]
        outcome = outcome.model_copy(
            update={
                "candidate_id": candidate_id_of(source),
                "receipt_id": new_handle("rcpt"),
                "artifacts": [
                    *outcome.artifacts,
                    *(ArtifactRef(artifact_id=id_, kind=kind, size=len(text)) for id_, kind, text in kept),
                ],
            }
        )
        outcome_id = new_handle("out")

        def record(sqlite: "Sqlite") -> None:
            now = time.time()
            keep_candidate(sqlite, source)
            sqlite.conn.execute(
                "INSERT INTO outcomes (outcome_id, task_id, candidate_id, status, outcome, agent, created_at, elapsed_s)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    outcome_id,
                    outcome.task_id,
                    outcome.candidate_id,
                    outcome.status,
                    to_json(outcome.to_wire()),
                    storable(agent),
                    now,
                    elapsed_s,
                ],
            )
            sqlite.conn.execute(
                "INSERT INTO receipts (receipt_id, outcome_id, receipt) VALUES (?, ?, ?)",
                [outcome.receipt_id, outcome_id, to_json(receipt)],
            )
            sqlite.conn.executemany(
                "INSERT INTO artifacts (artifact_id, outcome_id, kind, text, size, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                [(id_, outcome_id, kind, text, len(text), now) for id_, kind, text in kept],
            )

        await self._database.write(record)
        return outcome

    async def keep_profile(
        self, profile: Profile, source: bytes, texts: Sequence[tuple[str, str]]
    ) -> Profile:
        """Keep what a profile was made from, and its candidate, in one transaction; a profile itself is made anew.

        Args:
            profile: Of a candidate of a task that is kept already.
            source: The candidate.
            texts: Kind and text of each artifact.

        Returns:
            The profile, completed with its artifacts.
        """
        kept = [(new_handle("art"), kind, storable(text)) for kind, text in texts]

        def keep(sqlite: "Sqlite") -> None:
            now = time.time()
            keep_candidate(sqlite, source)
            sqlite.conn.executemany(
                "INSERT INTO profile_artifacts (artifact_id, task_id, candidate_id, kind, text, size, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (id_, profile.task_id, candidate_id_of(source), kind, text, len(text), now)
                    for id_, kind, text in kept
                ],
            )

        await self._database.write(keep)
        artifacts = [ArtifactRef(artifact_id=id_, kind=kind, size=len(text)) for id_, kind, text in kept]
        return profile.model_copy(update={"artifacts": [*profile.artifacts, *artifacts]})

    async def outcomes(self, task_id: str, candidate_id: str = "", limit: int = 20) -> list[Outcome]:
        """Return the outcomes of a task, latest first, of one candidate where its id is given."""

        def outcomes(sqlite: "Sqlite") -> list[Outcome]:
            rows = sqlite.query(
                "SELECT outcome FROM outcomes WHERE task_id = ? AND ? IN ('', candidate_id)"
                " ORDER BY number DESC LIMIT ?",
                [task_id, candidate_id, limit],
            )
            return [_outcome(row["outcome"]) for row in rows]

        return await self._database.read(outcomes)

    async def sent_before(self, task_id: str, candidate_id: str, agent: str) -> str:
        """Return the candidate_id of what an agent had judged last for a task before a candidate; empty where there is none."""

        def before(sqlite: "Sqlite") -> str:
            rows = sqlite.query(
                "SELECT candidate_id FROM outcomes WHERE task_id = ? AND agent = ? AND candidate_id != ?"
                " ORDER BY number DESC LIMIT 1",
                [task_id, storable(agent), candidate_id],
            )
            return next((str(row["candidate_id"]) for row in rows), "")

        return await self._database.read(before)

    async def receipts(self, task_id: str, candidate_id: str, limit: int = 20) -> list[ReceiptRecord]:
        """Return the receipts of a candidate at a task, latest first, for the server itself: nobody is told their seeds."""

        def receipts(sqlite: "Sqlite") -> list[ReceiptRecord]:
            rows = sqlite.query(
                "SELECT receipt_id, receipt, outcome, created_at FROM outcomes JOIN receipts USING (outcome_id)"
                " WHERE task_id = ? AND candidate_id = ? ORDER BY number DESC LIMIT ?",
                [task_id, candidate_id, limit],
            )
            return [
                ReceiptRecord(
                    row["receipt_id"], from_json(row["receipt"]), _outcome(row["outcome"]), row["created_at"]
                )
                for row in rows
            ]

        return await self._database.read(receipts)

    async def tell_receipt(self, receipt_id: str) -> ReceiptRecord | None:
        """Return a receipt with its outcome, or None where there is none with this id.

        It names the seeds of its trials, which from then on are known: see `told_since`.
        """

        def receipt(sqlite: "Sqlite") -> ReceiptRecord | None:
            rows = sqlite.query(
                "SELECT receipt, outcome, created_at FROM receipts JOIN outcomes USING (outcome_id)"
                " WHERE receipt_id = ?",
                [receipt_id],
            )
            row = next(iter(rows), None)
            if row is None:
                return None
            content = from_json(row["receipt"])
            sqlite.conn.executemany(
                "INSERT OR IGNORE INTO told_trials (trials) VALUES (?)",
                [[each["trials"]] for each in content.get("workloads", {}).values() if "trials" in each],
            )
            return ReceiptRecord(receipt_id, content, _outcome(row["outcome"]), row["created_at"])

        return await self._database.write(receipt)

    async def told_since(self, number: int) -> tuple[list[str], int]:
        """Return the trials whose seeds any server has told anyone after a number, and the number to ask with next."""

        def told(sqlite: "Sqlite") -> tuple[list[str], int]:
            rows = list(
                sqlite.query(
                    "SELECT number, trials FROM told_trials WHERE number > ? ORDER BY number", [number]
                )
            )
            return [str(row["trials"]) for row in rows], int(rows[-1]["number"]) if rows else number

        return await self._database.read(told)

    async def artifact(self, artifact_id: str) -> ArtifactRecord | None:
        """Return a long text, or None where there is none with this id."""

        def artifact(sqlite: "Sqlite") -> ArtifactRecord | None:
            rows = sqlite.query(
                "SELECT artifact_id, kind, text, created_at FROM artifacts WHERE artifact_id = ?"
                " UNION ALL SELECT artifact_id, kind, text, created_at FROM profile_artifacts WHERE artifact_id = ?",
                [artifact_id, artifact_id],
            )
            return next((ArtifactRecord(**row) for row in rows), None)

        return await self._database.read(artifact)

    async def ids(self, kind: str, limit: int = 1000) -> list[str]:
        """Return the latest candidate, receipt or artifact ids, to find the one that was meant.

        Args:
            kind: candidate, receipt or artifact.
            limit: Most ids to return.
        """
        assert kind in {"candidate", "receipt", "artifact"}, kind

        def ids(sqlite: "Sqlite") -> list[str]:
            rows = sqlite.table(f"{kind}s").rows_where(
                select=f"{kind}_id", order_by="rowid DESC", limit=limit
            )
            return [str(row[f"{kind}_id"]) for row in rows]

        return await self._database.read(ids)


def keep_candidate(sqlite: "Sqlite", source: bytes) -> str:
    """Keep a candidate inside a transaction of the caller's."""
    candidate_id = candidate_id_of(source)
    sqlite.conn.execute(
        "INSERT INTO candidates (candidate_id, sha256, source, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (sha256) DO NOTHING",
        [candidate_id, hashlib.sha256(source).hexdigest(), source, time.time()],
    )
    return candidate_id


def _outcome(text: str) -> Outcome:
    # A newer server may have written fields that this one does not know.
    return Outcome.model_validate(from_json(text), extra="ignore")
