"""Where tensors that travel between processes lie: in a memory file of the host, or in GPU memory.

Both are known to others by a descriptor, so everything above this module is the same for both.
"""

import ctypes
import functools
import mmap
import os
import weakref
from typing import Protocol

import torch

from adaexplore_mcp.evaluation.workers.cuda import memory
from adaexplore_mcp.evaluation.workers.cuda.driver import DriverError

__all__ = ["HOST", "DeviceSpace", "HostSpace", "Space", "file_bytes", "map_file"]

PAGE = mmap.PAGESIZE
MAP_FAILED = ctypes.c_void_p(-1).value
GUARD_BYTES = 64 << 10
MOST_BYTES = 1 << 48  # more than any address space holds
ALIGNMENT = 64
GUARD = 0xFF
"""Bytes of a guard: NaN in every float, -1 or the largest number in integers."""


class Space(Protocol):
    """A kind of memory."""

    device: str
    """Of tensors that lie in it: cpu or cuda."""
    guard: int
    """Bytes that are left between one storage and the next."""

    def make(self, size: int) -> tuple[torch.Tensor, int]:
        """Make memory of at least `size` bytes; return it as uint8, and its descriptor, which the caller closes."""
        ...

    def open(
        self, descriptor: int, extents: list[tuple[int, int]], size: int, *, shared: bool
    ) -> list[torch.Tensor]:
        """Map parts of memory that any process made.

        Args:
            descriptor: May come from an untrusted process; may be closed afterwards.
            extents: Start and size of each part, in bytes.
            size: Of the whole, as its maker says.
            shared: Writes are seen by every holder; without it they need not be.

        Raises:
            ValueError: A part lies outside, or the descriptor is no such memory.
        """
        ...

    def settle(self) -> None:
        """Wait until what was written is there for every holder."""


def file_bytes(size: int) -> int:
    """Create a memory file of a size in bytes and return its descriptor; sparse until written."""
    descriptor = os.memfd_create("adaexplore", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


def map_file(descriptor: int, size: int, *, shared: bool, start: int = 0) -> torch.Tensor:
    """Map a memory file as a tensor of uint8, shape (size,).

    Args:
        descriptor: May be closed afterwards.
        size: Bytes to map; at least 1.
        shared: Write through to the file; otherwise writes stay private to this process.
        start: First byte, a multiple of the page size.

    Raises:
        ValueError: The file cannot be mapped like this.
    """
    if not 0 < size < MOST_BYTES or start + size > os.fstat(descriptor).st_size:
        msg = f"{size} bytes at {start} of the file cannot be mapped: it ends before"
        raise ValueError(msg)
    kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
    address = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, kind, descriptor, start)
    if address == MAP_FAILED:
        msg = f"{size} bytes at {start} of the file cannot be mapped: {os.strerror(ctypes.get_errno())}"
        raise ValueError(msg)
    mapped = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(mapped, _libc().munmap, address, size).atexit = False  # tensors may outlive that
    return torch.frombuffer(mapped, dtype=torch.uint8)


@functools.cache
def _libc() -> ctypes.CDLL:
    """Return the C library: `mmap.mmap` keeps a descriptor for each map, and a network has a thousand tensors."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library


class HostSpace:
    """Memory files of the host."""

    device = "cpu"
    guard = 0

    def make(self, size: int) -> tuple[torch.Tensor, int]:
        """Make a memory file; see `Space.make`."""
        descriptor = file_bytes(max(size, PAGE))
        return map_file(descriptor, max(size, PAGE), shared=True), descriptor

    def open(
        self,
        descriptor: int,
        extents: list[tuple[int, int]],
        size: int,  # noqa: ARG002 - the file itself says
        *,
        shared: bool,
    ) -> list[torch.Tensor]:
        """Map parts of a memory file, each for itself: an access beyond a tensor's storage is known for one."""
        actual = os.fstat(descriptor).st_size
        _check(extents, actual)
        return [
            map_file(descriptor, nbytes, shared=shared, start=start)
            if nbytes
            else torch.empty(0, dtype=torch.uint8)
            for start, nbytes in extents
        ]

    def settle(self) -> None:
        """Do nothing: it is."""


class DeviceSpace:
    """GPU memory of the current device.

    Between two storages, and behind the last one, lie bytes that are NaN: a read that misses its tensor by little is
    seen in the result. Beyond lies nothing: a read that misses it by far is an illegal access.
    """

    device = "cuda"
    guard = GUARD_BYTES

    def make(self, size: int) -> tuple[torch.Tensor, int]:
        """Make GPU memory filled with `GUARD`; see `Space.make`.

        Raises:
            torch.OutOfMemoryError: The GPU has not that much left.
        """
        made, descriptor = self._allocated(size + self.guard)
        try:
            return made.tensor().fill_(GUARD), descriptor
        except BaseException:
            os.close(descriptor)  # which would keep the memory
            raise

    def open(
        self,
        descriptor: int,
        extents: list[tuple[int, int]],
        size: int,
        *,
        shared: bool,  # noqa: ARG002 - a mapping of GPU memory always is
    ) -> list[torch.Tensor]:
        """Map GPU memory; see `Space.open`."""
        _check(extents, size)
        try:
            opened = self._opened(descriptor, size + self.guard)
        except DriverError as error:
            msg = f"a descriptor is no GPU memory of {size} bytes: {error}"
            raise ValueError(msg) from error
        return [opened.tensor(start, nbytes) for start, nbytes in extents]

    def settle(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize()

    def _allocated(self, size: int) -> tuple[memory.DeviceMemory, int]:
        return memory.allocate(size)

    def _opened(self, descriptor: int, size: int) -> memory.DeviceMemory:
        return memory.open_memory(descriptor, size)


def _check(extents: list[tuple[int, int]], size: int) -> None:
    for start, nbytes in extents:
        if not 0 <= start <= start + nbytes <= size < MOST_BYTES or start % ALIGNMENT:
            msg = f"a storage of {nbytes} bytes at {start} lies outside of memory of {size}"
            raise ValueError(msg)


HOST: Space = HostSpace()
