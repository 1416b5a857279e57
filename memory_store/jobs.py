"""Jobs: evaluations that outlasted their call, seen by every server on the database."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.evaluations import keep_candidate
from adaexplore_mcp.memory_store.records import JobRecord, JobStatus, Owner, from_json, to_json

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["JobTable"]


class JobTable:
    """The jobs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, job: JobRecord, candidate: bytes | None = None) -> None:
        """Keep a running job, with its candidate so that it can be asked for again."""

        def start(sqlite: "Sqlite") -> None:
            if candidate is not None:
                keep_candidate(sqlite, candidate)
            sqlite.conn.execute(
                "INSERT INTO jobs (job_id, tool, request, owner_host, owner_pid, owner_started, heartbeat_at,"
                " status, stage, progress, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    job.job_id,
                    job.tool,
                    to_json(job.arguments),
                    job.owner.host,
                    job.owner.pid,
                    job.owner.started,
                    job.heartbeat_at,
                    job.status,
                    job.stage,
                    job.progress,
                    job.created_at,
                ],
            )

        await self._database.write(start)

    async def beat(self, progress: Mapping[str, tuple[str, float]]) -> None:
        """Say that these jobs run: their stage, and the seconds they have run."""

        def beat(sqlite: "Sqlite") -> None:
            now = time.time()
            sqlite.conn.executemany(
                "UPDATE jobs SET heartbeat_at = ?, stage = ?, progress = ? WHERE job_id = ? AND status = 'running'",
                [(now, stage, seconds, job_id) for job_id, (stage, seconds) in progress.items()],
            )

        await self._database.write(beat)

    async def cancel_requests(self, owner: Owner) -> set[str]:
        """Return the running jobs of this process that somebody asked to cancel."""

        def cancel_requests(sqlite: "Sqlite") -> set[str]:
            rows = sqlite.query(
                "SELECT job_id FROM jobs WHERE status = 'running' AND cancel_requested"
                " AND owner_host = ? AND owner_pid = ? AND owner_started = ?",
                [owner.host, owner.pid, owner.started],
            )
            return {str(row["job_id"]) for row in rows}

        return await self._database.read(cancel_requests)

    async def request_cancel(self, job_id: str) -> None:
        """Ask the owner of a running job to cancel it."""

        def request_cancel(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "UPDATE jobs SET cancel_requested = 1 WHERE job_id = ? AND status = 'running'", [job_id]
            )

        await self._database.write(request_cancel)

    async def finish(
        self,
        job_id: str,
        status: JobStatus,
        *,
        result: Mapping[str, Any] | None = None,
        problem: str = "",
        next_step: str = "",
    ) -> None:
        """End a running job; one that has ended stays as it is."""

        def finish(sqlite: "Sqlite") -> None:
            now = time.time()
            sqlite.conn.execute(
                "UPDATE jobs SET status = ?, result = ?, problem = ?, next_step = ?, finished_at = ?,"
                " stage = '', progress = ? - created_at WHERE job_id = ? AND status = 'running'",
                [status, to_json(result or {}), problem, next_step, now, now, job_id],
            )

        await self._database.write(finish)

    async def interrupt(self, job_id: str) -> None:
        """End a running job whose owner is gone, at the time it last said that it runs."""

        def interrupt(sqlite: "Sqlite") -> None:
            sqlite.conn.execute(
                "UPDATE jobs SET status = 'interrupted', finished_at = heartbeat_at"
                " WHERE job_id = ? AND status = 'running'",
                [job_id],
            )

        await self._database.write(interrupt)

    async def get(self, job_id: str) -> JobRecord | None:
        """Return a job, or None where there is none with this id."""

        def get(sqlite: "Sqlite") -> JobRecord | None:
            return next(map(_record, sqlite.query("SELECT * FROM jobs WHERE job_id = ?", [job_id])), None)

        return await self._database.read(get)

    async def recent(self, limit: int = 20) -> list[JobRecord]:
        """Return the latest jobs, latest first."""

        def recent(sqlite: "Sqlite") -> list[JobRecord]:
            return list(
                map(_record, sqlite.query("SELECT * FROM jobs ORDER BY number DESC LIMIT ?", [limit]))
            )

        return await self._database.read(recent)

    async def ids(self, limit: int = 1000) -> list[str]:
        """Return the latest job ids, to find the one that was meant."""

        def ids(sqlite: "Sqlite") -> list[str]:
            rows = sqlite.query("SELECT job_id FROM jobs ORDER BY number DESC LIMIT ?", [limit])
            return [str(row["job_id"]) for row in rows]

        return await self._database.read(ids)


def _record(row: dict[str, Any]) -> JobRecord:
    return JobRecord(
        job_id=row["job_id"],
        tool=row["tool"],
        arguments=from_json(row["request"]),
        owner=Owner(row["owner_host"], row["owner_pid"], row["owner_started"]),
        created_at=row["created_at"],
        heartbeat_at=row["heartbeat_at"],
        status=row["status"],
        stage=row["stage"],
        progress=row["progress"],
        cancel_requested=bool(row["cancel_requested"]),
        result=from_json(row["result"]),
        problem=row["problem"],
        next_step=row["next_step"],
        finished_at=row["finished_at"],
    )
