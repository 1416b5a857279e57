"""Keep account of every answer given in a GPU's place, so that an outcome can say what it rests on."""

from collections import Counter
from dataclasses import dataclass
from typing import NoReturn

from .errors import NotHere

__all__ = ["MEASUREMENT", "Ledger", "Refusal"]

MEASUREMENT = "it would be a measurement, and there is no GPU here to measure"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that was asked for and refused."""

    what: str
    """The name as the code wrote it: `torch.cuda.Event.elapsed_time`."""
    reason: str
    """Why it needs a GPU: the rest of the sentence."""


class Ledger:
    """Counts of answers and of elements brought to the host, refusals in order, and sentences for a reader."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.refused: list[Refusal] = []
        self.to_host = 0
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """Sentences that a report of the run must show, in the order in which they became true."""
        return list(self._notes)

    def note(self, sentence: str) -> None:
        """Keep a sentence, once."""
        self._notes[sentence] = None

    def refuse(self, what: str, reason: str) -> NoReturn:
        """Write down that `what` was asked for, even if the code swallows the exception, and refuse it.

        Raises:
            NotHere: Always.
        """
        refusal = Refusal(what, reason)
        if refusal not in self.refused:
            self.refused.append(refusal)
        msg = f"{what} is not available without a GPU: {reason}"
        raise NotHere(msg)
