"""Trials kept for the candidates that come next, within what the host and each GPU have room for."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Mapping

import anyio

from adaexplore_mcp.evaluation.trials import TrialSet

__all__ = ["KeptTrials"]

HOST_BYTES = 1 << 30
MOST_FILES = 400  # a set has 8 to 19, and many systems allow a process 1,024 descriptors
LOOK_S = 0.05
USES = 50  # after this many candidates a task's trials are drawn anew


class KeptTrials:
    """A cache of trials; whoever gets some holds them by `TrialSet.used` at once.

    Args:
        gpu_bytes: By UUID of a GPU, what may be kept there.
    """

    def __init__(self, gpu_bytes: Mapping[str, int]) -> None:
        self._gpu_bytes = gpu_bytes
        self._sets: OrderedDict[str, tuple[TrialSet, int]] = OrderedDict()
        self._making: dict[str, anyio.Lock] = {}  # two candidates of a new task would both run its reference

    def __contains__(self, what: str) -> bool:
        """Tell whether there are some to be had without making any."""
        return what in self._sets

    async def get(
        self,
        what: str,
        make: Callable[[TrialSet | None], Awaitable[TrialSet]],
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> TrialSet:
        """Return the trials called `what`; make them where there are none, or others are due, which take the place of the set given.

        `meanwhile` is awaited again and again while somebody else makes them.
        """
        while meanwhile is not None and (making := self._making.get(what)) is not None and making.locked():
            await meanwhile()
            await anyio.sleep(LOOK_S)
        lock = self._making.setdefault(what, anyio.Lock())
        try:
            async with lock:
                known, uses = self._sets.pop(what, (None, 0))
                if known is not None and uses < USES and not known.spent:
                    self._sets[what] = known, uses + 1
                    self._forget(known.gpu)  # what was in use when it was due may not be any more
                    return known
                if known is not None:
                    known.close()
                trials = await make(known)
                self._sets[what] = trials, 1
                self._forget(trials.gpu)
                return trials
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._making.pop(what, None)

    def spend(self, ids: Container[str]) -> None:
        """Let some sets be used by no further candidate: what their inputs are is known."""
        for trials, _ in self._sets.values():
            trials.spent |= trials.id in ids

    def _forget(self, gpu: str) -> None:
        """Close the trials used longest ago while there are too many in some memory; never the latest.

        Those in use would take their memory all the same, and be made once more for whoever uses them next.
        """
        known = [what for what, (trials, _) in self._sets.items() if trials.gpu == gpu]
        size = sum(self._sets[what][0].size for what in known)
        files = sum(trials.files for trials, _ in self._sets.values())
        idle = [what for what in known[:-1] if not self._sets[what][0].users]
        while idle and (size > self._gpu_bytes.get(gpu, HOST_BYTES) or files > MOST_FILES):
            oldest, _ = self._sets.pop(idle.pop(0))
            size, files = size - oldest.size, files - oldest.files
            oldest.close()

    def several(self, gpu: str) -> bool:
        """Tell whether more than one set of trials is in the memory of a GPU."""
        return sum(trials.gpu == gpu for trials, _ in self._sets.values()) > 1

    def forget_gpu(self, gpu: str) -> None:
        """Close all trials in the memory of a GPU; those in use live until their users are done."""
        for what in [what for what, (trials, _) in self._sets.items() if trials.gpu == gpu]:
            self._sets.pop(what)[0].close()

    def close(self) -> None:
        """Close all trials."""
        while self._sets:
            self._sets.popitem()[1][0].close()
