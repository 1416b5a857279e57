"""What an outcome says in words: what is wrong with numbers, and what helps."""

from adaexplore_mcp.evaluation.claims import Failure
from adaexplore_mcp.evaluation.judging import Mismatch
from adaexplore_mcp.evaluation.reporting import WorkloadResult
from adaexplore_mcp.evaluation.trials import SCHEDULE
from adaexplore_mcp.models import Evidence

__all__ = ["OTHER_FORMULA", "advice", "fix", "what_is_wrong"]

ADVICE = {
    "out_of_bounds": "Mask the access: every lane must lie inside its tensor.",
    "misaligned_access": "Align the address to the width of the access.",
    "unwritten": "Write every element: look at the grid, the mask and the last partial block.",
    "precision_class": "Use float32 arithmetic: input_precision='ieee' in tl.dot, no narrower types in between, and for small "
    "values what keeps their digits, such as expm1; or register the task with precision relaxed if less is wanted.",
    "dtype": "Return the reference's dtype.",
    "shape": "Return the reference's shape.",
    "structure": "Return as many tensors, in the same containers, as the reference.",
    "input_mutated": "Write into a new tensor; inputs may change only where the task says so.",
    "program_order": "A GPU runs programs in any order: let none rely on what an earlier one left.",
    "race": "Use atomics, or let one program write each address.",
    "race of a reader": "Read it in a later launch, or wait for it in a while loop, by an atomic or a load with volatile=True.",
    "nonfinite": "Look for an overflow, a division by zero or an unmasked lane.",
    "output_overwritten": "Return a new tensor from every call.",
    "device": "Return tensors on the GPU.",
}

TRANSFORMED = tuple(name for name, _, transform in SCHEDULE if transform not in {"none", "redrawn"})
"""Calls with inputs to which the judge gave other values than the task draws."""
OTHER_FORMULA = (
    "Nothing in its source computes in less than float32, so its formula is another: compare it with the reference's term by term, "
    "epsilons, divisors such as n and n - 1, constants, approximations of functions, and sums that cancel."
)
"""Advice for many small errors where no arithmetic is narrow."""


def what_is_wrong(result: WorkloadResult, evidence: Evidence) -> str:
    """Say what a check saw: the detail, the worst element with both values, and the trial."""
    at_sizes = f"at reduced sizes {result.sizes}" if result.reduced and result.right_before else ""
    where = ", ".join(filter(None, (evidence.trial, at_sizes)))
    where = f" ({where})" if where else ""
    at = f" at {evidence.index}" if evidence.index else ""
    values = ""
    if evidence.got is not None and evidence.expected is not None and evidence.index:
        values = f": {evidence.output or 'out'}{at} is {_number(evidence.got)}, expected {_number(evidence.expected)}"
    detail = evidence.detail.rstrip(".") or "the output differs"
    if result.numerics.mismatch is not None and result.numerics.mismatch.check == "race":
        detail = f"a data race: {detail}"
    return f"{detail}{values}{where}"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def fix(failure: Failure) -> str:
    """Say what to do about an exception."""
    return "Fix that line and submit again." if failure.line else "Fix that and submit again."


def advice(mismatch: Mismatch) -> str:
    """Say what to do about wrong numbers."""
    if mismatch.trial.endswith("while it is autotuned"):
        return (
            "Every configuration runs on the same memory: name what the kernel updates in restore_value or reset_to_zero of "
            "triton.autotune."
        )
    if mismatch.check == "out_of_bounds" and _all_lanes(str(mismatch.evidence.get("detail", ""))):
        return "No lane lies inside its tensor: look at strides and offsets."
    if mismatch.check == "race" and " active lanes read what " in str(mismatch.evidence.get("detail", "")):
        return ADVICE["race of a reader"]
    said = ADVICE.get(
        mismatch.check, "Compare with the reference at the element given, fix and submit again."
    )
    if mismatch.trial.startswith(TRANSFORMED):
        said += " Inputs as drawn passed; if the task's are never like these, its owner can say so with `domains`."
    return said


def _all_lanes(detail: str) -> bool:
    """Tell whether the interpreter saw every active lane outside: `64 of 64 active lanes …`."""
    bad, _, rest = detail.partition(" of ")
    return bad == rest.partition(" ")[0]
