"""Memory files in the server's hands: copied with their holes, sealed against further writes."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

__all__ = ["copy_file", "first_bytes", "refill", "seal"]

COPY_BYTES = 8 << 20
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def copy_file(source: int) -> int:
    """Return the descriptor of a new memory file with the same content."""
    target = os.memfd_create("adaexplore", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(target, os.fstat(source).st_size)
    _copy_data(source, target)
    return target


def refill(target: int, source: int) -> None:
    """Put the content of one file into another of the same size, at the same addresses of whoever has it mapped.

    Whoever has it mapped must be idle meanwhile: reading between the two steps is a bus error.
    """
    os.ftruncate(target, 0)  # what was written into holes must not stay
    os.ftruncate(target, os.fstat(source).st_size)
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
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        return True
    return False


def first_bytes(descriptor: int, size: int = 1 << 16) -> bytes:
    """Return the beginning of a file; its position does not move."""
    return os.pread(descriptor, size, 0)
