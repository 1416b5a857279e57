"""GPU memory that travels between processes as a file descriptor.

CUDA's virtual memory management (CUDA driver API, "Virtual Memory Management"): memory is created as a handle, exported
as a POSIX file descriptor, imported by whoever is given the descriptor, and mapped there. Unlike the handles of CUDA's
older IPC interface a descriptor exposes this one allocation and nothing around it, needs no common process namespace,
outlives the process that made it and travels over our sockets like any other.

A mapping ends where its pages end: an access beyond it is an illegal access, not somebody else's memory.
"""

import contextlib
import ctypes
import functools
import os

import torch

from adaexplore_mcp.evaluation.workers.cuda.driver import DriverError, attribute, call, cuda

__all__ = [
    "DeviceMemory",
    "DriverError",
    "allocate",
    "forget_persisting_lines",
    "granularity",
    "open_memory",
    "persisting_bytes",
    "rounded",
    "supported",
]

POSIX_FILE_DESCRIPTOR = 1  # CUmemAllocationHandleType
PINNED, DEVICE, READ_WRITE = 1, 1, 3  # CUmemAllocationType, CUmemLocationType, CUmemAccess_flags
PERSISTING_L2_BYTES = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
SUPPORTS_DESCRIPTORS = 103  # CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


def _properties() -> _Properties:
    location = _Location(DEVICE, torch.cuda.current_device())
    return _Properties(PINNED, POSIX_FILE_DESCRIPTOR, location, None, (ctypes.c_ubyte * 8)())


def forget_persisting_lines() -> None:
    """Let nothing keep a part of the L2 cache for itself: reading other memory would not put it out.

    Does nothing on GPUs before compute capability 8.0, which have no such part.
    """
    with contextlib.suppress(DriverError):
        call("cuCtxSetLimit", PERSISTING_L2_BYTES, ctypes.c_size_t(0))
        call("cuCtxResetPersistingL2Cache")


def persisting_bytes() -> int:
    """Return how much of the L2 cache is set aside for what is to persist there; 0 where a GPU has no such part."""
    size = ctypes.c_size_t()
    with contextlib.suppress(DriverError):
        call("cuCtxGetLimit", ctypes.byref(size), PERSISTING_L2_BYTES)
    return size.value


def supported() -> bool:
    """Tell whether this process's GPU can share memory by descriptor; starts CUDA."""
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own
    return bool(attribute(SUPPORTS_DESCRIPTORS))


@functools.cache
def granularity() -> int:
    """Return the bytes that sizes of device memory are multiples of (2 MiB on today's GPUs)."""
    size = ctypes.c_size_t()
    call("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(_properties()), 0)
    return size.value


def rounded(size: int) -> int:
    """Return the bytes that device memory of at least `size` bytes takes."""
    return max(1, -(-size // granularity())) * granularity()


class DeviceMemory:
    """A mapping of device memory in this process; ends when the last tensor on it is gone.

    Args:
        handle: A CUmemGenericAllocationHandle; owned.
        size: Its bytes, a multiple of `granularity()`.

    Raises:
        DriverError: The handle has another size.
    """

    def __init__(self, handle: int, size: int) -> None:
        self.size = size
        self._address = ctypes.c_uint64()
        mapped = False
        try:
            # One page more than is mapped, so that nothing else comes to lie right behind.
            call("cuMemAddressReserve", ctypes.byref(self._address), self._reserved, 0, 0, 0)
            call("cuMemMap", self._address, ctypes.c_size_t(size), 0, ctypes.c_uint64(handle), 0)
            mapped = True
            access = _Access(_Location(DEVICE, torch.cuda.current_device()), READ_WRITE)
            call("cuMemSetAccess", self._address, ctypes.c_size_t(size), ctypes.byref(access), 1)
        except BaseException:
            self._release(mapped=mapped)
            raise
        finally:
            cuda().cuMemRelease(ctypes.c_uint64(handle))  # the mapping keeps the memory

    @property
    def _reserved(self) -> ctypes.c_size_t:
        return ctypes.c_size_t(self.size + granularity())

    def tensor(self, start: int = 0, size: int | None = None) -> torch.Tensor:
        """Return a part of it as uint8, shape (size,), in a storage of its own; all of it by default.

        The mapping lives as long as any such tensor does.
        """
        size = self.size if size is None else size
        if not size:
            return torch.empty(0, dtype=torch.uint8, device="cuda")
        return torch.as_tensor(_Part(self, self._address.value + start, size), device="cuda")

    def _release(self, *, mapped: bool) -> None:
        if self._address.value:
            if mapped:
                cuda().cuMemUnmap(self._address, ctypes.c_size_t(self.size))
            cuda().cuMemAddressFree(self._address, self._reserved)
            self._address.value = 0

    def __del__(self) -> None:
        if self._address.value:
            # Kernels may still be using it. In a process whose context is lost this fails, and so does the rest.
            cuda().cuCtxSynchronize()
            self._release(mapped=True)


class _Part:
    """What torch takes a tensor's memory from, and keeps for as long as it uses it."""

    def __init__(self, memory: DeviceMemory, address: int, size: int) -> None:
        self._memory = memory
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def allocate(size: int) -> tuple[DeviceMemory, int]:
    """Make device memory; return its mapping and a descriptor for other processes, owned by the caller.

    Raises:
        torch.OutOfMemoryError: The GPU has not that much left.
    """
    handle = ctypes.c_uint64()
    descriptor = ctypes.c_int(-1)
    size = rounded(size)
    create = functools.partial(
        call, "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(_properties()), 0
    )
    try:
        create()
    except torch.OutOfMemoryError:
        # What torch keeps for later, such as the workspaces of a convolution in float64, is no use to anybody else.
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        create()
    try:
        call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, POSIX_FILE_DESCRIPTOR, 0)
    except BaseException:
        cuda().cuMemRelease(handle)
        raise
    try:
        return DeviceMemory(handle.value, size), descriptor.value
    except BaseException:
        os.close(descriptor.value)
        raise


def open_memory(descriptor: int, size: int) -> DeviceMemory:
    """Map device memory that another process made; the descriptor may be closed afterwards.

    Args:
        descriptor: From `allocate`, of any process.
        size: As it was asked for there.

    Raises:
        DriverError: It is no device memory, or not of this size.
    """
    handle = ctypes.c_uint64()
    call(
        "cuMemImportFromShareableHandle",
        ctypes.byref(handle),
        ctypes.c_void_p(descriptor),
        POSIX_FILE_DESCRIPTOR,
    )
    return DeviceMemory(handle.value, rounded(size))
