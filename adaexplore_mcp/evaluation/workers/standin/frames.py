"""Tell whose code is asking: the task's and the candidate's, torch's own, or anyone else's.

Only the first are told that tensors are on `cuda`. torch's own Python code must see the truth, since it goes on to call
functions that exist for the CPU alone.
"""

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import cast

import torch

__all__ = ["Caller", "Callers", "passes_calls_on"]


class Caller(Enum):
    """Whose code a frame runs."""

    OWN = "the task's or the candidate's"
    LIBRARY = "torch's or triton's"
    OTHER = "anyone else's"


def _root(module_file: str | None) -> str:
    return f"{Path(module_file or '').parent}/"


TORCH_ROOT = _root(torch.__file__)
LIBRARY_ROOTS = (TORCH_ROOT, f"{Path(TORCH_ROOT).parent}/triton/")

# These files of torch pass on a device that its user named, so what they ask for is meant.
PASSES_ON_THE_USERS_DEVICE = frozenset({f"{TORCH_ROOT}nn/modules/module.py"})
# `custom_fwd` casts those arguments whose `.device.type` is that of the autocast: "cuda".
ASKS_FOR_THE_USER = frozenset({f"{TORCH_ROOT}amp/autocast_mode.py"})


# `with torch.device(...)`
PASSES_CALLS_ON = f"{TORCH_ROOT}utils/_device.py"


def passes_calls_on(frame: FrameType) -> bool:
    """Say whether a frame is that of the function mode behind `with torch.device(...)`."""
    return frame.f_code.co_filename == PASSES_CALLS_ON


class Callers:
    """Classify frames by the file their code comes from.

    Args:
        own_paths: Files, or folders with everything below them, of the task and the candidate.
    """

    def __init__(self, own_paths: Iterable[str | Path]) -> None:
        self._own = tuple(str(path) for path in own_paths)
        self._kinds: dict[str, Caller] = dict.fromkeys(ASKS_FOR_THE_USER, Caller.OWN)
        self._kinds |= dict.fromkeys(PASSES_ON_THE_USERS_DEVICE, Caller.OTHER)

    def kind(self, frame: FrameType) -> Caller:
        """Return whose code the frame runs. Code without a file (`exec`) belongs to the file of its globals."""
        filename = frame.f_code.co_filename
        if filename.startswith("<"):
            filename = cast("str", frame.f_globals.get("__file__") or filename)
        try:
            return self._kinds[filename]
        except KeyError:
            kind = self._kinds[filename] = self._classify(filename)
            return kind

    def is_own(self, frame: FrameType) -> bool:
        """Say whether the frame itself runs the task's or the candidate's code."""
        return self.kind(frame) is Caller.OWN

    def acts_for_own(self, frame: FrameType | None) -> bool:
        """Say whether the first frame outside torch, from this one outwards, is the task's or the candidate's."""
        while frame is not None and self.kind(frame) is Caller.LIBRARY:
            frame = frame.f_back
        return frame is not None and self.is_own(frame)

    def _classify(self, filename: str) -> Caller:
        if any(filename == path or filename.startswith(f"{path.rstrip('/')}/") for path in self._own):
            return Caller.OWN
        if filename.startswith(LIBRARY_ROOTS):
            return Caller.LIBRARY
        return Caller.OTHER
