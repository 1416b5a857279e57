"""A run's search: proposes the next step, takes in what became of it, says when to stop."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Literal

from adaexplore_mcp.search.nodes import ROOT, Kind, Node, Score
from adaexplore_mcp.search.pool import draw_pool, pool_candidates, working_memory
from adaexplore_mcp.search.rewards import reward
from adaexplore_mcp.search.selection import NOTHING, Pending, select
from adaexplore_mcp.search.settings import SearchSettings
from adaexplore_mcp.search.tree import Entry, Segments

__all__ = ["Proposal", "Search", "StopReason"]

StopReason = Literal["budget", "no_gain", "roofline"]
"""All charged steps are used; too many steps without gain; the best is near what the device can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to try next.

    Args:
        step: Step for which it was made.
        kind: small: edit the parent; large: a new kernel that beats every one shown.
        parent: Id of the node under which the kernel will hang; `ROOT` for the first ones.
        context: Ids of the kernels to show. Small: the working memory, the parent last. Large: the pool, maybe empty.
        forced: Whether a small step was not possible there.
    """

    step: int
    kind: Kind
    parent: int
    context: tuple[int, ...] = ()
    forced: bool = False


class Search:
    """One run's tree, and where it grows next.

    A step's cost goes by depth and by children along one path, not by the size of the tree.

    Args:
        settings: What it goes by.
        seed: Of the run; with a step's number it decides all that the step draws.
        nodes: Nodes already recorded, in that order.

    Raises:
        ValueError: A node's id is taken, or its parent unknown.
    """

    def __init__(self, settings: SearchSettings, seed: int, nodes: Iterable[Node] = ()) -> None:
        self.settings = settings
        self.seed = seed
        self.root = Entry(None, None)
        self.entries: dict[int, Entry] = {ROOT: self.root}
        """Every node of the tree with its statistics, in the order of recording, the root first; to look at only."""
        self.segments = Segments()
        self.charged_steps = 0
        """Nodes that cost a step of the budget."""
        self.next_id = ROOT + 1
        """An id that is free."""
        self._leader: Node | None = None
        self._leading_score: Score = (False, False, 0.0)
        self._best: Node | None = None
        self._best_score: Score = (False, False, 0.0)
        self._gain_value = 0.0
        self._gain_step = 0
        for node in nodes:
            self.record(node)

    # -- a step -------------------------------------------------------------------------------------------------------

    def propose(self, step: int, open_proposals: Iterable[Proposal] = ()) -> Proposal:
        """Return what to try next; changes nothing, and says the same each time it is asked the same.

        Args:
            step: Number of the proposal in its run, unlike every other.
            open_proposals: What others work on now: it counts as visits without reward, so that agents spread out.

        Raises:
            ValueError: An open proposal has a parent that is no node of this run.
        """
        pending = self._pending(open_proposals)
        generator = Random(f"{self.seed}/{step}")  # noqa: S311 - chance, not secrecy; text seeds alike on every Python
        if self._edits_best(pending, generator):
            assert self._best is not None
            best = self._best.id
            return Proposal(step=step, kind="small", parent=best, context=self.working_memory(best))
        entry = select(self.root, self.settings, pending)
        forced = self._leaves_by_large_steps_only(entry, pending)
        if forced or generator.random() < self.settings.p_large:
            context = draw_pool(entry, self.segments, self.settings, generator)
            return Proposal(step=step, kind="large", parent=entry.id, context=context, forced=forced)
        return Proposal(step=step, kind="small", parent=entry.id, context=self.working_memory(entry.id))

    def record(self, node: Node) -> None:
        """Take in a node; its parent may be any node, so that late answers and kernels one already had find their place.

        Raises:
            ValueError: Its id is taken, or its parent unknown; nothing has changed then.
        """
        parent = self._entry(node.parent)
        if node.id in self.entries:
            raise ValueError(f"node {node.id} is recorded already")
        entry = parent.append(node)
        self.entries[node.id] = entry
        self.next_id = max(self.next_id, node.id + 1)
        self.charged_steps += node.charged
        entry.add_reward(reward(node, self.settings), self.settings.max_weight)
        self.segments.offer(entry)
        self._compare(node)

    def select(self) -> int:
        """Return the id of the node where the tree grows next, if nobody else works on it."""
        return select(self.root, self.settings, {}).id

    def forced_large(self, node_id: int) -> bool:
        """Tell whether only a large step may leave a node: the root, or one with enough children by small steps."""
        return self._leaves_by_large_steps_only(self._entry(node_id), {})

    def working_memory(self, node_id: int) -> tuple[int, ...]:
        """Return what a small step from a node shows: ids, the oldest first, the node itself last."""
        return working_memory(self._entry(node_id), self.settings.memory_size)

    def pool_candidates(self, node_id: int) -> tuple[int, ...]:
        """Return the ids of the best right kernels of the segments on the path to a node, before any draw."""
        return tuple(node.id for node in pool_candidates(self._entry(node_id)))

    # -- what was found -----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of recording."""
        return tuple(entry.node for entry in self.entries.values() if entry.node is not None)

    def best(self, count: int = 1) -> tuple[Node, ...]:
        """Return the best right and eligible nodes, the best first, the older first of equals; fewer if there are fewer."""
        if count == 1:
            return () if self._best is None else (self._best,)
        able = (node for node in self.nodes if node.right and node.eligible)
        return tuple(heapq.nlargest(count, able, key=self.score))  # stable: equals stay in their order

    @property
    def leader(self) -> int:
        """Id of the node with the greatest score, wrong ones included; `ROOT` before there is any that compiled."""
        return ROOT if self._leader is None else self._leader.id

    def score(self, node: Node) -> Score:
        """Return what nodes are compared by to find the best."""
        return node.cautious_score() if self.settings.cautious_best else node.score

    @property
    def steps_without_gain(self) -> int:
        """Charged steps since the best last improved."""
        return self.charged_steps - self._gain_step

    def stop_reason(
        self, *, max_steps: int | None = None, resumed_at: int | None = None
    ) -> StopReason | None:
        """Say why the run ends here, or None if it goes on.

        Args:
            max_steps: Budget, if it is another than the settings'.
            resumed_at: `charged_steps` when somebody had a stopped run go on: steps without gain count from there, and
                nearness to the roofline stops it no more. The budget always does.
        """
        settings = self.settings
        if self.charged_steps >= (settings.max_steps if max_steps is None else max_steps):
            return "budget"
        near = self._best is not None and (self._best.roofline_share or 0.0) >= settings.roofline_stop
        if settings.roofline_stop and near and resumed_at is None:
            return "roofline"
        idle = self.charged_steps - max(self._gain_step, resumed_at or 0)
        if self._best is not None and self._best.speedup is None:
            return None  # right and not timed: whether there was a gain nobody knows
        if settings.patience and idle >= settings.patience:
            return "no_gain"
        return None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _pending(self, proposals: Iterable[Proposal]) -> dict[int, Pending]:
        pending: dict[int, Pending] = {}
        for proposal in proposals:
            for entry in self._entry(proposal.parent).upwards():
                pending.setdefault(entry.id, Pending(entry)).below += 1
            here = pending[proposal.parent]
            here.here += 1
            here.small_here += proposal.kind == "small"
        return pending

    def _entry(self, node_id: int) -> Entry:
        entry = self.entries.get(node_id)
        if entry is None:
            raise ValueError(f"{node_id} is no node of this run, which has {len(self.entries) - 1}")
        return entry

    def _edits_best(self, pending: dict[int, Pending], generator: Random) -> bool:
        """Draw whether the best kernel is edited, unless as many as one node takes by the tree's rules do so now."""
        if self._best is None or self._best.speedup is None:  # of kernels that nobody timed none is the best
            return False
        if not self.settings.p_best or generator.random() >= self.settings.p_best:
            return False
        busy = pending.get(self._best.id, NOTHING).small_here
        return busy < max(self.settings.small_step_limit, 1)

    def _leaves_by_large_steps_only(self, entry: Entry, pending: dict[int, Pending]) -> bool:
        small = entry.small_children + pending.get(entry.id, NOTHING).small_here
        return entry is self.root or small >= self.settings.small_step_limit

    def _compare(self, node: Node) -> None:
        """See whether a new node leads: only a strictly greater score does."""
        score = self.score(node)
        if not (node.right and not node.eligible) and score > self._leading_score:
            self._leader, self._leading_score = node, score
        if node.right and node.eligible and score > self._best_score:
            self._best, self._best_score = node, score
            if score[2] >= self._gain_value * self.settings.min_gain:
                self._gain_value, self._gain_step = score[2], self.charged_steps
