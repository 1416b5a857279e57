"""Judge one candidate at one workload after the other: numbers and language side by side."""

import math
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import anyio

from adaexplore_mcp.errors import TaskError, WorkerLostError
from adaexplore_mcp.evaluation.buffers import HostBuffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import LANGUAGE
from adaexplore_mcp.evaluation.compilation import Compilation, CompileReport
from adaexplore_mcp.evaluation.definition import Plan, Sizes
from adaexplore_mcp.evaluation.memfiles import empty_file
from adaexplore_mcp.evaluation.numerics import NumericsReport, Setting, run_numerics
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.reporting import WorkloadResult
from adaexplore_mcp.evaluation.sampling import sample
from adaexplore_mcp.evaluation.trials import Attachment, TrialSet
from adaexplore_mcp.models import Workload

__all__ = ["TrialSource", "Verification"]


class TrialSource(Protocol):
    """Makes, or finds, the trials of a task at some sizes; only the first, where one call is all there will be."""

    def __call__(self, workload: Workload, edits: Sizes, *, once: bool) -> Awaitable[TrialSet]:
        """Return them."""
        ...


SIZE_CHECKS = frozenset(
    {
        "values",
        "nonfinite",
        "precision_class",
        "shape",
        "unwritten",
        "out_of_bounds",
        "misaligned_access",
        "race",
    }
)
"""Checks that a kernel made for its full sizes may fail at small ones; looked at again at larger, aligned sizes."""
ACCESS_CHECKS = frozenset({"out_of_bounds", "misaligned_access"})
"""Checks of where an address is, which can be looked at at full size too."""
INT32_ELEMENTS = 1 << 31
"""A tensor with as many has offsets that 32 bits do not hold."""
SURE = frozenset({"time", "not_here", "no_space", "no_folder"})
"""Kinds of failures of a compilation that values would not change."""
LAST_MOMENT_S = 1.0
STRETCHED_S = 5.0  # a call that takes longer says nothing


class Verification:
    """The verification of one candidate.

    Args:
        pool: Worker processes.
        candidate: What is judged.
        trials_at: For a second look at other sizes.
        target: What to compile for.
        timeout_s: Limit of each stage.
        report: Told what is being done.
    """

    def __init__(
        self,
        pool: WorkerPool,
        candidate: Candidate,
        trials_at: TrialSource,
        *,
        target: str,
        timeout_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._candidate = candidate
        self._trials_at = trials_at
        self._target = target
        self._timeout_s = timeout_s
        self._report = report
        self._compilation = Compilation(pool, candidate, target=target, timeout_s=timeout_s, report=report)

    async def workload(
        self, plan: Plan, trials: TrialSet, elsewhere: TrialSet | None = None
    ) -> WorkloadResult:
        """Judge at one workload; try again once where a worker of ours, not the candidate, was lost.

        Args:
            plan: How it is judged.
            trials: Of it, kept open by the caller.
            elsewhere: The first trial at other sizes, for information.

        Raises:
            WorkerError: It was lost twice, or failed.
        """
        try:
            return await self._once(plan, trials, elsewhere)
        except WorkerLostError:
            await self._compilation.close()  # its process may be as lost as the one that was missed
            return await self._once(plan, trials, elsewhere)

    async def close(self) -> None:
        """End its processes."""
        await self._compilation.close()

    async def _once(self, plan: Plan, trials: TrialSet, elsewhere: TrialSet | None) -> WorkloadResult:
        numerics, compilation = await self._both(plan, trials, elsewhere)
        if numerics.clean and _lacks_values(compilation, numerics, reduced=plan.reduced):
            compilation = await self._with_results(trials, compilation)
        result = await self._looked_again(
            plan, WorkloadResult(plan, plan.lowered(), numerics, compilation, trials.constant)
        )
        if result.numerics.clean and result.first_look is None:
            result = await self._stretched(plan, result)
        if _worth_sampling(result):
            self._report("looking where some programs reach at full size")
            sampled = await sample(self._pool, self._candidate, plan, target=self._target)
            return replace(result, sampled=sampled)
        return result

    async def _looked_again(self, plan: Plan, result: WorkloadResult) -> WorkloadResult:
        """Return what larger, aligned sizes showed, where they have something to say."""
        numerics = result.numerics
        if not plan.aligned:
            return result
        if _depends_on_sizes(result):
            again = await self._larger(plan, once=False)
        elif result.alone():  # one program says nothing about how the others find their part
            again = await self._larger(plan, once=True)
        else:
            return result
        if _slow(again):
            return result
        if numerics.clean and again.clean:
            return replace(result, larger=again)
        return replace(result, numerics=again, sizes_used=plan.lowered(plan.aligned), first_look=numerics)

    async def _stretched(self, plan: Plan, result: WorkloadResult) -> WorkloadResult:
        """Call once with one size after the other at its own value; wrong outputs there decide, nothing else does."""
        for sizes in plan.stretched:
            self._report("looking again with one size at its own value")
            try:
                trials = await self._trials_at(plan.workload, sizes, once=True)
            except TaskError:  # sizes that do not go together on real tensors
                continue
            with trials.used():
                again = await self._numbers(trials, once=True, timeout_s=min(STRETCHED_S, self._timeout_s))
            if again.mismatch is not None:
                lowered = plan.lowered(sizes)
                return replace(result, numerics=again, sizes_used=lowered, first_look=result.numerics)
        return result

    async def _larger(self, plan: Plan, *, once: bool) -> NumericsReport:
        self._report("looking again at larger, aligned sizes")
        larger = await self._trials_at(plan.workload, plan.aligned, once=False)
        with larger.used():
            return await self._numbers(larger, once=once)

    async def _numbers(
        self,
        trials: TrialSet,
        *,
        once: bool = False,
        elsewhere: TrialSet | None = None,
        timeout_s: float = 0.0,
        tape: int | None = None,
    ) -> NumericsReport:
        setting = Setting(
            HostBuffers(self._pool), {"target": self._target}, timeout_s or self._timeout_s, self._report
        )
        return await run_numerics(setting, self._candidate, trials, once=once, elsewhere=elsewhere, tape=tape)

    async def _both(
        self, plan: Plan, trials: TrialSet, elsewhere: TrialSet | None
    ) -> tuple[NumericsReport, CompileReport]:
        """Run the numbers and compile, side by side; what cannot be compiled is not run to the end."""
        numerics = NumericsReport()
        compilation = CompileReport()
        numbers, language = anyio.CancelScope(), anyio.CancelScope()

        async def compute() -> None:
            nonlocal numerics
            with numbers:
                numerics = await self._numbers(trials, elsewhere=elsewhere)
            if numerics.timed_out_s or numerics.ended is not None:
                # What hangs or crashes here does so there: the compiler gets a moment to say what it knows.
                language.deadline = anyio.current_time() + LAST_MOMENT_S

        async def compile_() -> None:
            nonlocal compilation
            with language:
                compilation = await self._compile(plan, trials)
            if compilation.failure is not None and compilation.failure.kind in LANGUAGE:
                numbers.cancel()

        try:
            async with anyio.create_task_group() as both:
                both.start_soon(compute)
                both.start_soon(compile_)
        except ExceptionGroup as group:
            # Both wait for the same workers: the first loss says all there is to say.
            raise group.exceptions[0] from group
        return numerics, compilation

    async def _compile(self, plan: Plan, trials: TrialSet) -> CompileReport:
        """Compile at full size on fake tensors; where host code needs values, on the first trial's."""
        seen = CompileReport()
        if not plan.values_needed:
            seen = await self._compilation.run(
                changes=plan.changes,
                init=Attachment(plan.init_outline, None),
                inputs=Attachment(plan.inputs_outline, None),
                fake=True,
            )
            if seen.failure is None or seen.failure.kind not in {"not_fakeable", "exception"}:
                return seen
        real = await self._compile_real(trials)
        stopped = seen.failure
        if stopped is None or real.failure is None or real.failure.kind != "exception":
            return replace(real, at_full_size=stopped, before=seen)
        # An exception that comes up only without values is an artefact of having none.
        alike = (stopped.type, stopped.line) == (real.failure.type, real.failure.line)
        return replace(seen, without_values=alike)

    async def _with_results(self, trials: TrialSet, compilation: CompileReport) -> CompileReport:
        """Compile again where host code looks at what kernels compute: on the first trial, with the interpreter's results."""
        tape = empty_file()
        try:
            again = await self._numbers(trials, once=True, tape=tape)
            if not again.clean or not again.facts.taped:
                return compilation
            real = await self._compile_real(trials, tape)
        finally:
            os.close(tape)
        said = real.failure is not None and real.failure.kind in LANGUAGE | {"time"}
        if compilation.compiled and not said:
            return compilation.joined(real)
        if not real.compiled and not said:
            # Only what takes too long both times does so whatever its host code reads.
            return real if compilation.timed_out_s and not real.timed_out_s else compilation
        before = compilation.before if compilation.before is not None else compilation
        return replace(real, at_full_size=before.failure if before.faked else None, before=before)

    async def _compile_real(self, trials: TrialSet, tape: int | None = None) -> CompileReport:
        return await self._compilation.run(
            changes=trials.changes,
            init=trials.init,
            inputs=trials.trials[0].inputs,
            fake=False,
            tape=tape,
        )


def _depends_on_sizes(result: WorkloadResult) -> bool:
    """Tell whether a failure at lowered sizes may be due to the sizes."""
    if result.compilation.failure is not None and result.compilation.failure.kind in LANGUAGE:
        return False
    numerics = result.numerics
    if numerics.mismatch is not None:
        return numerics.mismatch.check in SIZE_CHECKS
    return (
        numerics.failure is not None
        and numerics.failure.kind == "exception"
        and numerics.failure.phase != "load"
    )


def _lacks_values(compilation: CompileReport, numerics: NumericsReport, *, reduced: bool) -> bool:
    """Tell whether a candidate that is right was not compiled whole, and may be where its kernels' results are there."""
    failure = compilation.failure
    if compilation.forged or (failure is not None and failure.kind in LANGUAGE | SURE):
        return False
    if compilation.compiled:
        return bool(compilation.missing(numerics.facts.launches))
    # What ends, hangs or fills memory at full size is not known to go on at lowered ones.
    return not reduced or (failure is not None and (not compilation.faked or failure.kind == "exception"))


def _worth_sampling(result: WorkloadResult) -> bool:
    """Tell whether it matters where accesses lie at full size: whether sizes excuse one, or offsets need 64 bits."""
    plan, numerics = result.plan, result.numerics
    if not plan.reduced or plan.values_needed:
        return False
    if numerics.mismatch is not None:
        return numerics.mismatch.check in ACCESS_CHECKS and bool(numerics.mismatch.kernel)
    tensors = [*plan.inputs, *plan.outputs]
    return numerics.clean and any(math.prod(tensor.shape) >= INT32_ELEMENTS for tensor in tensors)


def _slow(numerics: NumericsReport) -> bool:
    return bool(numerics.timed_out_s) or numerics.ended is not None
