"""Lessons about speed: what a step of a search that made a right kernel surely slower, or faster, teaches.

Kept for the GPU and the dtype on which it was measured, with the ratio as evidence. Nobody's impression is: without two
measurements whose intervals lie apart there is no lesson.
"""

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import NewRule, NodeRecord, RunTable, SpeedChange, Store, node_handle
from adaexplore_mcp.models import RuleView, Timing
from adaexplore_mcp.rules import PERFORMANCE, Place, SpeedRatio, bound, compared, words_digest
from adaexplore_mcp.search import ROOT
from adaexplore_mcp.services.messages import shortened
from adaexplore_mcp.services.rulebook import Rulebook

__all__ = ["SpeedLessons", "step_ratio"]

ONLY = (
    "A lesson about speed needs a step that made a right kernel measurably slower or faster than its parent."
)


async def step_ratio(runs: RunTable, run_id: str, node: int) -> SpeedRatio | str:
    """Return how many times as fast a step made a kernel, or in a few words why nothing is known of it."""
    record = (await runs.nodes(run_id, [node])).get(node)
    if record is None or record.tree.status != "correct":
        return "it is not right"
    if record.tree.parent == ROOT:
        return "it began with no kernel"
    parent = (await runs.nodes(run_id, [record.tree.parent])).get(record.tree.parent)
    if parent is None or parent.tree.status != "correct":
        return "its parent is not right"
    if not (record.tree.eligible and parent.tree.eligible):
        return "one of the two leaves its work to torch"
    return compared(_timing(record), _timing(parent))


class SpeedLessons:
    """Takes lessons about speed.

    Args:
        store: Where searches are kept.
        book: The rules.
    """

    def __init__(self, store: Store, book: Rulebook) -> None:
        self._runs = store.runs
        self._book = book

    async def lesson(self, record: NodeRecord, text: str, agent: str) -> RuleView:
        """Take what the step to a node teaches.

        Args:
            record: The node.
            text: One sentence that begins "You cannot".
            agent: Label of who asks: that of the step.

        Raises:
            RequestError: It is someone else's, has its lesson, was not measured, or the text is none; says which and why.
        """
        node_id, node = record.node_id, record.tree.node
        if record.agent != agent:
            raise RequestError(
                f"Node {node_id} was made under another label than {shortened(agent)}.",
                "Give lessons for your own steps, under the label (agent) they were made with.",
            )
        if (known := await self._book.table.speed_lesson(node_id)) is not None:
            raise RequestError(
                f"The step to node {node_id} has its lesson already: {known.text}",
                f"Reword it with review_rules(rule_id={known.rule_id!r}, action='reword', text=…).",
            )
        ratio = await step_ratio(self._runs, record.run_id, node)
        if isinstance(ratio, str):
            raise RequestError(f"Nothing is known of what the step to node {node_id} did: {ratio}.", ONLY)
        if not ratio.sure:
            raise RequestError(f"Node {node_id} is {ratio} as its parent: that may be neither.", ONLY)
        parent_id = node_handle(record.run_id, record.tree.parent)
        text = await self._book.worded(text, (node_id, parent_id))
        run = await self._runs.get(record.run_id)
        assert run is not None, record.run_id
        traits = await self._book.traits(run.task_id)
        # The same sentence again is support for the same rule; another one is a rule of its own until they are merged.
        key, place = bound(f"{PERFORMANCE}:{words_digest(text)}", Place(traits.dtype, ratio.device))
        rule = NewRule(key, PERFORMANCE, text, text, wording="agent", dtype=place.dtype, device=place.device)
        change = SpeedChange(
            node_id=node_id,
            parent_id=parent_id,
            task_id=run.task_id,
            agent=agent,
            ratio=ratio.ratio,
            low=ratio.low,
            high=ratio.high,
        )
        await self._book.seed()
        kept = await self._book.table.speed(rule, traits.family, change)
        if kept is None:
            raise RequestError(f"The step to node {node_id} has its lesson already.", ONLY)
        return await self._book.view(kept, f"The lesson was kept: the step made it {ratio}.")


def _timing(record: NodeRecord) -> Timing | None:
    said = record.outcome.get("timing")
    # A newer server may have written fields that this one does not know.
    return Timing.model_validate(said, extra="ignore") if said else None
