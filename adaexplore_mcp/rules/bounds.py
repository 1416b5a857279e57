"""Where a rule holds: a failing comparison for the dtype it was seen on, a resource for the device, speed for both.

What is bound is a kind of its own for each dtype and device: its key ends in `@` and where it was seen, so support, wording
and known fixes of one say nothing about another.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

__all__ = ["ANYWHERE", "PERFORMANCE", "Place", "bound", "holds_at", "narrowest", "written"]

PERFORMANCE = "performance"
"""Begins the keys of rules about speed."""
BY_DTYPE = frozenset({"check:values", "check:nonfinite", "check:precision_class"})
"""Failing comparisons: whether values are near enough depends on the arithmetic of the task."""
BY_DEVICE = frozenset({"out_of_resource", "check:memory"})
"""By kind or key: what a device has not enough of."""
NARROW_FIRST = (
    "float8_e4m3fn",
    "float8_e5m2",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_NAMED = re.compile(r"\b(?:bfloat16|float16|half|float32|float64|float8_e4m3fn|float8_e5m2)\b")


@dataclass(frozen=True, slots=True)
class Place:
    """What a rule is bound to; empty where it is not.

    Args:
        dtype: Of the tasks it holds for.
        device: On which it was seen: a target such as sm_90, or the name of a GPU.
    """

    dtype: str = ""
    device: str = ""

    def __str__(self) -> str:
        tasks = f"{self.dtype} tasks" if self.dtype else ""
        return f"{tasks} on {self.device}" if tasks and self.device else tasks or self.device

    @property
    def mark(self) -> str:
        """What a key that is bound here ends in, or the empty string."""
        where = "/".join(part for part in (self.dtype, self.device) if part)
        return f"@{where}" if where else ""


ANYWHERE = Place()


def narrowest(dtypes: Iterable[str]) -> str:
    """Return the narrowest floating dtype of a task's inputs and outputs, or the empty string where it has none."""
    known = set(dtypes)
    return next((dtype for dtype in NARROW_FIRST if dtype in known), "")


def written(texts: Iterable[str]) -> str:
    """Return the narrowest dtype that sources name, for a task that was never examined; float32, torch's own, where none is."""
    named = {word for text in texts for word in _NAMED.findall(text)}
    return narrowest("float16" if word == "half" else word for word in named) or "float32"


def bound(key: str, seen: Place) -> tuple[str, Place]:
    """Return the key and the place of a rule whose failure was seen at a place.

    Args:
        key: Fingerprint of the failure.
        seen: The dtype of the task, and the device or target.
    """
    kind = key.partition(":")[0]
    place = Place(
        seen.dtype if key in BY_DTYPE or kind == PERFORMANCE else "",
        seen.device if key in BY_DEVICE or kind in BY_DEVICE or kind == PERFORMANCE else "",
    )
    return f"{key}{place.mark}", place


def holds_at(key: str, place: Place, *, dtype: str | None, devices: Collection[str]) -> bool:
    """Tell whether a rule may be given for a task.

    Args:
        key: Of the rule.
        place: What it is bound to.
        dtype: Of the task; None where none is asked about.
        devices: Targets and names of the devices used here; empty where nothing is known of them.
    """
    base, _, where = key.partition("@")
    if dtype is not None and (place.dtype or base in BY_DTYPE) and place.dtype != dtype:
        return False
    return not (where and place.device and devices) or place.device in devices
