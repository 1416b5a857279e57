"""One call of a candidate that a profiler sees, after some that it does not: by then all is compiled, tuned and packed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from adaexplore_mcp.evaluation.workers.trees import map_leaves

__all__ = ["kernel_times", "watched_call"]

UNSEEN = 2
MOST_KERNELS = 200
MOST_NAME = 300


def watched_call(
    function: Callable[..., Any],
    inputs: tuple[tuple[Any, ...], dict[str, Any]],
    watch: AbstractContextManager[object],
) -> None:
    """Call a candidate, the last time under a profiler.

    Args:
        function: The candidate.
        inputs: Positional and keyword arguments; each call gets copies, in memory of torch's own: a profiler saves and restores
            what a kernel writes, and may not know other memory.
        watch: The profiler, as a context.
    """
    with torch.no_grad():
        calls = [_copies(inputs) for _ in range(UNSEEN + 1)]
        for args, kwargs in calls[:UNSEEN]:
            function(*args, **kwargs)
        torch.cuda.synchronize()
        args, kwargs = calls[-1]
        with watch:
            function(*args, **kwargs)
            torch.cuda.synchronize()


def kernel_times(
    function: Callable[..., Any], inputs: tuple[tuple[Any, ...], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return name and time, in nanoseconds, of each kernel of one call, by torch's profiler."""
    watch = profile(activities=[ProfilerActivity.CUDA])
    watched_call(function, inputs, watch)
    events = watch.events()  # type: ignore[no-untyped-call]  # torch's own
    kernels = [event for event in events or () if event.device_time_total > 0]
    return [
        {"name": event.name[:MOST_NAME], "ns": round(1e3 * event.device_time_total)}
        for event in kernels[:MOST_KERNELS]
    ]


def _copies(inputs: Any) -> Any:  # noqa: ANN401 - the arguments of a call
    """Return the same arguments in memory of their own, strides, offsets and shared storages kept."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copied(_: str, leaf: Any) -> Any:  # noqa: ANN401 - whatever an argument may be
        if not isinstance(leaf, Tensor) or not leaf.is_cuda:
            return leaf
        storage = leaf.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = storage.clone()  # type: ignore[no-untyped-call]  # torch's own
        target = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        return target.set_(storages[storage.data_ptr()], leaf.storage_offset(), leaf.shape, leaf.stride())

    return map_leaves(copied, inputs)
