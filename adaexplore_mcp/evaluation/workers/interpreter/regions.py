"""Which memory a launch may touch, and which program touched what: bounds and races.

A race is reported where one program stores a value that differs from what another program of the same launch
stored or loaded at that address, and where one loads what another stored. Programs run one after another
here, so each such pair is seen in one order only; the same value stored twice is no race. Not seen: loads
that happen before the first store to a storage, except those of the launch's first program; accesses to one
address with different element sizes; lanes of one program that read each other's stores without a barrier.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adaexplore_mcp.evaluation.workers.interpreter.numbers import Array

__all__ = ["AddressSpace", "Region", "Shadow", "place_of"]

SHADOW_LIMIT_BYTES = 256 << 20
EARLY_READ_LIMIT_LANES = 1 << 20
MANY = -1


class _RawMemory:
    """An address range in the form that numpy can view (the array interface protocol, version 3)."""

    def __init__(self, start: int, size_bytes: int) -> None:
        self.__array_interface__ = {
            "data": (start, False),
            "shape": (size_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


class Shadow:
    """Who last stored and loaded each element of a region, for one element size, during one launch.

    Programs are numbered from one; zero means nobody. The arrays come from calloc, so only touched pages cost
    memory.
    """

    __slots__ = ("early_reads", "readers", "writers")

    def __init__(self, elements: int) -> None:
        self.writers = np.zeros(elements, dtype=np.int32)
        self.readers: Array | None = None
        self.early_reads: list[Array] = []

    def foreign_writer(self, index: Array, program: int) -> Array | None:
        """Return for each lane the other program that stored there, or None if there is none at all."""
        return _foreign(self.writers[index], program)

    def foreign_reader(self, index: Array, program: int) -> Array | None:
        """Return for each lane another program that loaded from there, or None if there is none at all."""
        if self.early_reads and program != 1:
            readers = self._reader_array()
            for early in self.early_reads:
                readers[early] = 1
            self.early_reads = []
        return None if self.readers is None else _foreign(self.readers[index], program)

    def record_read(self, index: Array, program: int) -> None:
        """Remember a load."""
        readers = self._reader_array()
        before = readers[index]
        if before.any():
            readers[index] = np.where((before == 0) | (before == program), program, MANY)
        else:
            readers[index] = program

    def _reader_array(self) -> Array:
        if self.readers is None:
            self.readers = np.zeros_like(self.writers)
        return self.readers


def _foreign(programs: Array, program: int) -> Array | None:
    if not programs.any():
        return None
    other = (programs != 0) & (programs != program)
    return np.where(other, programs, 0) if other.any() else None


class Region:
    """One live storage: the extent that pointers derived from its tensors may reach.

    Attributes:
        start: Address of the first byte.
        end: Address after the last byte.
        names: The launch's arguments that lie in it.
        aligned: Whether every pointer into it moves in steps of its element size.
        stored: Whether the current launch has stored to it.
    """

    __slots__ = ("_views", "aligned", "base", "early_lanes", "end", "names", "shadows", "start", "stored")
    hollow = False
    """Whether there is no memory behind it."""

    def __init__(self, start: int, size_bytes: int, name: str) -> None:
        self.start = start
        self.end = start + size_bytes
        self.base = np.uint64(start)
        self.names = [name]
        self.aligned = True
        self.stored = False
        self.early_lanes = 0
        self.shadows: dict[int, Shadow | None] = {}
        self._views: dict[np.dtype[Any], Array] = {}

    def view(self, dtype: np.dtype[Any]) -> Array:
        """Return the storage as an array of `dtype`; a remainder smaller than one element is left out."""
        known = self._views.get(dtype)
        if known is None:
            count = (self.end - self.start) // dtype.itemsize
            if count == 0:
                known = np.empty(0, dtype=dtype)
            else:
                known = np.asarray(_RawMemory(self.start, count * dtype.itemsize)).view(dtype)
            self._views[dtype] = known
        return known

    def shadow(self, size_bytes: int) -> Shadow | None:
        """Return the shadow for elements of this size, or None if the storage is too large to be shadowed."""
        if size_bytes in self.shadows:
            return self.shadows[size_bytes]
        elements = (self.end - self.start) // size_bytes
        shadow = None
        if elements * 4 <= SHADOW_LIMIT_BYTES:
            try:
                shadow = Shadow(elements)
            except MemoryError:  # the worker's limit: go on without
                shadow = None
        self.shadows[size_bytes] = shadow
        return shadow

    def describe(self) -> str:
        """Return the arguments' names, as a message names the storage."""
        return "/".join(self.names)


def place_of(number: int, grid: Sequence[int]) -> tuple[int, int, int]:
    """Return the place in a grid of the program with a linear number, the last dimension counted first."""
    _, height, depth = (int(extent) for extent in grid)
    rest, z = divmod(number, depth)
    x, y = divmod(rest, height)
    return x, y, z


class AddressSpace:
    """The storages that a launch may touch."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        by_start: dict[tuple[int, int], Region] = {}
        for name, tensor in tensors:
            key = self._extent(tensor.untyped_storage())
            region = by_start.get(key)
            if region is None:
                by_start[key] = self._region(*key, name)
            elif name not in region.names:
                region.names.append(name)
        self._regions = sorted(by_start.values(), key=lambda region: region.start)
        self._starts = [region.start for region in self._regions]
        self._searched = False

    def region_of(self, tensor: torch.Tensor) -> Region:
        """Return the region of a tensor that was given to the constructor."""
        start, size = self._extent(tensor.untyped_storage())
        return next(
            region for region in self._regions if region.start == start and region.end == start + size
        )

    def address_of(self, value: Any) -> int:  # noqa: ANN401 - a tensor, or a wrapper of one
        """Return the address of a tensor's first element."""
        return int(value.data_ptr())

    def find(self, address: int, *, anywhere: bool) -> Region | None:
        """Return the region around an address.

        Args:
            address: Any address.
            anywhere: Also look through every tensor that is alive in this process, once per launch: a pointer
                that the kernel loaded from memory may lead there.
        """
        position = bisect_right(self._starts, address) - 1
        if position >= 0 and address < self._regions[position].end:
            return self._regions[position]
        if not anywhere or self._searched:
            return None
        self._searched = True
        self._add_live_tensors()
        return self.find(address, anywhere=False)

    def _extent(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        return storage.data_ptr(), storage.nbytes()

    def _region(self, start: int, size_bytes: int, name: str) -> Region:
        return Region(start, size_bytes, name)

    def _add_live_tensors(self) -> None:
        known = {(region.start, region.end) for region in self._regions}
        for candidate in gc.get_objects():
            # Exact types: subclasses may be fake tensors without memory, and isinstance runs code of foreign
            # proxies.
            if type(candidate) not in (torch.Tensor, torch.nn.Parameter) or candidate.device.type != "cpu":
                continue
            storage = candidate.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            if start and size and (start, start + size) not in known:
                known.add((start, start + size))
                self._regions.append(Region(start, size, f"a tensor of shape {tuple(candidate.shape)}"))
        self._regions.sort(key=lambda region: region.start)
        self._starts = [region.start for region in self._regions]
