"""The children of a wide node, so that the best is found without a look at each: of as many visits, the largest Q wins."""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from adaexplore_mcp.search.tree import Entry

__all__ = ["Ranking"]

_Row = tuple[float, int, "Entry"]


class Ranking:
    """Children in one heap per number of visits; there are at most about sqrt(2 N) such numbers.

    A child's Q changes only together with its visits. So a row is out of date once its child has other visits, and may stay
    until it comes to the top.

    Args:
        children: The children so far.
    """

    __slots__ = ("_heaps",)

    def __init__(self, children: "list[Entry]") -> None:
        self._heaps: dict[int, list[_Row]] = {}
        for child in children:
            self._heaps.setdefault(child.visits, []).append((-child.mean, child.index, child))
        for heap in self._heaps.values():
            heapify(heap)

    def changed(self, child: "Entry") -> None:
        """Take in a child that is new or has been visited again."""
        heappush(self._heaps.setdefault(child.visits, []), (-child.mean, child.index, child))

    def leaders(self, without: "Container[int]" = ()) -> "Iterator[Entry]":
        """Yield, for each number of visits, the child of the largest Q, the first of equals.

        Args:
            without: Ids of children to pass over.
        """
        for visits, heap in list(self._heaps.items()):
            passed: list[_Row] = []
            while heap:
                child = heap[0][2]
                if child.visits != visits:
                    heappop(heap)
                elif without and child.id in without:
                    passed.append(heappop(heap))
                else:
                    yield child
                    break
            for row in passed:
                heappush(heap, row)
            if not heap:
                del self._heaps[visits]
