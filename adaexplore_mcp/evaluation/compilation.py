"""Compile what a candidate launches, for a target and at full size, without running it."""

import base64
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import (
    LANGUAGE,
    BuildClaim,
    CallFacts,
    Failure,
    builds,
    counts,
    number,
    tuned,
)
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.memfiles import empty_file
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.session import EndReport, Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import Attachment
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["Built", "Compilation", "CompileReport"]

PER_KERNEL_S = 20.0  # one configuration in thousands takes minutes; it must not cost the others
CONFIGURATIONS_ALONE_S = 30.0  # for all of them, side by side on CPU cores, before a GPU is taken
CONFIGURATIONS_S = 10.0  # for an autotuner's configurations behind the first: an agent waits for the verdict
PACK_S = 20.0
GRACE_S = 1.5  # a compiler stage cannot be interrupted, so the process gets a little longer than its kernels


@dataclass
class CompileReport:
    """Everything that compiling a candidate showed.

    Args:
        failure: What stopped it.
        ended: How its process ended, if it ended by itself.
        timed_out_s: The limit it overran; 0 if it did not.
        forged: What it sent that is no result; empty if it did not.
        builds: One entry per compiled specialisation.
        facts: Launches, operators and notes of the call.
        tuned: By autotuned kernel, which of its configurations built.
        launch_bytes: By kernel, the bytes of the tensors that one launch is given.
        faked: Whether it ran on fake tensors at full size.
        at_full_size: Why it did not; then it ran on real ones, at the sizes at which numbers are compared.
        before: What it compiled on fake tensors before that.
        without_values: What stopped it comes up at lowered sizes too where kernels leave no results: not the size is why.
        seconds: Wall time.
    """

    failure: Failure | None = None
    ended: EndReport | None = None
    timed_out_s: float = 0.0
    forged: str = ""
    builds: list[BuildClaim] = field(default_factory=list)
    facts: CallFacts = field(default_factory=CallFacts)
    tuned: dict[str, list[bool]] = field(default_factory=dict)
    launch_bytes: dict[str, int] = field(default_factory=dict)
    faked: bool = True
    at_full_size: Failure | None = None
    before: "CompileReport | None" = None
    without_values: bool = False
    seconds: float = 0.0

    @property
    def compiled(self) -> bool:
        """Whether everything it launched was compiled."""
        return self.failure is None and self.ended is None and not self.timed_out_s and not self.forged

    @property
    def decides(self) -> bool:
        """Whether a candidate is judged by this alone, so that it never reaches the GPU."""
        failure = self.failure
        return bool(
            (failure is not None and (failure.kind in LANGUAGE or failure.kind == "time"))
            or self.timed_out_s
            or self.forged
        )

    def missing(self, kernels: Iterable[str]) -> list[str]:
        """Return those of some kernels of which no specialisation was compiled."""
        good = {build.kernel for build in self.builds if not build.failure}
        return [name for name in kernels if name not in good]

    def joined(self, other: "CompileReport") -> "CompileReport":
        """Return this report with what another run of the same candidate compiled."""
        if not other.compiled:
            return self
        return replace(self, builds=[*self.builds, *other.builds], seconds=self.seconds + other.seconds)


@dataclass(frozen=True)
class Built:
    """A candidate, compiled at one workload.

    Args:
        report: What that showed.
        packed: What was compiled, as a file that `workers.cuda.cache` unpacks; None where nothing is to be had.
    """

    report: CompileReport = field(default_factory=CompileReport)
    packed: int | None = None

    @property
    def files(self) -> list[int]:
        """The file, if there is one."""
        return [] if self.packed is None else [self.packed]

    def close(self) -> None:
        """Close the file."""
        if self.packed is not None:
            os.close(self.packed)


class Compilation:
    """Compiles one candidate; in one process for all workloads, so that what they share is compiled once.

    Args:
        pool: Where its process comes from.
        candidate: What to compile.
        target: What to compile for: a name, or a GPU as it describes itself.
        timeout_s: Limit for each run.
        report: Told what is being done.
        jobs: Configurations of an autotuner to compile side by side.
        launchers: Build what Triton's driver needs to launch, too.
        configurations_s: After which an autotuner's further configurations are left out.
    """

    def __init__(
        self,
        pool: WorkerPool,
        candidate: Candidate,
        *,
        target: str | Mapping[str, Any],
        timeout_s: float,
        report: Callable[[str], None],
        jobs: int = 1,
        launchers: bool = False,
        configurations_s: float = CONFIGURATIONS_S,
    ) -> None:
        self._pool = pool
        self._candidate = candidate
        self._target = target
        self._timeout_s = timeout_s
        self._report = report
        self._jobs = jobs
        self._launchers = launchers
        self._configurations_s = configurations_s
        self._stack = contextlib.AsyncExitStack()
        self._session: Session | None = None

    async def run(
        self,
        *,
        changes: Sequence[Mapping[str, Any]],
        init: Attachment,
        inputs: Attachment,
        fake: bool,
        tape: int | None = None,
    ) -> CompileReport:
        """Run its host code once so that every launch compiles.

        Args:
            changes: Changes of size constants in its source.
            init: Constructor arguments; without a file they are made up as fake tensors.
            inputs: Arguments of the call; the same.
            fake: Use fake tensors: full size, no memory, no values.
            tape: What the launches of the same call left in memory when it was interpreted, to be found there again.
        """
        started = time.monotonic()
        name = self._target if isinstance(self._target, str) else self._target["name"]
        self._report(f"compiling for {name}")
        seen = CompileReport(faked=fake)
        request = {
            "op": "compile",
            "source": base64.b64encode(self._candidate.source).decode("ascii"),
            "format": self._candidate.format,
            "entry": self._candidate.entry,
            "changes": changes,
            "init": init.message,
            "inputs": inputs.message,
            "target": self._target,
            "fake": fake,
            "time_limit_s": self._timeout_s,
            "per_kernel_limit_s": min(PER_KERNEL_S, self._timeout_s),
            "configurations_limit_s": self._configurations_s,
            "jobs": self._jobs,
            "launchers": self._launchers,
            "taped": tape is not None,
        }
        files = [] if fake else [*init.files, *inputs.files, *([] if tape is None else [tape])]
        try:
            if self._session is None:
                self._session = await self._stack.enter_async_context(
                    self._pool.session("compile", "compile")
                )
            reply = (await self._session.request(request, files, timeout_s=self._timeout_s + GRACE_S)).body
            seen.failure = Failure.of(reply)
            seen.builds = builds(reply)
            seen.facts = CallFacts.of(reply)
            seen.tuned = tuned(reply)
            seen.launch_bytes = counts(reply, "launch_bytes")
        except SessionTimeoutError:
            seen.timed_out_s = self._timeout_s
            await self.close()
        except SessionEndedError as error:
            # A compiler that aborts takes its process with it: then the kernel, not the process, is at fault.
            seen.failure = Failure.of({"failure": error.report.last_words or None})
            seen.ended = error.report if seen.failure is None else None
            await self.close()
        except FrameError as error:
            # Its harness does not speak like this: the candidate does, on a descriptor that is not its own.
            seen.forged = f"it sent what is no result: {error}"
            await self.close()
        except BaseException:
            await self.close()  # a reply that nobody waited for would answer the next request
            raise
        seen.seconds = time.monotonic() - started
        return seen

    async def at(self, plan: Plan) -> Built:
        """Compile at a workload's own size on fake tensors, for a GPU; the caller closes what that gives.

        Where host code needs values the GPU's process compiles as it goes.
        """
        if plan.values_needed:
            missing = Failure(kind="not_fakeable", message="the reference looks at values")
            return Built(CompileReport(faked=False, failure=missing))
        report = await self.run(
            changes=plan.changes,
            init=Attachment(plan.init_outline, None),
            inputs=Attachment(plan.inputs_outline, None),
            fake=True,
        )
        return Built(report, None if report.decides else await self.packed())

    async def packed(self) -> int | None:
        """Return what was compiled, as a file that `workers.cuda.cache` unpacks; the caller closes it.

        None where the process is gone, or does not answer as ours does: then the kernels are compiled again.
        """
        if self._session is None:
            return None
        file = empty_file()
        try:
            reply = await self._session.request({"op": "pack"}, [file], timeout_s=PACK_S)
            if number(reply.body, "packed"):
                return file
        except (SessionTimeoutError, SessionEndedError, FrameError):
            await self.close()
        except BaseException:
            await self.close()
            os.close(file)
            raise
        os.close(file)
        return None

    async def close(self) -> None:
        """End its process; the next run gets another one."""
        self._session = None
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()
