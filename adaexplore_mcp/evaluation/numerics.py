"""Run a candidate's numbers against a task's trials, call by call, and stop at the first thing that is wrong.

The candidate's process gets the inputs of one call at a time and gives bytes back; the judge compares. What the
process says about itself is kept as facts.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import Failure, quoted
from adaexplore_mcp.evaluation.conversation import Decided, NumericsReport, Setting
from adaexplore_mcp.evaluation.judging import Mismatch
from adaexplore_mcp.evaluation.session import SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Trial, TrialSet
from adaexplore_mcp.evaluation.whose_work import RightWithout, WhoseWork
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["NumericsReport", "Setting", "run_numerics"]

REPEATS_S = 0.03  # a kernel that is cheap enough is called again and again for this long
SHUFFLED_FACTOR = 3.0
ELSEWHERE_SLOT = 4
ELSEWHERE_S = 5.0
CHEAP_S = 1.0
MIN_CALLS = 8
MOST_MORE_CALLS = 3
MAX_CALLS = 24
CONFIGURATIONS_S = 2.0  # time for running autotune configurations other than the first
UNDEFINED_LANES = frozenset({"values", "nonfinite", "unwritten"})
"""Checks that lanes left undefined by a masked load can fail."""


async def run_numerics(
    setting: Setting,
    candidate: Candidate,
    trials: TrialSet,
    *,
    once: bool = False,
    elsewhere: TrialSet | None = None,
    tape: int | None = None,
) -> NumericsReport:
    """Run a candidate against the trials of one workload.

    Args:
        setting: Where and how.
        candidate: What to run.
        trials: Kept open by the caller.
        once: Make a single call, where the others were made at other sizes.
        elsewhere: The first trial at other sizes, for information; kept open by the caller.
        tape: An empty file that takes what the launches of a single call leave in memory, where they are interpreted.

    Returns:
        What was seen. Nothing the candidate does is an exception here.

    Raises:
        WorkerError: Workers of ours failed.
    """
    started = time.monotonic()
    seen = NumericsReport()
    right_without: list[RightWithout] = []
    async with setting.buffers.candidate() as session:
        run = Calls(setting, session, candidate, trials, seen)
        try:
            with contextlib.suppress(Decided):
                await (run.first(tape) if once else run.all())
                seen.stage = "done"
                if elsewhere is not None and run.cheap:
                    await _elsewhere(run, elsewhere)
                if not once:
                    right_without = await run.who_did_the_work()
        except SessionTimeoutError as error:
            seen.timed_out_s = setting.timeout_s
            seen.slow = run.slow()
            seen.last_kernel = run.progress.kernel if run.progress is not None else ""
            seen.report = error.report
        except SessionEndedError as error:
            seen.ended = error.report
        except DeviceFullError as error:
            await session.end()
            seen.failure = Failure(
                kind="memory",
                type="OutOfMemory",
                message=f"beside it the GPU has too little memory left for its inputs or for comparing: {error}",
            )
        except FrameError as error:
            # Its harness does not speak like this: the candidate does, on a descriptor that is not its own.
            seen.mismatch = Mismatch("forged_result", "", {"detail": f"it sent what is no result: {error}"})
        finally:
            run.close()
        seen.report = await session.end()
    if right_without and seen.clean:
        await _keeps_results(setting, candidate, trials, run, right_without)
    seen.seconds = time.monotonic() - started
    return seen


async def _elsewhere(before: "Calls", trials: TrialSet) -> None:
    """Call a candidate, which was right, once at other sizes, and note in its report what went wrong."""
    right, seen = before.seen, NumericsReport(stage="run")
    run = Calls(before.setting, before.session, before.candidate, trials, seen)
    run.restless = before.restless
    try:
        with contextlib.suppress(Decided):
            await run.again_at_other_sizes()
    except SessionEndedError:
        right.elsewhere = "its process ended"
    except (SessionTimeoutError, DeviceFullError, FrameError):
        return  # says nothing about the sizes
    finally:
        run.close()
        before.restless = run.restless
        if seen.integrity.misconduct:
            right.integrity = seen.integrity
    if seen.mismatch is not None:
        right.elsewhere = str(seen.mismatch.evidence.get("detail") or seen.mismatch.check)
    elif seen.failure is not None and seen.failure.kind not in {"limit", "memory", "no_space"}:
        right.elsewhere = f"{seen.failure.type}: {quoted(seen.failure.message)}"


async def _keeps_results(
    setting: Setting,
    candidate: Candidate,
    trials: TrialSet,
    before: "Calls",
    right_without: Sequence[RightWithout],
) -> None:
    """Tell a candidate that keeps its results from one that does not need some of its launches, in a new process."""
    kept = None
    with contextlib.suppress(DeviceFullError):  # the verdict stands, if nothing more can be told
        async with setting.buffers.candidate() as session:
            run = Calls(setting, session, candidate, trials, NumericsReport())
            run.lanes = before.lanes
            try:
                with contextlib.suppress(Decided, SessionTimeoutError, SessionEndedError, FrameError):
                    await run.first()
                    kept = await run.kept_without(right_without, before.seen.calls)
            finally:
                run.close()
            if run.seen.integrity.misconduct:
                before.seen.integrity = run.seen.integrity
            await session.end()
    if kept is not None:
        text = f"{kept} it is right for values that it has seen before, and wrong for others: a cached result"
        before.seen.mismatch = Mismatch("stale_output", kept.trial.name, {"detail": text}, solid=True)


def _explained(mismatch: Mismatch, why: str) -> Mismatch:
    """Return a mismatch whose detail says first why it is."""
    detail = f"{why}: {mismatch.evidence.get('detail', '')}".removesuffix(": ")
    return replace(mismatch, evidence={**mismatch.evidence, "detail": detail})


class Calls(WhoseWork):
    """All calls of a candidate, in order."""

    @property
    def cheap(self) -> bool:
        """Whether it can be constructed and called once more for information."""
        return self.construct_s + self.longest_call_s < CHEAP_S and self._affordable()

    async def first(self, tape: int | None = None) -> None:
        """Load, construct, and call once."""
        await self._load()
        await self._build()
        self.calls_end = self.now + self.timeout_s
        await self._first(self.trials.named("constructor")[0], tape)

    async def again_at_other_sizes(self) -> None:
        """Construct and call once in a process that has loaded the candidate."""
        await self._build()
        await self._call(self.trials.trials[0], slot=ELSEWHERE_SLOT, limit_s=ELSEWHERE_S, required=True)

    async def all(self) -> None:
        """Do everything in order."""
        constructor = self.trials.named("constructor")
        first = constructor[0]
        await self.first()
        await self._other_values(constructor[1:])
        await self._again(first)
        await self._other_addresses(first)
        await self._tuned(first)
        await self._configurations(first)
        await self._repeat(constructor)
        await self._again(first)
        await self._weights()
        await self._shuffled()
        await self._ask("finish", timeout_s=self.timeout_s)

    async def _first(self, first: Trial, tape: int | None = None) -> None:
        """Call for the first time.

        A masked load without `other` leaves lanes undefined. They hold NaN here, so that whatever uses them shows; a
        GPU was seen to leave zeros, so a kernel that is right with zeros, or raises without, is not condemned, but told.
        """
        try:
            await self._call(first, slot=0, detail=True, required=True, tape=tape)
        except Decided:
            found, raised = self.seen.mismatch, self.seen.failure
            wrong = found is not None and found.check in UNDEFINED_LANES
            if not self.interpreted or not (wrong or (raised is not None and raised.kind == "exception")):
                raise
            self.lanes = "zero"
            self.seen.mismatch = self.seen.failure = None
            try:
                await self._call(first, slot=0, detail=raised is not None, required=True)
            except Decided:
                self.seen.mismatch, self.seen.failure = found, raised
                raise
            if raised is not None and not await self._raises_again(first):
                self.seen.failure = raised
                raise Decided from None
            self.seen.undefined_lanes = True

    async def _raises_again(self, first: Trial) -> bool:
        """Tell whether the first call raises again with undefined lanes of NaN: else something other made it raise."""
        self.lanes = "nan"
        try:
            await self._call(first, slot=0, required=True)
        except Decided:
            again, self.seen.failure, self.seen.mismatch = self.seen.failure, None, None
            self.lanes = "zero"
            return again is not None and again.kind == "exception"
        return False

    async def _other_values(self, trials: Sequence[Trial]) -> None:
        """Call with other values at the addresses of the first ones."""
        for position, other in enumerate(trials):
            if position == 0 or self._affordable():
                name = f"{other.name}, at the same addresses"
                await self._call(other, slot=0, name=name, required=position == 0)

    async def _other_addresses(self, first: Trial) -> None:
        """Call with the first values elsewhere in memory."""
        if self._affordable():
            await self._call(first, slot=1, name="first inputs, at other addresses")

    async def _tuned(self, first: Trial) -> None:
        """Call as for the first time on a GPU: all configurations run, so an update without reset_to_zero shows."""
        configurations = max(self.seen.facts.autotuned.values(), default=0)
        if configurations and self._affordable(1.5 * (configurations + 1)):
            await self._call(first, slot=1, name="first inputs, while it is autotuned", tune=True)

    async def _configurations(self, first: Trial) -> None:
        """Run every autotune configuration once for its numbers, as far as time allows."""
        count = max(self.seen.facts.autotuned.values(), default=0)
        end = self.now + CONFIGURATIONS_S
        ready = range(count) if self.setting.configurations is None else self.setting.configurations
        # In any order: where time does not do for all, none is certain to be left out.
        for config in self.random.sample(ready[1:], max(0, len(ready) - 1)):
            if self.now > end or not self._affordable():
                break
            await self._call(
                first, slot=1, name=f"autotune configuration {config + 1} of {count}", config=config
            )
            self.seen.configurations += 1

    async def _repeat(self, trials: Sequence[Trial]) -> None:
        """Call again and again with known values: a kernel that is right by luck, or only at first, is found.

        How often is left to chance, and no two calls in a row have the same values: what counts its calls cannot know
        which is the last, and what keeps a result is wrong at once.
        """
        end = self.now + REPEATS_S
        last: Trial | None = None
        calls = max(MIN_CALLS, self.seen.calls + 1) + self.random.randint(0, MOST_MORE_CALLS)
        while self.seen.calls < MAX_CALLS and self._affordable(2.0):
            if self.now > end and (self.seen.calls >= calls or self.longest_call_s > 1.0):
                break
            # Not the first: what a later call leaves in its outputs is to differ.
            others = [trial for trial in trials[1:] if trial is not self.slots[0][0]]
            last = self.random.choice(others or trials)
            await self._call(last, slot=0, name=f"call {self.seen.calls + 1}")
        if last is not None and self._affordable(2.0):
            await self._twice(last, next((trial for trial in trials if trial is not last), None))

    async def _twice(self, trial: Trial, other: Trial | None) -> None:
        """Call with the values of the last call again, at once: what keeps its last result does less then.

        Less is no fault by itself: a table may have been made for these values, or a graph be replayed from now on. It is one
        where these values take as much work as before once others came between, and less again when they come twice.
        """

        async def call(each: Trial, beside: str = "") -> int:
            await self._call(each, slot=0, name=f"call {self.seen.calls + 1}{beside}")
            return self.programs_run

        async def less() -> bool:
            before = self.programs_run
            again = ", with the values of the last one"
            return await call(trial, again) < before and await call(trial, again) < before

        if not await less() or other is None or not self._affordable(6.0):
            return
        await call(other)
        usual = await call(trial)
        if await less():
            detail = (
                f"it runs {usual} program{'s' * (usual != 1)} for values that come after others, and {self.programs_run} for "
                "the same values at once again: a cached result"
            )
            self._decide(Mismatch("stale_output", trial.name, {"detail": detail}, solid=True))

    async def _weights(self) -> None:
        """Try other weights: loaded where names match, else given by construction under another seed."""
        randomised, other = self.trials.named("randomised"), self.trials.named("other seed")
        if not randomised:
            return
        self.seen.unloaded = await self._load_state("randomised")
        try:
            for position, trial in enumerate(randomised):
                if position == 0 or self._affordable():
                    await self._call(trial, slot=2, required=position == 0)
        except Decided:
            mismatch = self.seen.mismatch
            if mismatch is None or not other:
                raise
            if self.weightless:
                self.seen.mismatch = _explained(
                    mismatch, "it holds no weights, and the reference's are others now"
                )
                raise
            # Weights packed at construction do not follow load_state_dict: that alone is no fault, where another seed
            # gives others. A norm's ones and zeros stay what they are under every seed, so they must follow.
            self.seen.mismatch = None
            for trial in self.trials.named("constants randomised"):
                unloaded = await self._load_state("constants randomised")
                if not unloaded:  # by another name they cannot be loaded
                    await self._call(trial, slot=2, required=True)
            await self._construct(self.trials.other_seed, self.trials.other_init)
            self.seen.stage = "run"
            await self._call(other[0], slot=3, required=True)
            self.seen.weights_bound = True

    async def _shuffled(self) -> None:
        """Run the programs of every launch in another order: a GPU promises none.

        Last of all, since a call that is cut short may leave a workspace in disorder. Programs that wait for each other
        may never end in another order, here where they run one at a time: that is told, not judged.
        """
        if not self.interpreted or self.seen.facts.programs < 2 or not self._affordable(SHUFFLED_FACTOR):
            return
        trial = self.trials.named("constructor")[0]
        if self.trials.named("randomised"):
            await self._build()
        try:
            await self._call(
                trial,
                slot=0,
                name="first inputs, its programs in another order",
                order_seed=self.random.getrandbits(32),
                limit_s=SHUFFLED_FACTOR * self.longest_call_s + 1.0,
            )
        except Decided:
            seen = self.seen
            if seen.failure is not None and seen.failure.kind in {"limit", "deadlock"}:
                seen.failure, seen.order_unknown = None, True
                return
            if seen.mismatch is not None and not seen.mismatch.solid:
                explained = _explained(seen.mismatch, "its result depends on the order of its programs")
                seen.mismatch = replace(explained, check="program_order", solid=True)
            raise
