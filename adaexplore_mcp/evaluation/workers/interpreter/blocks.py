"""The builder's block pointers and tensor descriptors, which are loads and stores with an address of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle, numpy_dtype
from adaexplore_mcp.evaluation.workers.interpreter.memory import Memory
from adaexplore_mcp.evaluation.workers.interpreter.numbers import NUMPY_DTYPES, Array, poison_value
from adaexplore_mcp.evaluation.workers.interpreter.versions import ir, stock, tl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Block", "Blocks"]


@dataclass
class Block:
    """A block pointer or a tensor descriptor.

    Attributes:
        base: Pointer to the first element.
        shape: Extent per dimension, scalars.
        strides: Steps between neighbours per dimension, in elements, scalars.
        block_shape: Lanes per dimension.
        offsets: Where a block pointer stands; a descriptor gets its place with each access.
        padding: What a descriptor gives outside of its shape.
        round_f32_to_tf32: Whether TMA rounds what it loads.
    """

    base: Handle
    shape: list[Handle]
    strides: list[Handle]
    block_shape: Sequence[int]
    offsets: list[Handle] = field(default_factory=list)
    padding: object = None
    round_f32_to_tf32: bool = False


class Blocks(Memory):
    """Block pointers (removed in 3.9) and tensor descriptors."""

    def create_make_block_ptr(
        self,
        base: Handle,
        shape: list[Handle],
        strides: list[Handle],
        offsets: list[Handle],
        block_shape: Sequence[int],
        _order: object,
    ) -> Block:
        """Make a block pointer."""
        return Block(base, shape, strides, block_shape, list(offsets))

    def create_advance(self, block: Block, steps: list[Handle]) -> Block:
        """Return a block pointer that stands elsewhere."""
        moved = [Handle(at.data + step.data, at.dtype) for at, step in zip(block.offsets, steps, strict=True)]
        return replace(block, offsets=moved)

    def create_make_tensor_descriptor(
        self,
        base: Handle,
        shape: list[Handle],
        strides: list[Handle],
        block_shape: Sequence[int],
        _signed: object,
        padding: object = None,
    ) -> Block:
        """Make a tensor descriptor if TMA takes it: base and strides in 16 bytes, the last stride 1.

        Raises:
            ValueError: They are not (CUDA driver API, cuTensorMapEncodeTiled).
        """
        size = numpy_dtype(base.dtype.element_ty).itemsize
        steps = [int(stride.data.item()) for stride in strides]
        if base.data.item() % 16:
            msg = "the base of a tensor descriptor must be 16-byte aligned"
            raise ValueError(msg)
        if steps[-1] != 1 or any(step * size % 16 for step in steps[:-1]):
            msg = f"a tensor descriptor needs strides in 16 bytes and a last one of 1, not {steps} elements"
            raise ValueError(msg)
        return Block(base, shape, strides, block_shape, padding=padding)

    def create_tensor_pointer_load(
        self, block: Block, boundary_check: Sequence[int], padding: object, *_: object
    ) -> Handle:
        """Load through a block pointer; without a padding option, lanes outside its shape are undefined."""
        pointer, mask = self._block_pointers(block, block.offsets, [int(axis) for axis in boundary_check])
        return self.create_masked_load(pointer, mask, self._padding(pointer, padding))

    def create_tensor_pointer_store(
        self, block: Block, value: Handle, boundary_check: Sequence[int], *_: object
    ) -> None:
        """Store through a block pointer."""
        pointer, mask = self._block_pointers(block, block.offsets, [int(axis) for axis in boundary_check])
        self.create_masked_store(pointer, value, mask)

    def create_descriptor_load(self, descriptor: Block, offsets: list[Handle], *_: object) -> Handle:
        """Load a block through a tensor descriptor; lanes outside its shape are padded."""
        pointer, mask = self._block_pointers(descriptor, offsets, range(len(offsets)))
        padding = descriptor.padding
        if padding is None:  # 3.4 has no choice, and TMA pads with zeros
            padding = ir.PADDING_OPTION.PAD_ZERO
        loaded = self.create_masked_load(pointer, mask, self._padding(pointer, padding))
        if descriptor.round_f32_to_tf32 and loaded.name == "fp32":
            return Handle(stock._round_f32_to_tf32(loaded.data), loaded.dtype)  # noqa: SLF001 - TMA's own rounding, new in 3.9
        return loaded

    def create_descriptor_store(self, descriptor: Block, value: Handle, offsets: list[Handle]) -> None:
        """Store a block through a tensor descriptor; lanes outside its shape are dropped."""
        pointer, mask = self._block_pointers(descriptor, offsets, range(len(offsets)))
        self.create_masked_store(pointer, value, mask)

    def create_descriptor_gather(
        self, descriptor: Block, rows: Handle, column: Handle, _type: object
    ) -> Handle:
        """Load one row of the block for each row number."""
        loaded = [self.create_descriptor_load(descriptor, [row, column]) for row in _rows(rows)]
        return Handle(np.concatenate([row.data for row in loaded]), loaded[0].dtype)

    def create_descriptor_scatter(
        self, descriptor: Block, value: Handle, rows: Handle, column: Handle
    ) -> None:
        """Store one row of the block for each row number."""
        for i, row in enumerate(_rows(rows)):
            self.create_descriptor_store(
                descriptor, Handle(value.data[i : i + 1], value.dtype), [row, column]
            )

    def _block_pointers(
        self, block: Block, offsets: Sequence[Handle], checked: Sequence[int]
    ) -> tuple[Handle, Handle]:
        """Return a block's pointers, in 64-bit arithmetic, and the mask of those in its shape."""
        shape = tuple(int(getattr(size, "value", size)) for size in block.block_shape)
        size = numpy_dtype(block.base.dtype.element_ty).itemsize
        offset: Array = np.zeros(shape, dtype=np.int64)
        mask = np.ones(shape, dtype=bool)
        for axis, length in enumerate(shape):
            position = (offsets[axis].data.astype(np.int64) + np.arange(length)).reshape(
                [length if other == axis else 1 for other in range(len(shape))]
            )
            offset = offset + position * block.strides[axis].data.astype(np.int64)
            if axis in checked:
                mask = mask & (position >= 0) & (position < block.shape[axis].data)
        addresses = block.base.data + (offset * size).view(np.uint64)
        return Handle(addresses, block.base.dtype, block.base.origin), Handle(mask, tl.int1)

    def _padding(self, pointer: Handle, option: object) -> Handle | None:
        if option is None:
            return None
        dtype = pointer.dtype.element_ty
        mode = "nan" if option == ir.PADDING_OPTION.PAD_NAN else "zero"
        return Handle(np.full(1, poison_value(dtype.name, mode), dtype=NUMPY_DTYPES[dtype.name]), dtype)


def _rows(numbers: Handle) -> Iterator[Handle]:
    """Yield each lane as a scalar."""
    for number in numbers.data.reshape(-1):
        yield Handle(np.array([number], dtype=np.int32), tl.int32)
