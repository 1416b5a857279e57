"""A candidate: what is judged, and by which rules of its task."""

from dataclasses import dataclass

from adaexplore_mcp.models import Policy, TaskFormat

__all__ = ["Candidate"]


@dataclass(frozen=True)
class Candidate:
    """What is judged, and by which rules.

    Args:
        source: Its text as bytes.
        format: Of the task.
        entry: What it must define.
        policy: Of the task.
    """

    source: bytes
    format: TaskFormat
    entry: str
    policy: Policy
