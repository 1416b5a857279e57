"""What is alive, read from /proc: the processes that a server and its workers are, and what they leave behind."""

import os
import time
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

PATIENCE_S = 30.0
POLL_S = 0.02  # nothing announces the end of somebody else's process or the removal of a folder


class Process(NamedTuple):
    """One process: its id may be given out again, its start time tells the two apart."""

    pid: int
    started: int

    @property
    def alive(self):
        fields = _stat(self.pid)
        return fields is not None and fields[0] not in "ZX" and int(fields[19]) == self.started

    @property
    def stopped(self):
        return (_stat(self.pid) or "?")[0] == "T"


def _stat(pid):
    """Return the fields of /proc/PID/stat from the state on, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the name in parentheses may hold anything


def everything():
    """Return every living process with its parent's id."""
    found = {}
    for entry in os.scandir("/proc"):
        fields = _stat(int(entry.name)) if entry.name.isdigit() else None
        if fields is not None and fields[0] not in "ZX":
            found[Process(int(entry.name), int(fields[19]))] = int(fields[1])
    return found


def children(pid):
    """Return the living children of a process, oldest first."""
    found = [process for process, parent in everything().items() if parent == pid]
    return sorted(found, key=lambda process: (process.started, process.pid))


def descendants(pid):
    """Return every living process below one, in no order."""
    parents = everything()
    found, frontier = [], {pid}
    while frontier:
        below = [process for process, parent in parents.items() if parent in frontier]
        found += below
        frontier = {process.pid for process in below}
    return found


def place(process):
    """Return the working folder of a process, or None where it has ended or is closed to us."""
    try:
        return str(Path(f"/proc/{process.pid}/cwd").readlink())
    except OSError:
        return None


def working_in(folder):
    """Return every living process that names a folder on its command line, in its environment or as its own place.

    Finds what no longer descends from anybody of ours.
    """
    mark = os.fsencode(folder)
    found = []
    for process in everything():
        place = Path("/proc", str(process.pid))
        for read in (
            lambda place=place: (place / "cmdline").read_bytes(),
            lambda place=place: (place / "environ").read_bytes(),
            lambda place=place: os.fsencode((place / "cwd").readlink()),
        ):
            try:
                said = read()
            except OSError:  # it has ended, or is closed to us
                continue
            if mark in said:
                found.append(process)
                break
    return found


def described(processes):
    """Name processes for a failure."""
    lines = []
    for process in processes:
        try:
            command = (
                Path(f"/proc/{process.pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
        except OSError:
            command = "(gone meanwhile)"
        lines.append(f"{process.pid}: {command[:200]}")
    return "\n".join(lines)


def eventually(condition, otherwise, patience_s=PATIENCE_S):
    """Wait until a condition holds and return what it gave; fail with what `otherwise` says when it never does."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(otherwise())
        time.sleep(POLL_S)
    return value


async def soon(condition, otherwise, patience_s=PATIENCE_S):
    """Do as `eventually`, on an event loop that goes on meanwhile."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(otherwise())
        await anyio.sleep(POLL_S)
    return value


def all_gone(processes, patience_s=PATIENCE_S):
    """Wait until none of some processes is alive."""
    eventually(
        lambda: not any(process.alive for process in processes),
        lambda: "still alive:\n" + described([process for process in processes if process.alive]),
        patience_s,
    )
