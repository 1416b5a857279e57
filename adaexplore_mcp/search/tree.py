"""The tree: nodes with their statistics, and segments with their best kernels, both kept up to date node by node."""

from bisect import insort
from collections.abc import Iterator

from adaexplore_mcp.search.nodes import ROOT, Node
from adaexplore_mcp.search.ranking import Ranking

__all__ = ["Entry", "Segment", "Segments"]

MAX_RANKED = 64
"""How many segments off-path kernels are drawn from; by softmax of speedups, what is further down is hardly drawn."""


WIDE = 32
"""Children from which on a ranking is quicker than a look at each."""


class Entry:
    """A node in the tree, with what the search counts there.

    Args:
        node: None for the root.
        parent: None for the root.
    """

    __slots__ = (
        "children",
        "depth",
        "index",
        "maximum",
        "mean",
        "node",
        "parent",
        "ranking",
        "segment",
        "small_children",
        "total",
        "visits",
    )

    def __init__(self, node: Node | None, parent: "Entry | None") -> None:
        self.node = node
        self.parent = parent
        self.children: list[Entry] = []
        self.small_children = 0
        self.visits = 0
        self.total = 0.0
        self.maximum = 0.0
        self.mean = 0.0
        """Q: the mean of all rewards, or as `max_weight` says."""
        self.ranking: Ranking | None = None
        """Of its children, once there are many."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.index = 0 if parent is None else len(parent.children)
        self.segment: Segment | None = None

    @property
    def id(self) -> int:
        """The node's id."""
        return ROOT if self.node is None else self.node.id

    def upwards(self) -> Iterator["Entry"]:
        """Yield this entry, its parent, and so on up to the root."""
        entry: Entry | None = self
        while entry is not None:
            yield entry
            entry = entry.parent

    def is_before(self, other: "Entry") -> bool:
        """Tell which of two comes first as the paper goes through a segment: breadth first, children as recorded."""
        if self.depth != other.depth:
            return self.depth < other.depth
        mine: Entry = self
        theirs: Entry = other
        while mine.parent is not None and theirs.parent is not None and mine.parent is not theirs.parent:
            mine, theirs = mine.parent, theirs.parent
        return mine.index < theirs.index

    def append(self, node: Node) -> "Entry":
        """Add a child."""
        child = Entry(node, self)
        self.children.append(child)
        if node.kind == "small":
            self.small_children += 1
            child.segment = self.segment
        else:
            child.segment = Segment(node, self.segment)
        return child

    def add_reward(self, reward: float, max_weight: float) -> None:
        """Count a visit with its reward here and at all above.

        Args:
            reward: Of the node here.
            max_weight: Share of the largest reward in Q; the rest is the mean.
        """
        entry = self
        while True:  # the one loop that a rebuild spends its time in: no generator, no call without need
            entry.visits += 1
            entry.total += reward
            entry.maximum = max(entry.maximum, reward)
            entry.mean = entry.total / entry.visits
            if max_weight:
                entry.mean = max_weight * entry.maximum + (1 - max_weight) * entry.mean
            above = entry.parent
            if above is None:
                return
            if above.ranking is not None or len(above.children) > WIDE:
                above.rank(entry)
            entry = above

    def rank(self, child: "Entry") -> None:
        """Take note that one of many children is new or was visited again."""
        if self.ranking is None:
            self.ranking = Ranking(self.children)
        else:
            self.ranking.changed(child)


class Segment:
    """A large step with everything that small steps reach from it.

    Args:
        head: The large step's node.
        outer: The segment in which its parent lies; None below the root.
    """

    __slots__ = ("best", "best_entry", "head", "outer")

    def __init__(self, head: Node, outer: "Segment | None") -> None:
        self.head = head
        self.outer = outer
        self.best: Node | None = None
        """Its best right kernel, if it has one: the first of equals, breadth first."""
        self.best_entry: Entry | None = None

    def outwards(self) -> "list[Segment]":
        """Return the segments on the path from the root to this one, the outermost first."""
        path: list[Segment] = []
        segment: Segment | None = self
        while segment is not None:
            path.append(segment)
            segment = segment.outer
        path.reverse()
        return path

    def __lt__(self, other: "Segment") -> bool:
        """Order by the best kernel, the fastest first, the older first of equals."""
        assert self.best is not None
        assert other.best is not None
        return (-self.best.value, self.head.id) < (-other.best.value, other.head.id)


class Segments:
    """The best segments of a tree, a bounded number of them."""

    def __init__(self) -> None:
        self.ranked: list[Segment] = []
        """Segments that hold a right kernel, the fastest first."""

    def offer(self, entry: Entry) -> None:
        """Take in a new entry, if it is right and better than what its segment had."""
        node, segment = entry.node, entry.segment
        assert node is not None
        assert segment is not None
        if not node.right or not _is_better(entry, segment):
            return
        # A segment only ever gets better: one that fell out of the ranking comes back with its own next gain.
        if segment in self.ranked:
            self.ranked.remove(segment)
        segment.best, segment.best_entry = node, entry
        insort(self.ranked, segment)
        del self.ranked[MAX_RANKED:]


def _is_better(entry: Entry, segment: Segment) -> bool:
    if segment.best is None or segment.best_entry is None:
        return True
    assert entry.node is not None
    score, best_score = entry.node.score, segment.best.score
    return score > best_score or (score == best_score and entry.is_before(segment.best_entry))
