"""Outcomes that stand: the same source was judged before, for the same task, with the same software on such a device."""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaexplore_mcp.memory_store import ReceiptRecord
from adaexplore_mcp.models import Effort, Outcome

__all__ = ["Asked", "standing"]

STANDS = frozenset({"correct", "plausible", "incorrect", "compile_error", "runtime_error", "rejected"})
"""Verdicts that another evaluation would give again. What ran out of time or memory, crashed or was interrupted may have met
with something that has passed."""
BY_THE_CLOCK = frozenset({"clock", "impossible_time"})
"""Checks of a measurement, which another one may pass."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an evaluation is asked for, beside task and source.

    Args:
        software: Versions of all that has a say in it.
        target: What is compiled for, without a GPU.
        gpus: UUIDs of the GPUs that will do; none where it is judged without.
        baselines: What it is to be timed against, in order; none for a verdict alone.
        effort: Of the timing.
    """

    software: str
    target: str = ""
    gpus: Collection[str] = ()
    baselines: Sequence[str] = ()
    effort: Effort = "quick"

    def to_wire(self) -> dict[str, Any]:
        """Return what a receipt keeps of it; where it was judged and how it was timed stand there anyway."""
        return {"software": self.software, "baselines": list(self.baselines)}


def standing(kept: Sequence[ReceiptRecord], asked: Asked) -> Outcome | None:
    """Return the outcome of the latest receipt that answers what is asked, with words that say so; None if none does.

    Args:
        kept: Receipts of the same source and task, latest first.
        asked: What is asked.
    """
    for record in kept:
        if _answers(record.outcome, record.receipt, asked):
            when = dt.datetime.fromtimestamp(record.created_at, dt.UTC)
            said = f"Answered from receipt {record.receipt_id} of {when:%Y-%m-%d %H:%M} UTC."
            outcome: Outcome = record.outcome.model_copy(
                update={"summary": f"{record.outcome.summary} {said}", "answered_from_receipt": True}
            )
            return outcome
    return None


def _answers(outcome: Outcome, receipt: Mapping[str, Any], asked: Asked) -> bool:
    before = receipt.get("asked", {})
    if (
        outcome.status not in STANDS
        or outcome.check in BY_THE_CLOCK
        or before.get("software") != asked.software
    ):
        return False
    if asked.gpus:
        if receipt.get("device", {}).get("uuid") not in asked.gpus:
            return False
    elif "device" in receipt or receipt["target"] != asked.target:
        return False
    if not asked.baselines or outcome.status != "correct":
        return True
    times = outcome.timing
    return (
        times is not None
        and bool(times.speedups)
        and not times.dirty
        and before["baselines"] == list(asked.baselines)
        and (asked.effort == "quick" or times.effort == "full")
    )
