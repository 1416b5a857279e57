"""Private folders for the workers of one server: made, locked while the server lives, removed, swept when left behind.

Standard library only: the supervisor runs this too.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import time
from pathlib import Path

__all__ = ["ScratchError", "ScratchFolder", "remove_tree"]

LOCK_NAME = ".lock"
YOUNG_S = 60.0  # a folder this young may not have been locked yet by the server that made it


class ScratchError(Exception):
    """The place for scratch folders cannot be used."""


class ScratchFolder:
    """A folder that belongs to this process until it is closed or the process ends.

    Args:
        base: Folder below which it is made; created for this user alone if need be.

    Raises:
        ScratchError: The base belongs to someone else, is a link, or cannot be written.
    """

    def __init__(self, base: Path) -> None:
        _own_folder(base)
        sweep(base)
        self.path = base / f"{os.getpid()}-{secrets.token_hex(6)}"
        try:
            self.path.mkdir(mode=0o700)
            self._lock = (self.path / LOCK_NAME).open("w", encoding="ascii")
        except OSError as error:
            msg = f"cannot write to {str(base)!r}: {error.strerror}"
            raise ScratchError(msg) from error
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove the folder and give up its lock."""
        remove_tree(self.path)
        self._lock.close()


def _own_folder(base: Path) -> None:
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = base.lstat()
    except OSError as error:
        msg = f"cannot make the scratch folder {str(base)!r}: {error.strerror}"
        raise ScratchError(msg) from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
        msg = f"the scratch folder {str(base)!r} is a link or belongs to user {state.st_uid}, not {os.geteuid()}"
        raise ScratchError(msg)
    if state.st_mode & 0o022:
        base.chmod(0o700)


def sweep(base: Path) -> int:
    """Remove the folders below `base` whose server has ended; return how many."""
    removed = 0
    for folder in base.iterdir():
        with contextlib.suppress(OSError):
            if not folder.is_dir() or time.time() - folder.stat().st_mtime < YOUNG_S:
                continue
            with (folder / LOCK_NAME).open("a", encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError while its server lives
                remove_tree(folder)
                removed += 1
    return removed


def remove_tree(folder: Path) -> None:
    """Remove a folder in which a stranger's code may have locked or nested anything; never raises."""
    with contextlib.suppress(RecursionError):  # it opens a folder within a folder, a thousand deep at most
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    # What is left has no write permission or nests too deep for a recursive walk in Python.
    for command in (("chmod", "-R", "u+rwX"), ("rm", "-rf", "--one-file-system")):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 - our own words and our own path
                [*command, "--", str(folder)],
                check=False,
                timeout=30,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
