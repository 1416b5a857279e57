"""tl.reduce, tl.associative_scan and tl.map_elementwise, as trees of whole-array steps.

Triton's interpreter calls the user's function once per element (about 100 us each). Here a reduction of n
elements calls it log2(n) times on halves, and a scan 2 log2(n) times (Brent and Kung, IEEE TC 31(3), 1982).
That is also nearer to a GPU, which reduces in trees: the rounding of a tree stands for one of the orders that
a GPU may take. The order of the operands is kept, so a function need only be associative.

A combine function may branch on its arguments, which are scalars on a GPU. Such a branch cannot be taken for
a whole array at once; then the same tree is walked lane by lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle
from adaexplore_mcp.evaluation.workers.interpreter.numbers import to_float
from adaexplore_mcp.evaluation.workers.interpreter.versions import tl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adaexplore_mcp.evaluation.workers.interpreter.builder import Builder
    from adaexplore_mcp.evaluation.workers.interpreter.numbers import Array

__all__ = ["BranchOnBlockError", "Reductions"]

Lanes: TypeAlias = "tuple[Array, ...]"


class BranchOnBlockError(ValueError):
    """A condition was taken from a block of more than one lane."""


class Reductions:
    """The replacements of tl.reduce, tl.associative_scan and tl.map_elementwise."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        standard = tl.standard
        self._known: dict[object, str] = {
            standard._sum_combine: "add",  # noqa: SLF001 - these are how the standard library names its reductions
            standard._prod_combine: "mul",  # noqa: SLF001 - as above
            standard._elementwise_max: "max",  # noqa: SLF001 - as above
            standard._elementwise_min: "min",  # noqa: SLF001 - as above
            standard._xor_combine: "xor",  # noqa: SLF001 - as above
        }
        self._with_index: dict[object, Callable[..., Array]] = {
            standard._argmax_combine_tie_break_left: np.argmax,  # noqa: SLF001 - as above
            standard._argmax_combine_tie_break_fast: np.argmax,  # noqa: SLF001 - as above
            standard._argmin_combine_tie_break_left: np.argmin,  # noqa: SLF001 - as above
            standard._argmin_combine_tie_break_fast: np.argmin,  # noqa: SLF001 - as above
        }

    # ---- the three builtins

    def reduce(
        self,
        input: tl.tensor,  # noqa: A002 - Triton's name
        axis: int | None,
        combine_fn: Callable[..., Any],
        keep_dims: bool = False,
        **_: object,
    ) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
        """Reduce one block, or a tuple of blocks of one shape, along an axis, or over all of them."""
        if isinstance(input, tl.tensor):
            return self.reduce((input,), axis, combine_fn, keep_dims)[0]
        blocks, rank = list(input), len(input[0].shape)
        axis, keep_dims = _plain(axis), _plain(keep_dims)
        arrays = [_full(block) for block in blocks]
        if axis is None:
            arrays, along = [array.reshape(-1) for array in arrays], 0
        else:
            along = _checked_axis(axis, rank)
        types = [block.type.scalar for block in blocks]
        moved = tuple(np.moveaxis(array, along, -1) for array in arrays)
        reduced = self._extreme_with_index(moved, combine_fn, types[0].name)
        if reduced is None:
            reduced = self._tree(moved, self._combiner(combine_fn, types))
        results = [array[..., 0] for array in reduced]
        if keep_dims:
            results = [
                array.reshape((1,) * rank) if axis is None else np.expand_dims(array, along)
                for array in results
            ]
        return tuple(_tensor(array, dtype) for array, dtype in zip(results, types, strict=True))

    def associative_scan(
        self,
        input: tl.tensor,  # noqa: A002 - Triton's name
        axis: int,
        combine_fn: Callable[..., Any],
        reverse: bool = False,
        **_: object,
    ) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
        """Scan one block, or a tuple of blocks of one shape, along an axis."""
        if isinstance(input, tl.tensor):
            return self.associative_scan((input,), axis, combine_fn, reverse)[0]
        blocks = list(input)
        along, backward = _checked_axis(_plain(axis), len(blocks[0].shape)), bool(_plain(reverse))
        types = [block.type.scalar for block in blocks]
        moved = tuple(np.moveaxis(_full(block), along, -1) for block in blocks)
        if backward:
            moved = tuple(array[..., ::-1] for array in moved)
        scanned = _scan(moved, self._combiner(combine_fn, types))
        if backward:
            scanned = tuple(array[..., ::-1] for array in scanned)
        results = (np.ascontiguousarray(np.moveaxis(array, -1, along)) for array in scanned)
        return tuple(_tensor(array, dtype) for array, dtype in zip(results, types, strict=True))

    def map_elementwise(
        self, scalar_fn: Callable[..., Any], *args: tl.tensor, pack: int = 1, **_: object
    ) -> Any:  # noqa: ANN401 - a tensor or a tuple of them
        """Apply a scalar function to each lane, or to `pack` neighbouring lanes at a time."""
        size = int(_plain(pack))
        arrays = np.broadcast_arrays(*(_full(block) for block in args))
        types, shape = [block.type.scalar for block in args], arrays[0].shape
        lanes = [array.reshape(-1, size)[:, i] for array in arrays for i in range(size)]
        lane_types = [dtype for dtype in types for _ in range(size)]
        outputs = self._call(scalar_fn, tuple(lanes), lane_types)
        single = isinstance(outputs, tl.tensor)
        results = [outputs] if single else list(outputs)
        merged = []
        for i in range(0, len(results), size):
            group = [np.broadcast_to(_lanes_of(result), lanes[0].shape) for result in results[i : i + size]]
            merged.append(_tensor(np.stack(group, axis=-1).reshape(shape), results[i].type.scalar))
        return merged[0] if single else tuple(merged)

    # ---- combining

    def _extreme_with_index(self, lanes: Lanes, function: object, name: str) -> Lanes | None:
        """Do argmax and argmin by numpy, or return None: 10 us against 3 ms of a tree, for 1,024 lanes.

        Ties go to the left, as asked for by default and allowed by tie_break_fast. With a NaN the result
        depends on the order of the comparisons, and the tree takes one.
        """
        find = self._with_index.get(function)
        values = to_float(lanes[0], name)
        if find is None or (values.dtype.kind == "f" and np.isnan(values).any()):
            return None
        position = np.expand_dims(find(values, axis=-1), -1)
        return tuple(np.take_along_axis(array, position, axis=-1) for array in lanes)

    def _combiner(self, function: object, types: Sequence[tl.dtype]) -> Callable[[Lanes, Lanes], Lanes]:
        """Return the combine function on tuples of arrays."""
        known = self._known.get(function)
        if known is not None and len(types) == 1:
            method = getattr(self.builder, _method_name(known, types[0]))
            dtype = types[0]
            return lambda left, right: (method(Handle(left[0], dtype), Handle(right[0], dtype)).data,)

        def combine(left: Lanes, right: Lanes) -> Lanes:
            outputs = self._call(function, left + right, [*types, *types])
            results = (outputs,) if isinstance(outputs, tl.tensor) else tuple(outputs)
            return tuple(
                np.broadcast_to(_lanes_of(_cast(self.builder, result, dtype)), left[0].shape)
                for result, dtype in zip(results, types, strict=True)
            )

        return combine

    def _call(self, function: Any, lanes: Lanes, types: Sequence[tl.dtype]) -> Any:  # noqa: ANN401 - a jit function and its result
        """Call a function on whole arrays, or lane by lane if it branches on them."""
        try:
            return function(*(_tensor(array, dtype) for array, dtype in zip(lanes, types, strict=True)))
        except BranchOnBlockError:
            pass
        shape = lanes[0].shape
        columns: list[list[Any]] = []
        results: tuple[Any, ...] = ()
        single = False
        for position in np.ndindex(*shape):
            scalars = (
                tl.tensor(Handle(array[position].reshape(1), dtype), dtype)
                for array, dtype in zip(lanes, types, strict=True)
            )
            outputs = function(*scalars)
            single = isinstance(outputs, tl.tensor)
            results = (outputs,) if single else tuple(outputs)
            columns.append([self.builder.as_tensor(result).handle.data.item(0) for result in results])
        merged = tuple(
            _tensor(
                np.array(
                    [row[i] for row in columns], dtype=self.builder.as_tensor(result).handle.data.dtype
                ).reshape(shape),
                self.builder.as_tensor(result).type.scalar,
            )
            for i, result in enumerate(results)
        )
        return merged[0] if single else merged

    def _tree(self, lanes: Lanes, combine: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
        """Reduce the last axis to length one, neighbours first."""
        while lanes[0].shape[-1] > 1:
            length = lanes[0].shape[-1]
            even = length & ~1
            left = tuple(array[..., 0:even:2] for array in lanes)
            right = tuple(array[..., 1:even:2] for array in lanes)
            combined = combine(left, right)
            if even != length:
                combined = tuple(
                    np.concatenate([array, rest[..., even:]], axis=-1)
                    for array, rest in zip(combined, lanes, strict=True)
                )
            lanes = combined
        return lanes


def _scan(lanes: Lanes, combine: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """Scan the last axis, whose length is a power of two."""
    length = lanes[0].shape[-1]
    if length == 1:
        return lanes
    even, odd = (tuple(array[..., start::2] for array in lanes) for start in (0, 1))
    pairs = _scan(combine(even, odd), combine)
    before = tuple(np.concatenate([array[..., :1], array[..., :-1]], axis=-1) for array in pairs)
    shifted = combine(before, even)
    result = []
    for array, first, second, source in zip(lanes, shifted, pairs, even, strict=True):
        merged = np.empty(array.shape, dtype=array.dtype)
        merged[..., 0::2], merged[..., 1::2] = first, second
        merged[..., 0] = source[..., 0]
        result.append(merged)
    return tuple(result)


def _method_name(known: str, dtype: tl.dtype) -> str:
    if known == "xor":
        return "create_xor"
    if known in ("add", "mul"):
        return f"create_f{known}" if dtype.is_floating() else f"create_{known}"
    if dtype.is_floating():
        return f"create_{known}numf"
    return f"create_{known}si" if dtype.is_int_signed() else f"create_{known}ui"


def _plain(value: Any) -> Any:  # noqa: ANN401 - a constexpr or what it holds
    return value.value if isinstance(value, tl.constexpr) else value


def _checked_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        msg = f"axis {axis} is outside of a block of {rank} dimensions"
        raise ValueError(msg)
    return axis % rank


def _full(block: tl.tensor) -> Array:
    """Return a block's lanes in its own shape."""
    shape = tuple(int(_plain(size)) for size in block.shape)
    lanes: Array = block.handle.data
    return lanes if lanes.shape == shape else np.broadcast_to(lanes, shape or (1,))


def _lanes_of(result: tl.tensor) -> Array:
    lanes: Array = result.handle.data
    return lanes if result.type.is_block() else lanes.reshape(())


def _tensor(array: Array, dtype: tl.dtype) -> tl.tensor:
    """Wrap an array; one of rank zero becomes a scalar."""
    if array.ndim == 0:
        return tl.tensor(Handle(np.asarray(array).reshape(1), dtype), dtype)
    return tl.tensor(Handle(array, dtype), tl.block_type(dtype, list(array.shape)))


def _cast(builder: Builder, value: Any, dtype: tl.dtype) -> tl.tensor:  # noqa: ANN401 - a tensor or a number
    """Return a combine function's result in its operand's type, as a reduction's region must yield it."""
    return builder.semantic.cast(builder.as_tensor(value), dtype)
