"""How much GPU memory judging and timing a candidate take, about: what evaluations side by side are counted with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from adaexplore_mcp.evaluation.definition import Plan, tensor_bytes

__all__ = ["Needs", "judging_bytes", "making_bytes", "timing_bytes", "together_bytes", "trials_bytes"]

CONTEXT_BYTES = 600 << 20
"""What CUDA and torch's libraries take in each process."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Needs:
    """GPU memory that an evaluation takes.

    Args:
        own_bytes: For its processes.
        shared: By name, bytes that others with the same task use too: trials.
    """

    own_bytes: int
    shared: Mapping[str, int] = field(default_factory=dict)


def together_bytes(some: Iterable[Needs]) -> int:
    """Return what several take side by side: what they share counts once."""
    own, shared = 0, dict[str, int]()
    for each in some:
        own += each.own_bytes
        for name, size in each.shared.items():
            shared[name] = max(size, shared.get(name, 0))
    return own + sum(shared.values())


def making_bytes(plan: Plan) -> int:
    """Return the GPU memory that a task's reference takes while it makes trials, beside these, about.

    What it holds in its own dtype and, twice as wide, in float64.
    """
    return CONTEXT_BYTES + 3 * plan.peak_bytes + 2 * FLOAT_BYTES * plan.parameters


def judging_bytes(plan: Plan) -> int:
    """Return the GPU memory that running one candidate takes, about.

    Its process; half as much again as the reference holds at its most, inputs and weights among it; inputs in four slots; the
    first outputs, those of the latest call and the judge's copy of them; two sets of weights; a call at other sizes.
    """
    elsewhere = plan.elsewhere.trial_bytes if plan.elsewhere is not None else 0
    inputs, outputs = (sum(map(tensor_bytes, some)) for some in (plan.inputs, plan.outputs))
    return (
        CONTEXT_BYTES
        + 3 * plan.peak_bytes // 2
        + 4 * inputs
        + 3 * outputs
        + 2 * FLOAT_BYTES * plan.parameters
        + elsewhere
    )


def timing_bytes(plan: Plan) -> int:
    """Return the GPU memory that timing one of several takes, about.

    Its process; half as much again as the reference holds at its most; inputs in three slots, and what they were where calls
    change them; outputs of the call that is looked at, a copy of them, and the judge's. Its weights are its own.
    """
    inputs, outputs = (sum(map(tensor_bytes, some)) for some in (plan.inputs, plan.outputs))
    return CONTEXT_BYTES + 3 * plan.peak_bytes // 2 + (6 if plan.mutates else 3) * inputs + 3 * outputs


def trials_bytes(plan: Plan, count: int) -> int:
    """Return the GPU memory that so many trials of a workload take; beside them are two sets of weights."""
    return count * plan.trial_bytes + 2 * FLOAT_BYTES * plan.parameters
