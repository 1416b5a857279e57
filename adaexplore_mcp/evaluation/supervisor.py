"""The process between a server and its workers: it sees the server's end, and leaves nothing behind.

Started through `boot.py` with the server's own interpreter as `evaluation.supervisor LIFELINE CONTROL SCRATCH COMMAND…`.
LIFELINE is the read end of a pipe whose other end only the server holds. When it closes, for whatever reason, or when
the command ends, every descendant is killed and the scratch folder is removed. The command inherits CONTROL. Standard
library only, so it is up in 30 ms.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from adaexplore_mcp.evaluation.sandbox import become_subreaper, guard_memory
from adaexplore_mcp.evaluation.scratch import remove_tree

__all__ = ["descendants", "parents", "supervise"]

CLEANUP_S = 10.0


def supervise(lifeline: int, control: int, scratch: Path, command: Sequence[str]) -> None:
    """Run a command until it or the server ends, then clean up.

    Args:
        lifeline: Descriptor that becomes readable (end of file) when the server ends.
        control: Descriptor that the command inherits.
        scratch: Folder to remove.
        command: The first worker.
    """
    become_subreaper()
    guard_memory()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    stop = False

    def on_terminate(*_: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, on_terminate)
    for ignored in (
        signal.SIGINT,
        signal.SIGHUP,
    ):  # meant for the server, which ends this process by its pipe
        signal.signal(ignored, signal.SIG_IGN)
    worker = subprocess.Popen(command, pass_fds=[control], stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - given by the server
    os.close(control)
    while not stop:
        readable, _, _ = select.select([lifeline, wake_read], [], [], 60)
        if wake_read in readable:
            os.read(wake_read, 4096)
            stop |= worker.pid in _reap()
        stop |= lifeline in readable
    end_descendants()
    remove_tree(scratch)


def _reap() -> set[int]:
    ended = set()
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.add(pid)
    return ended


def children() -> list[int]:
    """Return the living and dead children of this process."""
    own = os.getpid()
    return [pid for pid, parent in parents() if parent == own]


def descendants(ancestor: int) -> set[int]:
    """Return a process and all that were started below it, as far as they are alive or not reaped."""
    known = dict(parents())
    found = {ancestor}
    while more := {pid for pid, parent in known.items() if parent in found} - found:
        found |= more
    return found


def parents() -> Iterator[tuple[int, int]]:
    """Yield every process and its parent."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, so fields count from the last one.
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                yield int(entry.name), int(fields[1])


def end_descendants() -> None:
    """Kill and reap every child, and whatever is inherited from the dead, until nobody is left.

    Bounded by ten seconds: a process stuck in the kernel cannot be waited for.
    """
    deadline = time.monotonic() + CLEANUP_S
    while time.monotonic() < deadline:
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


def main(arguments: Sequence[str]) -> int:
    """Supervise the command given on the command line."""
    lifeline, control, scratch, *command = arguments
    supervise(int(lifeline), int(control), Path(scratch), command)
    return 0
