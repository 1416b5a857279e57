"""What an evaluation did when: for its caller while it goes on, and for its receipt."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

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

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._started

    def begin(self, stage: str) -> None:
        """Say that a stage begins."""
        if len(self._stages) < MOST:
            self._stages.append((stage, self.seconds))
        self._report(stage)

    def to_wire(self) -> list[dict[str, object]]:
        """Return the stages in order: what, when it began (seconds since the start), and how long it took."""
        ends = [began for _, began in self._stages[1:]] + [self.seconds]
        return [
            {"stage": stage, "at": round(began, 4), "seconds": round(end - began, 4)}
            for (stage, began), end in zip(self._stages, ends, strict=False)
        ]
