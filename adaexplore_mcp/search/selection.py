"""From the root to the node where the tree grows next (upper confidence bounds with an arm for growing here)."""

import math
from collections.abc import Iterable, Mapping

from adaexplore_mcp.search.settings import SearchSettings
from adaexplore_mcp.search.tree import Entry

__all__ = ["Pending", "select"]


class Pending:
    """What open proposals add to a node's counts until they are answered.

    Args:
        entry: The node.
    """

    __slots__ = ("below", "entry", "here", "small_here")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.below = 0
        """Proposals open at the node and under it."""
        self.here = 0
        """Proposals open at the node itself."""
        self.small_here = 0
        """Those of them that are small steps."""


NOTHING = Pending(Entry(None, None))


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
    best, best_value, largest = entry.children[0], -math.inf, -math.inf
    for child in _candidates(entry, pending):
        visits, mean = float(child.visits), child.mean
        if pending and child.id in pending:
            lost = pending[child.id].below * settings.virtual_loss
            weight = settings.max_weight
            mean = weight * child.maximum + (1 - weight) * child.total / (visits + lost)
            visits += lost
        value = mean + settings.exploration * math.sqrt(log_visits / visits)
        if value > best_value or (value == best_value and child.index < best.index):
            best, best_value = child, value
        largest = max(largest, mean)
    return best, best_value, largest


def _candidates(entry: Entry, pending: Mapping[int, Pending]) -> Iterable[Entry]:
    """Return the children of which one is the best: all, or of many only those that lead, and those with open proposals."""
    if entry.ranking is None:
        return entry.children
    waiting = [child for node_id in pending if (child := pending[node_id].entry).parent is entry]
    return [*entry.ranking.leaders(pending), *waiting]
