"""The confined process of one candidate on a GPU, with CUDA started ahead; answers as `workers.candidate` says.

Request `load` has a `memory_share` (of the GPU's memory, for torch's allocator), `tuned` (which configurations of autotuners
build) and, as its file, what was compiled (`cache.pack`). With `timing`, nothing of ours stands between the candidate and Triton
or torch, autotuners choose by the clock, and `l2_bytes` is given; then it answers also, with times in nanoseconds:

* `burst`: `slots`, `count`, `mutates` (inputs to restore before each call), `held_us` (for how long to hold the device while
  they are launched): calls in turn, one right after the other; the reply comes as soon as the device is done.
* `times`: what those calls took.
* `timed`: with memory for them, the outputs of one of those calls, left to chance, as they were right after it.
* `seen`: `slots`, `mutates`: one call each, as its caller sees it.
* `profiled`: `slot`: `kernels`, the name and `ns` of each in one call, by torch's profiler.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.candidate import CandidateProcess, Reply, answer
from adaexplore_mcp.evaluation.workers.compiler import keep_cache_in
from adaexplore_mcp.evaluation.workers.cuda.bursts import Bursts
from adaexplore_mcp.evaluation.workers.cuda.engine import CudaEngine
from adaexplore_mcp.evaluation.workers.cuda.memory import forget_persisting_lines, persisting_bytes
from adaexplore_mcp.evaluation.workers.cuda.start import start_if_room
from adaexplore_mcp.evaluation.workers.cuda.watched import kernel_times

__all__ = ["prepare", "run"]


def prepare() -> str:
    """Start CUDA, before there is a candidate; say so where there is no memory for it."""
    return start_if_room()


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection."""
    keep_cache_in(folder / "triton")

    def report(progress: Mapping[str, Any]) -> None:
        connection.send({"progress": progress})

    answer(_TimedProcess(connection, folder, CudaEngine(report)))


class _TimedProcess(CandidateProcess):
    """A candidate's process whose calls can be timed."""

    at_once = frozenset({"burst"})

    def __init__(self, connection: Connection, folder: Path, engine: CudaEngine) -> None:
        super().__init__(connection, folder, engine)
        self._bursts: Bursts | None = None
        self._kept_by_the_driver = 0
        self._chosen: tuple[Any, int] = None, 0
        self.operations = {
            **self.operations,
            "burst": self.burst,
            "times": self.times,
            "timed": self.timed,
            "seen": self.seen,
            "profiled": self.profiled,
        }

    def integrity(self, *, thorough: bool = False) -> dict[str, Any]:
        """Return what the candidate did to its process, and while it is timed what it keeps in the L2 cache."""
        seen = super().integrity(thorough=thorough)
        if not seen or self._bursts is None:
            return seen
        return seen | {"kept_bytes": max(0, persisting_bytes() - self._kept_by_the_driver)}

    def load(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Make what takes times before the candidate is imported."""
        if request.get("timing"):
            self._bursts = Bursts(request["l2_bytes"])
            # As each burst does: what is more afterwards was set aside by the candidate.
            forget_persisting_lines()
            self._kept_by_the_driver = persisting_bytes()
        return super().load(request, descriptors)

    def burst(self, request: Mapping[str, Any], _: Sequence[int]) -> Reply:
        """Time calls, one right after the other."""
        assert self._bursts is not None
        self._chosen = None, 0  # its memory is given back first
        calls, restore = self._calls(request)
        reply, outputs, slot = self._bursts.burst(calls, restore, request["count"], request["held_us"])
        self._chosen = outputs, request["slots"][slot]
        return {**reply}

    def times(self, _: Mapping[str, Any], __: Sequence[int]) -> Reply:
        """Give the times of the last burst."""
        assert self._bursts is not None
        return self._bursts.times()

    def timed(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Hand over the outputs of one of the timed calls."""
        outputs, slot = self._chosen
        return self.export(outputs, None, descriptors[0], request["room"]) | {"slot": slot}

    def seen(self, request: Mapping[str, Any], _: Sequence[int]) -> Reply:
        """Time calls as their caller sees them."""
        assert self._bursts is not None
        return {"call_ns": self._bursts.seen(*self._calls(request))}

    def profiled(self, request: Mapping[str, Any], _: Sequence[int]) -> Reply:
        """Take the time of each kernel in one call."""
        assert self.function is not None
        assert self.watch is not None
        self.phase = self.watch.phase = "run"
        self.watch.working = True
        slot = self.slots[request["slot"]]
        return {"kernels": kernel_times(self.function, (slot.args, slot.kwargs))}

    def _calls(self, request: Mapping[str, Any]) -> tuple[list[Any], list[list[tuple[Tensor, Tensor]]]]:
        """Return the calls with each slot's inputs, and copies of the inputs that a call changes."""
        assert self.function is not None
        assert self.watch is not None
        self.phase = self.watch.phase = "run"
        self.watch.working = True
        slots = [self.slots[number] for number in request["slots"]]
        calls = [functools.partial(self.function, *slot.args, **slot.kwargs) for slot in slots]
        changed = [[slot.named[name] for name in request["mutates"] if name in slot.named] for slot in slots]
        return calls, [[(tensor, tensor.clone()) for tensor in tensors] for tensors in changed]
