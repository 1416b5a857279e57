"""Which server process a job belongs to, and whether that process is still there."""

import os
import socket
import time
from functools import cache
from pathlib import Path

from adaexplore_mcp.memory_store import JobRecord, Owner, StepRecord

__all__ = ["has_ended", "is_gone", "is_left", "this_process"]

UNSEEN_S = 900.0
"""How long an evaluation counts as alive whose process cannot be seen from here."""

STALE_S = 15.0
"""A heartbeat older than this means that an owner we cannot see is gone; it beats every 2 s."""


@cache
def this_process() -> Owner:
    """Return the identity of this process."""
    return Owner(host=_host(), pid=os.getpid(), started=_start_time(os.getpid()) or 0)


def is_gone(job: JobRecord) -> bool:
    """Say whether the owner of a running job can no longer finish it."""
    return has_ended(job.owner, job.heartbeat_at + STALE_S)


def is_left(step: StepRecord) -> bool:
    """Say whether nobody can still be judging a submitted kernel: nobody took it up, or whoever did has ended."""
    return not step.owner.pid or has_ended(step.owner, (step.claimed_at or step.updated_at) + UNSEEN_S)


def has_ended(owner: Owner, until: float) -> bool:
    """Say whether a process has ended.

    Args:
        owner: The process.
        until: Until when it counts as alive where it cannot be seen from here, in seconds since the epoch.
    """
    if owner.host == _host():
        # A stopped or starved owner keeps its work: a heartbeat says less than the process table.
        return _start_time(owner.pid) != owner.started
    return time.time() > until


def _start_time(pid: int) -> int | None:
    """Return the start time of a live process in clock ticks since boot, None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # After the name, which may hold anything: state is the first field, start time the twentieth (proc(5)).
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@cache
def _host() -> str:
    """Name the space in which a pid means something: this boot of this machine, and the pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path, the text `pid:[…]`
    except OSError:
        boot = namespace = ""
    return f"{socket.gethostname()} {boot} {namespace}"
