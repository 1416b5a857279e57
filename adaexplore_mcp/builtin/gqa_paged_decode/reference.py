"""Attention of one new token per request over a paged key-value cache, with grouped query heads."""

import torch

REQUESTS = 128
PAGES_PER_REQUEST = 128
PAGE_SIZE = 16
QUERY_HEADS = 32
KEY_HEADS = 8
HEAD_DIM = 128
DTYPE = "bfloat16"


def gqa_paged_decode(query, key_cache, value_cache, page_table, lengths, scale):
    """Return the attention output, shape and dtype of query.

    query has shape (requests, query heads, head dim); the caches have (pages, page size, key heads, head dim);
    page_table is int32 of (requests, pages per request), lengths int32 of (requests,) and at least 1. Entries of the
    page table beyond a request's length name pages of others.
    """
    requests, query_heads, head_dim = query.shape
    key_heads = key_cache.shape[2]
    key = key_cache[page_table].float().reshape(requests, -1, key_heads, head_dim)
    value = value_cache[page_table].float().reshape(requests, -1, key_heads, head_dim)
    grouped = query.float().reshape(requests, key_heads, query_heads // key_heads, head_dim)

    scores = torch.einsum("bhgd,bshd->bhgs", grouped, key) * scale
    position = torch.arange(key.shape[1], device=query.device)
    beyond = position[None, :] >= lengths[:, None]
    scores = scores.masked_fill(beyond[:, None, None, :], float("-inf"))
    output = torch.einsum("bhgs,bshd->bhgd", torch.softmax(scores, dim=-1), value)
    return output.reshape(requests, query_heads, head_dim).to(query.dtype)


def make_inputs(workload, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    requests, pages = workload["REQUESTS"], workload["PAGES_PER_REQUEST"]
    page_size, head_dim = workload["PAGE_SIZE"], workload["HEAD_DIM"]
    dtype = getattr(torch, workload["DTYPE"])

    def normal(*shape):
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    query = normal(requests, workload["QUERY_HEADS"], head_dim)
    cache_shape = (requests * pages, page_size, workload["KEY_HEADS"], head_dim)
    key_cache, value_cache = normal(*cache_shape), normal(*cache_shape)
    page_table = torch.randperm(requests * pages, generator=generator, device=device)
    page_table = page_table.reshape(requests, pages).to(torch.int32)
    longest = pages * page_size
    lengths = torch.randint(longest // 2, longest + 1, (requests,), generator=generator, device=device)
    return [query, key_cache, value_cache, page_table, lengths.to(torch.int32), head_dim**-0.5]
