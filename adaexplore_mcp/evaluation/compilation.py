"""Compile what a candidate launches, for a target and at full size, without running it."""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import BuildClaim, CallFacts, Failure, builds
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.session import EndReport, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Attachment

__all__ = ["CompileReport", "run_compilation"]

PER_KERNEL_S = 20.0  # one configuration in thousands takes minutes; it must not cost the others
GRACE_S = 5.0  # a compiler stage cannot be interrupted, so the process gets a little longer than its kernels


@dataclass
class CompileReport:
    """Everything that compiling a candidate showed.

    Args:
        failure: What stopped it.
        ended: How its process ended, if it ended by itself.
        timed_out_s: The limit it overran; 0 if it did not.
        builds: One entry per compiled specialisation.
        facts: Launches, operators and notes of the call.
        faked: Whether it ran on fake tensors at full size.
        report: The stub's report.
        seconds: Wall time.
    """

    failure: Failure | None = None
    ended: EndReport | None = None
    timed_out_s: float = 0.0
    builds: list[BuildClaim] = field(default_factory=list)
    facts: CallFacts = field(default_factory=CallFacts)
    faked: bool = True
    report: EndReport = field(default_factory=EndReport)
    seconds: float = 0.0

    @property
    def compiled(self) -> bool:
        """Whether everything it launched was compiled."""
        return self.failure is None and self.ended is None and not self.timed_out_s


async def run_compilation(
    pool: WorkerPool,
    candidate: Candidate,
    *,
    changes: Sequence[Mapping[str, Any]],
    init: Attachment,
    inputs: Attachment,
    target: str,
    timeout_s: float,
    fake: bool,
    report: Callable[[str], None],
) -> CompileReport:
    """Run a candidate's host code once so that every launch compiles for a target.

    Args:
        pool: Where its process comes from.
        candidate: What to compile.
        changes: Changes of size constants in its source.
        init: Constructor arguments; without a file they are made up as fake tensors.
        inputs: Arguments of the call; the same.
        target: What to compile for.
        timeout_s: Limit for everything.
        fake: Use fake tensors: full size, no memory, no values.
        report: Told what is being done.
    """
    started = time.monotonic()
    report(f"compiling for {target}")
    seen = CompileReport(faked=fake)
    async with pool.session("compile", "compile") as session:
        request = {
            "op": "compile",
            "source": base64.b64encode(candidate.source).decode("ascii"),
            "format": candidate.format,
            "entry": candidate.entry,
            "changes": changes,
            "init": init.message,
            "inputs": inputs.message,
            "target": target,
            "fake": fake,
            "time_limit_s": timeout_s,
            "per_kernel_limit_s": min(PER_KERNEL_S, timeout_s),
        }
        files = [] if fake else [*init.files, *inputs.files]
        try:
            reply = (await session.request(request, files, timeout_s=timeout_s + GRACE_S)).body
            seen.failure = Failure.of(reply)
            seen.builds = builds(reply)
            seen.facts = CallFacts.of(reply)
        except SessionTimeoutError:
            seen.timed_out_s = timeout_s
        except SessionEndedError as error:
            # A compiler that aborts takes its process with it: then the kernel, not the process, is at fault.
            seen.failure = Failure.of({"failure": error.report.last_words or None})
            seen.ended = error.report if seen.failure is None else None
        seen.report = await session.end()
    seen.seconds = time.monotonic() - started
    return seen
