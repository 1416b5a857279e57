"""Rules: what failures taught, as it is shown and asked for."""

from typing import Literal

from pydantic import Field

from adaexplore_mcp.models.values import Value

__all__ = [
    "Question",
    "Review",
    "ReviewAction",
    "RuleFix",
    "RulePage",
    "RuleState",
    "RuleView",
    "RulesRequest",
]

RuleState = Literal["learned", "unverified", "verified", "confirmed", "retired"]
"""From failures here; imported, support unknown; a probe fails as the rule says; a person vouches; no longer given."""

ReviewAction = Literal["reword", "merge", "propose_retire", "propose_confirm"]
"""What an agent may do to a rule; confirming and retiring is a person's."""


class RuleFix(Value):
    """An edit that turned a kernel that broke a rule into a right one."""

    before: str
    """Lines as they were, without comments; empty where lines were only added."""
    after: str
    """Lines as they became, without comments; empty where lines were only removed."""
    worked: int = 1
    """How often it did."""


class RuleView(Value):
    """One rule with what it rests on."""

    summary: str = ""
    """One sentence, where it answers a call."""
    next_step: str = ""
    rule_id: str
    rule: str
    """One sentence that begins You cannot."""
    state: RuleState = "learned"
    provenance: str = ""
    """In words: where it comes from, on how many tasks it was seen, what its probe says."""
    kind: str = ""
    """Kind of failure and class of construct: equal for equal mistakes."""
    names: list[str] = []
    """Names with which it was seen, such as the functions that do not exist."""
    holds_for: str = ""
    """What it is bound to: tasks of a dtype, a device; empty where it holds anywhere."""
    support: int = 0
    """Distinct task families on which it was broken here."""
    hits: int = 0
    """Kernels that broke it."""
    fix: RuleFix | None = None
    """The edit that worked most often."""
    measured: str = ""
    """How often kernels broke it before and after it was shown; empty where it never was."""
    proposed: str = ""
    """A change that waits for a person."""


class Question(Value):
    """What a person is asked about a rule."""

    words: str
    """The question."""
    rule: str
    """Text of the rule that it is about."""
    state: RuleState
    """And its state."""


class RulePage(Value):
    """Rules that matter for a task, a kernel or a query."""

    summary: str = ""
    next_step: str = ""
    rules: list[RuleView] = []
    left_out: int = 0
    """Further rules that match."""


class RulesRequest(Value):
    """Which rules are asked for."""

    task_id: str = ""
    source: bytes = b""
    """A kernel: rules about what it uses come first."""
    query: str = ""
    """Words of which each must occur in the rule, its kind or its names."""
    min_support: int = Field(default=3, ge=0, le=1000)
    limit: int = Field(default=20, ge=1, le=100)


class Review(Value):
    """What is to be done to a rule."""

    rule_id: str
    action: ReviewAction
    text: str = ""
    """The new wording, or the reason to retire it."""
    into: str = ""
    """The rule that a merged one becomes part of."""
    agent: str = ""
    """Label of who asks."""
