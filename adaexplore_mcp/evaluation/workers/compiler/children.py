"""Work that forked children of this process do side by side, each telling what it found as lines of JSON.

A child has in memory what the process had when it was forked, so nothing is sent to it. It prints nothing, ends without
Python's clean-up, and ends with its parent. When its time is over the kernel ends it, wherever it is: neither a pass of
the compiler nor, in some sandboxes, the parent could.
"""

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from adaexplore_mcp.evaluation.sandbox import die_with_parent

__all__ = ["Child", "Tell", "alone", "end_process"]

Tell = Callable[[Mapping[str, Any]], None]

MAX_TOLD_BYTES = 1 << 20
READ_BYTES = 1 << 16
SIGNALS = (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Child:
    """One forked child; the process that forks it must have a single thread, see `alone`.

    Args:
        work: What it does, in the child; it is given what tells the parent a message.
        limit_s: Seconds after which it is ended.

    Raises:
        OSError: No process can be had.
    """

    def __init__(self, work: Callable[[Tell], object], limit_s: float) -> None:
        self.deadline = time.monotonic() + limit_s
        self.messages: list[dict[str, Any]] = []
        """What it has told so far."""
        self._rest = b""
        self._told_bytes = 0
        self._silent = False
        self.descriptor, write_end = os.pipe()
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.descriptor)
            os.close(write_end)
            raise
        if self.pid == 0:
            _live(work, write_end, limit_s, parent)
        os.close(write_end)
        with contextlib.suppress(OSError):  # the child does the same; whoever comes first
            os.setpgid(self.pid, self.pid)

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self.deadline

    def read(self) -> bool:
        """Take what it tells, waiting for it; False once nothing more will come."""
        data = os.read(self.descriptor, READ_BYTES)
        self._told_bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self.messages.append(message)
        self._silent = not data or self._told_bytes > MAX_TOLD_BYTES
        return not self._silent

    def end(self) -> None:
        """End it, if it has not ended, and what it started: its process group."""
        os.close(self.descriptor)
        # One that cannot be ended is not waited for: it ends at its deadline, and what is left with the session.
        if end_process(self.pid, group=True) or self._silent:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)


def _live(work: Callable[[Tell], object], descriptor: int, limit_s: float, parent: int) -> NoReturn:
    """Be the child."""
    try:
        # Whatever is raised here: what was not told is not known, and the parent finds out by itself.
        with contextlib.suppress(BaseException):
            die_with_parent(parent)
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            signal.setitimer(signal.ITIMER_REAL, max(limit_s, 0.001))
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)

            def tell(message: Mapping[str, Any]) -> None:
                line = memoryview(json.dumps(message).encode() + b"\n")
                while line:
                    line = line[os.write(descriptor, line) :]

            work(tell)
    finally:
        os._exit(0)


def alone() -> bool:
    """Say whether this process has a single thread, so that a child forked from it finds no lock held for ever."""
    return len(os.listdir(Path("/proc/self/task"))) == 1  # noqa: PTH208 - one call, no objects


def end_process(pid: int, *, group: bool = False) -> bool:
    """End a process of our own, or its group, and say whether it is sure to end at once.

    A sandbox without a process namespace refuses signals to any other process. The kernel then ends it as soon as it has
    used one second of processor time, which a compiler that takes too long has.
    """
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
        return False
    return True
