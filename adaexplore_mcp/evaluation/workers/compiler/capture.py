"""Keep what the compiler says: MLIR and LLVM write to descriptor 2, Triton prints whole modules to stdout.

LLVM ends the process on some errors (a constraint of inline assembly that does not fit its operands). What it said is
therefore kept in a file below the kernel cache, with the kernel's name, where `last_words` finds it afterwards.
"""

import json
import linecache
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from .records import ErrorExcerpt
from .versions import cache_directory

__all__ = ["Captured", "captured_output", "forget_last_words", "last_words"]

MAX_CHARACTERS = 4000
PREFIX = "compiler-said-"


@dataclass(slots=True)
class Captured:
    """What was written meanwhile; complete once the context is left."""

    stdout: str = ""
    stderr: str = ""


@contextmanager
def captured_output(kernel: str, file: str, line: int) -> Iterator[Captured]:
    """Capture Python's stdout and the process's descriptor 2 while a kernel is compiled.

    The process must have no other threads that write.

    Args:
        kernel: Its name.
        file: The file of its `def`.
        line: The line of its `def`.
    """
    captured = Captured()
    printed = StringIO()
    sys.stderr.flush()
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    path = _said_by(os.getpid())
    kept = os.dup(2)
    said = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    start = os.write(said, f"{json.dumps([kernel, file, line])}\n".encode())
    try:
        os.dup2(said, 2)
        with redirect_stdout(printed):
            yield captured
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        captured.stderr = os.pread(said, MAX_CHARACTERS, start).decode(errors="replace")
        captured.stdout = printed.getvalue()
        os.close(said)
        path.unlink(missing_ok=True)


def _said_by(pid: int) -> Path:
    return cache_directory() / f"{PREFIX}{pid}"


def forget_last_words(pid: int) -> None:
    """Remove what the compiler said in a child that ended: this process will say it again, or was not ended by it."""
    _said_by(pid).unlink(missing_ok=True)


def last_words(directory: str | Path, files: Iterable[str | Path] = ()) -> ErrorExcerpt | None:
    """Return what the compiler said before it ended a process, or None if none ended while it compiled.

    Args:
        directory: The kernel cache that the process used, its `TRITON_CACHE_DIR`.
        files: The author's files. No other is read or named, since the process may have written anything.
    """
    author = {str(each) for each in files}
    for path in sorted(Path(directory).glob(f"{PREFIX}*")):
        try:
            first, _, said = path.read_bytes()[: 2 * MAX_CHARACTERS].decode(errors="replace").partition("\n")
            kernel, file, line = json.loads(first)
            file, line = (str(file), int(line)) if str(file) in author else ("", 0)
        except (OSError, ValueError, TypeError):
            continue
        message = said.strip()[:MAX_CHARACTERS] or "it wrote nothing"
        return ErrorExcerpt(
            type="CompilerCrash",
            message=f"the compiler ended the process while it compiled {kernel}: {message}",
            kernel=str(kernel),
            file=file,
            line=line,
            source=linecache.getline(file, line).strip() if file else "",
        )
    return None
