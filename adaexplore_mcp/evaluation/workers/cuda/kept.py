"""GPU memory that a judge keeps mapped from one request of an evaluation to the next.

To map memory and to unmap it takes longer than most comparisons, and each candidate's judge is asked a few dozen times about
the same inputs and outputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from adaexplore_mcp.evaluation.workers.cuda import memory
from adaexplore_mcp.evaluation.workers.spaces import DeviceSpace

__all__ = ["KeptSpace"]


class KeptSpace(DeviceSpace):
    """GPU memory that is mapped once for all requests of one lease which name it; other memory for its request alone.

    A mapping keeps its memory from being given back, so whoever begins a lease has to end it.
    """

    def __init__(self) -> None:
        self._leases: dict[str, dict[str, memory.DeviceMemory]] = {}
        self._present: dict[str, memory.DeviceMemory] = {}
        self._names: Mapping[int, str] = {}
        self._name = ""

    @contextmanager
    def serving(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Iterator[None]:
        """Know memory by its name, for as long as a request is answered.

        Its `lease` names whoever asks, `names` are those of the descriptors, `name` is that of memory to be made, and `closed`
        are those of what nobody will ask about any more.
        """
        try:
            if lease := request.get("lease"):
                self._names = dict(zip(descriptors, request["names"], strict=True))
                self._name = request.get("name", "")
                self._present = self._leases.setdefault(lease, {})
                for name in request["closed"]:
                    self._present.pop(name, None)
            yield
        finally:
            self._present, self._names, self._name = {}, {}, ""

    def release(self, lease: str) -> None:
        """Unmap what was kept for a lease."""
        self._leases.pop(lease, None)

    def forget(self) -> None:
        """Unmap everything; who asks again has it mapped again."""
        for kept in self._leases.values():
            kept.clear()

    def _opened(self, descriptor: int, size: int) -> memory.DeviceMemory:
        name = self._names.get(descriptor)
        if name is None:
            return super()._opened(descriptor, size)
        kept = self._present.get(name)
        if kept is None or kept.size != memory.rounded(size):  # of a size that it has not: the driver says so
            kept = self._present[name] = super()._opened(descriptor, size)
        return kept

    def _allocated(self, size: int) -> tuple[memory.DeviceMemory, int]:
        made, descriptor = super()._allocated(size)
        if self._name:
            self._present[self._name] = made
        return made, descriptor
