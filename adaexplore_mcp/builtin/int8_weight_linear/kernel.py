"""Weights stay int8 until they are in registers; the scale of a row is applied once, to the float32 sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def int8_linear_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    out_ptr,
    tokens,
    outer,
    inner,
    x_token_stride,
    x_inner_stride,
    weight_outer_stride,
    weight_inner_stride,
    scale_stride,
    out_token_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Neighbouring programs share a block of weights, the larger operand.
    token = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + token[:, None].to(tl.int64) * x_token_stride + k[None, :] * x_inner_stride
    weight_ptrs = (
        weight_ptr + column[None, :].to(tl.int64) * weight_outer_stride + k[:, None] * weight_inner_stride
    )
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, inner, BLOCK_K):
        in_range = k < inner - start
        x = tl.load(x_ptrs, mask=(token[:, None] < tokens) & in_range[None, :], other=0.0)
        weight = tl.load(weight_ptrs, mask=(column[None, :] < outer) & in_range[:, None], other=0)
        accumulator = tl.dot(x, weight.to(x.dtype), accumulator, input_precision="ieee")
        x_ptrs += BLOCK_K * x_inner_stride
        weight_ptrs += BLOCK_K * weight_inner_stride
    scale = tl.load(scale_ptr + column * scale_stride, mask=column < outer, other=0.0).to(tl.float32)
    out_ptrs = out_ptr + token[:, None].to(tl.int64) * out_token_stride + column[None, :]
    tl.store(
        out_ptrs, accumulator * scale[None, :], mask=(token[:, None] < tokens) & (column[None, :] < outer)
    )


def int8_weight_linear(x, weight, scale):
    tokens, inner = x.shape
    outer = weight.shape[0]
    out = torch.empty((tokens, outer), dtype=x.dtype, device=x.device)
    if tokens <= 16:
        block_m, block_n, block_k, warps, stages = 16, 32, 256, 4, 4
    elif tokens <= 64:
        block_m, block_n, block_k, warps, stages = 64, 32, 128, 4, 4
    else:
        block_m, block_n, block_k, warps, stages = 128, 128, 64, 8, 3
    grid = (triton.cdiv(tokens, block_m), triton.cdiv(outer, block_n))
    int8_linear_kernel[grid](
        x,
        weight,
        scale,
        out,
        tokens,
        outer,
        inner,
        x.stride(0),
        x.stride(1),
        weight.stride(0),
        weight.stride(1),
        scale.stride(0),
        out.stride(0),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        num_warps=warps,
        num_stages=stages,
    )
    return out
