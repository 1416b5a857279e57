"""Memory files in the server's hands: copied with their holes, sealed against whoever else holds them.

A file that another process can shorten would end whoever reads a map of it with a bus error.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

__all__ = ["copy_file", "empty_file", "first_bytes", "refill", "seal"]

COPY_BYTES = 8 << 20
SIZE_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
ZEROS = bytes(1 << 20)


def empty_file() -> int:
    """Return the descriptor of a new memory file that another process will fill."""
    return os.memfd_create("adaexplore", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def copy_file(source: int) -> int:
    """Return the descriptor of a new memory file with the same content, of a size that stays."""
    target = empty_file()
    os.ftruncate(target, os.fstat(source).st_size)
    _copy_data(source, target)
    fcntl.fcntl(target, fcntl.F_ADD_SEALS, SIZE_SEALS)
    return target


def refill(target: int, source: int) -> None:
    """Put the content of one file into another of the same size, at the same addresses of whoever has it mapped."""
    for start, end in _data(target):  # what was written into holes of the source must not stay
        for position in range(start, end, len(ZEROS)):
            os.pwrite(target, memoryview(ZEROS)[: min(len(ZEROS), end - position)], position)
    _copy_data(source, target)


def _copy_data(source: int, target: int) -> None:
    for start, end in _data(source):
        position = start
        while position < end:
            chunk = os.pread(source, min(COPY_BYTES, end - position), position)
            position += os.pwrite(target, chunk, position)


def _data(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that hold data."""
    position, size = 0, os.fstat(descriptor).st_size
    while position < size:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            return
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, position


def seal(descriptor: int) -> bool:
    """Make a memory file immutable; False while someone has it mapped for writing."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SIZE_SEALS | fcntl.F_SEAL_WRITE)
        return True
    return False


def first_bytes(descriptor: int, size: int = 1 << 16) -> bytes:
    """Return the beginning of a file; its position does not move."""
    return os.pread(descriptor, size, 0)
