"""Tasks: registered once, fixed by their content."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.records import TaskRecord, from_json, to_json
from adaexplore_mcp.models import TaskSummary

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["TaskTable"]


class TaskTable:
    """The tasks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, record: TaskRecord) -> bool:
        """Keep a task, in place of one with this id: its name may be another, its plans those of this version.

        Returns:
            Whether the task is new.
        """

        def put(sqlite: "Sqlite") -> bool:
            known = sqlite.execute("SELECT 1 FROM tasks WHERE task_id = ?", [record.task_id]).fetchone()
            sqlite.conn.execute(
                "INSERT INTO tasks (task_id, name, format, content, summary, created_at) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (task_id) DO UPDATE"
                " SET name = excluded.name, content = excluded.content, summary = excluded.summary",
                [
                    record.task_id,
                    record.summary.name,
                    record.summary.format,
                    to_json(record.content),
                    to_json(record.summary.to_wire()),
                    time.time(),
                ],
            )
            return known is None

        return await self._database.write(put)

    async def get(self, task_id: str) -> TaskRecord | None:
        """Return a task, or None where there is none with this id."""

        def get(sqlite: "Sqlite") -> TaskRecord | None:
            return next(map(_record, sqlite.table("tasks").rows_where("task_id = ?", [task_id])), None)

        return await self._database.read(get)

    async def list(self, query: str = "", limit: int = 20, after: str = "") -> tuple[list[TaskRecord], bool]:
        """Return tasks, latest first, and whether there are more.

        Args:
            query: Words of which each must occur in the id, the name or the description.
            limit: Most tasks to return.
            after: Id of the last task of the page before; an unknown one gives an empty page.
        """

        def list_(sqlite: "Sqlite") -> tuple[list[TaskRecord], bool]:
            where, values = _matching(query)
            if after:
                where.append("number < (SELECT number FROM tasks WHERE task_id = ?)")
                values.append(after)
            rows = sqlite.table("tasks").rows_where(
                " AND ".join(where) or None, values, order_by="number DESC", limit=limit + 1
            )
            records = [_record(row) for row in rows]
            return records[:limit], len(records) > limit

        return await self._database.read(list_)

    async def names(self, limit: int = 1000) -> Iterable[tuple[str, str]]:
        """Return id and name of the latest tasks, to find the one that was meant."""

        def names(sqlite: "Sqlite") -> Iterable[tuple[str, str]]:
            rows = sqlite.query("SELECT task_id, name FROM tasks ORDER BY number DESC LIMIT ?", [limit])
            return [(str(row["task_id"]), str(row["name"])) for row in rows]

        return await self._database.read(names)


def _matching(query: str) -> tuple[list[str], list[Any]]:
    """Return conditions and their values: each word occurs somewhere, in any letter case."""
    words = query.replace("\0", " ").split()[:20]
    condition = "instr(lower(task_id || ' ' || name || ' ' || coalesce(json_extract(summary, '$.description'), '')), ?) > 0"
    return [condition] * len(words), [word.lower() for word in words]


def _record(row: dict[str, Any]) -> TaskRecord:
    return TaskRecord(
        task_id=row["task_id"],
        content=from_json(row["content"]),
        # A newer server may have written fields that this one does not know.
        summary=TaskSummary.model_validate(from_json(row["summary"]), extra="ignore"),
        created_at=row["created_at"],
    )
