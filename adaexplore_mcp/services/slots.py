"""Admit a fixed number of evaluations at once, first come, first served, each knowing its place."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from adaexplore_mcp.errors import RequestError

__all__ = ["Slots"]

MAX_WAITING = 256
"""Each waiting evaluation holds its candidate in memory, up to 1 MiB."""


@dataclass(eq=False, slots=True)
class _Waiter:
    admitted: anyio.Event
    moved: Callable[[int], None]


class Slots:
    """A fair limit on how many run at once.

    Args:
        count: How many run at once.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._waiting: deque[_Waiter] = deque()

    @property
    def taken(self) -> int:
        """How many run now."""
        return self._taken

    @asynccontextmanager
    async def slot(self, moved: Callable[[int], None]) -> AsyncIterator[None]:
        """Wait for a place and hold it.

        Args:
            moved: Told how many are before this one, at the start of a wait and whenever that changes.

        Raises:
            RequestError: Too many wait already.
        """
        await self._admission(moved)
        try:
            yield
        finally:
            self._free()

    async def _admission(self, moved: Callable[[int], None]) -> None:
        if self._taken < self._count:
            self._taken += 1
            return
        if len(self._waiting) >= MAX_WAITING:
            raise RequestError(
                f"{self._taken} evaluations run and {MAX_WAITING} wait; no more are taken.",
                "Ask again when some have ended (job_status lists them).",
            )
        waiter = _Waiter(anyio.Event(), moved)
        self._waiting.append(waiter)
        moved(self._taken + len(self._waiting) - 1)
        try:
            await waiter.admitted.wait()
        except BaseException:  # a cancellation: the place, given or not, goes to the next
            if waiter.admitted.is_set():
                self._free()
            else:
                self._waiting.remove(waiter)
                self._tell()
            raise

    def _free(self) -> None:
        if self._waiting:
            self._waiting.popleft().admitted.set()  # the place passes on: `_taken` stays
            self._tell()
        else:
            self._taken -= 1

    def _tell(self) -> None:
        for ahead, waiter in enumerate(self._waiting):
            waiter.moved(self._taken + ahead)
