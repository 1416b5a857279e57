"""Launches of which some programs run, on memory that holds nothing: what they would touch at sizes too large to compute.

Addresses are right, values are not: whatever is loaded is made up, whatever is stored is forgotten. Known limits: an address
that follows from a loaded value says nothing (two samples with other integers tell which do), and races are not looked for.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.regions import AddressSpace, Region

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from adaexplore_mcp.evaluation.workers.interpreter.numbers import Array

__all__ = ["Sample"]

MOST_PROGRAMS = 256
LAUNCH_S = 2.0
FIRST_ADDRESS = 1 << 44
ALIGNMENT = 512  # of a GPU's allocations


class Sample:
    """Chooses programs: those at the corners of a grid, where offsets are extreme, then others by chance.

    Args:
        limit_s: Seconds for all launches together; what comes later does not run.
        integer: What integers of 32 and 64 bits hold wherever they are loaded.
    """

    def __init__(self, limit_s: float, integer: int = 0) -> None:
        self.integer = integer
        self.integers_loaded = False
        """Whether any were."""
        self.programs: dict[str, int] = {}
        """How many programs ran, by kernel."""
        self.cut_short: set[str] = set()
        """Kernels of which a corner did not run."""
        self._end = time.monotonic() + limit_s
        self._random = random.Random(0)  # noqa: S311 - the same programs for the same grid
        self._starts: dict[int, tuple[int, object]] = {}
        self._next = FIRST_ADDRESS

    def space(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> AddressSpace:
        """Return the storages of a launch's tensors, at addresses that are made up."""
        return _HollowSpace(tensors, self)

    def start_of(self, storage: torch.UntypedStorage) -> int:
        """Return the address of a storage, the same in every launch."""
        known = self._starts.get(storage._cdata)  # noqa: SLF001 - torch's only name for the storage behind a wrapper
        if known is None:
            # Kept, so that no other takes its place.
            known = self._starts[storage._cdata] = self._next, storage  # noqa: SLF001 - as above
            self._next += (storage.nbytes() // ALIGNMENT + 1) * ALIGNMENT
        return known[0]

    def order(self, kernel: str, grid: tuple[int, int, int]) -> Iterator[int]:
        """Yield the linear numbers of the programs to run, as long as there is time."""
        total = math.prod(grid)
        if not total:
            return
        corners = list(dict.fromkeys(itertools.product(*((0, extent - 1) for extent in grid))))
        first = [(x * grid[1] + y) * grid[2] + z for x, y, z in corners]
        others = (
            range(total) if total <= MOST_PROGRAMS else self._random.sample(range(total), MOST_PROGRAMS // 4)
        )
        end = min(self._end, time.monotonic() + LAUNCH_S)
        for position, number in enumerate(dict.fromkeys([*first, *others])):
            if time.monotonic() > (self._end if position < len(first) else end):
                if position < len(first):
                    self.cut_short.add(kernel)
                return
            yield number
            self.programs[kernel] = self.programs.get(kernel, 0) + 1


class _Nothing:
    """Takes the place of a storage's elements."""

    def __init__(self, dtype: np.dtype[Any], sample: Sample) -> None:
        self._dtype = dtype
        self._sample = sample

    def __getitem__(self, index: Array) -> Array:
        if self._dtype.kind in "iu" and self._dtype.itemsize >= 4:
            self._sample.integers_loaded = True
            return np.full(np.shape(index), self._sample.integer, dtype=self._dtype)
        return np.zeros(np.shape(index), dtype=self._dtype)

    def __setitem__(self, index: Array, values: object) -> None:
        pass


class _HollowRegion(Region):
    """A storage without memory."""

    __slots__ = ("_sample",)
    hollow = True

    def __init__(self, start: int, size_bytes: int, name: str, sample: Sample) -> None:
        super().__init__(start, size_bytes, name)
        self._sample = sample

    def view(self, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 - read and written by elements alone
        return _Nothing(dtype, self._sample)

    def shadow(self, size_bytes: int) -> None:
        """Return None: who touched what is not kept."""


class _HollowSpace(AddressSpace):
    """Storages without memory."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], sample: Sample) -> None:
        self._sample = sample
        super().__init__(tensors)
        self._searched = True  # a tensor that no argument shows has no address here

    def address_of(self, value: Any) -> int:  # noqa: ANN401 - a tensor, or a wrapper of one
        tensor = getattr(value, "base", value) if not hasattr(value, "untyped_storage") else value
        start = self._sample.start_of(tensor.untyped_storage())
        return start + int(tensor.storage_offset()) * int(tensor.element_size())

    def _extent(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        return self._sample.start_of(storage), storage.nbytes()

    def _region(self, start: int, size_bytes: int, name: str) -> Region:
        return _HollowRegion(start, size_bytes, name, self._sample)
