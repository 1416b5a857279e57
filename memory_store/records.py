"""What the store gives back: rows as typed, immutable values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from adaexplore_mcp.models import Outcome, TaskSummary

__all__ = [
    "ArtifactRecord",
    "JobRecord",
    "JobStatus",
    "Owner",
    "ReceiptRecord",
    "TaskRecord",
    "from_json",
    "storable",
    "to_json",
]

JobStatus = Literal["running", "done", "failed", "interrupted", "cancelled"]


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A registered task with all that is needed to load it again."""

    task_id: str
    content: Mapping[str, Any]
    """Source files, workloads, vary, domains, mutates, policy, baseline: as the owner of the task stored them."""
    summary: TaskSummary
    created_at: float = 0.0
    """Seconds since the epoch; set by the store."""


@dataclass(frozen=True, slots=True)
class ReceiptRecord:
    """What is needed to reach an outcome again."""

    receipt_id: str
    receipt: Mapping[str, Any]
    """Hashes, versions, device, seeds, …: as the evaluation stored them."""
    outcome: Outcome
    created_at: float


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A long text that belongs to an outcome."""

    artifact_id: str
    kind: str
    text: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Owner:
    """The server process that runs a job."""

    host: str
    """Machine and process namespace: a pid means something only inside it."""
    pid: int
    started: int
    """Start time of the process in the kernel's ticks: tells a process from a later one with its pid."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """An evaluation that outlasted its call."""

    job_id: str
    tool: str
    arguments: Mapping[str, Any]
    """The call that asks for the same evaluation again."""
    owner: Owner
    created_at: float
    heartbeat_at: float
    """When its owner last said that it runs, in seconds since the epoch."""
    status: JobStatus = "running"
    stage: str = ""
    progress: float = 0.0
    """Seconds it had run at the last heartbeat."""
    cancel_requested: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)
    """The object the tool would have returned, once done."""
    problem: str = ""
    """What went wrong, once failed."""
    next_step: str = ""
    finished_at: float | None = None


def to_json(value: Mapping[str, Any]) -> str:
    """Return the text of a JSON column; NaN and infinities are a mistake of the caller."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def from_json(text: str) -> dict[str, Any]:
    """Read a JSON column that holds an object."""
    value = json.loads(text)
    assert isinstance(value, dict), text[:80]
    return value


def storable(text: str) -> str:
    """Replace lone surrogates, which neither SQLite nor JSON on the wire can carry."""
    return text.encode("utf-8", "replace").decode()
