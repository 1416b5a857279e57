"""What receipts say about who used a GPU when: for how long it was held alone, and whether anybody else used it meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

ALONE = ("tuning", "warming up")
"""With one of these a kernel begins to hold the GPU alone."""
BESIDE = ("waiting", "compiling", "preparing", "importing", "running the reference", "leaving", "ending")
"""With one of these it does so no more."""
NO_USE = ("waiting", "compiling", "making way", "leaving", "ending")
"""What an evaluation says while it does nothing on a GPU begins with one of these."""


@dataclass(frozen=True)
class Span:
    """For how long an evaluation used a GPU, in seconds since the epoch."""

    receipt_id: str
    uuid: str
    began: float
    ended: float
    alone: bool


def spans(receipt_id: str, receipt: Mapping[str, Any]) -> Iterator[Span]:
    """Return when an evaluation used its GPU, and when it held it alone."""
    started = datetime.fromisoformat(receipt["began_at"]).timestamp()
    uuid = receipt["device"].get("uuid", "")
    for each, alone in _told_apart(receipt["timeline"]):
        if uuid and not each["stage"].startswith(NO_USE):
            began = started + each["at"]
            yield Span(receipt_id, uuid, began, began + each["seconds"], alone)


def overlaps(found: Sequence[Span]) -> list[tuple[Span, Span, float]]:
    """Return each use of a GPU that another evaluation held alone meanwhile, and for how many seconds.

    Receipts give milliseconds: what is no longer than two of them is none.
    """
    lists = [
        (mine, other, min(mine.ended, other.ended) - max(mine.began, other.began))
        for mine in found
        if mine.alone
        for other in found
        if other.uuid == mine.uuid and other.receipt_id != mine.receipt_id
    ]
    return [each for each in lists if each[2] > 0.002]


def alone_s(timeline: Sequence[Mapping[str, Any]]) -> float:
    """Return for how many seconds of a receipt's timeline the GPU was held alone."""
    return sum((each["seconds"] for each, alone in _told_apart(timeline) if alone), 0.0)


def _told_apart(timeline: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Return each stage of a timeline, and whether the GPU was held alone in it."""
    alone = False
    for each in timeline:
        alone = each["stage"].startswith(ALONE) or (alone and not each["stage"].startswith(BESIDE))
        yield each, alone
