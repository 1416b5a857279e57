"""Warm processes that fork others: torch is imported once, then every worker costs milliseconds.

Started through `boot.py` as `evaluation.workers.forkserver CONTROL SCRATCH`. The first process imports torch and
forks, on request, trusted long-lived processes (a parent with Triton's interpreter, one with its compiler, the judge).
A parent forks one session per candidate or task: a stub of our own, and behind it the confined process that runs
the stranger's code (`stub.py`).

All of them stay single-threaded: a fork of a process with a thread pool hangs in the child.
"""

import gc
import importlib
import importlib.metadata
import os
import platform
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from adaexplore_mcp.evaluation.sandbox import Layers, die_with_parent, probe
from adaexplore_mcp.evaluation.wire import Connection

__all__ = ["ForkServer", "main"]

TRUSTED_ROLES = {
    "interpret": "adaexplore_mcp.evaluation.workers.parents:interpret",
    "compile": "adaexplore_mcp.evaluation.workers.parents:compile_only",
    "judge": "adaexplore_mcp.evaluation.workers.judge:serve",
    "cuda": "adaexplore_mcp.evaluation.workers.cuda.parent:serve",
    "gpu_judge": "adaexplore_mcp.evaluation.workers.judge:serve_gpu",
}
"""What a trusted fork becomes: module and function taking the server, and the arguments of the request."""


class ForkServer:
    """Answers requests to fork, one after the other, on one connection.

    Args:
        connection: From the server.
        scratch: Folder below which sessions get theirs.
        layers: Sandbox layers of this machine.
        supervisor: A pidfd of the supervisor.
    """

    def __init__(self, connection: Connection, scratch: str, layers: Layers, supervisor: int) -> None:
        self.connection = connection
        self.scratch = scratch
        self.layers = layers
        self.supervisor = supervisor

    def serve(self) -> None:
        """Fork on request until the server closes the connection."""
        # Ended children vanish by themselves: nobody here waits for them.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # what exists now is never looked at again, so children copy fewer pages
        while (received := self.connection.receive()) is not None:
            request, descriptors = received
            if request["op"] == "trusted":
                self._fork_trusted(request["role"], request["arguments"], descriptors)
            else:
                self._fork_session(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork_trusted(self, role: str, arguments: Sequence[str], descriptors: Sequence[int]) -> None:
        module, function = TRUSTED_ROLES[role].split(":")
        parent = os.getpid()
        if os.fork() != 0:
            return
        code = 1
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.connection.close()
            gc.unfreeze()
            connection = Connection(socket.socket(fileno=descriptors[0]))
            getattr(importlib.import_module(module), function)(
                ForkServer(connection, self.scratch, self.layers, self.supervisor), *arguments
            )
            code = 0
        finally:
            _leave(code)

    def _fork_session(self, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Fork the stub of a session, detached, so that it belongs to the supervisor and not to us."""
        if os.fork() != 0:
            return
        code = 1
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.connection.close()
            stub = importlib.import_module("adaexplore_mcp.evaluation.workers.stub")
            control, session = (socket.socket(fileno=descriptor) for descriptor in descriptors)
            code = stub.start(
                request,
                control,
                session,
                scratch=self.scratch,
                layers=self.layers,
                supervisor=self.supervisor,
            )
        finally:
            _leave(code)


def _leave(code: int) -> None:
    """End this fork without the clean-up that belongs to the process it was forked from."""
    if (error := sys.exc_info()[1]) is not None:
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Probe the sandbox, import torch, say hello, then fork on request."""
    control, scratch = int(arguments[0]), arguments[1]
    supervisor = os.getppid()
    die_with_parent(supervisor)
    watched = os.pidfd_open(supervisor)
    connection = Connection(socket.socket(fileno=control))
    layers = probe(scratch)
    versions = {"python": platform.python_version()}
    problem = ""
    try:
        # Only now: the probe must run in a process with a single thread, and a missing torch becomes a reply.
        import numpy as np  # noqa: PLC0415
        import torch  # noqa: PLC0415

        torch.set_num_threads(1)
        versions |= {"torch": torch.__version__, "numpy": np.__version__}
        versions |= {"triton": importlib.metadata.version("triton")}
    except ImportError as error:
        problem = f"{error}"
    connection.send(
        {
            "layers": dict(layers.state),
            "versions": versions,
            "problem": problem,
        }
    )
    if not problem:
        ForkServer(connection, scratch, layers, watched).serve()
    return 0
