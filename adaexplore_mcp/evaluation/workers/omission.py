"""Launches of one call that are to do nothing, to see what its result rests on."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["EVERY", "Omission"]

EVERY = "*"
"""In place of the name of a kernel: all of them, also those that no call has launched yet."""


@dataclass
class Omission:
    """Says of each launch whether it is left out, and counts those that are.

    Args:
        kernels: Names of kernels whose launches are left out; `*` for all.
        most_programs: A launch with which more programs would run than these is left out; negative for any number.
        count: Launches left out so far.
        programs: Programs of the others.
    """

    kernels: Collection[str] = ()
    most_programs: int = -1
    count: int = 0
    programs: int = 0

    @classmethod
    def of(cls, asked: Mapping[str, Any] | None) -> "Omission":
        """Return what was asked for in the fields `kernels` and `most_programs`; None leaves nothing out."""
        return cls() if asked is None else cls(asked["kernels"], asked["most_programs"])

    def takes(self, kernel: str, grid: Sequence[int]) -> bool:
        """Tell whether a launch that is about to be made is left out."""
        programs = self.programs + math.prod(grid)
        if kernel in self.kernels or EVERY in self.kernels or 0 <= self.most_programs < programs:
            self.count += 1
            return True
        self.programs = programs
        return False
