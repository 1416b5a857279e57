"""Keep the protocol apart from everything else that could reach the standard streams.

A library's C code may print to descriptor 1, a child may read descriptor 0, and Python flushes what was printed when
it exits. So both descriptors move to private numbers before anything else is imported, for good: 0 becomes the null
device, 1 the log. (The SDK does this too, but only while it serves, and gives the descriptors back.)
"""

import fcntl
import io
import os
import sys
from dataclasses import dataclass
from typing import Literal, TextIO

__all__ = ["Wire", "claim"]


@dataclass(frozen=True, slots=True)
class Wire:
    """The streams that were standard input and output."""

    stdin: TextIO
    stdout: TextIO


def claim() -> Wire:
    """Take the standard streams away from everybody else in this process and its children.

    Raises:
        OSError: Standard input or output is closed.
    """
    null = _above_the_standard_ones(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    try:
        os.fstat(2)
    except OSError:  # started without a standard error; what is written there is lost, as the host wished
        os.dup2(null, 2)
    wire = Wire(_private(0, "rb"), _private(1, "wb"))
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8")
    sys.stdout = sys.stderr
    return wire


def _above_the_standard_ones(descriptor: int) -> int:
    """Move a descriptor away from 0 to 2, where a closed standard stream would have put it."""
    duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return duplicate


def _private(descriptor: int, mode: Literal["rb", "wb"]) -> TextIO:
    # Never closed: a thread may still block on it when the server ends.
    duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    # The host's encoding may be anything; the protocol is UTF-8 with plain newlines.
    return io.TextIOWrapper(
        open(duplicate, mode, closefd=False), encoding="utf-8", errors="replace", newline="\n"
    )
