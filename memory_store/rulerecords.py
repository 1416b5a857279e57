"""Rules, failures, changes and measured speeds, as they are kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaexplore_mcp.models import RuleFix, RuleState

__all__ = [
    "Change",
    "Failing",
    "Merge",
    "NewRule",
    "Outlook",
    "RuleBrief",
    "RuleDetails",
    "RuleRecord",
    "SpeedChange",
]


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """What one step of a search did to a kernel's speed.

    Args:
        node_id: The kernel it made.
        parent_id: The kernel it began with.
        task_id: The task.
        agent: Label of who made the step.
        ratio: Speed of the new kernel over that of the old one.
        low: Lower end of its interval.
        high: Upper end.
    """

    node_id: str
    parent_id: str
    task_id: str
    agent: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule as it is first kept.

    Args:
        key: Fingerprint of its failures.
        subject: What it is about.
        words: Template of its text.
        text: Its text.
        names: Names that its text or its check lists.
        state: learned, unverified or verified.
        origin: Where it comes from: learned here, shipped, or the name of a file.
        wording: Who worded it: template, agent, person, shipped or imported.
        dtype: Of the tasks it holds for; empty for any.
        device: On which it was seen: a target, or the name of a GPU; empty for any.
    """

    key: str
    subject: str
    words: str
    text: str
    names: tuple[str, ...] = ()
    state: RuleState = "learned"
    origin: str = "learned here"
    wording: str = "template"
    dtype: str = ""
    device: str = ""


class RuleRecord(NamedTuple):
    """A rule as it is kept; fields as in `NewRule`, and its counts.

    A tuple: a thousand are made for every answer, and a frozen dataclass takes ten times as long.
    """

    rule_id: str
    key: str
    subject: str
    text: str
    wording: str
    state: RuleState
    origin: str
    names: tuple[str, ...]
    device: str
    hits: int
    support: int
    merged_into: str
    proposed: Mapping[str, Any]
    created_at: float
    changed_at: float
    dtype: str = ""


class RuleBrief(NamedTuple):
    """What a ranking needs of a rule; fields as in `RuleRecord`."""

    rule_id: str
    key: str
    subject: str
    state: RuleState
    hits: int
    support: int
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known when rules are ranked for a task.

    Args:
        rules: All that are not retired, merged or refuted.
        families: Task families that were tried at all.
        own: Rules that the task, or another one of its family, broke.
    """

    rules: Sequence[RuleBrief]
    families: int
    own: Collection[str]


@dataclass(frozen=True, slots=True)
class RuleDetails:
    """What is shown with a rule and not needed to rank it.

    Args:
        fix: The edit that worked most often.
        holds: By version of Triton: whether it holds there, how that is known, and when it was checked.
        kernels_before: Kernels judged where it had not been shown.
        broken_before: Of these, how many broke it.
        kernels_after: Kernels judged where it had been shown.
        broken_after: Of these, how many broke it.
        speeds: What the steps behind it did to a kernel's speed, latest first; for rules about speed.
    """

    fix: RuleFix | None = None
    holds: Mapping[str, tuple[bool, str, float]] = field(default_factory=dict)
    kernels_before: int = 0
    broken_before: int = 0
    kernels_after: int = 0
    broken_after: int = 0
    speeds: Sequence[SpeedChange] = ()


@dataclass(frozen=True, slots=True)
class Failing:
    """A failure that is kept.

    Args:
        number: Its number.
        rule_id: The rule it broke.
        task_id: The task.
        candidate_id: The candidate.
        agent: Label of who sent it.
        lesson: The lesson that was given for it, or empty.
    """

    number: int
    rule_id: str
    task_id: str
    candidate_id: str
    agent: str
    lesson: str


class Merge(NamedTuple):
    """A rule that is part of another one, and can be restored."""

    rule_id: str
    text: str
    into_id: str
    agent: str
    merged_at: float


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was done to a rule."""

    rule_id: str
    action: str
    detail: Mapping[str, Any]
    agent: str
    changed_at: float
