"""Say in words what a search found: an outcome in short, why a run stopped, what its last evaluations say."""

from collections.abc import Mapping
from typing import Any

from adaexplore_mcp.memory_store import NodeRecord
from adaexplore_mcp.services.searchstate import RunNow

__all__ = [
    "RIGHT",
    "beginning",
    "best_node_of",
    "how_many_right",
    "node_line",
    "result_of",
    "short_outcome",
    "shortened_text",
    "speedup_words",
    "stopped_because",
    "under",
    "under_its_name",
    "why_wrong",
]

MESSAGE = 300
DETAIL = 160
REASON = 240
"""Characters of why a kernel failed: values that differ stand behind the check that saw it."""
MAX_NAMES = 8
MAX_FACTS = 3
"""Lines of each kind of fact that an outcome in short names."""

REASONS = {
    "budget": "all steps of its budget are used",
    "no_gain": "too many steps brought no gain",
    "roofline": "the best kernel is near what this GPU can do",
}
RIGHT = ("correct", "plausible")


def short_outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent needs of an outcome to write the next kernel."""
    short = {name: outcome[name] for name in ("check", "reason", "next_step") if outcome.get(name)}
    if error := outcome.get("error"):
        short["error"] = {
            name: shortened_text(value, MESSAGE) if isinstance(value, str) else value
            for name, value in error.items()
        }
    if evidence := outcome.get("evidence"):
        keep = ("output", "workload", "index", "got", "expected", "outside_share", "precision_class")
        short["evidence"] = {name: evidence[name] for name in keep if evidence.get(name) is not None}
    if compiled := outcome.get("compiled"):
        worst = max(compiled, key=lambda one: (one.get("spill_bytes", 0), one.get("registers", 0)))
        short["compiled"] = {**worst, "kernels_with_less": len(compiled) - 1} if compiled[1:] else worst
    if facts := _short_facts(outcome.get("facts") or {}):
        short["facts"] = facts
    if rules := outcome.get("rules"):
        short["rules"] = rules[:2]
    if timing := outcome.get("timing"):
        short["timing"] = [
            shortened_text(each.get("sentence", ""), MESSAGE) for each in timing.get("speedups", [])[:1]
        ]
    return short


def _short_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one has to see before one believes a verdict."""
    short: dict[str, Any] = {}
    if said := facts.get("shape_specialised"):
        short["shape_specialised"] = shortened_text(said, MESSAGE)
    for name in ("source", "notes"):
        if lines := facts.get(name):
            more = [f"and {len(lines) - MAX_FACTS} more, in the receipt"] if len(lines) > MAX_FACTS else []
            short[name] = [*(shortened_text(line, MESSAGE) for line in lines[:MAX_FACTS]), *more]
    return short


def under(agent: str, link: str = " and ") -> str:
    """Return what names an agent in a call, to follow another argument; nothing where it has no name."""
    return f"{link}agent {agent!r}" if agent else ""


def under_its_name(now: RunNow) -> str:
    """Return what reminds a reader, who is unknown, to name itself in a call; nothing in a run without names."""
    agents = {now.run.agent, *(step.agent for step in now.steps)} - {""}
    return (
        f" and agent, if you go by a name there ({', '.join(sorted(agents)[:MAX_NAMES])})" if agents else ""
    )


def node_line(record: NodeRecord) -> str:
    """Say on one line what a node is, what became of it, and what was meant."""
    row = record.tree
    source = f"{row.kind} step from node {row.parent}" if row.parent else f"{row.kind} step"
    if record.path:
        source = f"start kernel {record.path}"
    facts = [source, row.status + speedup_words(record)]
    if not row.eligible:
        facts.append("its own kernels do none of the work")
    line = f"node {row.node} ({', '.join(facts)}): {record.change}"
    if record.idea:
        line += f" — idea: {beginning(record.idea, DETAIL)}"
    if row.status not in RIGHT:
        line += f" — {beginning(why_wrong(record.outcome))}"
    return line


def how_many_right(now: RunNow) -> str:
    """Say how many kernels of a run are right, and how many of these have no kernel of their own."""
    nodes = now.search.nodes
    right = sum(node.right for node in nodes)
    idle = sum(node.right and not node.eligible for node in nodes)
    kernels = "kernel" if len(nodes) == 1 else "kernels"
    said = f"{right} of {len(nodes)} {kernels} {'is' if right == 1 else 'are'} right"
    return said + (f", {idle} of these by torch's operators, without a kernel of its own" if idle else "")


def why_wrong(outcome: Mapping[str, Any]) -> str:
    """Say in a sentence why a kernel failed."""
    error = outcome.get("error") or {}
    place = f"line {error['line']}: " if error.get("line") else ""
    return " ".join(f"{place}{error.get('message') or outcome.get('summary', '')}".split())


def speedup_words(record: NodeRecord) -> str:
    """Return a measured speedup with its lower bound, to follow a status; nothing where nothing was timed."""
    if record.tree.speedup is None:
        return ""
    low = "" if record.tree.low is None else f", at least {record.tree.low:.3g}x"
    return f" {record.tree.speedup:.3g}x{low}"


def stopped_because(now: RunNow) -> str:
    """Say why a run has stopped."""
    return f"{REASONS.get(now.run.stop_reason, now.run.stop_reason)} ({now.search.charged_steps} of {now.run.max_steps} used)"


def result_of(now: RunNow, *, timed: bool) -> str:
    """Say what the last evaluations of the best kernels found; nothing before a run has stopped."""
    ended = [step for step in now.finals if step.state == "answered"]
    if not ended:
        return f"{how_many_right(now)}." if now.run.status == "stopped" and not now.search.best() else ""
    right = [step for step in ended if step.answer.get("status") in RIGHT]
    failed = [f"node {step.node} was {step.answer.get('status')}" for step in ended if step not in right]
    wrong = f" Evaluated again, {' and '.join(failed)}." if failed else ""
    if not timed:
        again = f"node {right[0].node} was judged again and is {right[0].answer['status']}. " if right else ""
        return (
            f"{how_many_right(now)}; {again}Nothing is timed on this machine, so no kernel "
            f"is called the best.{wrong}"
        )
    speeds = [(speedup, step) for step in right if (speedup := _speedup(step.answer)) is not None]
    if not speeds:
        return f"None of the best kernels could be timed again.{wrong}"
    best, step = max(speeds, key=lambda each: each[0]["low"])
    said = (
        best.get("sentence") or f"{best['speedup']:.3g}x, at least {best['low']:.3g}x over {best['baseline']}"
    )
    return f"The best is node {step.node}, timed again: {said}.{wrong}"


def best_node_of(now: RunNow, *, timed: bool) -> int | None:
    """Return the node that is the run's result: the best of those evaluated again, else the best so far."""
    right = [
        step
        for step in now.finals
        if step.state == "answered" and step.answer.get("status") in RIGHT and step.node is not None
    ]
    if timed:
        speeds = [(speedup["low"], step) for step in right if (speedup := _speedup(step.answer)) is not None]
        if speeds:
            return max(speeds, key=lambda each: each[0])[1].node
    best = now.search.best()
    return best[0].id if best else None


def _speedup(outcome: Mapping[str, Any]) -> Mapping[str, Any] | None:
    speedups = (outcome.get("timing") or {}).get("speedups") or []
    return speedups[0] if speedups else None


def beginning(text: str, length: int = REASON) -> str:
    """Return a text up to a whole word: where it is long, what matters comes first."""
    return text if len(text) <= length else f"{text[: length - 1].rpartition(' ')[0] or text[: length - 1]}…"


def shortened_text(text: str, length: int = DETAIL) -> str:
    """Return head and tail of a text that is long."""
    return text if len(text) <= length else f"{text[: length * 2 // 3]} … {text[-(length // 3) :]}"
