"""One SQLite file, used by several server processes at once, from threads, without blocking the event loop.

Promises: what `write` has returned survives a kill of any process (WAL; a loss of power may cost the last few
transactions). Several processes may create the file at the same moment. Every failure is a `StoreError` whose text
says what to do. Does not promise anything on a network file system: it refuses those.
"""

import fcntl
import functools
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from adaexplore_mcp.errors import StoreError
from adaexplore_mcp.memory_store.filesystem import file_system_of, is_network

if TYPE_CHECKING:
    from sqlite_utils import Database as Sqlite

__all__ = ["Database"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_S = 15.0
"""How long a statement waits for another process's transaction; ours take milliseconds."""
SET_UP_S = 30.0
"""How long opening waits for another process that is creating or migrating the file."""
ELSEWHERE = "set --home or ADAEXPLORE_HOME to a folder on a local disk that this user may write to"


class Database:
    """Transactions on one file, each in a worker thread.

    Writes go through one connection and reads through another, so that a read never waits for another process's
    write. The file is opened at the first use; sqlite-utils is imported then, for it takes 0.2 s.

    Args:
        path: The file; it and its folder are made where they do not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = _Lane(functools.partial(_open, path, set_up=True))
        self._reader = _Lane(functools.partial(_open, path, set_up=False))
        self._ready = False
        self._identity: tuple[int, int] | None = None

    async def read(self, work: Callable[["Sqlite"], T]) -> T:
        """Run `work` in one snapshot of the database and return what it returns.

        Raises:
            StoreError: The database cannot be used.
        """
        await self._follow()
        if not self._ready:
            await self.write(lambda _: None)
        return await self._reader.run(functools.partial(self._transaction, work, "BEGIN"))

    async def write(self, work: Callable[["Sqlite"], T]) -> T:
        """Run `work` in one transaction: all of it is kept, or none.

        A cancelled caller waits until the transaction has ended.

        Raises:
            StoreError: The database cannot be used; nothing was kept.
        """
        await self._follow()
        result = await self._writer.run(functools.partial(self._transaction, work, "BEGIN IMMEDIATE"))
        if not self._ready:
            self._ready, self._identity = True, _identity(self.path)
        return result

    async def check(self) -> str:
        """Look for damage, and say how much the database holds.

        Raises:
            StoreError: The database cannot be used, or is damaged.
        """

        def check(sqlite: "Sqlite") -> str:
            (found,) = sqlite.conn.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise _damaged(self.path, found)
            counts = [f"{sqlite[name].count} {name}" for name in ("tasks", "candidates", "outcomes", "jobs")]
            return ", ".join(counts)

        await self.write(lambda _: None)
        return await self.read(check)

    async def aclose(self) -> None:
        """Close both connections; a later use opens them again."""
        for lane in (self._reader, self._writer):
            await lane.close()
        self._ready = False

    async def _follow(self) -> None:
        """Open the file anew if another one, or none, has its name: what is written to the old one nobody would find."""
        if self._ready and _identity(self.path) != self._identity:
            logger.warning("%s was removed or replaced while in use; it is opened anew", self.path)
            await self.aclose()

    def _transaction(self, work: Callable[["Sqlite"], T], begin: str, sqlite: "Sqlite") -> T:
        try:
            sqlite.conn.execute(begin)
            try:
                result = work(sqlite)
                sqlite.conn.execute("COMMIT")
            except BaseException:
                sqlite.rollback()
                raise
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        return result


class _Lane:
    """One connection, used by one thread at a time."""

    def __init__(self, connect: Callable[[], "Sqlite"]) -> None:
        self._connect = connect
        self._sqlite: Sqlite | None = None
        # Protects the connection: the limiter admits one caller, the lock also holds where event loops differ.
        self._lock = threading.Lock()
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, work: Callable[["Sqlite"], T]) -> T:
        self._limiter = self._limiter or anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(self._run, work, limiter=self._limiter)

    async def close(self) -> None:
        if self._sqlite is not None:
            await anyio.to_thread.run_sync(self._close, limiter=self._limiter)
        self._limiter = None

    def _run(self, work: Callable[["Sqlite"], T]) -> T:
        with self._lock:
            self._sqlite = self._sqlite or self._connect()
            return work(self._sqlite)

    def _close(self) -> None:
        with self._lock:
            if self._sqlite is not None:
                self._sqlite.close()
                self._sqlite = None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of the same name; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Say what an SQLite error means for the person who runs the server."""
    name = getattr(error, "sqlite_errorname", None) or ""
    where = f"The database {str(path)!r}"
    if name.startswith("SQLITE_FULL"):
        return StoreError(f"{where} cannot grow: the disk is full. Free some space, or {ELSEWHERE}.")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN", "SQLITE_AUTH")):
        return StoreError(f"{where} cannot be written: {error}. Fix its permissions, or {ELSEWHERE}.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _damaged(path, str(error))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(
            f"{where} was locked by another process for {BUSY_S:.0f} s. Look for a stopped process that has it open."
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"{where} cannot be read or written: {error} ({name}). Check the disk, or {ELSEWHERE}."
        )
    return StoreError(f"{where} refused a statement: {error} ({name or type(error).__name__}).")


def _damaged(path: Path, found: str) -> StoreError:
    return StoreError(
        f"The database {str(path)!r} is damaged: {found}. Stop every server, move the file and its -wal and -shm "
        "away, and start again; a new one is made."
    )


def _open(path: Path, *, set_up: bool) -> "Sqlite":
    """Open the file, and where asked to, create and migrate it."""
    from sqlite_utils import Database as Sqlite  # noqa: PLC0415 - 0.2 s, which the start of the server must not pay

    if sqlite3.sqlite_version_info < (3, 37):
        raise StoreError(
            f"This Python has SQLite {sqlite3.sqlite_version}; STRICT tables need 3.37. Use a newer Python."
        )
    if not set_up:
        try:
            return Sqlite(_connect(path), recursive_triggers=False, execute_plugins=False)
        except sqlite3.Error as error:
            raise explain(error, path) from error
    try:
        kind = file_system_of(path.parent.resolve())
        if is_network(kind):
            raise StoreError(
                f"The database folder {str(path.parent)!r} lies on a network file system ({kind}), where SQLite "
                f"loses data when two machines use it: {ELSEWHERE}."
            )
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"The database folder {str(path.parent)!r} cannot be used: {error.strerror}. Fix that, or {ELSEWHERE}."
        ) from error
    connection: sqlite3.Connection | None = None
    try:
        # Protects the birth of the file: switching to WAL fails at once, without the busy timeout, when another
        # process does the same; and two processes would both run a migration.
        _lock(lock, path)
        connection = _connect(path)
        sqlite = Sqlite(connection, recursive_triggers=False, execute_plugins=False)
        sqlite.enable_wal()
        # Only here, after sqlite-utils: its module imports it.
        from adaexplore_mcp.memory_store.migrations import migrate  # noqa: PLC0415 - as above

        migrate(sqlite, path)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise explain(error, path) from error
        raise
    finally:
        os.close(lock)  # releases it
    return sqlite


def _connect(path: Path) -> sqlite3.Connection:
    # One thread at a time (see _Lane), but not always the same one.
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        # A commit reaches the operating system but is not flushed to the disk: it survives kills, not power loss.
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _lock(descriptor: int, path: Path) -> None:
    """Wait for the set-up lock, for a bounded time."""
    deadline = time.monotonic() + SET_UP_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"Another process has been setting up the database {str(path)!r} for {SET_UP_S:.0f} s. "
                    "Look for a stopped process that has its .lock file open."
                ) from None
            time.sleep(0.02)
        else:
            return
