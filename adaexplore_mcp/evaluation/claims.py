"""What a candidate's process says about itself, taken as data: bounded, typed, never trusted.

A wrong type or a missing field counts as said nothing. Nothing here raises: a candidate that talks nonsense loses its
facts, not our server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "LANGUAGE",
    "NOT_LOADED",
    "BuildClaim",
    "CallFacts",
    "Event",
    "Failure",
    "Finding",
    "Integrity",
    "Progress",
    "SourceClaim",
    "builds",
    "counts",
    "findings",
    "quoted",
    "texts",
    "tuned",
]

NOT_LOADED = frozenset({"syntax", "import", "build"})
LANGUAGE = frozenset({"language", "resources", "assembler"}) | NOT_LOADED
"""Kinds of failures of what is not valid for the compiler, its target or Python, and can be said without running anything."""
MAX_ITEMS = 200
MAX_CONFIGURATIONS = 4096
MAX_TEXT = 20_000
MAX_LINE = 1 << 30
NO_NAME = re.compile(r"[^\w.$<>]")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but newline and tab, and those that turn the direction of writing."""
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON can write and UTF-8 cannot."""


def text(source: Mapping[str, Any], name: str, limit: int = 400) -> str:
    """Return a text of at most `limit` characters, without what steers a terminal or is no character; empty if there is none."""
    value = source.get(name)
    return _clean(value, limit) if isinstance(value, str) else ""


def _clean(value: str, limit: int) -> str:
    return HALVES.sub("\ufffd", CONTROLS.sub("", value[:limit]))


def _name(value: str, limit: int = 120) -> str:
    return NO_NAME.sub("_", _clean(value, limit))


def quoted(message: str) -> str:
    """Return a text that a candidate may have chosen, shortened to one line, in quotes that it cannot end."""
    line = " ".join(message.split()).replace('"', "'")
    return f'"{line.rstrip(".")}"' if len(line) <= 240 else f'"{line[:200]} …"'


def name_in(source: Mapping[str, Any], name: str, limit: int = 120) -> str:
    """Return what should be the name of a class or a function, with nothing in it but what a name can hold."""
    return _name(text(source, name, limit), limit)


def number(source: Mapping[str, Any], name: str) -> int:
    """Return a whole number that is not negative; 0 if there is none."""
    value = source.get(name)
    return value if type(value) is int and 0 <= value < 1 << 62 else 0


def texts(source: Mapping[str, Any], name: str, limit: int = 400) -> list[str]:
    """Return a list of texts, at most 200."""
    value = source.get(name)
    if not isinstance(value, list):
        return []
    return [_clean(each, limit) for each in value[:MAX_ITEMS] if isinstance(each, str)]


def counts(source: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return counts by name, at most 200."""
    value = source.get(name)
    if not isinstance(value, dict):
        return {}
    kept = [(_name(key), count) for key, count in value.items() if type(count) is int and count >= 0]
    return dict(kept[:MAX_ITEMS])


def _dicts(source: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = source.get(name)
    return [each for each in value[:MAX_ITEMS] if isinstance(each, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Failure:
    """What stopped a candidate's code.

    Args:
        kind: syntax, import, exception, memory, exit, no_space, not_here or deadlock; of a compilation also language, resources,
            assembler, time, not_fakeable or no_folder (of the compiler's, to write into).
        phase: load, construct or run.
        type: Class of the exception.
        message: Its text, shortened.
        line: In the candidate's source, from 1; 0 if unknown.
        source: That line.
        kernel: The Triton kernel it happened in, or empty.
        traceback: The whole of it, shortened.
    """

    kind: str
    phase: str = "run"
    type: str = ""
    message: str = ""
    line: int = 0
    source: str = ""
    kernel: str = ""
    traceback: str = ""

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> "Failure | None":
        """Return the failure in a reply, or None."""
        claim = reply.get("failure")
        if not isinstance(claim, dict):
            return None
        return cls(
            kind=text(claim, "kind", 20) or "exception",
            phase=text(claim, "phase", 20) or "run",
            type=name_in(claim, "type", 100) or "Exception",
            message=text(claim, "message", 3000),
            line=min(number(claim, "line"), MAX_LINE),
            source=text(claim, "source"),
            kernel=name_in(claim, "kernel"),
            traceback=text(claim, "traceback", MAX_TEXT),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the interpreter saw in a kernel.

    Args:
        kind: out_of_bounds_load, out_of_bounds_store, out_of_bounds_atomic, race, device_assert, …
        kernel: Its name.
        line: In the candidate's source, from 1.
        detail: One sentence.
        atomics_used: The launch acted on what its atomics gave back, or waits for words that it reads anew, so a race may be
            synchronised by them.
    """

    kind: str
    kernel: str
    line: int
    detail: str
    atomics_used: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is.

    Args:
        kernel: The kernel that runs.
        launch: Which launch of the call it is, from 1.
        done: Programs that have ended.
        total: Programs of the launch.
        operations: Calls of torch's interface so far.
    """

    kernel: str
    launch: int
    done: int
    total: int
    operations: int

    @classmethod
    def of(cls, claim: object) -> "Progress | None":
        """Return what a progress message says, or None."""
        if not isinstance(claim, dict):
            return None
        names = ("launch", "done", "total", "operations")
        return cls(name_in(claim, "kernel"), *(number(claim, name) for name in names))

    def __str__(self) -> str:
        """Say it in words."""
        if not self.kernel:
            return f"{self.operations:,} calls of torch"
        return f"{self.done:,} of {self.total:,} programs of {self.kernel} (launch {self.launch})"


def findings(reply: Mapping[str, Any]) -> list[Finding]:
    """Return the findings in a reply."""
    return [
        Finding(
            kind=text(each, "kind", 40),
            kernel=name_in(each, "kernel"),
            line=min(number(each, "line"), MAX_LINE),
            detail=text(each, "detail"),
            atomics_used=each.get("atomics_used") is True,
        )
        for each in _dicts(reply, "findings")
    ]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that reached outside of the process.

    Args:
        kind: process, signal, socket, search or thread.
        phase: load, construct, run, or between calls.
        what: To or of what.
    """

    kind: str
    phase: str
    what: str


@dataclass(frozen=True, slots=True)
class Integrity:
    """What a candidate did to the process it runs in.

    Args:
        patched: Functions of torch, Triton and Python that it replaced.
        events: Processes, signals, connections, work after its call.
        threads: Threads it left running.
        kept_bytes: Of the L2 cache, what it set aside while it was timed.
    """

    patched: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    kept_bytes: int = 0

    @property
    def signals(self) -> list[Event]:
        """Signals that it sent to others."""
        return [event for event in self.events if event.kind == "signal"]

    @property
    def processes(self) -> list[Event]:
        """Processes that it started while it was called."""
        return [event for event in self.events if event.kind == "process" and event.phase == "run"]

    @property
    def late(self) -> list[Event]:
        """What it did once its call had returned."""
        return [event for event in self.events if event.kind == "late"]

    @property
    def misconduct(self) -> bool:
        """Whether it did what no kernel has a reason to do."""
        return bool(self.patched or self.signals or self.processes or self.late or self.kept_bytes)

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> "Integrity | None":
        """Return what a reply says, or None."""
        claim = reply.get("integrity")
        if not isinstance(claim, dict) or not claim:
            return None
        events = [
            Event(text(each, "kind", 20), text(each, "phase", 20), text(each, "what", 200))
            for each in _dicts(claim, "events")
        ]
        return cls(
            texts(claim, "patched", 120), events, texts(claim, "threads", 120), number(claim, "kept_bytes")
        )


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What was seen in one call.

    Args:
        launches: Launches per kernel.
        programs: Programs in all of them.
        grids: By kernel, the largest extent of its grids along each axis.
        operators: Operators that torch dispatched.
        library_flops: FLOPs of torch's own matrix products and convolutions.
        library_operators: Names of the operators that did them.
        autotuned: Configurations per autotuned kernel.
        own_ns: Time of the device for its own kernels, in ns; 0 where none was taken.
        library_ns: The same by operator of torch's.
        left_out: Launches that did nothing, as they were asked to.
        to_host: Elements that it brought to the host.
        assumed: Values that its host code read of tensors that have none, and that were assumed.
        taped: What its launches left in memory was written down.
        dots: What tl.dot multiplied: input precisions of float32 operands, and narrower types.
        uncovered: Features met that the interpreter does not imitate.
        refused: What was asked for and needs a GPU.
        notes: Sentences that a report must show.
    """

    launches: dict[str, int] = field(default_factory=dict)
    programs: int = 0
    grids: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    library_flops: int = 0
    library_operators: list[str] = field(default_factory=list)
    autotuned: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    to_host: int = 0
    assumed: int = 0
    taped: bool = False
    own_ns: int = 0
    library_ns: dict[str, int] = field(default_factory=dict)
    dots: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> "CallFacts":
        """Return what a reply says."""
        return cls(
            launches=counts(reply, "launches"),
            programs=number(reply, "programs"),
            grids=_grids(reply.get("grids")),
            operators=counts(reply, "operators"),
            library_flops=number(reply, "library_flops"),
            library_operators=texts(reply, "library_operators", 60),
            autotuned=counts(reply, "autotuned"),
            left_out=number(reply, "left_out"),
            to_host=number(reply, "to_host"),
            assumed=number(reply, "assumed"),
            taped=reply.get("taped") is True,
            own_ns=number(reply, "own_ns"),
            library_ns=counts(reply, "library_ns"),
            dots=texts(reply, "dots", 20),
            uncovered=texts(reply, "uncovered"),
            refused=texts(reply, "refused"),
            notes=texts(reply, "notes"),
        )


@dataclass(frozen=True, slots=True)
class Sign:
    """Something in a candidate's source that a reader should look at.

    Args:
        kind: As `workers.source` names it.
        line: From 1.
        what: In words.
    """

    kind: str
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class SourceClaim:
    """What a candidate's source shows. Read before any of it ran, so it is no claim of the candidate's.

    Args:
        kernels: Line of each Triton kernel that no other one calls and that returns nothing.
        signs: What a reader should look at.
        narrow: Whether anything in it may compute in less than float32, or hides what it computes.
    """

    kernels: dict[str, int] = field(default_factory=dict)
    signs: list[Sign] = field(default_factory=list)
    narrow: bool = True

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> "SourceClaim":
        """Return what a reply says."""
        signs = [
            Sign(text(each, "kind", 40), min(number(each, "line"), MAX_LINE), text(each, "what", 160))
            for each in _dicts(reply, "signs")
        ]
        return cls(counts(reply, "kernels"), signs, reply.get("narrow") is not False)


def tuned(reply: Mapping[str, Any]) -> dict[str, list[bool]]:
    """Return by autotuned kernel which of its configurations built; what is none is left out."""
    claim = reply.get("tuned")
    found = {}
    for name, good in list(claim.items())[:MAX_ITEMS] if isinstance(claim, dict) else []:
        if (
            isinstance(good, list)
            and len(good) <= MAX_CONFIGURATIONS
            and all(type(each) is bool for each in good)
        ):
            found[_clean(name, 120)] = good
    return found


def _grids(claim: object) -> dict[str, tuple[int, int, int]]:
    """Return extents by kernel; what is none is left out."""
    found: dict[str, tuple[int, int, int]] = {}
    for name, extents in list(claim.items())[:MAX_ITEMS] if isinstance(claim, dict) else []:
        if isinstance(name, str) and isinstance(extents, list) and len(extents) == 3:
            x, y, z = (extent if type(extent) is int and extent >= 0 else 0 for extent in extents)
            found[_name(name)] = x, y, z  # as `counts` has them
    return found


@dataclass(frozen=True, slots=True)
class BuildClaim:
    """One kernel that was compiled, or failed to be.

    Args:
        kernel: Its name.
        registers: Per thread.
        spill_bytes: Per thread.
        shared_bytes: Per block.
        num_warps: Of the launch.
        num_stages: Of the launch.
        failure: language, resources, assembler or time; empty if it compiled.
        occupancy: Share of a multiprocessor's warps that its blocks can fill, 0 to 1; None if unknown.
        occupancy_limit: What keeps out one block more.
        instructions: Counts by kind, as the code has them.
    """

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    num_warps: int
    num_stages: int
    failure: str
    occupancy: float | None = None
    occupancy_limit: str = ""
    instructions: Mapping[str, int] = field(default_factory=dict)


def builds(reply: Mapping[str, Any]) -> list[BuildClaim]:
    """Return the builds in a reply."""
    found = []
    for each in _dicts(reply, "builds"):
        options = each.get("options")
        options = options if isinstance(options, dict) else {}
        found.append(
            BuildClaim(
                kernel=name_in(each, "kernel"),
                registers=number(each, "registers"),
                spill_bytes=number(each, "spill_bytes"),
                shared_bytes=number(each, "shared_bytes"),
                num_warps=number(options, "num_warps"),
                num_stages=number(options, "num_stages"),
                failure=text(each, "failure", 20),
                occupancy=_share(each.get("occupancy")),
                occupancy_limit=text(each, "occupancy_limit", 20),
                instructions=counts(each, "instructions"),
            )
        )
    return found


def _share(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= 1 else None
