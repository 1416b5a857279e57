"""What a GPU can do at most, measured on it: how many bytes it copies and how many FLOPs it does in a second."""

from collections.abc import Callable
from typing import Any

import torch

from adaexplore_mcp.evaluation.workers.cuda.bursts import Gauge

__all__ = ["measure_ceilings"]

COPY_BYTES = 1 << 30
SMALLEST_COPY_BYTES = 1 << 27
SIDE = 8192  # of square matrices: large enough to keep every multiprocessor at work
SLOW_SIDE = 2048  # for float64, which many GPUs do at a sixty-fourth of the rate
REPEATS = 7

_Event: Any = torch.cuda.Event


def measure_ceilings(l2_bytes: int) -> dict[str, Any]:
    """Return bytes per second of a copy, read and written, and FLOPs per second of a product by kind of arithmetic.

    Also `flush_us` and `pair_us`: microseconds in which a buffer of twice the L2 cache is read, and between two events with
    nothing between them.

    The best of some: a ceiling is what the GPU can do, not what it usually does. Leaves torch's flags as they were.
    """
    gauge = Gauge(l2_bytes)
    free, _ = torch.cuda.mem_get_info()
    size = max(SMALLEST_COPY_BYTES, min(COPY_BYTES, free // 8))
    copy_us = _copy(size, gauge)
    rates = {
        "fp64": _product(torch.float64, SLOW_SIDE, gauge),
        "fp32": _product(torch.float32, SIDE // 2, gauge),
        "fp16": _product(torch.float16, SIDE, gauge),
        "bf16": _product(torch.bfloat16, SIDE, gauge),
    }
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rates["tf32"] = _product(torch.float32, SIDE, gauge)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.cuda.empty_cache()
    flush_us, pair_us = gauge.measure(3 * REPEATS)
    return {
        "copy_bytes_per_s": round(2 * size / copy_us * 1e6),
        "flops_per_s": rates,
        "flush_us": flush_us,
        "pair_us": pair_us,
    }


def _copy(size: int, gauge: Gauge) -> float:
    source = torch.ones(size // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    return _best(lambda: target.copy_(source), gauge)


def _product(dtype: torch.dtype, side: int, gauge: Gauge) -> int:
    a, b = (torch.randn(side, side, device="cuda").to(dtype) for _ in range(2))
    return round(2 * side**3 / _best(lambda: a @ b, gauge) * 1e6)


def _best(work: Callable[[], object], gauge: Gauge) -> float:
    """Return how long it takes at best, in microseconds, with other things in the L2 cache."""
    work()
    times = []
    for _ in range(REPEATS):
        gauge.flush()
        start, end = _Event(enable_timing=True), _Event(enable_timing=True)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)) * 1e3)
    return min(times)
