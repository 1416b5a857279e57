"""Turn what the processes showed into one outcome: a pure function, so that every rule of it can be tested alone.

The order of the rules, first that applies:

1. It cannot be loaded: `compile_error`, or what its own code did while loading.
2. It broke the rules of measurement (replaced functions, signals, processes in a call, a reply that is none): `rejected`.
3. A kernel does not compile for the target, or exceeds its resources: `compile_error`. The compiler decides about the
   language; Triton's interpreter accepts much that no GPU runs.
4. Its process ended, hung or raised: `crashed`, `timeout`, `out_of_memory`, `runtime_error`; `unsupported` where this
   machine or lowered sizes may be the cause.
5. Its numbers are wrong: `incorrect`; `rejected` for what skips the work; `unsupported` where only lowered sizes differ.
6. Its compilation came to no end: `timeout` where the compiler takes too long; else nothing where all that it launches was
   compiled before, and `unsupported` where host code cannot run without values.
7. Its task forbids library operators, and torch did the work: `rejected`.
8. All agreed: `correct` at the task's own sizes, `plausible` at lowered ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from adaexplore_mcp.evaluation.claims import LANGUAGE, NOT_LOADED
from adaexplore_mcp.evaluation.compilation import CompileReport
from adaexplore_mcp.evaluation.decisions import (
    Decision,
    doing,
    of_end,
    of_exception,
    of_fault,
    stage_of,
)
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.facts import facts
from adaexplore_mcp.evaluation.judging import Mismatch
from adaexplore_mcp.evaluation.numerics import NumericsReport
from adaexplore_mcp.evaluation.reporting import (
    HARMLESS_OPERATORS,
    HOST_ELEMENTS,
    Environment,
    WorkloadResult,
    agreement,
    brief,
    compiled,
    evidence_of,
    excerpt,
    scope,
    seconds,
)
from adaexplore_mcp.evaluation.wording import OTHER_FORMULA, advice, fix, what_is_wrong
from adaexplore_mcp.models import ErrorExcerpt, Outcome

__all__ = ["decide"]

FORBIDDEN_SIGNS = frozenset({"loads_binary", "hides_work", "unread"})
"""What stands in a source and lets work pass by the count of library operators."""
REJECTED_CHECKS = frozenset({
    "output_aliases_input", "stale_output", "outputs_kept_writable", "forged_result", "output_type",
})  # fmt: skip
"""Checks of numbers that a kernel fails by not doing the work, or not when it was asked to."""


@dataclass(frozen=True)
class _Case:
    """What a rule looks at.

    Args:
        result: Of one workload.
        definition: The task.
        target: What was compiled for.
    """

    result: WorkloadResult
    definition: Definition
    target: str


Rule = Callable[[_Case], "Decision | None"]


def decide(
    definition: Definition, results: Sequence[WorkloadResult], environment: Environment, *, task_id: str
) -> Outcome:
    """Compose the outcome of a candidate over the workloads that were judged.

    Args:
        definition: The task.
        results: One or more workloads; judging stops after the first that fails.
        environment: The machine.
        task_id: For the outcome.
    """
    decision = next(
        (
            found
            for result in results
            for rule in RULES
            if (found := rule(_Case(result, definition, environment.target))) is not None
        ),
        None,
    )
    if decision is None:
        decision = _passed(results, environment.target)
    decisive = results[-1]
    return Outcome(
        summary=decision.summary,
        next_step=decision.next_step,
        status=decision.status,
        task_id=task_id,
        stage=decision.stage,
        check=decision.check,
        reason=decision.reason,
        error=decision.error,
        evidence=decision.evidence or agreement(decisive),
        compiled=compiled(results),
        facts=facts(results),
        scope=scope(results, environment),
        seconds=seconds(results),
        versions=dict(environment.versions),
    )


# --- the rules -------------------------------------------------------------------------------------------


def _loading(case: _Case) -> Decision | None:
    """Rule 1: what happened before there was anything to judge."""
    result = case.result
    # Whichever of the two processes was first to say so.
    failures = [each for each in (result.numerics.failure, result.compilation.failure) if each is not None]
    failure = next((each for each in failures if each.phase == "load" and each.kind in NOT_LOADED), None)
    if failure is not None:
        return Decision(
            "compile_error",
            "load",
            f"The candidate cannot be {'built' if failure.kind == 'build' else 'loaded'}: {brief(failure)}.",
            fix(failure),
            error=excerpt(failure),
        )
    if result.compilation.failure is not None and result.compilation.failure.kind in LANGUAGE:
        return None
    failure = result.numerics.failure
    if failure is None or failure.phase != "load" or failure.kind in LANGUAGE | {"device"}:
        return None
    return of_exception(failure)


def _misconduct(case: _Case) -> Decision | None:
    """Rule 2: what a kernel has no reason to do."""
    result = case.result
    integrity = result.numerics.integrity
    patched = integrity.patched[:8]
    signals, processes = integrity.signals, integrity.processes
    if patched:
        check, what = "patched", f"it replaced {', '.join(patched)}"
    elif signals:
        check, what = "signal_sent", f"it sent a signal ({signals[0].what})"
    elif processes:
        check, what = (
            "process_started",
            f"it started a process while it was called ({processes[0].what})",
        )
    elif integrity.late:
        check, what = (
            "late_work",
            f"it went on once its call had returned ({integrity.late[0].what})",
        )
    elif integrity.kept_bytes:
        check = "cache_kept"
        what = f"it sets {integrity.kept_bytes >> 10} KiB of the L2 cache aside, where inputs stay from one timed call to the next"
    elif result.compilation.forged:
        check, what = "forged_result", result.compilation.forged
    else:
        return None
    return Decision(
        "rejected",
        "run",
        f"Rejected: {what}. A kernel that does this cannot be measured.",
        "Remove it and submit again.",
        check=check,
    )


def _language(case: _Case) -> Decision | None:
    """Rule 3: what the compiler says."""
    result, target = case.result, case.target
    # A kernel that is compiled as it is launched on the GPU says there what it would have said before.
    failures = (result.compilation.failure, result.numerics.failure)
    failure = next((each for each in failures if each is not None and each.kind in LANGUAGE), None)
    if failure is None:
        return None
    kernel = f" {failure.kernel}" if failure.kernel else ""
    if failure.kind == "resources":
        summary = f"Kernel{kernel} exceeds the resources of {target}: {brief(failure)}."
        next_step = "Use smaller blocks, fewer stages or fewer warps, and submit again."
    else:
        summary = f"Kernel{kernel} does not compile for {target}: {brief(failure)}."
        next_step = fix(failure)
    return Decision(
        "compile_error", "compile", summary, next_step, check=failure.kind, error=excerpt(failure)
    )


def _ended(case: _Case) -> Decision | None:
    """Rule 4, first half: the process that ran the numbers did not answer."""
    result = case.result
    numerics = result.numerics
    stage = stage_of(numerics.stage)
    if numerics.timed_out_s and result.gpu is not None:
        kernel = (
            f"; kernel {numerics.last_kernel} was the last to be launched" if numerics.last_kernel else ""
        )
        return Decision(
            "timeout",
            stage,
            f"Timeout: no answer within {numerics.timed_out_s:g} s ({doing(numerics.stage)}{kernel}).",
            "Look for a loop that does not end or a wait for another program; a slow but honest candidate needs "
            "timeout_seconds.",
            check="deadline",
        )
    if numerics.timed_out_s and numerics.slow and result.plan.too_large:
        return Decision(
            "unsupported",
            stage,
            f"Cannot be judged here: after {numerics.timed_out_s:g} s it had run {numerics.slow}, and was still getting "
            "on. This CPU is too slow for it at these sizes.",
            "Register a workload with smaller sizes, pass a larger timeout_seconds, or check it on a GPU yourself.",
            reason="too_slow_here",
        )
    if numerics.timed_out_s:
        return Decision(
            "timeout",
            stage,
            f"Timeout: no answer within {numerics.timed_out_s:g} s ({doing(numerics.stage)}"
            + (f"; it had run {numerics.slow})." if numerics.slow else ")."),
            "Look for a loop that does not end or a wait for another program; a slow but honest candidate needs "
            "timeout_seconds.",
            check="deadline",
        )
    if numerics.ended is not None:
        return of_end(numerics.ended, stage)
    return None


def _raised(case: _Case) -> Decision | None:
    """Rule 4, second half: its code raised."""
    result = case.result
    failure = result.numerics.failure
    if failure is None:
        return None
    if failure.kind == "device":
        return of_fault(failure)
    assumed = result.reduced and failure.kind == "exception" and not _also_at_full_size(result)
    if assumed:
        return Decision(
            "unsupported",
            "run",
            f"Cannot be judged here: at reduced sizes {result.sizes} it raised {brief(failure)}, which its "
            "code may do only there.",
            "Remove assumptions about exact sizes, or register a workload small enough to be judged at its own sizes.",
            reason="fails_at_reduced_sizes",
            error=excerpt(failure),
        )
    return of_exception(failure)


def _numbers(case: _Case) -> Decision | None:
    """Rule 5: its outputs are wrong."""
    result = case.result
    mismatch = result.numerics.mismatch
    if mismatch is None:
        return None
    next_step = advice(mismatch)
    if mismatch.check == "precision_class":
        mismatch = _imprecise(mismatch, result.numerics)
        next_step = next_step if mismatch.check == "precision_class" else OTHER_FORMULA
    evidence = evidence_of(mismatch.evidence, result.name, mismatch.trial)
    error = None
    if mismatch.kernel:
        detail = str(mismatch.evidence.get("detail", ""))
        error = ErrorExcerpt(type=mismatch.check, message=detail, line=mismatch.line, kernel=mismatch.kernel)
    what = what_is_wrong(result, evidence)
    if mismatch.check in REJECTED_CHECKS:
        return Decision(
            "rejected",
            "compare",
            f"Rejected: {what}.",
            "Compute the result anew in every call, in a new tensor, and submit again.",
            check=mismatch.check,
            evidence=evidence,
        )
    excused = _inside_at_full_size(result, mismatch)
    if result.reduced and (excused or not mismatch.solid) and not result.right_before:
        return Decision(
            "unsupported",
            "compare",
            f"Cannot be judged here: at reduced sizes {result.sizes} {what}. It may be wrong, or assume its full sizes"
            + (f", at which {excused} of its programs stay inside." if excused else "."),
            "Check masks and block sizes for these sizes; or register a workload small enough to be judged at its own "
            "sizes, or check it on a GPU yourself.",
            check=mismatch.check,
            reason="differs_at_reduced_sizes",
            evidence=evidence,
        )
    return Decision(
        "incorrect",
        "compare",
        f"Incorrect: {what}.",
        next_step,
        check=mismatch.check,
        error=error,
        evidence=evidence,
    )


def _imprecise(mismatch: Mismatch, numerics: NumericsReport) -> Mismatch:
    """Say what many small errors come from: narrow arithmetic where there may be some, else a formula."""
    told = mismatch.evidence.get("detail", "")
    if numerics.source.narrow or any(kind != "ieee" for kind in numerics.facts.dots):
        detail = (
            f"right to {mismatch.evidence.get('precision_class')} precision only ({told}); this float32 task asks for float32 "
            "arithmetic"
        )
        return replace(mismatch, evidence={**mismatch.evidence, "detail": detail})
    detail = f"many elements are a little off ({told}), more than float32 arithmetic leaves"
    return replace(
        mismatch, check="values", evidence={**mismatch.evidence, "detail": detail, "precision_class": "none"}
    )


def _compilation_unknown(case: _Case) -> Decision | None:
    """Rule 6: the numbers agree, compilation came to no end."""
    result, target = case.result, case.target
    compilation = result.compilation
    if compilation.compiled or (result.gpu is not None and not _compiler_gave_up(result)):
        return None  # what ran on a GPU was compiled there, whatever fake tensors could show
    failure = compilation.failure
    slow = bool(compilation.timed_out_s) and not result.reduced
    if slow or (failure is not None and failure.kind == "time"):
        what, next_step = _too_slow_to_compile(result, target)
        return Decision(
            "timeout",
            "compile",
            f"Timeout: {what} was not done within the limit"
            + (f" ({brief(failure)})." if failure else f" of {compilation.timed_out_s:g} s."),
            next_step,
            check="deadline",
            error=excerpt(failure) if failure else None,
        )
    if compilation.ended is not None and compilation.ended.reason == "processes":
        return of_end(compilation.ended, "compile")
    if failure is not None and failure.kind == "no_space":
        return of_exception(failure)
    if _all_compiled(result, compilation):
        return None
    if (
        failure is not None
        and failure.kind == "exception"
        and result.reduced
        and not compilation.facts.assumed
    ):
        # It ran at reduced sizes, and raises at full size where no value was asked for: the size is the difference. At its
        # own sizes it ran too, so that what raises without values is an artefact of having none.
        return of_exception(failure)
    return Decision(
        "unsupported",
        "compile",
        f"The numbers agree, but compilation could not be tried here: {_why_not(compilation)}.",
        "Keep decisions that depend on tensor values out of host code, or check it on a GPU yourself.",
        reason="compilation_not_possible_here",
        error=excerpt(failure) if failure else None,
    )


def _too_slow_to_compile(result: WorkloadResult, target: str) -> tuple[str, str]:
    """Return what was not done in time, and what to do about it."""
    seen, compilation = result.numerics.facts, result.compilation
    larger = "or pass a larger timeout_seconds."
    if not seen.launches and not compilation.builds and compilation.failure is None:
        return (
            "host code that is run once more to find what it launches, without computing,",
            f"Look for what waits in host code, in destructors too, {larger}",
        )
    if seen.autotuned:
        return f"compiling for {target}", f"Use fewer autotune configurations or smaller blocks, {larger}"
    return f"compiling for {target}", f"Use smaller blocks or fewer unrolled loops, {larger}"


def _policy(case: _Case) -> Decision | None:
    """Rule 7: who did the work, where the task forbids library operators."""
    result, definition = case.result, case.definition
    if definition.policy.library_ops != "forbid":
        return None
    full, seen = result.compilation.facts, result.numerics.facts
    operators = [name for name in {**full.operators, **seen.operators} if name not in HARMLESS_OPERATORS]
    events = result.numerics.integrity.events
    if threads := [event.what for event in events if (event.kind, event.phase) == ("thread", "run")]:
        operators.append(f"a thread of its own: {threads[0]}")
    operators += [sign.what for sign in result.numerics.source.signs if sign.kind in FORBIDDEN_SIGNS]
    if seen.to_host > HOST_ELEMENTS:
        operators.append(f"{seen.to_host} elements went to the host, where no work is counted")
    unused = set(result.numerics.unused) >= set(seen.launches) > set()
    if not operators and full.launches and seen.programs and not unused:
        return None
    if operators:
        did = f"torch did the work ({', '.join(operators[:5])})"
    elif unused:
        did = "its outputs are right without the launches of its kernels"
    else:
        did = "no kernel of its own was launched"
    return Decision(
        "rejected",
        "run",
        f"Rejected: this task forbids library operators, and {did}.",
        "Do the arithmetic in your own kernel.",
        check="library_ops",
    )


def _elsewhere(case: _Case) -> Decision | None:
    """Rule 6, for what would be done on a GPU, or at full size, and was not seen here."""
    result = case.result
    if result.gpu is not None:
        return None
    compilation, seen = result.compilation, result.numerics.facts
    if refused := [*seen.refused, *compilation.facts.refused]:
        return Decision(
            "unsupported",
            "run",
            f"The numbers agree, but it asked for what needs a GPU ({refused[0]}) and went on without: on a GPU it may do "
            "something else.",
            "Leave that out, or check it on a GPU yourself.",
            reason="needs_gpu",
        )
    if not result.reduced:
        return None
    failed = compilation.at_full_size is not None and compilation.at_full_size.kind == "exception"
    if failed and not (compilation.before is not None and _all_compiled(result, compilation.before)):
        assert compilation.at_full_size is not None
        return Decision(
            "unsupported",
            "compile",
            f"The numbers agree at reduced sizes, but at full size its host code raised {brief(compilation.at_full_size)} when "
            "it ran without computing.",
            "Fix that, or register a workload small enough to be judged at its own sizes.",
            reason="compilation_not_possible_here",
            error=excerpt(compilation.at_full_size),
        )
    if unseen := [name for name in compilation.facts.launches if name not in result.launched]:
        return Decision(
            "unsupported",
            "run",
            f"The numbers agree, but at reduced sizes {result.sizes} kernel {unseen[0]} was not launched, as it is at full "
            "size.",
            "Launch the same kernels at every size, or register a workload small enough to be judged at its own sizes.",
            reason="differs_at_reduced_sizes",
        )
    return None


def _uncompiled(case: _Case) -> Decision | None:
    """Rule 6, for single kernels: what ran must compile, also where the candidate catches that it does not."""
    result, target = case.result, case.target
    if result.gpu is not None:
        return None
    missing = result.compilation.missing(result.launched)
    if not missing:
        return None
    name = missing[0]
    if any(build.kernel == name for build in result.compilation.builds):
        return Decision(
            "compile_error",
            "compile",
            f"Kernel {name} does not compile for {target}, which the candidate's code catches.",
            "Submit the kernel without the exception handler to see the error, and fix it.",
            check="language",
        )
    return Decision(
        "unsupported",
        "compile",
        f"The numbers agree, but kernel {name} was not launched when the candidate ran for {target} without computing.",
        "Launch the same kernels whatever the device and the values are, or check it on a GPU yourself.",
        reason="compilation_not_possible_here",
    )


RULES: tuple[Rule, ...] = (
    _loading,
    _misconduct,
    _language,
    _ended,
    _raised,
    _numbers,
    _compilation_unknown,
    _uncompiled,
    _elsewhere,
    _policy,
)


def _passed(results: Sequence[WorkloadResult], target: str) -> Decision:
    """Rule 8."""
    calls = sum(result.numerics.calls for result in results)
    reduced = [result for result in results if result.reduced]
    if reduced:
        sizes = "; ".join(f"{result.name}: {result.sizes}" for result in reduced)
        return Decision(
            "plausible",
            "done",
            f"Plausible: agrees with the reference at reduced sizes ({sizes}) in {calls} calls, and compiles for "
            f"{target} at {'full size' if all(each.compilation.faked for each in reduced) else 'those sizes'}.",
            "Check it on a GPU yourself to be certain, or go on with another candidate.",
        )
    gpu = results[-1].gpu
    where = f"on {gpu.name}" if gpu is not None else f"and compiles for {target}"
    return Decision(
        "correct",
        "done",
        f"Correct: agrees with the reference at its own sizes in {calls} calls"
        + (f" {where}." if gpu is not None else f", {where}."),
        "benchmark_kernel says how fast it is." if gpu is not None else "Only a GPU tells how fast it is.",
    )


# --- details ---------------------------------------------------------------------------------------------


def _compiler_gave_up(result: WorkloadResult) -> bool:
    """Tell whether time ended the compilation: then the candidate was not run."""
    compilation = result.compilation
    return bool(compilation.timed_out_s) or (
        compilation.failure is not None and compilation.failure.kind == "time"
    )


def _all_compiled(result: WorkloadResult, compilation: CompileReport) -> bool:
    """Tell whether all that is launched was compiled before host code stopped, which ran well with values.

    At lowered sizes it must have stopped at full size, and for want of values: else the size may be why.
    """
    failure = compilation.failure
    if failure is None or failure.kind == "not_here" or compilation.missing(result.launched):
        return False
    return not result.reduced or (compilation.faked and compilation.without_values)


def _why_not(compilation: CompileReport) -> str:
    """Say what stopped a compilation, in words."""
    if compilation.failure is not None:
        return brief(compilation.failure)
    if compilation.ended is not None:
        how = compilation.ended.signal or f"exit code {compilation.ended.exit_code}"
        return f"where no kernel runs, its process ended ({how})"
    return f"where nothing is computed, its host code was not done within {compilation.timed_out_s:g} s"


def _inside_at_full_size(result: WorkloadResult, mismatch: Mismatch) -> int:
    """Return how many programs of a kernel that leaves its tensors at reduced sizes were tried at full size and do not."""
    sampled = result.sampled
    if not mismatch.kernel or sampled is None or not sampled.inside(mismatch.kernel, mismatch.line):
        return 0
    return sampled.programs[mismatch.kernel]


def _also_at_full_size(result: WorkloadResult) -> bool:
    """Tell whether the same exception came up at full size, where nothing is computed."""
    mine, full = result.numerics.failure, result.compilation.failure
    return mine is not None and full is not None and (mine.type, mine.line) == (full.type, full.line)
