"""Kernels of known names and of many lengths, whose times several clocks take: see `clock_agreement.py`."""
# ruff: noqa: ANN001, ANN202, N803, PLR0917 - kernels as users write them

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["CASES", "PREFIX", "Call", "Case"]

PREFIX = "clocked_"
"""Begins the name of every kernel here, so that a profiler can tell them from whatever else runs."""

Call = Callable[[], torch.Tensor]


@triton.jit
def clocked_add(x, y, z, n, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    tl.store(z + o, tl.load(x + o, mask=m) + tl.load(y + o, mask=m), mask=m)


@triton.jit
def clocked_sigmoid(x, z, n, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    value = tl.load(x + o, mask=m).to(tl.float32)
    tl.store(z + o, (value * tl.sigmoid(value)).to(z.dtype.element_ty), mask=m)


@triton.jit
def clocked_sum(x, z, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        o = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * width + o, mask=o < width, other=0.0).to(tl.float32)
    tl.store(z + row, tl.sum(total, axis=0))


@triton.jit
def clocked_softmax(x, z, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    m = o < width
    value = tl.load(x + row * width + o, mask=m, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(z + row * width + o, (value / tl.sum(value, axis=0)).to(z.dtype.element_ty), mask=m)


@triton.jit
def clocked_layer_norm(x, weight, bias, z, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    m = o < width
    value = tl.load(x + row * width + o, mask=m, other=0.0).to(tl.float32)
    centred = tl.where(m, value - tl.sum(value, axis=0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / width + 1e-5)
    w = tl.load(weight + o, mask=m).to(tl.float32)
    b = tl.load(bias + o, mask=m).to(tl.float32)
    tl.store(z + row * width + o, (centred * scale * w + b).to(z.dtype.element_ty), mask=m)


@triton.jit
def clocked_transpose(x, z, rows, columns, BLOCK: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    m = (i[:, None] < rows) & (j[None, :] < columns)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=m)
    tl.store(z + j[:, None] * rows + i[None, :], tl.trans(tile), mask=tl.trans(m))


@triton.jit
def clocked_gather(table, index, z, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    m = o < width
    from_row = tl.load(index + row)
    tl.store(z + row * width + o, tl.load(table + from_row * width + o, mask=m), mask=m)


@triton.jit
def clocked_matmul(a, b, c, side, IEEE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, side, K):
        k = start + tl.arange(0, K)
        left = tl.load(a + i[:, None] * side + k[None, :])
        right = tl.load(b + k[:, None] * side + j[None, :])
        total = tl.dot(left, right, total, input_precision="ieee" if IEEE else "tf32")
    tl.store(c + i[:, None] * side + j[None, :], total.to(c.dtype.element_ty))


@triton.jit
def clocked_loop(x, z, steps, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + o)
    for _ in range(steps):
        value = value * 0.5 + 0.25
    tl.store(z + o, value)


# --- cases


@dataclass(frozen=True)
class Case:
    """One kernel at one size.

    Args:
        name: What it is, for the table.
        make: Allocates its tensors on a device and returns a call that launches it once.
    """

    name: str
    make: Callable[[str], Call]


def _returning(z: torch.Tensor, launch: Callable[[], object]) -> Call:
    def call() -> torch.Tensor:
        launch()
        return z

    return call


def _flat(kernel: Any, inputs: int, count: int, dtype: torch.dtype) -> Callable[[str], Call]:
    def make(device: str) -> Call:
        tensors = [torch.randn(count, device=device, dtype=dtype) for _ in range(inputs)]
        z = torch.empty_like(tensors[0])
        return _returning(z, lambda: kernel[(triton.cdiv(count, 1024),)](*tensors, z, count, BLOCK=1024))

    return make


def _rows(
    kernel: Any, rows: int, width: int, dtype: torch.dtype, *, weights: int = 0
) -> Callable[[str], Call]:
    def make(device: str) -> Call:
        x = torch.randn(rows, width, device=device, dtype=dtype)
        more = [torch.randn(width, device=device, dtype=dtype) for _ in range(weights)]
        z = torch.empty(rows, device=device) if kernel is clocked_sum else torch.empty_like(x)
        block = 1024 if kernel is clocked_sum else triton.next_power_of_2(width)
        return _returning(z, lambda: kernel[(rows,)](x, *more, z, width, BLOCK=block, num_warps=8))

    return make


def _transpose(side: int, dtype: torch.dtype) -> Callable[[str], Call]:
    def make(device: str) -> Call:
        x = torch.randn(side, side, device=device, dtype=dtype)
        z, tiles = torch.empty_like(x), triton.cdiv(side, 64)
        return _returning(z, lambda: clocked_transpose[(tiles, tiles)](x, z, side, side, BLOCK=64))

    return make


def _gather(entries: int, rows: int, width: int) -> Callable[[str], Call]:
    def make(device: str) -> Call:
        table = torch.randn(entries, width, device=device)
        index = torch.randint(entries, (rows,), device=device)
        z = torch.empty(rows, width, device=device)
        return _returning(z, lambda: clocked_gather[(rows,)](table, index, z, width, BLOCK=width))

    return make


def _matmul(side: int, dtype: torch.dtype, *, ieee: bool = False) -> Callable[[str], Call]:
    tile = (64, 64, 16) if ieee else (128, 128, 32 if dtype is torch.float32 else 64)

    def make(device: str) -> Call:
        a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        c, grid = torch.empty_like(a), (side // tile[0], side // tile[1])
        options = {"num_warps": 4 if ieee else 8, "num_stages": 3}
        return _returning(c, lambda: clocked_matmul[grid](a, b, c, side, ieee, *tile, **options))

    return make


def _loop(programs: int, steps: int) -> Callable[[str], Call]:
    def make(device: str) -> Call:
        x = torch.randn(programs * 512, device=device)
        z = torch.empty_like(x)
        return _returning(z, lambda: clocked_loop[(programs,)](x, z, steps, BLOCK=512))

    return make


F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
CASES = (
    Case("add float32 2^26", _flat(clocked_add, 2, 1 << 26, F32)),
    Case("add bfloat16 2^27", _flat(clocked_add, 2, 1 << 27, BF16)),
    Case("swish float16 2^28", _flat(clocked_sigmoid, 1, 1 << 28, F16)),
    Case("sum of rows float32 16384 x 16384", _rows(clocked_sum, 16384, 16384, F32)),
    Case("sum of rows bfloat16 65536 x 8192", _rows(clocked_sum, 65536, 8192, BF16)),
    Case("softmax float32 32768 x 4096", _rows(clocked_softmax, 32768, 4096, F32)),
    Case("softmax bfloat16 65536 x 3000", _rows(clocked_softmax, 65536, 3000, BF16)),
    Case("layer norm float32 32768 x 4096", _rows(clocked_layer_norm, 32768, 4096, F32, weights=2)),
    Case("layer norm float16 65536 x 4096", _rows(clocked_layer_norm, 65536, 4096, F16, weights=2)),
    Case("transpose float32 16384", _transpose(16384, F32)),
    Case("transpose float16 12288", _transpose(12288, F16)),
    Case("gather float32 262144 of 1000000 x 512", _gather(1_000_000, 262_144, 512)),
    Case("matmul float16 4096", _matmul(4096, F16)),
    Case("matmul bfloat16 8192", _matmul(8192, BF16)),
    Case("matmul tf32 4096", _matmul(4096, F32)),
    Case("matmul float32 2048", _matmul(2048, F32, ieee=True)),
    Case("loop of 20000 steps", _loop(4096, 20_000)),
    Case("add float32 2^16", _flat(clocked_add, 2, 1 << 16, F32)),
    Case("add float32 2^22", _flat(clocked_add, 2, 1 << 22, F32)),
    Case("softmax float32 4096 x 1024", _rows(clocked_softmax, 4096, 1024, F32)),
    Case("layer norm float32 4096 x 4096", _rows(clocked_layer_norm, 4096, 4096, F32, weights=2)),
    Case("matmul float16 1024", _matmul(1024, F16)),
    Case("transpose float32 4096", _transpose(4096, F32)),
)
"""The first are to take 100 µs or more on an H200, the last less; which did is measured."""
