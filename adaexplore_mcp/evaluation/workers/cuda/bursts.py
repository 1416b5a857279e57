"""Take the times of a candidate's calls on the device, many in one burst.

The host runs ahead while the device is held, so that the device finds one call after the other without waiting for it.
Before each timed call a buffer of twice the L2 cache is read: a fill would leave dirty lines, whose write-back would fall
into the call. What is bound here is bound before the candidate is imported; still, what it gives is the claim of a process
that runs a stranger's code, and the server's clock bounds it.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adaexplore_mcp.evaluation.workers.cuda.hold import Hold
from adaexplore_mcp.evaluation.workers.cuda.memory import forget_persisting_lines
from adaexplore_mcp.evaluation.workers.trees import map_leaves

__all__ = ["Bursts", "Gauge"]

Call = Callable[[], Any]
HELD_US = 1_000.0  # while a gauge is read some times

_Event: Any = torch.cuda.Event
_synchronize = torch.cuda.synchronize
_now, _sum, _urandom = time.perf_counter_ns, torch.sum, os.urandom
_no_grad: Any = torch.no_grad


class Gauge:
    """Reads a buffer that is twice as large as the L2 cache.

    Args:
        l2_bytes: Size of the cache.
    """

    def __init__(self, l2_bytes: int) -> None:
        self._buffer = torch.ones(max(1, 2 * l2_bytes // 4), dtype=torch.float32, device="cuda")
        self._sink = torch.empty((), dtype=torch.float32, device="cuda")

    def flush(self) -> None:
        """Put the buffer into the cache, in the place of everything else."""
        _sum(self._buffer, dim=0, out=self._sink)

    def measure(self, times: int) -> tuple[float, float]:
        """Return how long a read takes, and how long nothing takes, in microseconds, the median of some."""
        reads, pairs = (
            [(_Event(enable_timing=True), _Event(enable_timing=True)) for _ in range(times)] for _ in range(2)
        )
        Hold().begin(HELD_US)
        for (start, end), pair in zip(reads, pairs, strict=True):
            start.record()
            self.flush()
            end.record()
            for each in pair:
                each.record()
        _synchronize()
        return _median_us(reads), _median_us(pairs)


class Bursts:
    """Calls a candidate in bursts.

    Args:
        l2_bytes: Size of the GPU's L2 cache.
    """

    def __init__(self, l2_bytes: int) -> None:
        self._gauge = Gauge(l2_bytes)
        self._hold = Hold()
        self._marks: list[tuple[Any, Any]] = []
        self._ends: tuple[Any, Any] = (_Event(enable_timing=True), _Event(enable_timing=True))
        self._count = 0

    def burst(
        self,
        calls: Sequence[Call],
        restore: Sequence[Sequence[tuple[Tensor, Tensor]]],
        count: int,
        held_us: float,
    ) -> tuple[Mapping[str, Any], Any, int]:
        """Call in turn, `count` times.

        Args:
            calls: One per slot of inputs.
            restore: Per slot, inputs that a call changes, each with a copy as it was.
            count: How many calls.
            held_us: For how long to hold the device while the calls are launched, in microseconds.

        Returns:
            Nanoseconds of the host for each call, and whether the device was let go before everything was launched; the
            outputs of a call left to chance, and the slot it was made with. The times are asked for afterwards: the server's
            clock runs until the reply, and reading them takes the longer the more there are.
        """
        while len(self._marks) < count:
            self._marks.append((_Event(enable_timing=True), _Event(enable_timing=True)))
        self._count = count
        first, last = self._ends
        chosen = int.from_bytes(_urandom(4), "little") % count
        kept: Any = None
        with _no_grad():
            _synchronize()
            forget_persisting_lines()
            self._hold.begin(held_us)
            first.record()
            ahead = _now()
            for number in range(count):
                slot = number % len(calls)
                for target, source in restore[slot]:
                    target.copy_(source)
                self._gauge.flush()
                start, end = self._marks[number]
                start.record()
                outputs = calls[slot]()
                end.record()
                if number == chosen:
                    kept = _copied(outputs)  # at once: what another stream still works on is not there yet
                del outputs
            last.record()
            late = first.query()
            queued = _now()
            _synchronize()
        return {"host_ns": (queued - ahead) // count, "late": late}, kept, chosen % len(calls)

    def times(self) -> dict[str, Any]:
        """Return what the calls of the last burst took, and all of it, in nanoseconds."""
        first, last = self._ends
        return {
            "device_ns": [round(1e6 * start.elapsed_time(end)) for start, end in self._marks[: self._count]],
            "total_ns": round(1e6 * first.elapsed_time(last)),
        }

    def seen(self, calls: Sequence[Call], restore: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> list[int]:
        """Call once with each slot, waiting for the device; return how long each took its caller, in nanoseconds."""
        taken = []
        with _no_grad():
            for call, pairs in zip(calls, restore, strict=True):
                for target, source in pairs:
                    target.copy_(source)
                self._gauge.flush()
                _synchronize()
                began = _now()
                call()
                _synchronize()
                taken.append(_now() - began)
        return taken


def _median_us(events: Sequence[tuple[Any, Any]]) -> float:
    times = sorted(1e3 * start.elapsed_time(end) for start, end in events)
    return float(times[len(times) // 2])


def _copied(outputs: Any) -> Any:  # noqa: ANN401 - whatever it returned
    """Copy the tensors of an output in the order of the current stream; everything else stays what it is."""

    def copied(_: str, leaf: Any) -> Any:  # noqa: ANN401 - as above
        return leaf.clone() if type(leaf) is Tensor and leaf.layout is torch.strided else leaf

    return map_leaves(copied, outputs)
