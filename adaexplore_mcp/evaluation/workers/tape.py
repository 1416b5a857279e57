"""What each launch of a call left in memory, so that another run of the same host code finds the same there.

The process that interprets writes it, the one that compiles, where no kernel runs, plays it: host code that reads what a
kernel computed then goes the same way. Bytes of storages, one after the other, then JSON that says whose they are, then its
length. Known limit: a tensor that a kernel reaches by no argument, as through a table of pointers, is left out.
"""

import ctypes
import json
import os
from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["Tape", "TapeRecorder"]

LIMIT_BYTES = 256 << 20
MOST_LAUNCHES = 2000
LENGTH_BYTES = 8


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    """Return address and bytes of a tensor's storage, past whatever watches calls into torch."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():  # noqa: SLF001 - the only way to step out of a mode that someone else entered
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


class TapeRecorder:
    """Writes what launches change.

    Args:
        descriptor: An empty file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._launches: list[dict[str, Any]] = []
        self._held: list[tuple[str, int, bytes]] = []
        self._written = 0
        self._full = False

    def before(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Look at a launch's tensors before it runs."""
        self._held = []
        seen: set[int] = set()
        for name, tensor in tensors:
            start, size = _storage(tensor)
            if size and start not in seen:
                seen.add(start)
                self._held.append((name, start, ctypes.string_at(start, size)))

    def after(self, kernel: str) -> None:
        """Write down what is other now."""
        writes = []
        for name, start, was in self._held:
            now = ctypes.string_at(start, len(was))
            if now == was:
                continue
            self._full |= self._written + len(now) > LIMIT_BYTES or len(self._launches) >= MOST_LAUNCHES
            if self._full:
                break
            writes.append([name, self._written, len(now)])
            os.pwrite(self._descriptor, now, self._written)
            self._written += len(now)
        self._launches.append({"kernel": kernel, "writes": writes})
        self._held = []

    def finish(self) -> bool:
        """Complete the file; False where it holds not everything."""
        if self._full:
            return False
        told = json.dumps(self._launches).encode()
        os.pwrite(self._descriptor, told + len(told).to_bytes(LENGTH_BYTES, "little"), self._written)
        return True


class Tape:
    """Plays it, launch by launch.

    Args:
        descriptor: A file that is complete; stays open until the last launch.

    Raises:
        ValueError: It is none.
    """

    def __init__(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size - LENGTH_BYTES
        length = int.from_bytes(os.pread(descriptor, LENGTH_BYTES, max(0, size)), "little")
        if not 0 < length <= size:
            msg = "a tape without an end"
            raise ValueError(msg)
        self._descriptor = descriptor
        self._launches: list[dict[str, Any]] = json.loads(os.pread(descriptor, length, size - length))
        self._next = 0

    def play(self, kernel: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Leave in the tensors of the next launch what it left; nothing once host code went another way."""
        if self._next >= len(self._launches) or self._launches[self._next]["kernel"] != kernel:
            self._next = len(self._launches)
            return
        named = dict(tensors)
        for name, at, size in self._launches[self._next]["writes"]:
            start, held = _storage(named[name]) if name in named else (0, 0)
            if held == size:
                ctypes.memmove(start, os.pread(self._descriptor, size, at), size)
        self._next += 1
