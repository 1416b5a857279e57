"""One of those whose calls are timed: its process, made ready, then asked for one burst after the other."""

import collections
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import number
from adaexplore_mcp.evaluation.conversation import Conversation, NumericsReport, Setting
from adaexplore_mcp.evaluation.judging import room_for
from adaexplore_mcp.evaluation.session import Session
from adaexplore_mcp.evaluation.timing.clock import Burst
from adaexplore_mcp.evaluation.trials import TrialSet
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["Beside", "Side"]

SLOTS = 3
"""Inputs that take turns: no two calls in a row with the same ones."""
MOST_SLOT_BYTES = 4 << 30
RUN_AHEAD = 1.3
"""Times the longest that launching took lately: for so long the device is held."""
LATELY = 8
LEAST_HELD_US, MOST_HELD_US = 200.0, 50_000.0
FIRST_LAUNCH_US = 200.0
AGAIN = 2
"""Times a burst is made again in which the device was let go too early: what it waited for the host is in its times."""
EXPORT_BYTES_PER_S = 200e9
"""A tenth of what GPUs copy at: the outputs of one call are handed over within the time that this leaves."""
EXPORT_S = 0.02
LONGEST_NS = 10**13
LEAST_US = 0.001
"""Left of a claim that is no longer than what two events take by themselves."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What passes on the device beside each call, in microseconds, as the judge reckons.

    Args:
        pair_us: Between two events with nothing between them: part of every time that is taken.
        restore_us: Restoring the inputs that a call changes.
        written_us: Writing back the outputs that a call left in the L2 cache, while the flush after it fills that with others.
        unwritten_us: How much longer that takes where a call filled the cache with what is no output.
    """

    pair_us: float = 0.0
    restore_us: float = 0.0
    written_us: float = 0.0
    unwritten_us: float = 0.0


class Side(Conversation):
    """Times one contender; everything that is wrong with it raises `conversation.Decided`, and `seen` says what.

    Args:
        setting: How it is run.
        session: Its process.
        candidate: What is timed.
        trials: Its inputs.
        beside: What passes on the device beside each call.
    """

    def __init__(
        self,
        setting: Setting,
        session: Session,
        candidate: Candidate,
        trials: TrialSet,
        beside: Beside,
    ) -> None:
        super().__init__(setting, session, candidate, trials, NumericsReport())
        kept = self.trials.named("constructor")
        most = max(1, MOST_SLOT_BYTES // max(1, int(kept[0].inputs.message["size"])))
        self._turns = kept
        self._slots = range(min(SLOTS, len(kept), most))
        self._beside = beside
        self._bursts = 0
        self._held: dict[int, int] = {}
        self._launch_us = collections.deque([FIRST_LAUNCH_US], maxlen=LATELY)
        self._sleeps = False

    async def sleep(self) -> None:
        """Have nothing of it run from now on, but while it is asked for something: it is not to slow the others."""
        await self.session.pause()
        self._sleeps = True

    @asynccontextmanager
    async def _awake(self) -> AsyncIterator[None]:
        """Wake it, and put it to sleep again; what has ended stays as it is."""
        if self._sleeps:
            await self.session.resume()
        yield
        if self._sleeps:
            await self.session.pause()

    async def construct(self) -> None:
        """Import and construct it."""
        await self._load()
        await self._build()

    async def first_calls(self) -> None:
        """Call it once with each inputs: what it compiles and tunes is compiled and tuned then."""
        self.report("calling it for the first time")
        async with self._awake():
            await self._burst(len(self._slots), LEAST_HELD_US)

    async def burst(self, count: int, *, check: bool) -> Burst:
        """Time calls, some with other inputs than last time at the same address; judge the outputs of one of them.

        Args:
            count: How many calls.
            check: Whether to have the outputs of one of them judged.
        """
        async with self._awake():
            return await self._timed_burst(count, check=check)

    async def _timed_burst(self, count: int, *, check: bool) -> Burst:
        await self.fill_slots()
        for _ in range(1 + AGAIN):
            ahead_us = RUN_AHEAD * max(self._launch_us) * count
            held_us = min(MOST_HELD_US, LEAST_HELD_US + ahead_us)
            answer, wall_s = await self._burst(count, held_us)
            self._launch_us.append(number(answer, "host_ns") / 1e3)
            late = answer.get("late") is not False
            if not late or held_us == MOST_HELD_US:
                break
        if check:
            wall_s += await self._judge_one()
        times = await self._ask("times", timeout_s=self.timeout_s)
        return Burst(
            device_us=[
                max(LEAST_US, value / 1e3 - self._beside.pair_us)
                for value in _numbers(times, "device_ns", count)
            ],
            total_us=number(times, "total_ns") / 1e3,
            wall_us=wall_s * 1e6,
            held_us=held_us,
            late=late,
            restore_us=self._beside.restore_us + self._beside.written_us,
            copied_us=self._beside.restore_us * len(self._slots),
            pair_us=self._beside.pair_us,
            unwritten_us=self._beside.unwritten_us,
        )

    async def call_times_us(self) -> list[float]:
        """Return how long a call takes its caller, in microseconds, once per inputs."""
        async with self._awake():
            answer = await self._ask("seen", timeout_s=self.timeout_s, **self._which())
        return [value / 1e3 for value in _numbers(answer, "call_ns", len(self._slots))]

    def _which(self) -> dict[str, Any]:
        return {"slots": list(self._slots), "mutates": self.trials.mutated}

    async def fill_slots(self) -> None:
        """Put other values than the last ones at one of the addresses, in turn; at all of them the first time."""
        for slot in [self._bursts % len(self._slots)] if self._held else self._slots:
            self._held[slot] = (self._held.get(slot, slot) + 1) % len(self._turns)
            await self._put(self._turns[self._held[slot]], slot)
        self._bursts += 1

    async def _burst(self, count: int, held_us: float) -> tuple[Mapping[str, Any], float]:
        started = time.monotonic()
        answer = await self._ask(
            "burst", count=count, held_us=held_us, timeout_s=self.timeout_s, **self._which()
        )
        return answer, time.monotonic() - started

    async def _judge_one(self) -> float:
        """Judge the outputs of one timed call; return the seconds for which they were late."""
        room = max(room_for(self.slots[slot][0]) for slot in self._slots)
        async with self.buffers.outputs(room) as memory:
            started = time.monotonic()
            answer = await self._ask("timed", [memory.file], room=room, timeout_s=self.timeout_s)
            late_s = time.monotonic() - started - EXPORT_S - room / EXPORT_BYTES_PER_S
            slot = int(number(answer, "slot"))
            if slot not in self._slots:
                raise FrameError("outputs of a call that was not asked for")
            trial, inputs = self.slots[slot]
            self.seen.calls += 1
            # What a call changes by contract is not as that call left it: the next has had it since.
            left = None if self.trials.mutated else inputs
            await self._judge(trial, answer, memory, name="one of the timed calls", inputs=left)
        return max(0.0, late_s)


def _numbers(answer: Mapping[str, Any], key: str, count: int) -> Sequence[int]:
    """Return so many whole positive numbers.

    Raises:
        FrameError: The answer holds anything else: it is not our process that speaks.
    """
    values = answer.get(key)
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(type(value) is int and 0 < value < LONGEST_NS for value in values)
    ):
        raise FrameError(f"{key} is no list of {count} times")
    return values
