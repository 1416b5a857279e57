"""What an evaluation did when: for its caller while it goes on, and for its receipt."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

__all__ = ["Timeline"]

MOST = 200


class Timeline:
    """Stages of one evaluation, each from its beginning to that of the next.

    Args:
        report: Told of each as it begins.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self.began_at = datetime.now(UTC)
        """When it was made."""
        self._started = time.monotonic()
        self._stages: list[tuple[str, float]] = []
        self._latest = ""

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._started

    def begin(self, stage: str) -> None:
        """Say that a stage begins."""
        self._latest = stage
        if len(self._stages) < MOST:
            self._stages.append((stage, self.seconds))
        self._report(stage)

    def mark(self) -> Callable[[], None]:
        """Return what says, after others, that the stage of now goes on."""
        return partial(self.begin, self._latest)

    def to_wire(self) -> list[dict[str, object]]:
        """Return the stages in order: what, when it began (seconds since the start), and how long it took."""
        ends = [began for _, began in self._stages[1:]] + [self.seconds]
        return [
            {"stage": stage, "at": round(began, 4), "seconds": round(end - began, 4)}
            for (stage, began), end in zip(self._stages, ends, strict=False)
        ]
