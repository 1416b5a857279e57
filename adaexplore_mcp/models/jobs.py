"""Evaluations that outlast the call that asked for them."""

from typing import Any, Literal

from adaexplore_mcp.models.values import Value

__all__ = [
    "JobPage",
    "JobView",
]


class JobView(Value):
    """Where an evaluation stands."""

    summary: str
    next_step: str = ""
    status: Literal["running", "done", "failed", "interrupted", "cancelled"]
    job_id: str
    tool: str = ""
    about: str = ""
    """What was asked for: the task, or its name, and the candidate."""
    stage: str = ""
    """What it is doing now."""
    elapsed_seconds: float = 0.0
    result: dict[str, Any] = {}
    """The object the tool would have returned, once done."""
    warnings: list[str] = []
    """What the kernel's source shows that a rule says cannot be done; the verdict decides."""


class JobPage(Value):
    """The latest evaluations that outlasted their call."""

    summary: str
    next_step: str = ""
    jobs: list[JobView] = []
