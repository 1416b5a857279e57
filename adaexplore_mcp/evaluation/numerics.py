"""Run a candidate's numbers against a task's trials, call by call, and stop at the first thing that is wrong.

The candidate's process gets the inputs of one call at a time and gives bytes back; the judge compares. What the
process says about itself is kept as facts.
"""

import base64
import contextlib
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adaexplore_mcp.evaluation.buffers import Buffers, DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import (
    CallFacts,
    Failure,
    Finding,
    Integrity,
    Progress,
    SourceClaim,
    findings,
    number,
    texts,
)
from adaexplore_mcp.evaluation.judging import Judging, Mismatch, check_entries, other_layout, room_for
from adaexplore_mcp.evaluation.session import EndReport, Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet, Weights
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["NumericsReport", "Setting", "run_numerics"]

REPEATS_S = 0.08  # a kernel that is cheap enough is called again and again for this long
STILL_S = (
    6.0  # a call without progress for this long hangs, or is in one very slow program: the two look alike
)
SHUFFLED_FACTOR = 3.0
STUBBED_FACTOR = 2.0
STUBBED_S = 0.5  # for leaving out one kernel after the other
MOST_STUBBED = 4
MOST_CONFIGURATIONS = 64
ELSEWHERE_SLOT = 4
ELSEWHERE_S = 5.0
CHEAP_S = 1.0
MIN_CALLS = 8
MOST_CERTAIN_CALLS = 14
MAX_CALLS = 24
BUILDER, BUILD_S = (
    b"cpp_extension",
    240.0,
)  # C++ and CUDA are built while the candidate is imported, in a minute or two
CONFIGURATIONS_S = 2.0  # time for running autotune configurations other than the first


UNDEFINED_LANES = frozenset({"values", "nonfinite", "unwritten"})
"""Checks that lanes left undefined by a masked load can fail."""
OVERWRITTEN = frozenset({"values", "nonfinite", "stale_output", "precision_class"})
"""Checks that outputs fail which were right at first and have been written over."""
FATAL_FINDINGS = {
    "misaligned_access": "misaligned_access",
    "gather_index": "out_of_bounds",
    "out_of_bounds_load": "out_of_bounds",
    "out_of_bounds_store": "out_of_bounds",
    "out_of_bounds_atomic": "out_of_bounds",
    "race": "race",
}
"""Findings of the interpreter that decide, and the name of the check."""


class _Decided(Exception):  # noqa: N818 - control flow inside this module
    """Something was wrong: the report says what."""


@dataclass
class NumericsReport:
    """Everything that running a candidate showed.

    Args:
        stage: How far it came: load, construct, run or done.
        failure: What its code raised.
        ended: How its process ended, if it ended by itself.
        timed_out_s: The limit it overran; 0 if it did not.
        slow: How far it was by then, if it was still getting on; empty if it hung.
        last_kernel: The kernel that it last launched then.
        mismatch: What was wrong with its outputs.
        passed: The judge's comparison of the worst output that passed, and the name of its trial.
        calls: Times it was called and compared.
        facts: Of the first call.
        findings: What the interpreter saw, each once.
        integrity: What it did to its process.
        configurations: Autotune configurations run beside the first.
        weights_bound: Weights are packed at construction: loading others has no effect.
        undefined_lanes: Right only if lanes that masked loads leave undefined hold zeros.
        order_unknown: With its programs in another order it did not end.
        source: What its source shows.
        shares: Of a call in which the device's time was taken, on a GPU.
        elsewhere: What went wrong at other sizes than the task's own; empty if nothing did, or it was not tried.
        other_layout: Which output lies in memory in another order than the reference's.
        unused: Kernels without whose launches its outputs are right all the same.
        unloaded: Parameters for which the candidate has no tensor of the same name and shape.
        report: The stub's report.
        seconds: Wall time in total.
    """

    stage: str = "load"
    failure: Failure | None = None
    ended: EndReport | None = None
    timed_out_s: float = 0.0
    slow: str = ""
    last_kernel: str = ""
    mismatch: Mismatch | None = None
    passed: Mapping[str, Any] | None = None
    calls: int = 0
    facts: CallFacts = field(default_factory=CallFacts)
    findings: list[Finding] = field(default_factory=list)
    integrity: Integrity = field(default_factory=Integrity)
    configurations: int = 0
    weights_bound: bool = False
    undefined_lanes: bool = False
    order_unknown: bool = False
    source: SourceClaim = field(default_factory=SourceClaim)
    shares: CallFacts | None = None
    elsewhere: str = ""
    other_layout: str = ""
    unused: list[str] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    report: EndReport = field(default_factory=EndReport)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every call was right and nothing broke."""
        return self.failure is None and self.ended is None and not self.timed_out_s and self.mismatch is None


@dataclass(frozen=True)
class Setting:
    """Where and how a candidate is run.

    Args:
        buffers: Where its inputs and outputs lie, and its process comes from.
        load: What its engine needs, as fields of the request `load`.
        files: Descriptors that go with them.
        timeout_s: Limit of each stage: load, construct, and all calls together.
        report: Told what is being done.
        measure: Ask what torch does itself in a call.
        configurations: Positions of an autotuner's configurations that are ready to run; None for all.
    """

    buffers: Buffers
    load: Mapping[str, Any]
    timeout_s: float
    report: Callable[[str], None]
    files: Sequence[int] = ()
    measure: bool = True
    configurations: Sequence[int] | None = None


async def run_numerics(
    setting: Setting,
    candidate: Candidate,
    trials: TrialSet,
    *,
    once: bool = False,
    elsewhere: TrialSet | None = None,
) -> NumericsReport:
    """Run a candidate against the trials of one workload.

    Args:
        setting: Where and how.
        candidate: What to run.
        trials: Kept open by the caller.
        once: Make a single call, where the others were made at other sizes.
        elsewhere: The first trial at other sizes, for information; kept open by the caller.

    Returns:
        What was seen. Nothing the candidate does is an exception here.

    Raises:
        WorkerError: Workers of ours failed.
    """
    started = time.monotonic()
    seen = NumericsReport()
    async with setting.buffers.candidate() as session:
        run = _Run(setting, session, candidate, trials, seen)
        try:
            with contextlib.suppress(_Decided):
                await (run.first() if once else run.all())
                seen.stage = "done"
                if elsewhere is not None and run.cheap:
                    seen.elsewhere = await _elsewhere(setting, session, candidate, elsewhere)
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
    seen.seconds = time.monotonic() - started
    return seen


async def _elsewhere(setting: Setting, session: Session, candidate: Candidate, trials: TrialSet) -> str:
    """Call a candidate, which was right, once at other sizes; return what went wrong."""
    seen = NumericsReport(stage="run")
    run = _Run(setting, session, candidate, trials, seen)
    try:
        with contextlib.suppress(_Decided):
            await run.again_at_other_sizes()
    except (SessionEndedError, SessionTimeoutError, DeviceFullError, FrameError) as error:
        return type(error).__name__
    finally:
        run.close()
    if seen.failure is not None and seen.failure.kind == "limit":
        return ""
    if seen.mismatch is not None:
        return str(seen.mismatch.evidence.get("detail") or seen.mismatch.check)
    return f"{seen.failure.type}: {seen.failure.message}" if seen.failure is not None else ""


class _Run:
    """The conversation with one candidate's process; raises `_Decided` at the first thing that is wrong."""

    def __init__(
        self,
        setting: Setting,
        session: Session,
        candidate: Candidate,
        trials: TrialSet,
        seen: NumericsReport,
    ) -> None:
        self.setting = setting
        self.buffers = setting.buffers
        self.session = session
        self.candidate = candidate
        self.trials = trials
        self.seen = seen
        self.timeout_s = setting.timeout_s
        self.report = setting.report
        self.slots: dict[int, tuple[Trial, int]] = {}
        self.lanes = "nan"
        self.launching: set[int] = set()
        self.weights: Weights = "constructor"
        self.longest_call_s = 0.0
        self.construct_s = 0.0
        self.calls_end = 0.0
        self.progress: Progress | None = None
        self.moved_at = 0.0
        self.random = random.SystemRandom()
        self.judging = Judging(setting.buffers, candidate, trials)

    @property
    def cheap(self) -> bool:
        """Whether it can be constructed and called once more for information."""
        return self.construct_s + self.longest_call_s < CHEAP_S and self._affordable()

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter runs it."""
        return self.buffers.gpu is None

    def close(self) -> None:
        """Close the memory that the candidate shared."""
        for _, file in self.slots.values():
            if file >= 0:
                os.close(file)
        self.slots.clear()
        self.buffers.close()

    async def first(self) -> None:
        """Load, construct, and call once."""
        await self._load()
        await self._construct(self.trials.construct_seed, self.trials.init)
        self.seen.stage = "run"
        self.calls_end = time.monotonic() + self.timeout_s
        await self._first(self.trials.named("constructor")[0])

    async def again_at_other_sizes(self) -> None:
        """Construct and call once in a process that has loaded the candidate."""
        await self._construct(self.trials.construct_seed, self.trials.init)
        self.seen.stage = "run"
        await self._call(self.trials.trials[0], slot=ELSEWHERE_SLOT, limit_s=ELSEWHERE_S, required=True)

    async def all(self) -> None:
        """Do everything in order."""
        await self.first()
        constructor = self.trials.named("constructor")
        first, others = constructor[0], constructor[1:]
        for position, other in enumerate(others):
            if position == 0 or self._affordable():
                name = f"{other.name}, at the same addresses"
                await self._call(other, slot=0, name=name, required=position == 0)
        await self._again(first)
        if self._affordable():
            await self._call(first, slot=1, name="first inputs, at other addresses")
        configurations = max(self.seen.facts.autotuned.values(), default=0)
        if configurations and self._affordable(1.5 * (configurations + 1)):
            # As the first call on a GPU: all configurations run, so an update without reset_to_zero shows.
            await self._call(first, slot=1, name="first inputs, while it is autotuned", tune=True)
        await self._configurations(first)
        await self._repeat(constructor)
        await self._again(first)
        await self._weights()
        await self._shuffled()
        await self._ask("finish", timeout_s=self.timeout_s)
        await self._who_did_the_work()

    # --- steps

    async def _ask(
        self,
        op: str,
        files: Sequence[int] = (),
        *,
        timeout_s: float,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        message = await self.session.request(
            {"op": op, **fields}, files, timeout_s=timeout_s, on_progress=self._on_progress
        )
        self.seen.integrity = Integrity.of(message.body) or self.seen.integrity
        self.seen.failure = Failure.of(message.body)
        if self.seen.failure is not None:
            self._take_findings(message.body)
            raise _Decided
        if self.seen.integrity.misconduct:  # no number it could still give changes that
            raise _Decided
        answer = message.body.get("ok")
        if not isinstance(answer, dict):
            raise FrameError("a reply without an answer")
        return answer

    def _on_progress(self, claim: object) -> None:
        progress = Progress.of(claim)
        if progress is not None and progress != self.progress:
            self.progress, self.moved_at = progress, time.monotonic()
            self.report(f"running: {progress}")

    def slow(self) -> str:
        """Return how far a call was that still went on when its time was over; empty if it hung."""
        if self.progress is None or time.monotonic() - self.moved_at > min(STILL_S, self.timeout_s / 2):
            return ""
        return str(self.progress)

    async def _load(self) -> None:
        self.report("importing the candidate")
        source = base64.b64encode(self.candidate.source).decode("ascii")
        self.seen.source = SourceClaim.of(await self._ask("inspect", source=source, timeout_s=self.timeout_s))
        await self._ask(
            "load",
            self.setting.files,
            source=source,
            entry=self.candidate.entry,
            format=self.candidate.format,
            changes=self.trials.changes,
            timeout_s=self.timeout_s + (BUILD_S if BUILDER in self.candidate.source else 0.0),
            **self.setting.load,
        )

    async def _construct(self, seed: int, init: Attachment) -> None:
        self.seen.stage = "construct"
        self.weights = "constructor" if seed == self.trials.construct_seed else "other seed"
        if self.candidate.format == "kernelbench":
            started = time.monotonic()
            answer = await self._ask(
                "construct", init.files, seed=seed, init=init.message, timeout_s=self.timeout_s
            )
            self.construct_s = time.monotonic() - started
            if not self.seen.calls:
                # Said also where it fails: weights of another name are drawn in another order, and differ.
                present = set(texts(answer, "state", 400))
                self.seen.unloaded = [
                    name for name, is_ in self.trials.state_shapes() if f"{name} {is_}" not in present
                ]

    def _affordable(self, factor: float = 1.5) -> bool:
        """Tell whether another call is likely to end within the limit."""
        return time.monotonic() + factor * self.longest_call_s + 0.05 < self.calls_end

    async def _put(self, trial: Trial, slot: int) -> int | None:
        """Put a trial's inputs into a slot: at the addresses used before, where the layout is the same."""
        known = self.slots.get(slot)
        if known is not None and _same_layout(known[0], trial):
            if trial.inputs.file is not None:
                await self.buffers.refill(known[1], trial.inputs)
            self.slots[slot] = trial, known[1]
            return None if known[1] < 0 else known[1]
        file = -1 if trial.inputs.file is None else await self.buffers.copy(trial.inputs)
        if known is not None and known[1] >= 0:
            os.close(known[1])
        self.slots[slot] = trial, file
        files = [] if file < 0 else [file]
        await self._ask("slot", files, slot=slot, inputs=trial.inputs.message, timeout_s=self.timeout_s)
        return None if file < 0 else file

    async def _call(
        self,
        trial: Trial,
        *,
        slot: int,
        name: str = "",
        config: int | None = None,
        tune: bool = False,
        detail: bool = False,
        order_seed: int | None = None,
        limit_s: float = 0.0,
        required: bool = False,
        stubbed: Sequence[str] = (),
        timed: bool = False,
    ) -> None:
        """Call the candidate once and have the outputs judged; a required call has a limit of its own."""
        self.report(f"running {name or trial.name}")
        inputs = await self._put(trial, slot)
        poison = "nan" if self.seen.calls % 2 == 0 else "huge"
        left = self.timeout_s if required else max(0.1, self.calls_end - time.monotonic())
        if limit_s and order_seed is None:  # where nothing is at stake, nothing has to come to an end
            left = min(left, limit_s + 1.0)
        started = time.monotonic()
        room = room_for(trial)
        async with self.buffers.outputs(room) as file:
            answer = await self._ask(
                "call",
                [file],
                slot=slot,
                poison=poison,
                lanes=self.lanes,
                config=config,
                tune=tune,
                order_seed=order_seed,
                limit_s=limit_s,
                detail=detail,
                measure=detail and self.setting.measure,
                stubbed=list(stubbed),
                timed=timed,
                room=room,
                timeout_s=left,
            )
            self.longest_call_s = max(self.longest_call_s, time.monotonic() - started)
            self.seen.calls += 1
            if detail or timed or stubbed:
                self.seen.facts = CallFacts.of(answer)
            if detail:
                self.seen.other_layout = other_layout(trial, check_entries(answer.get("outputs")))
            self._take_findings(answer)
            # First what says where the fault is; the numbers only say that there is one.
            self._fatal_findings(name or trial.name)
            await self._judge(trial, answer, file, name=name or trial.name, poison=poison, inputs=inputs)
        # A graph that is replayed on a GPU launches without Triton; there other values at the same addresses tell.
        # And some values leave nothing to launch: what counts is that others of the same values did.
        ran = not self.interpreted or number(answer, "programs_run") > 0
        launched_before = id(trial) in self.launching
        if ran:
            self.launching.add(id(trial))
        if launched_before and not ran and not stubbed:
            text = "it launched nothing, as it did for the same values before: a cached result"
            self._decide(Mismatch("stale_output", name or trial.name, {"detail": text}, solid=True))
        if answer.get("reuses") is True:
            await self._again(self.trials.named("constructor")[0])

    async def _first(self, first: Trial) -> None:
        """Call for the first time.

        A masked load without `other` leaves lanes undefined. They hold NaN here, so that whatever uses them shows; a
        GPU was seen to leave zeros, so a kernel that is right with zeros, or raises without, is not condemned, but told.
        """
        try:
            await self._call(first, slot=0, detail=True, required=True)
        except _Decided:
            found, raised = self.seen.mismatch, self.seen.failure
            wrong = found is not None and found.check in UNDEFINED_LANES
            if not self.interpreted or not (wrong or (raised is not None and raised.kind == "exception")):
                raise
            self.lanes = "zero"
            self.seen.mismatch = self.seen.failure = None
            try:
                await self._call(first, slot=0, detail=raised is not None, required=True)
            except _Decided:
                self.seen.mismatch, self.seen.failure = found, raised
                raise
            self.seen.undefined_lanes = True

    async def _again(self, first: Trial) -> None:
        """Look at the outputs of the first call again: a later call must not have overwritten them."""
        if self.seen.calls < 2:
            return
        name = "the outputs of the first call, after later calls"
        room = room_for(first)
        async with self.buffers.outputs(room) as file:
            answer = await self._ask("again", [file], room=room, timeout_s=self.timeout_s)
            try:
                await self._judge(first, answer, file, name=name, later=True)
            except _Decided:
                found = self.seen.mismatch
                if found is not None and found.check in OVERWRITTEN:
                    detail = "a later call changed the outputs of the first one: they share memory"
                    evidence = {**found.evidence, "detail": detail}
                    self.seen.mismatch = Mismatch("output_overwritten", name, evidence, solid=True)
                raise

    async def _configurations(self, first: Trial) -> None:
        """Run every autotune configuration once for its numbers, as far as time allows."""
        count = max(self.seen.facts.autotuned.values(), default=0)
        end = time.monotonic() + CONFIGURATIONS_S
        ready = range(count) if self.setting.configurations is None else self.setting.configurations
        # In any order: where time does not do for all, none is certain to be left out.
        for config in self.random.sample(ready[1:], max(0, min(len(ready) - 1, MOST_CONFIGURATIONS))):
            if time.monotonic() > end or not self._affordable():
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
        end = time.monotonic() + REPEATS_S
        calls = self.random.randint(MIN_CALLS, MOST_CERTAIN_CALLS)
        while self.seen.calls < MAX_CALLS and self._affordable(2.0):
            if time.monotonic() > end and (self.seen.calls >= calls or self.longest_call_s > 1.0):
                break
            # Not the first: what a later call leaves in its outputs is to differ.
            others = [trial for trial in trials[1:] if trial is not self.slots[0][0]]
            trial = self.random.choice(others or trials)
            await self._call(trial, slot=0, name=f"call {self.seen.calls + 1}")

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
        except _Decided:
            mismatch = self.seen.mismatch
            if mismatch is None or not other:
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
            await self._construct(self.trials.construct_seed, self.trials.init)
            self.seen.stage = "run"
        try:
            await self._call(
                trial,
                slot=0,
                name="first inputs, its programs in another order",
                order_seed=self.random.getrandbits(32),
                limit_s=SHUFFLED_FACTOR * self.longest_call_s + 1.0,
            )
        except _Decided:
            seen = self.seen
            if seen.failure is not None and seen.failure.kind == "limit":
                seen.failure, seen.order_unknown = None, True
                return
            if seen.mismatch is not None and not seen.mismatch.solid:
                detail = f"its result depends on the order of its programs: {seen.mismatch.evidence.get('detail', '')}"
                evidence = {**seen.mismatch.evidence, "detail": detail.removesuffix(": ")}
                seen.mismatch = replace(seen.mismatch, check="program_order", evidence=evidence, solid=True)
            raise

    async def _who_did_the_work(self) -> None:
        """See how long the device works for its own kernels, and whether its outputs rest on them.

        The verdict stands by now. What a call shows in which launches are left out is no fault, so these calls report to
        nobody; only misconduct counts in them too.
        """
        seen = self.seen
        kernels = list(seen.facts.launches)[:MOST_STUBBED]
        trial = self.trials.named(self.weights)[-1]
        groups = [kernels] if kernels else []
        if len(kernels) > 1 and len(kernels) * self.longest_call_s < STUBBED_S:
            groups += [[name] for name in kernels]
        try:
            if not self.interpreted and self._affordable():
                self.seen = NumericsReport(stage="run")
                await self._call(trial, slot=0, timed=True)
                seen.shares = self.seen.facts
            for group in groups:
                if self._affordable() and await self._right_without(group, trial):
                    seen.unused = group
                    break
        except (_Decided, SessionEndedError, SessionTimeoutError, DeviceFullError, FrameError):
            pass
        finally:
            if self.seen.integrity.misconduct:
                seen.integrity = self.seen.integrity
            self.seen = seen

    async def _right_without(self, kernels: Sequence[str], trial: Trial) -> bool:
        """Tell whether a call is right although the launches of some kernels do nothing."""
        self.seen = NumericsReport(stage="run")
        limit_s = STUBBED_FACTOR * self.longest_call_s + 1.0
        try:
            await self._call(trial, slot=0, stubbed=kernels, limit_s=limit_s)
        except _Decided:
            if self.seen.integrity.misconduct or (self.seen.failure and self.seen.failure.kind == "device"):
                raise
            return False
        return set(kernels) <= set(self.seen.facts.launches)  # one that packs weights is launched once

    async def _load_state(self, weights: Weights) -> list[str]:
        """Construct afresh and load parameters; return the names of those for which the candidate has no tensor."""
        state = self.trials.states[weights]
        await self._construct(self.trials.construct_seed, self.trials.init)
        # A copy on a GPU, where memory cannot be sealed: no other candidate is to see what this one does to it.
        files = state.files if self.interpreted else [await self.buffers.copy(state)]
        try:
            answer = await self._ask("weights", files, state=state.message, timeout_s=self.timeout_s)
        finally:
            if not self.interpreted:
                os.close(files[0])
        self.seen.stage = "run"
        self.weights = weights
        return texts(answer, "unloaded", 120)

    # --- judging

    async def _judge(
        self,
        trial: Trial,
        answer: Mapping[str, Any],
        file: int,
        *,
        name: str,
        poison: str = "",
        inputs: int | None = None,
        later: bool = False,
    ) -> None:
        found = await self.judging.judge(
            trial, answer, file, name=name, poison=poison, inputs=inputs, later=later
        )
        if isinstance(found, Mismatch):
            self._decide(found)
        elif self.seen.passed is None or (found["nrmse"] or 0) >= (self.seen.passed["nrmse"] or 0):
            self.seen.passed = {**found, "trial": name}

    def _decide(self, mismatch: Mismatch) -> None:
        self.seen.mismatch = mismatch
        raise _Decided

    def _take_findings(self, reply: Mapping[str, Any]) -> None:
        known = {(each.kind, each.kernel, each.line) for each in self.seen.findings}
        for each in findings(reply):
            if (key := (each.kind, each.kernel, each.line)) not in known:
                known.add(key)
                self.seen.findings.append(each)

    def _fatal_findings(self, trial: str) -> None:
        """Stop at an access outside of memory, or a certain race, even if the numbers came out right."""
        for each in self.seen.findings:
            check = FATAL_FINDINGS.get(each.kind)
            # A launch that uses atomics may order its programs by them: then a race is reported, not judged.
            if check is not None and not (check == "race" and each.atomics_used):
                evidence = {"detail": each.detail}
                self._decide(Mismatch(check, trial, evidence, solid=True, kernel=each.kernel, line=each.line))


def _same_layout(one: Trial, other: Trial) -> bool:
    """Tell whether one trial's inputs can take the place of another's, byte by byte."""
    a, b = one.inputs.message, other.inputs.message
    return bool(a["table"] == b["table"] and a["storages"] == b["storages"] and a["tree"] == b["tree"])
