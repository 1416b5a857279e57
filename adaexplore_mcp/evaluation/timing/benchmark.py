"""Time one candidate, found right before, against baselines: workload by workload, everybody in a process of its own.

What needs no quiet GPU comes first: every process imports, constructs and, unless it chooses something by the clock, makes its
first calls beside others. Then the GPU is held alone, for the rounds and for whatever tunes.
"""

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio.to_thread

from adaexplore_mcp.errors import WorkerLostError
from adaexplore_mcp.evaluation.buffers import DeviceFullError, GpuBuffers
from adaexplore_mcp.evaluation.compilation import Built
from adaexplore_mcp.evaluation.conversation import Decided, NumericsReport, Setting
from adaexplore_mcp.evaluation.definition import Plan, tensor_bytes
from adaexplore_mcp.evaluation.devices import Condition, Gpu, condition
from adaexplore_mcp.evaluation.gpu_memory import Needs
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices, Place
from adaexplore_mcp.evaluation.session import Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing.baselines import Contender
from adaexplore_mcp.evaluation.timing.clock import Burst, Ceilings, against_the_clock
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE, Rounds, take_turns, warm_up
from adaexplore_mcp.evaluation.timing.side import Beside, Side
from adaexplore_mcp.evaluation.trials import TrialSet
from adaexplore_mcp.evaluation.wire import FrameError
from adaexplore_mcp.models import Clock, Effort

__all__ = ["Benchmark", "Ready", "WorkloadTimes"]

FAILURES = (Decided, SessionTimeoutError, SessionEndedError, FrameError)
"""In these ways a contender fails; any other error is ours."""
REPEATS = 2
"""Measurements made again because something marred the first."""
SLOWED = frozenset({
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
})  # fmt: skip
"""What mars a measurement. A power limit does not: heavy kernels run into it at once, and both sides meet it."""
CLOCK_BURSTS, CLOCK_CALLS, CLOCK_US = 10, 64, 6_000.0
"""Of bursts for the judge's clock alone: how many of each size, and with how many calls or for how long at most."""
CLOCK_LOOKS = 4
"""Times such bursts are made where the candidate would be refused without the clock: a host that is busy shows nothing."""
RESTORE_US = 2.0
"""Beside moving its bytes, what restoring a tensor takes."""
DRIFT = 0.05
"""Of the clock of the multiprocessors, from before the rounds to after them."""


@dataclass
class WorkloadTimes:
    """What one workload showed.

    Args:
        name: Of the workload.
        rounds: All bursts; empty where the candidate or every baseline was at fault.
        call_us: Of the candidate, as its caller sees it, in microseconds.
        clock: Whether the judge's clock bears out the candidate's times; None if it contradicts them.
        seen: What the candidate's process showed.
        failed: Baselines that could not be timed, and why.
        before: How the GPU was before the rounds.
        after: And after them.
        dirty: What marred measurements.
    """

    name: str
    rounds: Rounds = field(default_factory=Rounds)
    call_us: Sequence[float] = ()
    clock: Clock | None = "unconfirmed"
    seen: NumericsReport = field(default_factory=NumericsReport)
    failed: dict[str, str] = field(default_factory=dict)
    before: Condition = field(default_factory=Condition)
    after: Condition = field(default_factory=Condition)
    dirty: list[str] = field(default_factory=list)


class Ready:
    """Contenders that wait to be timed, stopped; their memory is counted until the last of them has ended.

    Args:
        times: What was seen of them so far.
    """

    def __init__(self, times: WorkloadTimes) -> None:
        self.times = times
        self.sides: dict[str, Side] = {}
        self.processes = AsyncExitStack()
        self.memory = AsyncExitStack()

    @property
    def complete(self) -> bool:
        """Whether there is a candidate, and something to time it against."""
        return len(self.sides) > 1 and CANDIDATE in self.sides

    async def aclose(self) -> None:
        """End them, and count their memory no more."""
        async with self.memory:
            await self.processes.aclose()


class Benchmark:
    """Times a candidate on one GPU.

    Args:
        pool: Worker processes.
        devices: Who is on the GPU.
        gpu: Where.
        l2_bytes: Size of its L2 cache.
        ceilings: What it can do.
        effort: How narrow the intervals are to be.
        timeout_s: Limit of each stage of each process.
        timeline: Told what is being done.
    """

    def __init__(
        self,
        pool: WorkerPool,
        devices: Devices,
        gpu: Gpu,
        *,
        l2_bytes: int,
        ceilings: Ceilings,
        effort: Effort,
        timeout_s: float,
        timeline: Timeline,
    ) -> None:
        self._pool = pool
        self._devices = devices
        self._gpu = gpu
        self._l2_bytes = l2_bytes
        self._ceilings = ceilings
        self._effort = effort
        self._timeout_s = timeout_s
        self._timeline = timeline
        self._chance = random.SystemRandom()

    async def workload(
        self,
        plan: Plan,
        trials_on: Callable[[Place], Awaitable[TrialSet]],
        candidate: Contender,
        baselines: Sequence[Contender],
        *,
        built: Mapping[str, Built],
        needs: Needs,
        alpha: float,
        doubted: Callable[[WorkloadTimes], bool] = lambda _: False,
        ready: Ready | None = None,
    ) -> WorkloadTimes:
        """Time the candidate against every baseline at one workload.

        Args:
            plan: Of the workload.
            trials_on: Finds or makes its inputs, at a place on the GPU: making them runs the reference there.
            candidate: What is timed.
            baselines: Against what.
            built: Those that were compiled ahead, by name.
            needs: GPU memory that all of them take, side by side, and their inputs.
            alpha: Error allowed of each interval.
            doubted: Tells whether times are too short to be believed that the judge's clock does not bear out.
            ready: Who was made ready before; ended here.

        Raises:
            WorkerError: Workers of ours failed.
            DeviceFullError: The GPU has too little memory for all of them side by side.
            TaskError: Inputs had to be made anew, and the reference is at fault.
        """
        begin = self._timeline.begin
        try:
            if ready is None:
                async with self._devices.use(
                    self._gpu.label, needs=needs, report=begin, mark=self._timeline.mark
                ) as place:
                    begin("running the reference")
                    trials = await trials_on(place)
                    with trials.used():
                        ready = await self.prepare(
                            plan,
                            trials,
                            candidate,
                            baselines,
                            built=built,
                            needs=needs,
                            place=place,
                        )
            times, sides = ready.times, ready.sides
            if not ready.complete:
                return times
            begin("waiting to time alone")
            async with self._devices.alone(self._gpu, begin, holding=True):
                for each in (candidate, *baselines):
                    if each.name in sides and each.tunes:
                        begin(f"tuning {each.name}")
                        if not await self._tried(sides[each.name].first_calls, each, sides[each.name], times):
                            await _leave_out(each.name, sides)
                if ready.complete:
                    await self._measured(sides, times, alpha, doubted)
            begin("ending what was timed")
        finally:
            if ready is not None:
                await ready.aclose()
        return times

    async def prepare(
        self,
        plan: Plan,
        trials: TrialSet,
        candidate: Contender,
        baselines: Sequence[Contender],
        *,
        built: Mapping[str, Built],
        needs: Needs,
        place: Place,
    ) -> Ready:
        """Make everybody ready beside others, at a place on the GPU that the caller holds; see `workload`.

        While they are imported and constructed, whoever wants to time goes first: weights may be large, and drawn on one core.

        Returns:
            For the caller to have timed, or to close.
        """
        ready = Ready(WorkloadTimes(plan.workload.name))
        sides, times = ready.sides, ready.times
        contenders = (candidate, *baselines)
        self._timeline.begin("preparing " + " and ".join(each.name for each in contenders))
        async with AsyncExitStack() as stack:
            stack.enter_context(trials.used())
            for each in contenders:
                setting = self._setting(built.get(each.name, Built()))
                sides[each.name] = await self._open(stack, each, setting, trials, self._beside(plan, trials))
            opened = [side.session for side in sides.values()]
            async with place.giving_way(partial(_all_still, opened)):
                await self._side_by_side(self._construct, contenders, sides, times)
            if ready.complete:
                await place.give_way(partial(_all_still, opened))
                await self._side_by_side(self._first_calls, contenders, sides, times)
            if ready.complete:
                ready.processes.push_async_exit(stack.pop_all())
                await ready.memory.enter_async_context(place.reserved(needs))
        return ready

    @staticmethod
    async def _side_by_side(
        step: Callable[[Contender, Side, WorkloadTimes], Awaitable[bool]],
        contenders: Sequence[Contender],
        sides: dict[str, Side],
        times: WorkloadTimes,
    ) -> None:
        """Do one step of all contenders that are left; leave out those that fail in it."""

        async def one(each: Contender) -> None:
            if not await step(each, sides[each.name], times):
                await _leave_out(each.name, sides)

        try:
            async with anyio.create_task_group() as group:
                for each in [each for each in contenders if each.name in sides]:
                    group.start_soon(one, each)
        except ExceptionGroup as errors:
            # They wait for the same workers of ours: the first loss says all there is to say.
            raise errors.exceptions[0] from errors

    async def _construct(self, each: Contender, side: Side, times: WorkloadTimes) -> bool:
        return await self._tried(side.construct, each, side, times)

    async def _first_calls(self, each: Contender, side: Side, times: WorkloadTimes) -> bool:
        """Have a contender make its first calls, unless it chooses something by the clock in them, and put it to sleep."""
        ready = await self._tried(side.fill_slots, each, side, times) and (
            each.tunes or await self._tried(side.first_calls, each, side, times)
        )
        # From now on nothing of it runs but while it is its turn: it could use the GPU while others are timed.
        return ready and await self._tried(side.sleep, each, side, times)

    def _setting(self, built: Built) -> Setting:
        load: dict[str, Any] = {
            "memory_share": 1.0,
            "tuned": built.report.tuned,
            "timing": True,
            "l2_bytes": self._l2_bytes,
        }
        return Setting(GpuBuffers(self._pool, self._gpu), load, self._timeout_s, _unsaid, files=built.files)

    def _beside(self, plan: Plan, trials: TrialSet) -> Beside:
        """Return what passes on the device beside each call."""
        ceilings = self._ceilings
        restored = [tensor_bytes(each) for each in plan.inputs if each.name in trials.mutated]
        most = 1e6 * self._l2_bytes / ceilings.copy_bytes_per_s
        written = min(most, 1e6 * sum(map(tensor_bytes, plan.outputs)) / ceilings.copy_bytes_per_s)
        return Beside(
            ceilings.pair_us,
            sum(RESTORE_US + 2e6 * each / ceilings.copy_bytes_per_s for each in restored),
            written,
            most - written,
        )

    @staticmethod
    async def _open(
        stack: AsyncExitStack, each: Contender, setting: Setting, trials: TrialSet, beside: Beside
    ) -> Side:
        setting = replace(setting, load={**setting.load, "package": each.package})
        session = await stack.enter_async_context(setting.buffers.candidate())
        side = Side(setting, session, each.candidate, trials, beside)
        stack.callback(side.close)
        return side

    async def _tried(
        self, step: Callable[[], Awaitable[object]], each: Contender, side: Side, times: WorkloadTimes
    ) -> bool:
        """Do one step of a contender; note in what way it failed.

        Raises:
            DeviceFullError: The candidate, which had memory enough when it was judged, has too little beside its baselines.
        """
        why = ""
        try:
            await step()
        except FAILURES as error:
            if each.name == CANDIDATE and side.seen.short_of_memory:
                raise DeviceFullError("the candidate had not enough beside its baselines") from None
            why = _why(side, error)
            if each.name == CANDIDATE and isinstance(error, FrameError):
                times.clock = None
        if each.name == CANDIDATE:
            times.seen = side.seen
        elif why:
            times.failed[each.name] = why
        return not why

    async def _measured(
        self,
        sides: dict[str, Side],
        times: WorkloadTimes,
        alpha: float,
        doubted: Callable[[WorkloadTimes], bool],
    ) -> None:
        """Warm up and take turns; once more where the GPU was slowed down meanwhile."""
        candidate = sides[CANDIDATE]
        contenders = {
            name: side if name == CANDIDATE else _Baseline(name, side) for name, side in sides.items()
        }

        async def rounds() -> None:
            self._timeline.begin("warming up")
            counts = await warm_up(contenders)
            for attempt in range(1 + REPEATS):
                times.before = await anyio.to_thread.run_sync(condition, self._gpu)
                self._timeline.begin("timing")
                times.rounds = await take_turns(
                    contenders,
                    counts,
                    self._effort,
                    alpha=alpha,
                    chance=self._chance,
                    report=self._timeline.begin,
                )
                times.after = await anyio.to_thread.run_sync(condition, self._gpu)
                marred = _marred(times.before, times.after)
                if not marred:
                    break
                again = ", measured again" if attempt < REPEATS else ""
                times.dirty.append(f"{times.name}: {marred}{again}")
            times.call_us = await candidate.call_times_us()
            times.clock = await self._confirmed(candidate, times, counts[CANDIDATE], doubted)

        try:
            done = await self._tried(rounds, Contender(CANDIDATE, candidate.candidate), candidate, times)
        except _BaselineLostError as lost:
            times.failed[lost.name] = lost.why
            await _leave_out(lost.name, sides)
            if len(sides) > 1:
                await self._measured(sides, times, alpha, doubted)
            return
        if done:
            self._baselines_by_the_clock(times)

    async def _confirmed(
        self, candidate: Side, times: WorkloadTimes, count: int, doubted: Callable[[WorkloadTimes], bool]
    ) -> Clock | None:
        """Hold a candidate's times against the clock; with longer bursts where those of the rounds are too short for it."""
        bursts = times.rounds.bursts[CANDIDATE]
        clock = against_the_clock(bursts, self._ceilings.flush_us)
        if clock != "unconfirmed" or count == 1:
            return clock
        longer = max(2 * count, min(CLOCK_CALLS, round(CLOCK_US / times.rounds.median_us(CANDIDATE))))
        # In turns: a host that is busier now than it was during the rounds is so for both sizes.
        sizes = [count, longer] * CLOCK_BURSTS
        for _ in range(CLOCK_LOOKS if doubted(times) else 1):
            bursts = [await candidate.burst(size, check=False) for size in sizes]
            if (clock := against_the_clock(bursts, self._ceilings.flush_us)) != "unconfirmed":
                break
        return clock

    def _baselines_by_the_clock(self, times: WorkloadTimes) -> None:
        """Leave out baselines whose claims the judge's clock contradicts: a task is a stranger's code too."""
        for name in [name for name in times.rounds.bursts if name != CANDIDATE]:
            if against_the_clock(times.rounds.bursts[name], self._ceilings.flush_us) is None:
                times.failed[name] = "the judge's clock contradicts the times that its process gives"
                del times.rounds.bursts[name]


class _BaselineLostError(Exception):
    """A baseline could not be timed any further, which is no fault of the candidate's."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why


class _Baseline:
    """A baseline among contenders; see `rounds.Timed`."""

    def __init__(self, name: str, side: Side) -> None:
        self._name = name
        self._side = side

    async def burst(self, count: int, *, check: bool) -> Burst:
        """Time calls; see `Side.burst`.

        Raises:
            _BaselineLostError: It failed.
        """
        try:
            return await self._side.burst(count, check=check)
        except FAILURES as error:
            raise _BaselineLostError(self._name, _why(self._side, error)) from error


async def _leave_out(name: str, sides: dict[str, Side]) -> None:
    """Do without a contender that failed: it is ended, or its threads could use the GPU while others are timed."""
    await sides.pop(name).session.end()


def _why(side: Side, error: Exception) -> str:
    """Say how a contender failed, and note what the error tells of its process."""
    match error:
        case SessionTimeoutError():
            side.seen.timed_out_s, side.seen.report = error.timeout_s, error.report
            return f"it took more than {error.timeout_s:g} s"
        case SessionEndedError():
            side.seen.ended = error.report
            return "its process ended"
        case FrameError():
            return f"its process does not answer as ours do: {error}"
    if side.seen.failure is not None:
        return f"{side.seen.failure.type}: {side.seen.failure.message}"
    if side.seen.integrity.misconduct:
        return "it did what no kernel has a reason to do, and what makes times worth nothing"
    return "it gave a wrong result"


@asynccontextmanager
async def _all_still(sessions: Sequence[Session]) -> AsyncIterator[None]:
    """Pause several for as long as the context lasts; whoever asks one that has ended hears of it."""
    for session in sessions:
        with contextlib.suppress(SessionEndedError, WorkerLostError):
            await session.pause()
    yield
    for session in sessions:
        with contextlib.suppress(SessionEndedError, WorkerLostError):
            await session.resume()


def _unsaid(_: str) -> None:
    """Do not say what one of several does that are made ready side by side."""


def _marred(before: Condition, after: Condition) -> str:
    """Say what makes a measurement unfit; empty if nothing does."""
    slowed = SLOWED & {*before.throttled, *after.throttled}
    if slowed:
        return ", ".join(sorted(slowed))
    if before.sm_mhz and after.sm_mhz and abs(after.sm_mhz / before.sm_mhz - 1) > DRIFT:
        return f"the clock went from {before.sm_mhz} to {after.sm_mhz} MHz"
    return ""
