"""The confined process of one candidate under a profiler; started by `profiler.py`, answers as `workers.candidate` says.

It starts CUDA first, since the profiler attaches then and not later, confines itself, says so, and is given the candidate only
after that. One operation more:

* `profiled`: `slot`: some calls unseen, so that everything is compiled, tuned and packed; then one under the profiler.
* `leave`: end, without an answer: the profiler's is the answer.
"""

import contextlib
import importlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from adaexplore_mcp.evaluation.sandbox import Layers, Limits, confine
from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.candidate import CandidateProcess, Reply, answer
from adaexplore_mcp.evaluation.workers.cuda.engine import CudaEngine
from adaexplore_mcp.evaluation.workers.cuda.start import start_if_room
from adaexplore_mcp.evaluation.workers.cuda.watched import watched_call

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Take the server's connection, start CUDA, confine this process, then answer requests."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.connect(arguments[0])
    with_profiler = Connection(door)
    received = with_profiler.receive()
    assert received is not None
    request, descriptors = received
    connection = Connection(socket.socket(fileno=descriptors[0]))
    with_profiler.close()
    folder = Path(request["folder"])
    torch.set_num_threads(1)
    if full := start_if_room():
        connection.send({"full": full})
        return 0
    _start_triton()
    confine(
        Layers(request["layers"]),
        Limits(
            memory_bytes=request["memory_bytes"],
            file_bytes=request["memory_bytes"],
            cpu_s=request["lifetime_s"],
            address_space=False,
        ),
        writable=[str(folder), *request["nodes"], "/proc/self/task"],
        readable=request["readable"],
    )
    connection.send({"ok": {}})

    def report(progress: Mapping[str, Any]) -> None:
        connection.send({"progress": progress})

    answer(_ProfiledProcess(connection, folder, CudaEngine(report)))
    return 0


def _start_triton() -> None:
    """Build what Triton's driver needs before this process is confined."""
    triton = importlib.import_module("triton")
    triton.runtime.driver.set_active(importlib.import_module("triton.backends.nvidia.driver").CudaDriver())


class _ProfiledProcess(CandidateProcess):
    """A candidate's process, one call of which a profiler sees."""

    def __init__(self, connection: Connection, folder: Path, engine: CudaEngine) -> None:
        super().__init__(connection, folder, engine)
        self.operations = {**self.operations, "profiled": self.profiled, "leave": self.leave}

    def profiled(self, request: Mapping[str, Any], _: Sequence[int]) -> Reply:
        """Call the candidate, the last time under the profiler."""
        assert self.function is not None
        assert self.watch is not None
        self.phase = self.watch.phase = "run"
        slot = self.slots[request["slot"]]
        watched_call(self.function, (slot.args, slot.kwargs), _counters_on())
        return {}

    @staticmethod
    def leave(_: Mapping[str, Any], __: Sequence[int]) -> Reply:
        """End at once, so that the profiler gives its answer: no handler and no thread of the candidate's is waited for."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


@contextlib.contextmanager
def _counters_on() -> Iterator[None]:
    """Let the profiler see what is launched meanwhile."""
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch's own
    yield
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]  # torch's own
