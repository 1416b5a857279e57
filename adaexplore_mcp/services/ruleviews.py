"""Rules as they are shown: data with its provenance, never more than a sentence of free text."""

import time
from collections.abc import Sequence

from adaexplore_mcp.memory_store import RuleBrief, RuleDetails, RuleRecord, SpeedChange
from adaexplore_mcp.models import RuleView
from adaexplore_mcp.rules import PERFORMANCE, VISIBLE, Place, cleaned, probe_of

__all__ = ["as_line", "day", "holds_now", "in_brief", "view", "vouched"]

VOUCHED = {"verified": "a probe confirms it", "confirmed": "a person confirmed it"}
"""By state of a rule: who says that it holds."""
NAMED = 6
"""Names that are shown with a rule whose text does not list them all."""


def vouched(rule: RuleRecord | RuleBrief) -> bool:
    """Tell whether a probe or a person says that a rule holds."""
    return rule.state in {"verified", "confirmed"}


def holds_now(details: RuleDetails, triton: str) -> str:
    """Say what is known of a rule and the installed Triton, in a few words."""
    known = details.holds.get(triton)
    if known is None:
        last = next(reversed(list(details.holds.items())), None)
        if last is None:
            return ""
        version, (holds, how, checked) = last
        return f"{how} {'confirms' if holds else 'refutes'} it for triton {version} ({day(checked)})"
    holds, how, checked = known
    return f"{how} {'confirms' if holds else 'refutes'} it for triton {triton} ({day(checked)})"


def view(rule: RuleRecord, details: RuleDetails, triton: str, *, reason: bool = False) -> RuleView:
    """Return a rule as it is shown.

    Args:
        rule: The rule.
        details: What else is known of it.
        triton: The version that is installed.
        reason: Show what was proposed and why: an agent's words, for who proposed it and for a person.
    """
    where = [rule.origin]
    holds_for = place_of(rule)
    if rule.subject == PERFORMANCE:
        pass  # said below, with the measured ratio
    elif rule.hits:
        where.append(
            f"broken by {rule.hits} kernels of {_count(rule.support, 'task family', 'task families')}"
        )
    elif rule.state == "unverified":
        where.append("unverified, support unknown here")
    if rule.state == "confirmed":
        where.append("confirmed by a person")
    if rule.state == "retired":
        where.append(f"retired ({day(rule.changed_at)})")
    checked = holds_now(details, triton)
    where.append(checked or ("probe not run yet" if probe_of(rule.key) else "no probe"))
    if holds_for:
        where.append(f"holds for {holds_for}")
    elif rule.device:
        where.append(f"seen on {rule.device}")
    if details.speeds:
        where.append(_speeds(details.speeds))
    if rule.merged_into:
        where.append(f"merged into {rule.merged_into}")
    return RuleView(
        rule_id=rule.rule_id,
        rule=cleaned(rule.text)[:200],
        state="retired" if _refuted(details, triton) else rule.state,
        provenance="; ".join(where),
        kind=rule.key,
        names=list(rule.names[:NAMED]),
        support=rule.support,
        hits=rule.hits,
        holds_for=holds_for,
        fix=details.fix,
        measured=_measured(details),
        proposed=proposal_of(rule) if reason else "",
    )


def _refuted(details: RuleDetails, triton: str) -> bool:
    """Tell whether a rule does not hold for a version of Triton; for others it may."""
    known = details.holds.get(triton)
    return known is not None and not known[0]


def as_line(rule: RuleRecord, *, lead: str = "", elsewhere: bool = False) -> str:
    """Return a rule as one line of an outcome; `elsewhere`: its probe ran for other versions of Triton only."""
    said = VOUCHED | {"verified": "a probe confirmed it for another Triton"} if elsewhere else VOUCHED
    kind = said.get(
        rule.state,
        "unverified"
        if rule.state == "unverified"
        else f"seen on {_count(rule.support, 'task family', 'task families')}",
    )
    where = f", {place}" if (place := place_of(rule)) else ""
    return f"{lead}{cleaned(rule.text)[:200]} [{rule.rule_id}, {kind}{where}]"


def in_brief(rule: RuleView) -> str:
    """Return on what a rule rests, in few words; the whole of it is its provenance."""
    state = VOUCHED.get(rule.state, rule.state)
    support = f"seen on {_count(rule.support, 'task family', 'task families')}" if rule.support else ""
    return ", ".join(filter(None, (state, support, rule.holds_for)))


def place_of(rule: RuleRecord) -> str:
    """Return what a rule is bound to, in words; empty where it holds anywhere."""
    return str(Place(rule.dtype, rule.device)) if "@" in rule.key or rule.dtype else ""


def is_visible(rule: RuleRecord) -> bool:
    """Tell whether a rule can be seen in source."""
    return rule.key.partition(":")[0] in VISIBLE


def _measured(details: RuleDetails) -> str:
    if not details.kernels_after:
        return ""
    before = f"{details.broken_before} of {details.kernels_before} kernels broke it where it was not shown"
    return f"{before}, {details.broken_after} of {details.kernels_after} where it was"


def proposal_of(rule: RuleRecord) -> str:
    """Return the change that waits for a person, in words; empty where there is none."""
    if not rule.proposed:
        return ""
    action, text, agent = (str(rule.proposed.get(name, "")) for name in ("action", "text", "agent"))
    said = f": {cleaned(text)[:200]}" if text else ""
    return f"{action} by {cleaned(agent)[:40] or 'an agent'}{said}"


def _speeds(speeds: Sequence[SpeedChange]) -> str:
    """Say what the steps behind a rule did to a kernel's speed."""
    latest = speeds[0]
    said = f"{latest.ratio:.3g} times as fast [{latest.low:.3g} to {latest.high:.3g}]"
    if len(speeds) == 1:
        return f"a step made a right kernel {said}"
    ratios = [each.ratio for each in speeds]
    return (
        f"{len(speeds)} steps made right kernels {min(ratios):.3g} to {max(ratios):.3g} times as fast,"
        f" the last one {said}"
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def day(seconds: float) -> str:
    """Return a date, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def overview(rules: Sequence[RuleRecord | RuleView]) -> str:
    """Return how many rules there are by state, in words."""
    counts: dict[str, int] = {}
    for rule in rules:
        counts[rule.state] = counts.get(rule.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
