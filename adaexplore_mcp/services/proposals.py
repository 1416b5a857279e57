"""Write a proposal as its agent reads it: all that a fresh model needs, and little that this one has read already."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from adaexplore_mcp.memory_store import NodeRecord, StepRecord, Store
from adaexplore_mcp.models import TaskSummary
from adaexplore_mcp.prompts import render
from adaexplore_mcp.search import ROOT
from adaexplore_mcp.services.edits import diff_of
from adaexplore_mcp.services.ports import Tasks
from adaexplore_mcp.services.searchstate import RunNow
from adaexplore_mcp.services.searchwords import RIGHT, how_many_right, node_line, speedup_words

__all__ = ["Proposals", "RulesFor"]

RulesFor = Callable[[str], Awaitable[list[str]]]
"""Returns the rules that matter most for a task, best first, each a sentence."""

TASK = 0
"""Stands for the task among the nodes that an agent knows."""
SOURCES = {"new": 7000, "full": 30_000, "ids": 0}
"""Characters of kernels in one proposal; longer ones are completed by get_kernel."""
REFERENCE = {"new": 3500, "full": 12_000, "ids": 0}
LITTLE = 0.6
"""Share of a kernel's length up to which it is told by what differs from another."""
MAX_RULES = 4
PRECISIONS = {
    "match": "as near to the reference as its own dtype allows: no TF32 or half operands for float32",
    "relaxed": "as near as that, with TF32 or two roundings to bfloat16 allowed for float32",
    "kernelbench": "within 1e-4 of the reference, 1e-2 for half",
    "paper": "within 5e-2 of the reference",
    "custom": "within the task's own tolerance",
}
_RULE_ID = re.compile(r"\brule_[a-z0-9]+")
MAX_RULE = 220


@dataclass
class _Page:
    """What source texts a proposal holds so far."""

    left: int
    """Characters of them that it may still hold."""
    shown: list[int] = field(default_factory=list)
    """Nodes that its reader knows from then on."""
    whole: dict[int, str] = field(default_factory=dict)
    """Kernels that stand there whole, or that the reader has, by node: others may be told by what differs."""


class Proposals:
    """Writes the proposals of all runs.

    Args:
        store: Where kernels are kept.
        tasks: What they are judged against.
        rules: Says what failures taught about a task, if anybody knows.
    """

    def __init__(self, store: Store, tasks: Tasks, rules: RulesFor | None) -> None:
        self._store = store
        self._tasks = tasks
        self._rules = rules

    async def text(
        self, now: RunNow, step: StepRecord, agent: str, context: str, *, timed: bool, place: str
    ) -> tuple[str, list[int]]:
        """Return a proposal's text, and the nodes whose kernels stand in it whole.

        Args:
            now: The run.
            step: The proposal.
            agent: Who reads it.
            context: new: what this agent knows is only named; full: everything is shown; ids: nothing is.
            timed: Whether kernels are timed here.
            place: Where they are judged, in a few words.
        """
        run_id = now.run.run_id
        task = await self._tasks.get(now.run.task_id)
        known = await self._store.runs.known(run_id, agent) if context == "new" else set()
        records = await self._store.runs.nodes(run_id, step.context)
        page = _Page(SOURCES[context])
        nodes = [records[number] for number in step.context]
        # The kernel to edit first, or the fastest to beat: if there is no room for all, these matter most.
        order = nodes[::-1] if step.kind == "small" else sorted(nodes, key=_fastest_first)
        sources = {}
        for record in order:
            number = record.tree.node
            sources[number] = await self._source(record, page, known=number in known)
        about = f"{_about(task)} It is judged on {place}."
        if TASK not in known and context != "ids":
            about += f"\n\n{await self._reference(task, REFERENCE[context])}"
            page.shown.append(TASK)
        common = {
            "step": str(step.step),
            "max_steps": str(now.run.max_steps),
            "left": "1 step is left" if now.steps_left == 1 else f"{now.steps_left} steps are left",
            "standing": await self._standing(now, timed=timed),
            "task": about,
            "rules": await self._rule_lines(task, nodes),
            "run_id": run_id,
            "step_id": step.step_id,
            "node_prefix": f"node_{run_id.partition('_')[2]}_",
            "agent": f", agent={json.dumps(agent, ensure_ascii=False)}" if agent else "",
        }
        if step.kind == "small":
            parent = records[step.parent]
            text = render(
                "proposal_small",
                **common,
                parent=str(step.parent),
                line=node_line(parent),
                goal=_goal(parent),
                roofline=_roofline(parent.outcome),
                kernel=sources[step.parent],
                memory=_listing(nodes[:-1], sources) or "Nothing: it is a first kernel of its kind.",
            )
        else:
            text = render(
                "proposal_large",
                **common,
                where="at the root" if step.parent == ROOT else f"under node {step.parent}",
                asked=_asked(now, nodes),
                pool=_listing(nodes, sources) or "None.",
            )
        return _tight(text), page.shown

    async def _source(self, record: NodeRecord, page: _Page, *, known: bool) -> str:
        """Return a kernel as it stands in a proposal, or why it does not."""
        source = await self._store.evaluations.candidate(record.candidate_id)
        assert source is not None
        text = source.decode(errors="backslashreplace").strip("\n")
        if known:
            page.whole[record.tree.node] = text
            return 'You have its text: you wrote it, or were shown it; search_step with context="full" shows it again.'
        base, diff = await anyio.to_thread.run_sync(_shortest_diff, record.tree.node, text, page.whole)
        if diff and len(diff) <= page.left:
            page.left -= len(diff)
            page.shown.append(record.tree.node)
            return f"Node {base} with these changes:\n```diff\n{diff}\n```"
        if len(text) <= page.left:
            page.left -= len(text)
            page.shown.append(record.tree.node)
            page.whole[record.tree.node] = text
            return f"```python\n{text}\n```"
        if page.left > 1500:
            head = text[: page.left].rpartition("\n")[0]
            page.left = 0
            return f"```python\n{head}\n```\nCut after {len(head)} of {len(text)} characters: get_kernel with node_id {record.node_id} has all of it."
        return f"Its text ({len(text)} characters): get_kernel with node_id {record.node_id}."

    async def _reference(self, task: TaskSummary, limit: int) -> str:
        source = await self._tasks.source(task.task_id)
        if len(source) <= limit:
            return f"```python\n{source.strip()}\n```"
        head = source[:limit].rpartition("\n")[0]
        return f"```python\n{head}\n```\nCut: read_artifact with {task.task_id} has all of it."

    async def _standing(self, now: RunNow, *, timed: bool) -> str:
        """Say how far the run is."""
        best = now.search.best()
        if not best:
            right = any(node.right for node in now.search.nodes)
            return how_many_right(now) if right else "no kernel is right yet"
        if not timed:
            return f"{how_many_right(now)}; nothing is timed on this machine"
        record = (await self._store.runs.nodes(now.run.run_id, [best[0].id]))[best[0].id]
        return f"the best so far is node {best[0].id}, {record.tree.status}{speedup_words(record)}"

    async def _rule_lines(self, task: TaskSummary, nodes: Iterable[NodeRecord]) -> str:
        """List the rules that kernels here touched, then those about the task."""
        touched = [rule for record in nodes for rule in record.outcome.get("rules", [])]
        about = await self._rules(task.task_id) if self._rules is not None else []
        # The same rule is worded differently with an outcome; its id tells.
        rules: dict[str, str] = {}
        for rule in (*touched, *about):
            found = _RULE_ID.search(rule)
            rules.setdefault(found[0] if found else rule, rule)
        if not rules:
            return ""
        lines = "\n".join(f"- {rule[:MAX_RULE]}" for rule in list(rules.values())[:MAX_RULES])
        return f"**Rules learned from failures**\n{lines}"


def _about(task: TaskSummary) -> str:
    """Say what is asked for."""
    what = "a class" if task.format == "kernelbench" else "a function"
    defines = "ModelNew" if task.format == "kernelbench" else task.entry
    name = task.name or task.entry
    words = [
        f"Task {name} ({task.task_id}): one file that defines {what} `{defines}`, at precision {task.policy.precision}."
    ]
    shared = task.policy.library_ops == "allow"
    words.append(
        f"{'Triton kernels and torch may share' if shared else 'Triton kernels of its own are to do'} the work; "
        f"results are right {PRECISIONS[task.policy.precision]}."
    )
    if task.mutates:
        words.append(f"It changes {', '.join(task.mutates)} in place.")
    moved = max((workload.bytes for workload in task.workloads), default=0)
    flops = max((workload.flops for workload in task.workloads), default=0)
    if moved:
        work = f" and does {flops / 1e9:.3g} GFLOP" if flops else ""
        words.append(
            f"One call moves at least {moved / 1e6:.3g} MB{work}: {_bound(flops, moved)} decides its least time."
        )
    return " ".join(words)


def _bound(flops: int, moved: int) -> str:
    # An H100 does some 15 float32 operations, and an A100 some 10, in the time in which it moves a byte.
    return "arithmetic, unless tensor cores do it," if flops > 15 * moved else "memory traffic"


def _roofline(outcome: Mapping[str, Any]) -> str:
    """Say how near a kernel is to what the device can do."""
    latencies = (outcome.get("timing") or {}).get("latencies") or {}
    shares = {name: each["roofline_share"] for name, each in latencies.items() if each.get("roofline_share")}
    if not shares:
        return ""
    worst = min(shares, key=lambda name: shares[name])
    return f"It reaches {shares[worst]:.0%} of what this GPU can do (workload {worst})."


def _asked(now: RunNow, pool: Sequence[NodeRecord]) -> str:
    """Say what a large step asks for."""
    if not now.search.nodes:
        return "Write a first kernel."
    unlike = "another algorithm, another layout of the work, another fusion"
    if not pool:
        return f"None stands on the way here: write a whole new kernel, unlike those that are known ({unlike}), and right."
    idle = [f"node {record.tree.node}" for record in pool if not record.tree.eligible]
    said = f"Write a whole new kernel that beats those below: {unlike}; no edit of one of them."
    return said + (
        f" A kernel of its own that does the work is wanted: {', '.join(idle)} has none." if idle else ""
    )


def _goal(parent: NodeRecord) -> str:
    if parent.tree.status in RIGHT and not parent.tree.eligible:
        return (
            "It is right by torch's operators, and a kernel of its own is missing: write the Triton kernel that does the work "
            "in their place; it must stay right."
        )
    match parent.tree.status:
        case "correct" | "plausible":
            return "Make it faster by a change at one place; it must stay right."
        case "compile_error":
            return "Make it compile."
        case "rejected":
            return "Take out what broke the rules of measurement."
        case "out_of_memory" | "timeout":
            return "Have it use less."
    return "Make it right."


def _fastest_first(record: NodeRecord) -> float:
    return -(record.tree.speedup or 0.0)


def _shortest_diff(node: int, text: str, whole: Mapping[int, str]) -> tuple[int, str]:
    """Return the kernel from which another differs least, and how; an empty text where it is shorter to show all of it."""
    best, found = 0, ""
    for number, base in whole.items():
        diff = diff_of(base, text, f"node {number}", f"node {node}")
        if diff and len(diff) <= len(text) * LITTLE and (not found or len(diff) < len(found)):
            best, found = number, diff
    return best, found


def _listing(nodes: Iterable[NodeRecord], sources: Mapping[int, str]) -> str:
    """Name nodes, each with its kernel where that stands here."""
    lines = []
    for record in nodes:
        lines.append(f"- {node_line(record)}")
        source = sources[record.tree.node]
        if not source.startswith("You have"):
            lines.append(source)
    return "\n".join(lines)


def _tight(text: str) -> str:
    """Return a text without runs of empty lines outside of kernels."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        inside ^= line.startswith("```")
        if line.strip() or inside or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip()
