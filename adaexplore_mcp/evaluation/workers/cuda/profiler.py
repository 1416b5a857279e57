"""Starts a profiler and, under it, the process of one candidate; hands over what it found. Runs nothing of the candidate's.

The profiler talks to what it profiles by sockets, so it is confined a little less than a candidate (see
SECURITY.md); the candidate's process confines itself in full before it is given any source. That process gets the server's
connection by a socket with a name, since a profiler need not pass descriptors on.

Request `start`: `command` (the profiler's, up to the worker's own), `log` (the name of its answer's file), and what the
process needs to confine itself: `layers`, `memory_bytes`, `lifetime_s`, `nodes`. The candidate's process answers it, and what
comes after. Once that process has ended, one message says how it went: `failure`, `profiler` with the answer.
"""

import contextlib
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaexplore_mcp.evaluation import boot
from adaexplore_mcp.evaluation.wire import Connection, FrameError

__all__ = ["run"]

MODULE = "evaluation.workers.cuda.profiled"
SOCKET = "process"
MOST_ANSWER_BYTES = 2 << 20
MOST_SAID_BYTES = 64 << 10
TICK_S = 0.1


def run(connection: Connection, folder: Path) -> None:
    """Start the profiler as the first request says, then tell what it found."""
    received = connection.receive()
    if received is None:
        return
    request, _ = received
    path = folder / SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        door.listen(1)
        worker = [sys.executable, "-P", boot.__file__, MODULE, str(path)]
        said = folder / "said"
        with said.open("wb") as output:
            profiler = subprocess.Popen(  # noqa: S603 - the server's command
                [*request["command"], *worker],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if (process := _first(door, profiler)) is not None:
            # What ends meanwhile is told below.
            with (
                contextlib.closing(Connection(process)) as to_process,
                contextlib.suppress(OSError, FrameError),
            ):
                to_process.send({**request, "folder": str(folder)}, [connection.socket.fileno()])
        code = profiler.wait()
    with contextlib.suppress(OSError):  # a server that is gone wants no report
        connection.send(
            _report(code, _head(folder / request["log"], MOST_ANSWER_BYTES), _head(said, MOST_SAID_BYTES))
        )


def _first(door: socket.socket, profiler: "subprocess.Popen[bytes]") -> socket.socket | None:
    """Wait for the process to say that it is there; None if the profiler ends before."""
    door.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        while profiler.poll() is None:
            if selector.select(TICK_S):
                process, _ = door.accept()
                process.setblocking(True)
                return process
    return None


def _head(path: Path, limit: int) -> str:
    """Return the beginning of a file; nothing where there is none."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit).decode(errors="replace")
    return ""


def _report(code: int, answer: str, said: str) -> Mapping[str, Any]:
    failure = {"kind": "exit", "phase": "run", "type": "ProfilerEnded", "message": f"it ended with {code}"}
    return {"failure": failure, "profiler": {"exit_code": code, "answer": answer, "said": said}}
