"""What a step of a search did to a kernel's speed: two measurements compared, with an interval or not at all."""

import re
from dataclasses import dataclass

from adaexplore_mcp.models import Timing

__all__ = ["SpeedRatio", "compared", "gpu_of"]

_LABELLED = re.compile(r"^[\w:-]+ \((?P<name>[^,()]{1,60})")


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """How many times as fast a step made a kernel.

    Args:
        ratio: The new kernel's speed over the old one's.
        low: Lower end of its interval, from the intervals of both.
        high: Upper end.
        device: The GPU on which both were timed.
    """

    ratio: float
    low: float
    high: float
    device: str

    @property
    def sure(self) -> bool:
        """Whether the interval lies on one side of 1."""
        return self.high < 1 or self.low > 1

    def __str__(self) -> str:
        return f"{self.ratio:.3g} times as fast [{self.low:.3g} to {self.high:.3g}]"


def gpu_of(device: str) -> str:
    """Return the name of a GPU out of how a measurement calls its device, such as `cuda:0 (NVIDIA H200, driver 570)`."""
    found = _LABELLED.match(device)
    return found["name"] if found is not None else device[:60]


def compared(new: Timing | None, old: Timing | None) -> SpeedRatio | str:
    """Compare two kernels by their speedups against the same baseline on the same GPU; or say why they cannot be compared."""
    if new is None or not new.speedups:
        return "it was not timed"
    if old is None or not old.speedups:
        return "its parent was not timed"
    if gpu_of(new.device) != gpu_of(old.device):
        return f"it was timed on {gpu_of(new.device)} and its parent on {gpu_of(old.device)}"
    mine = new.speedups[0]
    theirs = next((each for each in old.speedups if each.baseline == mine.baseline), None)
    if theirs is None:
        return f"its parent was not timed against {mine.baseline}"
    if min(mine.low, theirs.low, theirs.speedup) <= 0:
        return "a speedup of 0 was measured"
    return SpeedRatio(
        mine.speedup / theirs.speedup, mine.low / theirs.high, mine.high / theirs.low, gpu_of(new.device)
    )
