"""A row that fits one block is read once; a wider one is read twice, with a running maximum and sum."""

import torch
import triton
import triton.language as tl

WIDEST_BLOCK = 16384


@triton.jit
def softmax_kernel(x_ptr, out_ptr, row_stride, column_stride, out_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * row_stride + column * column_stride, mask=inside, other=-float("inf"))
    weight = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + column, weight / tl.sum(weight, axis=0), mask=inside)


@triton.jit
def wide_softmax_kernel(x_ptr, out_ptr, row_stride, column_stride, out_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    # Each lane keeps the maximum and the sum of its own columns; lanes are combined once at the end.
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(x_ptr + row * row_stride + column * column_stride, mask=inside, other=-float("inf"))
        new = tl.maximum(highest, x)
        # While a lane has seen only -inf, it must not compute -inf - -inf.
        origin = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(highest - origin) + tl.exp(x - origin)
        highest = new
    peak = tl.max(highest, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(highest - peak), axis=0)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(x_ptr + row * row_stride + column * column_stride, mask=inside, other=-float("inf"))
        tl.store(out_ptr + row * out_stride + column, tl.exp(x - peak) * scale, mask=inside)


def softmax(x):
    rows, columns = x.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    arguments = (x, out, x.stride(0), x.stride(1), out.stride(0), columns)
    block = triton.next_power_of_2(columns)
    if block <= WIDEST_BLOCK:
        softmax_kernel[(rows,)](*arguments, BLOCK=block, num_warps=min(max(block // 512, 1), 16))
    else:
        wide_softmax_kernel[(rows,)](*arguments, BLOCK=4096, num_warps=8)
    return out
