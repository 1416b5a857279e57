"""A search as people and agents look at it: plain values, made from the tree on demand."""

from dataclasses import dataclass

from adaexplore_mcp.search.nodes import ROOT, Node
from adaexplore_mcp.search.search import Search

__all__ = ["Gain", "NodeView", "SegmentView", "gains", "pool_view", "tree_view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node with what the search counts there; `node` is None for the root."""

    id: int
    node: Node | None
    depth: int
    """0 for the root."""
    children: tuple[int, ...]
    visits: int
    mean_reward: float
    max_reward: float
    segment: int
    """Id of the large step to whose segment it belongs; the root's own for the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """A large step, with what small steps reach from it, by its best kernel."""

    head: int
    best: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A node that was the best when it was recorded."""

    charged_steps: int
    """Charged steps up to it, itself included: the horizontal axis of a plot."""
    node: Node


def tree_view(search: Search) -> tuple[NodeView, ...]:
    """Return all nodes, the root first, each before what lies under it, children in the order of recording."""
    views: list[NodeView] = []
    stack = [search.root]
    while stack:
        entry = stack.pop()
        stack.extend(reversed(entry.children))
        views.append(
            NodeView(
                id=entry.id,
                node=entry.node,
                depth=entry.depth,
                children=tuple(child.id for child in entry.children),
                visits=entry.visits,
                mean_reward=entry.total / entry.visits if entry.visits else 0.0,
                max_reward=entry.maximum,
                segment=ROOT if entry.segment is None else entry.segment.head.id,
            )
        )
    return tuple(views)


def pool_view(search: Search) -> tuple[SegmentView, ...]:
    """Return the best segments, the fastest first; a bounded number of them."""
    return tuple(
        SegmentView(head=segment.head.id, best=segment.best)
        for segment in search.segments.ranked
        if segment.best is not None
    )


def gains(search: Search) -> tuple[Gain, ...]:
    """Return every node that was the best when it was recorded, in that order."""
    found: list[Gain] = []
    charged = 0
    for node in search.nodes:
        charged += node.charged
        if node.right and node.eligible and (not found or search.score(node) > search.score(found[-1].node)):
            found.append(Gain(charged_steps=charged, node=node))
    return tuple(found)
