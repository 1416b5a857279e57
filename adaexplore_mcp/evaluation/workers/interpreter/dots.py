"""The builder's matrix products, in the precision that a tensor core works in.

Products of 8 and 16 bit operands are exact in float32, of int8 in float64, so BLAS can do them. What is not
imitated: the order of a tensor core's sums and the bits it drops while adding (its accumulator keeps about
float32's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle
from adaexplore_mcp.evaluation.workers.interpreter.numbers import (
    NUMPY_DTYPES,
    Array,
    bfloat16_to_float32,
    convert,
    float32_to_bfloat16,
    to_float,
    truncate_to_tf32,
)
from adaexplore_mcp.evaluation.workers.interpreter.versions import stock

if TYPE_CHECKING:
    from adaexplore_mcp.evaluation.workers.interpreter.findings import Call

__all__ = ["Dots"]

HALF_STEP = 16
"""K of one mma.sync with fp16 operands (m16n8k16): a fp16 accumulator is rounded after each such step."""

BFLOAT16_TERMS = {
    "BF16x3": ((0, 0), (0, 1), (1, 0)),
    "BF16x6": ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)),
}
"""Which products of the operands' bf16 parts are added (Triton, TritonGPU/Transforms/F32DotTC.cpp)."""


class Dots(stock.InterpreterBuilder):  # type: ignore[misc]  # Triton is untyped
    """tl.dot."""

    recorder: Call

    def create_dot(
        self, a: Handle, b: Handle, accumulator: Handle, precision: object, imprecise: object
    ) -> Handle:
        """Multiply blocks of shapes (..., M, K) and (..., K, N) and add the accumulator (..., M, N)."""
        operand, result = a.name, accumulator.name
        if operand in ("int8", "uint8"):
            product = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))
            total = product.astype(np.int64) + accumulator.data
            return Handle(total.astype(NUMPY_DTYPES[result]), accumulator.dtype)
        if operand == "fp64":
            return Handle(np.matmul(a.data, b.data) + accumulator.data, accumulator.dtype)
        left, right = to_float(a.data, operand), to_float(b.data, b.name)
        if operand == "fp32":
            name = precision.name  # type: ignore[attr-defined]  # pybind's enumeration
            self.recorder.dot_precisions.add(name.lower())
            product = _float32_product(left, right, name)
        else:
            self.recorder.half_dots.add(operand)
            left, right = left.astype(np.float32), right.astype(np.float32)
            if operand.startswith("fp8") and imprecise:
                self.recorder.note(
                    "fp8 dots are added in float32: the lower precision of sm_90's fp8 accumulator is not imitated"
                )
            if result == "fp16":
                return Handle(_half_product(left, right, accumulator.data), accumulator.dtype)
            product = np.matmul(left, right)
        if result == "fp32":
            return Handle(product + accumulator.data, accumulator.dtype)
        total = product + to_float(accumulator.data, result)
        return Handle(convert(total, "fp32", result), accumulator.dtype)

    def create_dot_scaled(self, *arguments: object) -> Handle:
        """Multiply microscaled blocks as Triton's interpreter does since 3.8; before, it is refused."""
        self.recorder.half_dots.add("scaled")
        result: stock.TensorHandle = super().create_dot_scaled(*arguments)
        return Handle(result.data.astype(np.float32, copy=False), result.dtype)


def _float32_product(left: Array, right: Array, precision: str) -> Array:
    """Multiply float32 blocks in an input precision of Triton's."""
    if precision == "TF32x3":
        return _split_product(_tf32_parts(left), _tf32_parts(right), ((0, 0), (0, 1), (1, 0)))
    if precision in BFLOAT16_TERMS:
        return _split_product(_bfloat16_parts(left), _bfloat16_parts(right), BFLOAT16_TERMS[precision])
    if precision == "TF32":
        left, right = truncate_to_tf32(left), truncate_to_tf32(right)
    product: Array = np.matmul(left, right)
    return product


def _split_product(left: list[Array], right: list[Array], terms: tuple[tuple[int, int], ...]) -> Array:
    """Add the products of the parts, the smallest first.

    Infinite operands leave NaN in the smaller terms; Triton replaces those by zero before it adds the
    largest.
    """
    small = sum(np.matmul(left[i], right[j]) for i, j in reversed(terms[1:]))
    total: Array = np.where(np.isnan(small), np.float32(0), small) + np.matmul(left[0], right[0])
    return total


def _tf32_parts(values: Array) -> list[Array]:
    big = truncate_to_tf32(values)
    return [big, truncate_to_tf32(values - big)]


def _bfloat16_parts(values: Array) -> list[Array]:
    parts, rest = [], values
    for _ in range(3):
        part = bfloat16_to_float32(float32_to_bfloat16(rest))
        parts.append(part)
        rest = rest - part
    return parts


def _half_product(left: Array, right: Array, accumulator: Array) -> Array:
    """Multiply with a fp16 accumulator, which overflows where the hardware's does."""
    total = accumulator
    for k in range(0, left.shape[-1], HALF_STEP):
        step = np.matmul(left[..., k : k + HALF_STEP], right[..., k : k + HALF_STEP, :])
        total = (total + step).astype(np.float16)
    return total
