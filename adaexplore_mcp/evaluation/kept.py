"""Trials kept for the candidates that come next, within what the host and each GPU have room for."""

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Container

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
        room_bytes: Tells what may be kept on a GPU, by its UUID, that nobody uses: what is used counts where its users wait for
            memory.
        expected: Tells which on a GPU somebody will ask for, who counts for them.
    """

    def __init__(
        self, room_bytes: Callable[[str], int], expected: Callable[[str], Container[str]] = lambda _: ()
    ) -> None:
        self._room_bytes = room_bytes
        self._expected = expected
        self._made: Counter[str] = Counter()
        self._sets: OrderedDict[str, tuple[TrialSet, int]] = OrderedDict()
        self._making: dict[str, anyio.Lock] = {}  # two candidates of a new task would both run its reference

    def __contains__(self, what: str) -> bool:
        """Tell whether there are some to be had without making any."""
        known, uses = self._sets.get(what, (None, 0))
        return known is not None and uses < USES and not known.spent

    def generation(self, what: str) -> int:
        """Return the number of the set that is had next: others may still use the one before."""
        return self._made[what] + (what not in self)

    async def get(
        self,
        what: str,
        make: Callable[[TrialSet | None], Awaitable[TrialSet]],
        *,
        gpu: str = "",
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> TrialSet:
        """Return some trials; make them where there are none, or others are due.

        Args:
            what: Their name.
            make: Makes them; given those whose place they take, if any.
            gpu: UUID of the GPU in whose memory they are; empty for the host's.
            meanwhile: Awaited again and again while somebody else makes them.
        """
        while meanwhile is not None and (making := self._making.get(what)) is not None and making.locked():
            await meanwhile()
            await anyio.sleep(LOOK_S)
        lock = self._making.setdefault(what, anyio.Lock())
        try:
            async with lock:
                fresh = what in self
                known, uses = self._sets.pop(what, (None, 0))
                if known is not None and fresh:
                    self._sets[what] = known, uses + 1
                    self.tidy(gpu, what)  # what was in use when it was due may not be any more
                    return known
                if known is not None:
                    known.close()
                self.tidy(gpu, what)
                trials = await make(known)
                self._sets[what] = trials, 1
                self._made[what] += 1
                self.tidy(gpu, what)
                return trials
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._making.pop(what, None)

    def spend(self, ids: Container[str]) -> None:
        """Let some sets be used by no further candidate: what their inputs are is known."""
        for trials, _ in self._sets.values():
            trials.spent |= trials.id in ids

    def tidy(self, gpu: str = "", coming: str = "") -> None:
        """Close the trials used longest ago while there are too many in some memory.

        Those in use would take their memory all the same, and be made once more for whoever uses them next.

        Args:
            gpu: UUID of the GPU; empty for the host.
            coming: Which are about to be used; without any, the latest stay.
        """
        known = [what for what, (trials, _) in self._sets.items() if trials.gpu == gpu]
        expected = self._expected(gpu)
        idle = [
            what
            for what in known
            if what != coming and what not in expected and not self._sets[what][0].users
        ]
        size = sum(self._sets[what][0].size for what in (idle if gpu else known))
        files = sum(trials.files for trials, _ in self._sets.values())
        room = self._room_bytes(gpu) if gpu else HOST_BYTES
        if not coming:
            idle = idle[:-1]
        while idle and (size > room or files > MOST_FILES):
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
