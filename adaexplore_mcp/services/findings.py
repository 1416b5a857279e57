"""What registration noticed about a task, in plain words: what a verdict, and a speedup, on it are worth."""

import math
from collections.abc import Iterator, Sequence

from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.trials import MOST_SAME

__all__ = ["findings"]

SHOWN = 8


def findings(definition: Definition, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield one sentence for each thing that was noticed.

    Args:
        definition: The task.
        plans: Of its workloads.
    """
    changed = [name for name in plans[0].mutates if name not in definition.mutates]
    if changed:
        yield f"The reference changes {', '.join(changed)} in place: candidates must do the same."
    unchanged = [name for name in definition.mutates if name not in plans[0].mutates]
    if unchanged:
        yield f"mutates names {', '.join(unchanged)}, which the reference left as they were."
    for plan in plans:
        for sentence in (*_of_sizes(plan), *_of_worth(plan)):
            yield f"{plan.workload.name}: {sentence}"


def _of_sizes(plan: Plan) -> Iterator[str]:
    """Yield what was noticed about sizes and precision."""
    if plan.unused_sizes:
        yield f"nothing in the source uses {', '.join(plan.unused_sizes)}: a typing error?"
    if plan.not_wide:
        yield f"the reference does not run in float64 ({plan.not_wide[:120]}), so the error bound is the floor."
    if plan.edits:
        sizes = ", ".join(f"{key}={value}" for key, value in plan.lowered().items())
        yield f"too large for this machine without a GPU; numbers are compared at {sizes}."
    elif plan.too_large and plan.lowering_tried:
        yield "large for this machine without a GPU, and no size could be lowered: judging may be slow."


def _of_worth(plan: Plan) -> Iterator[str]:
    """Yield what a candidate could leave out and still be right."""
    if plan.fixed:
        yield (
            f"{', '.join(plan.fixed)} has the same values under every seed: a candidate that leaves it out cannot be told "
            "from one that uses it. Draw it at random where the operation allows that."
        )
    if plan.constant:
        yield "the output is constant, whatever inputs and weights are: a speedup here means little."
    elif plan.independent:
        names = ", ".join(plan.independent[:SHOWN])
        yield (
            f"{names} make{'s' * (len(plan.independent) == 1)} no difference to the output beyond rounding: a candidate that "
            "leaves out what only they need is right, and a speedup from that is none of its kernel's."
        )
    if plan.unneeded and plan.flops:
        share = min(1.0, sum(plan.unneeded.values()) / plan.flops)
        yield (
            f"{share:.0%} of the reference's FLOPs ({', '.join(list(plan.unneeded)[:SHOWN])}) reach nothing that it returns: a "
            "candidate that leaves them out is right, and that speedup is none of its kernel's."
        )
    if plan.zeros_pass:
        yield (
            "zeros would pass for the output, so wide is the bound (the reference is inexact in its own dtype, or the policy "
            "is): a verdict here means little."
        )
    elif plan.mean_pass:
        yield "the mean of the output would pass in its place: a verdict here means little."
    elif plan.narrow:
        yield "all values of the output are nearly the same: errors of its parts hardly show."
    elif plan.same_share >= MOST_SAME:
        yield (
            f"{math.floor(1000 * plan.same_share) / 10:g}% of the output's elements hold one and the same value: a verdict rests "
            "on the few others."
        )
    if plan.input_pass:
        yield f"input {plan.input_pass} itself would pass for the output: a candidate need not compute."
