"""Split-key decode attention: programs take parts of a request's cache, a second kernel combines their results.

A program holds all query heads of one key-value head, so that the cache is read once per group and not once per head.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # enough to fill any GPU of today a few times over


@triton.jit
def decode_part_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    table_ptr,
    lengths_ptr,
    part_ptr,
    part_peak_ptr,
    part_sum_ptr,
    scale,
    query_strides_0,
    query_strides_1,
    query_strides_2,
    key_strides_0,
    key_strides_1,
    key_strides_2,
    key_strides_3,
    value_strides_0,
    value_strides_1,
    value_strides_2,
    value_strides_3,
    table_strides_0,
    table_strides_1,
    lengths_stride,
    group,
    head_dim,
    page_size,
    tokens_per_part,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    TOKENS: tl.constexpr,
):
    request, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads, parts = tl.num_programs(1), tl.num_programs(2)
    length = tl.load(lengths_ptr + request * lengths_stride)
    first = part * tokens_per_part
    last = tl.minimum(first + tokens_per_part, length)

    member = tl.arange(0, GROUP)
    d = tl.arange(0, DIM)
    in_group = (member[:, None] < group) & (d[None, :] < head_dim)
    query_row = query_ptr + request * query_strides_0 + (head * group + member[:, None]) * query_strides_1
    query = tl.load(query_row + d[None, :] * query_strides_2, mask=in_group, other=0.0)

    peak = tl.full((GROUP,), -float("inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    result = tl.zeros((GROUP, DIM), tl.float32)
    for start in range(first, last, TOKENS):
        token = start + tl.arange(0, TOKENS)
        valid = token < last
        page = tl.load(
            table_ptr + request * table_strides_0 + (token // page_size) * table_strides_1,
            mask=valid,
            other=0,
        ).to(tl.int64)  # page * stride exceeds 32 bits in a large cache
        slot = token % page_size
        key_rows = key_ptr + page * key_strides_0 + slot * key_strides_1 + head * key_strides_2
        key = tl.load(
            key_rows[None, :] + d[:, None] * key_strides_3,
            mask=valid[None, :] & (d[:, None] < head_dim),
            other=0.0,
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        shrink = tl.exp(peak - new_peak)
        weights = tl.exp(scores - new_peak[:, None])
        value_rows = value_ptr + page * value_strides_0 + slot * value_strides_1 + head * value_strides_2
        value = tl.load(
            value_rows[:, None] + d[None, :] * value_strides_3,
            mask=valid[:, None] & (d[None, :] < head_dim),
            other=0.0,
        )
        result = result * shrink[:, None]
        result = tl.dot(weights.to(value.dtype), value, result, input_precision="ieee")
        total = total * shrink + tl.sum(weights, axis=1)
        peak = new_peak

    # A part beyond the request's length leaves a peak of -inf and zeros: it weighs nothing below.
    query_head = (request * heads + head) * group + member
    index = query_head * parts + part
    tl.store(part_peak_ptr + index, peak, mask=member < group)
    tl.store(part_sum_ptr + index, total, mask=member < group)
    tl.store(part_ptr + index[:, None] * head_dim + d[None, :], result, mask=in_group)


@triton.jit
def combine_kernel(
    part_ptr,
    part_peak_ptr,
    part_sum_ptr,
    out_ptr,
    parts,
    head_dim,
    PARTS: tl.constexpr,
    DIM: tl.constexpr,
):
    query_head = tl.program_id(0)
    part = tl.arange(0, PARTS)
    d = tl.arange(0, DIM)
    index = query_head * parts + part
    peak = tl.load(part_peak_ptr + index, mask=part < parts, other=-float("inf"))
    weight = tl.exp(peak - tl.max(peak, axis=0))
    total = tl.sum(weight * tl.load(part_sum_ptr + index, mask=part < parts, other=0.0), axis=0)
    rows = tl.load(
        part_ptr + index[:, None] * head_dim + d[None, :],
        mask=(part[:, None] < parts) & (d[None, :] < head_dim),
        other=0.0,
    )
    result = tl.sum(rows * weight[:, None], axis=0) / total
    tl.store(out_ptr + query_head * head_dim + d, result, mask=d < head_dim)


def gqa_paged_decode(query, key_cache, value_cache, page_table, lengths, scale):
    requests, query_heads, head_dim = query.shape
    _, page_size, key_heads, _ = key_cache.shape
    group = query_heads // key_heads
    longest = page_table.shape[1] * page_size
    # Lengths stay on the device; parts are cut for the longest possible request.
    parts = max(1, min(PROGRAMS // (requests * key_heads), triton.cdiv(longest, 256), 64))
    tokens_per_part = triton.cdiv(triton.cdiv(longest, parts), 64) * 64
    dim = max(16, triton.next_power_of_2(head_dim))

    device = query.device
    out = torch.empty((requests, query_heads, head_dim), dtype=query.dtype, device=device)
    part = torch.empty((requests, query_heads, parts, head_dim), dtype=torch.float32, device=device)
    part_peak = torch.empty((requests, query_heads, parts), dtype=torch.float32, device=device)
    part_sum = torch.empty((requests, query_heads, parts), dtype=torch.float32, device=device)
    decode_part_kernel[(requests, key_heads, parts)](
        query,
        key_cache,
        value_cache,
        page_table,
        lengths,
        part,
        part_peak,
        part_sum,
        scale,
        *query.stride(),
        *key_cache.stride(),
        *value_cache.stride(),
        *page_table.stride(),
        lengths.stride(0),
        group,
        head_dim,
        page_size,
        tokens_per_part,
        GROUP=max(16, triton.next_power_of_2(group)),
        DIM=dim,
        TOKENS=64,
        num_warps=4,
        num_stages=3,
    )
    combine_kernel[(requests * query_heads,)](
        part,
        part_peak,
        part_sum,
        out,
        parts,
        head_dim,
        PARTS=triton.next_power_of_2(parts),
        DIM=dim,
        num_warps=4,
    )
    return out
