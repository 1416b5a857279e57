"""What a run of interpreted kernels reports: launches, findings, places in the source, and errors.

RuntimeError
├── NotInterpretable       a feature without imitation: the kernel cannot be judged here, not its fault
└── Deadlock               programs of a launch wait for each other without end
InterpreterError           Triton's own
└── KernelError            the kernel raised; __cause__ is the original, `kernel` the launched kernel
ImportError
└── UnsupportedVersionError    this Triton or numpy is not supported (in `versions`)
ValueError
├── MissingSourceError     a kernel without a source file (in `rewriting`)
└── BranchOnBlockError     a condition on a block of several lanes (in `reductions`)
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from adaexplore_mcp.evaluation.workers.interpreter.versions import InterpreterError, triton

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, TracebackType

__all__ = [
    "Call",
    "Deadlock",
    "Finding",
    "FindingKind",
    "KernelError",
    "Launch",
    "Location",
    "NotInterpretable",
    "candidate_frame",
    "locate",
]

FindingKind = Literal[
    "out_of_bounds_load",
    "out_of_bounds_store",
    "out_of_bounds_atomic",
    "misaligned_access",
    "race",
    "device_assert",
    "false_assumption",
    "gather_index",
    "unknown_launch_keyword",
]

_FOREIGN = tuple(
    f"{Path(module_file).parent}/" for module_file in (triton.__file__, torch.__file__, np.__file__, __file__)
)
"""Folders whose frames are never the candidate's."""


class NotInterpretable(RuntimeError):  # noqa: N818 - not a fault: a limit of this interpreter
    """The kernel uses something that is not imitated; the message is one sentence that names it."""


class Deadlock(RuntimeError):  # noqa: N818 - what it is called
    """Programs of a launch wait for what none of them is going to write; the message says how many."""


class KernelError(InterpreterError):  # type: ignore[misc]  # Triton is untyped
    """An exception inside an interpreted kernel.

    Attributes:
        kernel: The name of the launched kernel.
    """

    def __init__(self, message: str, kernel: str) -> None:
        super().__init__(message)
        self.kernel = kernel


@dataclass
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: The kernel's name.
        grid: Programs per axis.
        programs: How many of them ran to their end.
        seconds: Wall time of the launch; it says nothing about a GPU.
        config: The position of the autotune configuration among those left after pruning, or None.
        tuning: Whether the launch was one of a tuning run, whose results a later launch overwrites or adds
            to.
    """

    kernel: str
    grid: tuple[int, int, int]
    programs: int = 0
    seconds: float = 0.0
    config: int | None = None
    tuning: bool = False


@dataclass
class Finding:
    """One thing that is wrong at one place of a kernel, however often it happened.

    Attributes:
        kind: What it is.
        kernel: The launched kernel.
        file: The candidate's file.
        line: The line in it.
        program: The first program that did it.
        detail: One sentence about the first time.
        count: How many times it happened, counted once per operation and program.
        atomics_used: Whether the launch had used atomics before, and acted on what one gave back or waited in
            a loop, or read words anew and has a loop that may wait for them: it may synchronise by them, in
            ways that a sequential run cannot see.
    """

    kind: FindingKind
    kernel: str
    file: str
    line: int
    program: tuple[int, int, int]
    detail: str
    count: int = 1
    atomics_used: bool = False


@dataclass(frozen=True)
class Location:
    """A place in a candidate's source.

    Attributes:
        kernel: The launched kernel, or None if the exception did not come from one.
        file: The file, as it was given.
        line: The line, counted from one.
        source: The text of that line, stripped.
    """

    kernel: str | None
    file: str
    line: int
    source: str


@dataclass
class Call:
    """What happened during one call of a candidate; the interpreter writes, the caller reads.

    Attributes:
        launches: In order.
        findings: In order of their first occurrence.
        autotuned: Number of configurations, after pruning, of each kernel that had more than one.
        dot_precisions: The input precisions of float32 dots that ran.
        half_dots: Names of 16 and 8 bit operand types of dots that ran.
        narrow_types: Names of 16 and 8 bit float types that kernels loaded or converted to.
        uncovered: One sentence for each feature met that is not imitated or only in part.
        refused: Whether a kernel raised NotInterpretable, even if the candidate caught it.
        deadlock: What the first kernel raised that never ends, even if the candidate caught it.
    """

    launches: list[Launch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    autotuned: dict[str, int] = field(default_factory=dict)
    dot_precisions: set[str] = field(default_factory=set)
    half_dots: set[str] = field(default_factory=set)
    narrow_types: set[str] = field(default_factory=set)
    uncovered: list[str] = field(default_factory=list)
    refused: bool = False
    deadlock: Deadlock | None = None
    _index: dict[tuple[str, str, str, int], Finding] = field(default_factory=dict, repr=False)

    def note(self, sentence: str) -> None:
        """Record once that something was met and is not fully imitated."""
        if sentence not in self.uncovered:
            self.uncovered.append(sentence)

    def refuse(self, sentence: str) -> NotInterpretable:
        """Record that the kernel cannot be judged and return the exception to raise."""
        self.refused = True
        self.note(sentence)
        return NotInterpretable(sentence)

    def stop(self, sentence: str) -> Deadlock:
        """Record that a launch never ends and return the exception to raise."""
        error = Deadlock(sentence)
        self.deadlock = self.deadlock or error
        return error

    def seen(
        self, kind: FindingKind, kernel: str, file: str, line: int, *, atomics_used: bool = True
    ) -> bool:
        """Count a repetition; False says that a new finding has to be added."""
        known = self._index.get((kind, kernel, file, line))
        if known is None:
            return False
        known.count += 1
        known.atomics_used &= atomics_used
        return True

    def add(self, finding: Finding) -> None:
        """Add the first finding of its kind at its place."""
        self._index[finding.kind, finding.kernel, finding.file, finding.line] = finding
        self.findings.append(finding)


def candidate_frame(frame: FrameType | None = None) -> tuple[str, int]:
    """Return file and line of the innermost frame that is neither Triton's, torch's, numpy's nor ours."""
    current: FrameType | None = frame or sys._getframe(1)  # noqa: SLF001 - inspect.stack reads source files
    while current is not None:
        filename = current.f_code.co_filename
        if not filename.startswith(_FOREIGN):
            return filename, current.f_lineno
        current = current.f_back
    return "", 0


def locate(exception: BaseException, files: Iterable[str | Path]) -> Location | None:
    """Find where in the given files an exception arose.

    Walks the exception and its causes and contexts, the deepest first, and takes the innermost frame of one
    of the files. Interpreted kernels keep the line numbers of their file.

    Args:
        exception: What the candidate's call raised.
        files: Paths of the candidate's files, as they were compiled with.

    Returns:
        The place, or None if no frame belongs to the files.
    """
    wanted = {str(file) for file in files}
    chain = list(_chain(exception))
    kernel = next((error.kernel for error in chain if hasattr(error, "kernel")), None)
    for error in reversed(chain):
        places = [place for place in _places(error.__traceback__) if place[0] in wanted]
        if places:
            file, line = places[-1]
            return Location(kernel, file, line, linecache.getline(file, line).strip())
    return None


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it came from, outermost first."""
    current: BaseException | None = exception
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _places(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
