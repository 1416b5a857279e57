"""The conversation with a candidate's process: one request after the other, each call judged, everything seen kept."""

import base64
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaexplore_mcp.evaluation.buffers import Buffers
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
from adaexplore_mcp.evaluation.memory import Memory
from adaexplore_mcp.evaluation.scheduling import Place
from adaexplore_mcp.evaluation.session import EndReport, Session
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet, Weights
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["Conversation", "Decided", "NumericsReport", "Setting", "same_layout"]

STILL_S = (
    6.0  # a call without progress for this long hangs, or is in one very slow program: the two look alike
)
BUILDER, BUILD_S = (
    b"cpp_extension",
    240.0,
)  # C++ and CUDA are built while the candidate is imported, in a minute or two
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


class Decided(Exception):  # noqa: N818 - control flow inside this package
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
        """Whether every call was right, nothing broke, and it did nothing that no kernel has a reason to do."""
        broke = self.failure is not None or self.ended is not None or self.timed_out_s > 0
        return not broke and self.mismatch is None and not self.integrity.misconduct

    @property
    def short_of_memory(self) -> bool:
        """Whether it found too little memory, which neighbours may have taken."""
        return self.failure is not None and self.failure.kind in {"memory", "no_room"}


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
        place: Where on a GPU: whoever waits to time there goes first. None if nobody can.
    """

    buffers: Buffers
    load: Mapping[str, Any]
    timeout_s: float
    report: Callable[[str], None]
    files: Sequence[int] = ()
    measure: bool = True
    configurations: Sequence[int] | None = None
    place: Place | None = None


class Conversation:
    """The conversation with one candidate's process; raises `Decided` at the first thing that is wrong."""

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
        self.slots: dict[int, tuple[Trial, Memory | None]] = {}
        self.lanes = "nan"
        self.first_programs: dict[int, int] = {}
        self.least_programs: dict[int, int] = {}
        self.programs_run = 0
        self.fresh = True
        self.weights: Weights = "constructor"
        self.weightless = False
        self.longest_call_s = 0.0
        self.construct_s = 0.0
        self.calls_end = 0.0
        self.restless = BUILDER in candidate.source
        """It may give the device work between two requests: it has left threads, or what was built in C++ may have."""
        self._settled = True
        self.progress: Progress | None = None
        self.moved_at = 0.0
        self.random = random.SystemRandom()
        self.judging = Judging(setting.buffers, candidate, trials)

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter runs it."""
        return self.buffers.gpu is None

    @property
    def now(self) -> float:
        """Seconds of a clock that stands still while others are given way."""
        return time.monotonic() - (0.0 if self.setting.place is None else self.setting.place.given_way_s)

    def close(self) -> None:
        """Close the memory that the candidate shared."""
        for _, memory in self.slots.values():
            if memory is not None:
                self.buffers.drop(memory)
        self.slots.clear()
        self.buffers.close()

    async def _ask(
        self,
        op: str,
        files: Sequence[int] = (),
        *,
        timeout_s: float,
        on_cpu: bool = False,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:
        await self._give_way()
        place = self.setting.place
        async with place.giving_way(self.session.still) if place and on_cpu else contextlib.nullcontext():
            message = await self.session.request(
                {"op": op, **fields}, files, timeout_s=timeout_s, on_progress=self._on_progress
            )
        self.seen.integrity = Integrity.of(message.body) or self.seen.integrity
        self.restless = self.restless or bool(self.seen.integrity.threads)
        self.seen.failure = Failure.of(message.body)
        self._settled = self.seen.failure is None
        if self.seen.failure is not None:
            self._take_findings(message.body)
            raise Decided
        if self.seen.integrity.misconduct:  # no number it could still give changes that
            raise Decided
        answer = message.body.get("ok")
        if not isinstance(answer, dict):
            raise FrameError("a reply without an answer")
        return answer

    async def _give_way(self) -> None:
        """Let whoever waits to time on the GPU go first: after a request that went well the device has done what it was given."""
        if self.setting.place is not None and self._settled and not self.restless:
            await self.setting.place.give_way(self.session.still)

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
            on_cpu=True,
            **self.setting.load,
        )

    async def _construct(self, seed: int, init: Attachment) -> None:
        self.seen.stage = "construct"
        self.fresh = True
        self.weights = "constructor" if seed == self.trials.construct_seed else "other seed"
        if self.candidate.format == "kernelbench":
            started = self.now
            answer = await self._ask(
                "construct",
                init.files,
                seed=seed,
                init=init.message,
                timeout_s=self.timeout_s,
                on_cpu=not self.restless,
            )
            self.construct_s = self.now - started
            if not self.seen.calls:
                # Said also where it fails: weights of another name are drawn in another order, and differ.
                self.weightless = answer.get("weightless") is True
                present = set(texts(answer, "state", 400))
                self.seen.unloaded = [
                    name for name, is_ in self.trials.state_shapes() if f"{name} {is_}" not in present
                ]

    async def _build(self) -> None:
        """Construct it as the trials with the constructor's weights were; what follows are calls."""
        await self._construct(self.trials.construct_seed, self.trials.init)
        self.seen.stage = "run"

    def _affordable(self, factor: float = 1.5) -> bool:
        """Tell whether another call is likely to end within the limit."""
        return self.now + factor * self.longest_call_s + 0.05 < self.calls_end

    async def _put(self, trial: Trial, slot: int) -> Memory | None:
        """Put a trial's inputs into a slot: at the addresses used before, where the layout is the same."""
        before, memory = self.slots.get(slot, (None, None))
        if before is not None and same_layout(before, trial):
            if memory is not None:
                await self.buffers.refill(memory, trial.inputs)
            self.slots[slot] = trial, memory
            return memory
        made = None if trial.inputs.file is None else await self.buffers.copy(trial.inputs)
        if memory is not None:
            self.buffers.drop(memory)
        self.slots[slot] = trial, made
        files = [] if made is None else [made.file]
        await self._ask("slot", files, slot=slot, inputs=trial.inputs.message, timeout_s=self.timeout_s)
        return made

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
        omit: Mapping[str, Any] | None = None,
        timed: bool = False,
        tape: int | None = None,
    ) -> None:
        """Call the candidate once and have the outputs judged; a required call has a limit of its own."""
        self.report(f"running {name or trial.name}")
        inputs = await self._put(trial, slot)
        poison = "nan" if self.seen.calls % 2 == 0 else "huge"
        left = self.timeout_s if required else max(0.1, self.calls_end - self.now)
        if limit_s and order_seed is None:  # where nothing is at stake, nothing has to come to an end
            left = min(left, limit_s + 1.0)
        started = self.now
        room = room_for(trial)
        async with self.buffers.outputs(room) as memory:
            answer = await self._ask(
                "call",
                [memory.file] if tape is None else [memory.file, tape],
                slot=slot,
                taped=tape is not None,
                poison=poison,
                lanes=self.lanes,
                config=config,
                tune=tune,
                order_seed=order_seed,
                limit_s=limit_s,
                detail=detail,
                measure=detail and self.setting.measure,
                omit=omit,
                timed=timed,
                room=room,
                timeout_s=left,
            )
            self.longest_call_s = max(self.longest_call_s, self.now - started)
            self.seen.calls += 1
            if detail or timed or omit:
                self.seen.facts = CallFacts.of(answer)
            if detail:
                self.seen.other_layout = other_layout(trial, check_entries(answer.get("outputs")))
            self._take_findings(answer)
            # First what says where the fault is; the numbers only say that there is one.
            self._fatal_findings(name or trial.name)
            await self._judge(trial, answer, memory, name=name or trial.name, poison=poison, inputs=inputs)
        self.programs_run = number(answer, "programs_run")
        if config is None and not (tune or omit):
            self._count(trial, self.programs_run)
        self.fresh = False
        if answer.get("reuses") is True:
            await self._again(self.trials.named("constructor")[0])

    def _count(self, trial: Trial, programs: int) -> None:
        """Keep how many programs ran for some values at first, and the fewest that did later."""
        known = id(trial)
        if known in self.least_programs:
            self.least_programs[known] = min(self.least_programs[known], programs)
        else:  # what the first call of all launches beside may be for all others: to pack, to fill a table
            self.least_programs[known] = programs
            self.first_programs[known] = 0 if self.fresh else programs

    def fewer_programs(self, trial: Trial) -> bool:
        """Tell whether fewer programs ran for some values than when they came for the first time."""
        return self.least_programs.get(id(trial), 0) < self.first_programs.get(id(trial), 0)

    async def _again(self, first: Trial) -> None:
        """Look at the outputs of the first call again: a later call must not have overwritten them."""
        if self.seen.calls < 2:
            return
        name = "the outputs of the first call, after later calls"
        room = room_for(first)
        async with self.buffers.outputs(room) as memory:
            answer = await self._ask("again", [memory.file], room=room, timeout_s=self.timeout_s)
            try:
                await self._judge(first, answer, memory, name=name, later=True)
            except Decided:
                found = self.seen.mismatch
                if found is not None and found.check in OVERWRITTEN:
                    detail = "a later call changed the outputs of the first one: they share memory"
                    evidence = {**found.evidence, "detail": detail}
                    self.seen.mismatch = Mismatch("output_overwritten", name, evidence, solid=True)
                raise

    async def _load_state(self, weights: Weights) -> list[str]:
        """Construct afresh and load parameters; return the names of those for which the candidate has no tensor."""
        state = self.trials.states[weights]
        await self._construct(self.trials.construct_seed, self.trials.init)
        # A copy on a GPU, where memory cannot be sealed: no other candidate is to see what this one does to it.
        copy = None if self.interpreted else await self.buffers.copy(state)
        files = state.files if copy is None else [copy.file]
        try:
            answer = await self._ask("weights", files, state=state.message, timeout_s=self.timeout_s)
        finally:
            if copy is not None:
                self.buffers.drop(copy)
        self.seen.stage = "run"
        self.weights = weights
        return texts(answer, "unloaded", 120)

    async def _judge(
        self,
        trial: Trial,
        answer: Mapping[str, Any],
        memory: Memory,
        *,
        name: str,
        poison: str = "",
        inputs: Memory | None = None,
        later: bool = False,
    ) -> None:
        found = await self.judging.judge(
            trial, answer, memory, name=name, poison=poison, inputs=inputs, later=later
        )
        if isinstance(found, Mismatch):
            self._decide(found)
        elif self.seen.passed is None or (found["nrmse"] or 0) >= (self.seen.passed["nrmse"] or 0):
            self.seen.passed = {**found, "trial": name}

    def _decide(self, mismatch: Mismatch) -> None:
        self.seen.mismatch = mismatch
        raise Decided

    def _take_findings(self, reply: Mapping[str, Any]) -> None:
        known = {(each.kind, each.kernel, each.line, each.atomics_used) for each in self.seen.findings}
        for each in findings(reply):
            if (key := (each.kind, each.kernel, each.line, each.atomics_used)) not in known:
                known.add(key)
                self.seen.findings.append(each)

    def _fatal_findings(self, trial: str) -> None:
        """Stop at an access outside of memory, or a certain race, even if the numbers came out right."""
        for each in self.seen.findings:
            check = FATAL_FINDINGS.get(each.kind)
            # A launch that acts on its atomics may order its programs by them: then a race is reported, not judged.
            if check is not None and not (check == "race" and each.atomics_used):
                evidence = {"detail": each.detail}
                self._decide(Mismatch(check, trial, evidence, solid=True, kernel=each.kernel, line=each.line))


def same_layout(one: Trial, other: Trial) -> bool:
    """Tell whether one trial's inputs can take the place of another's, byte by byte."""
    a, b = one.inputs.message, other.inputs.message
    return bool(a["table"] == b["table"] and a["storages"] == b["storages"] and a["tree"] == b["tree"])
