"""The builder's atomic operations, on every type that Triton's language lets through.

Lanes take effect in their order, one program after another: one of the orders that a GPU may choose.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.blocks import Block, Blocks
from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle, numpy_dtype
from adaexplore_mcp.evaluation.workers.interpreter.memory import bits
from adaexplore_mcp.evaluation.workers.interpreter.numbers import (
    Array,
    bfloat16_to_float32,
    float32_to_bfloat16,
    poison_value,
)
from adaexplore_mcp.evaluation.workers.interpreter.versions import stock, tl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adaexplore_mcp.evaluation.workers.interpreter.memory import Piece

__all__ = ["Atomics"]

_RMW = stock._interpreter.RMW_OP  # noqa: SLF001 - the compiled half of Triton's interpreter has no public name
_RELAXED = stock._interpreter.MEM_SEMANTIC.RELAXED  # noqa: SLF001 - as above; programs run one by one, so order is given

NARROW_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "FADD": np.add,
    "ADD": np.add,
    "MAX": np.fmax,
    "MIN": np.fmin,
    "UMAX": np.maximum,
    "UMIN": np.minimum,
    "XCHG": lambda _old, new: new,
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
}
"""What the compiled half does not do: operations on types of 16 bits."""


class Atomics(Blocks):
    """Atomic read-modify-write, compare-and-swap, load and store."""

    def create_atomic_rmw(
        self, operation: object, pointer: Handle, value: Handle, mask: Handle, *_: object
    ) -> Handle:
        """Update the elements and return what was there before; lanes outside the mask are undefined."""
        return self._update(operation.name, pointer, value, mask)  # type: ignore[attr-defined]  # pybind's enumeration

    def create_descriptor_reduce(
        self, kind: object, descriptor: Block, value: Handle, offsets: list[Handle]
    ) -> None:
        """Update a block through a tensor descriptor, element by element atomically."""
        pointer, mask = self._block_pointers(descriptor, offsets, range(len(offsets)))
        name = kind.name  # type: ignore[attr-defined]  # pybind's enumeration
        if value.dtype.is_floating() and name == "ADD":
            name = "FADD"
        elif value.dtype.is_int_unsigned() and name in ("MIN", "MAX"):
            name = f"U{name}"
        self._update(name, pointer, value, mask)

    def _update(self, operation: str, pointer: Handle, value: Handle, mask: Handle | None) -> Handle:
        self.atomics_used = True
        dtype = numpy_dtype(value.dtype)
        values = np.broadcast_to(value.data, pointer.data.shape)
        result = np.full(pointer.data.shape, poison_value(value.dtype.name, self.poison), dtype=dtype)
        for piece in self._pieces("out_of_bounds_atomic", pointer, None if mask is None else mask.data):
            chosen = ... if piece.lanes is None else piece.lanes
            operands = np.ascontiguousarray(values[chosen]).reshape(-1)
            update = _update_wide if dtype.itemsize >= 4 else _update_narrow
            before = update(operation, piece, operands, value.dtype.name)
            self._count(piece, before)
            result[chosen] = before.reshape(piece.elements.shape)
        return Handle(result, value.dtype)

    def create_atomic_cas(self, pointer: Handle, compare: Handle, value: Handle, *_: object) -> Handle:
        """Replace the elements whose bits equal the expected ones; return what was there before."""
        self.atomics_used = True
        shape, unsigned = pointer.data.shape, np.dtype(f"u{value.data.dtype.itemsize}")
        expected = np.broadcast_to(compare.data.view(unsigned), shape)
        desired = np.broadcast_to(value.data.view(unsigned), shape)
        result = np.zeros(shape, dtype=unsigned)
        for piece in self._pieces("out_of_bounds_atomic", pointer, None):
            chosen = ... if piece.lanes is None else piece.lanes
            index, old, new = (
                piece.elements.reshape(-1),
                expected[chosen].reshape(-1),
                desired[chosen].reshape(-1),
            )
            memory, before = piece.region.view(unsigned), np.empty(index.shape, dtype=unsigned)
            for lanes in _distinct(index):
                before[lanes] = memory[index[lanes]]
                memory[index[lanes]] = np.where(before[lanes] == old[lanes], new[lanes], before[lanes])
            self._count(piece, before)
            result[chosen] = before.reshape(piece.elements.shape)
        return Handle(result.view(value.data.dtype), value.dtype)

    def _count(self, piece: Piece, before: Array) -> None:
        """Count a read, and a change of memory where it may have been one."""
        self.reads_anew += 1
        if piece.region.hollow:
            return
        present = piece.region.view(before.dtype)
        if not self.loops or (bits(present[piece.elements.reshape(-1)]) != bits(before)).any():
            self.changes += 1

    def create_atomic_load(self, pointer: Handle, mask: Handle, *_: object) -> Handle:
        """Load without taking part in the search for races."""
        self.atomics_used, shared = True, self.shared
        self.shared = False
        self.reads_anew += 1
        try:
            return self.create_masked_load(pointer, mask, None)
        finally:
            self.shared = shared

    def create_atomic_store(self, pointer: Handle, value: Handle, mask: Handle, *_: object) -> None:
        """Store without taking part in the search for races."""
        self.atomics_used, shared = True, self.shared
        self.shared = False
        try:
            self.create_masked_store(pointer, value, mask)
        finally:
            self.shared = shared

    def create_atomic_poll(self, pointer: Handle, expected: Handle, timeout: object, *_: object) -> Handle:
        """Wait for a value: without a limit as long as other programs go on, else compare once."""
        self.may_be_ordered = True
        while True:
            present = self.create_atomic_load(pointer, Handle(np.ones(1, dtype=bool), tl.int1))
            matched = present.data == expected.data
            if matched.all() or isinstance(timeout, Handle):
                return Handle(matched, tl.int1)
            self.wait(sys._getframe())  # noqa: SLF001 - its callers' variables say whether it goes on


def _update_wide(operation: str, piece: Piece, operands: Array, _name: str) -> Array:
    """Update elements of 32 or 64 bits by Triton's compiled loop: 25 us for 1,024 lanes."""
    if operation == "XCHG":  # its loop exchanges integers only
        unsigned = operands.view(np.dtype(f"u{operands.dtype.itemsize}"))
        return _call_loop(operation, piece, unsigned).view(operands.dtype)
    return _call_loop(operation, piece, operands)


def _call_loop(operation: str, piece: Piece, operands: Array) -> Array:
    if piece.region.hollow:
        return np.zeros_like(operands)
    offsets = piece.elements.reshape(-1).astype(np.uint64) * np.uint64(operands.dtype.itemsize)
    before: Array = stock._interpreter.atomic_rmw(  # noqa: SLF001 - the compiled half has no public name
        getattr(_RMW, operation),
        offsets + piece.region.base,
        operands,
        np.ones(operands.shape, dtype=bool),
        _RELAXED,
    )
    return before


def _update_narrow(operation: str, piece: Piece, operands: Array, name: str) -> Array:
    """Update elements of 16 bits, rounding after each update as atom.add.noftz does."""
    index, memory = piece.elements.reshape(-1), piece.region.view(operands.dtype)
    before = np.empty(index.shape, dtype=operands.dtype)
    function = NARROW_OPERATIONS[operation]
    for lanes in _distinct(index):
        before[lanes] = memory[index[lanes]]
        if name == "bf16" and operation != "XCHG":
            wide = function(bfloat16_to_float32(before[lanes]), bfloat16_to_float32(operands[lanes]))
            memory[index[lanes]] = float32_to_bfloat16(wide)
        else:
            memory[index[lanes]] = function(before[lanes], operands[lanes])
    return before


def _distinct(index: Array) -> Iterator[Array]:
    """Yield groups of lanes that together are all lanes, in order, with no element twice in one group."""
    order = np.argsort(index, kind="stable")
    arranged = index[order]
    starts = np.flatnonzero(np.r_[True, arranged[1:] != arranged[:-1]])
    rank = np.arange(index.size) - np.repeat(starts, np.diff(np.r_[starts, index.size]))
    for turn in range(int(rank.max()) + 1):
        yield order[rank == turn]
