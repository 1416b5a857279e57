"""From the root to the node where the tree grows next (upper confidence bounds with an arm for growing here)."""

import math
from collections.abc import Mapping

from adaexplore_mcp.search.settings import SearchSettings
from adaexplore_mcp.search.tree import Entry

__all__ = ["Pending", "select"]


class Pending:
    """What open proposals add to a node's counts until they are answered.

    Args:
        below: Proposals open at the node and under it.
        here: Proposals open at the node itself.
        small_here: Those of them that are small steps.
    """

    __slots__ = ("below", "here", "small_here")

    def __init__(self) -> None:
        self.below = 0
        self.here = 0
        self.small_here = 0


NOTHING = Pending()


def select(root: Entry, settings: SearchSettings, pending: Mapping[int, Pending]) -> Entry:
    """Return where the tree grows next: cost by the children along the path.

    Args:
        root: Where to begin.
        settings: The weights.
        pending: By node, what is open; counts as visits without reward.
    """
    entry = root
    while entry.children:
        here = pending.get(entry.id, NOTHING)
        visits = entry.visits + here.below * settings.virtual_loss
        log_visits = math.log(visits) if visits > 1 else 0.0
        child, child_value, largest_mean = _best_child(entry, log_visits, settings, pending)
        width = len(entry.children) + here.here
        if not settings.widening or width < settings.widening * math.sqrt(visits):
            spread = settings.exploration * settings.expand_ratio * math.sqrt(log_visits / width**2)
            if largest_mean + spread > child_value:
                return entry
        entry = child
    return entry


def _best_child(
    entry: Entry, log_visits: float, settings: SearchSettings, pending: Mapping[int, Pending]
) -> tuple[Entry, float, float]:
    """Return the child of the greatest value (the first of equals), that value, and the largest Q of all children."""
    exploration, weight, loss = settings.exploration, settings.max_weight, settings.virtual_loss
    sqrt = math.sqrt
    best, best_value, largest = entry.children[0], -math.inf, -math.inf
    for child in entry.children:
        visits: float = child.visits
        if pending:
            visits += pending.get(child.id, NOTHING).below * loss
        mean = child.total / visits
        if weight:
            mean = weight * child.maximum + (1 - weight) * mean
        value = mean + exploration * sqrt(log_visits / visits)
        if value > best_value:
            best, best_value = child, value
        largest = max(largest, mean)
    return best, best_value, largest
