"""How much GPU memory judging and timing a candidate take, about: what evaluations side by side are counted with."""

from adaexplore_mcp.evaluation.definition import Plan, tensor_bytes

__all__ = ["CONTEXT_BYTES", "bytes_needed", "judging_bytes", "timing_bytes"]

CONTEXT_BYTES = 600 << 20
"""What CUDA and torch's libraries take in each process."""
FLOAT_BYTES = 4


def judging_bytes(plan: Plan) -> int:
    """Return the GPU memory that running one candidate takes, about.

    Its process; half as much again as the reference holds at its most, inputs and weights among it; inputs in four slots; the
    first outputs, those of the latest call and the judge's copy of them; two sets of weights.
    """
    inputs, outputs = (sum(map(tensor_bytes, some)) for some in (plan.inputs, plan.outputs))
    return (
        CONTEXT_BYTES
        + 3 * plan.peak_bytes // 2
        + 4 * inputs
        + 3 * outputs
        + 2 * FLOAT_BYTES * plan.parameters
    )


def timing_bytes(plan: Plan) -> int:
    """Return the GPU memory that timing one of several takes, about.

    Its process; half as much again as the reference holds at its most; inputs in three slots, and what they were where calls
    change them; outputs of the call that is looked at, a copy of them, and the judge's. Its weights are its own.
    """
    inputs, outputs = (sum(map(tensor_bytes, some)) for some in (plan.inputs, plan.outputs))
    return CONTEXT_BYTES + 3 * plan.peak_bytes // 2 + (6 if plan.mutates else 3) * inputs + 3 * outputs


def bytes_needed(plan: Plan, trials: int, contenders: int = 0) -> int:
    """Return the GPU memory that judging a candidate of a task takes, about.

    Before the candidate runs, the reference does where trials have to be made: it holds what it needs in its own dtype and,
    twice as wide, in float64. One call at other sizes takes memory too.

    Args:
        plan: Of a workload.
        trials: How many have to be made.
        contenders: How many are made ready side by side in the end, to be timed: a candidate, and its baselines.
    """
    making = CONTEXT_BYTES + 3 * plan.peak_bytes + 2 * FLOAT_BYTES * plan.parameters if trials else 0
    elsewhere = plan.elsewhere.trial_bytes if plan.elsewhere is not None else 0
    most = max(making, judging_bytes(plan) + elsewhere, contenders * timing_bytes(plan))
    return most + trials * plan.trial_bytes + elsewhere
