"""What GPUs can do, measured once per device and software, and kept."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.memory_store.database import Database
from adaexplore_mcp.memory_store.records import from_json, to_json

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["CeilingTable"]


class CeilingTable:
    """The measured ceilings of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, device: str, software: str, ceilings: Mapping[str, Any]) -> None:
        """Keep what a device can do, in place of what was measured before.

        Args:
            device: Its UUID.
            software: Versions that what it can do depends on.
            ceilings: As they were measured.
        """
        values = [device, software, to_json(ceilings), time.time()]

        def put(sqlite: "Sqlite") -> None:
            sqlite.conn.execute("INSERT OR REPLACE INTO ceilings VALUES (?, ?, ?, ?)", values)

        await self._database.write(put)

    async def all(self, software: str) -> dict[str, dict[str, Any]]:
        """Return what devices can do with this software, by UUID."""

        def every(sqlite: "Sqlite") -> dict[str, dict[str, Any]]:
            rows = sqlite.query("SELECT device, ceilings FROM ceilings WHERE software = ?", [software])
            return {row["device"]: from_json(row["ceilings"]) for row in rows}

        return await self._database.read(every)
