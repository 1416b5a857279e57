"""What a benchmark found, in words and numbers: latencies, speedups with their intervals, share of what the GPU can do."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.devices import Condition, Gpu
from adaexplore_mcp.evaluation.timing.baselines import MODES
from adaexplore_mcp.evaluation.timing.benchmark import WorkloadTimes
from adaexplore_mcp.evaluation.timing.clock import (
    Burst,
    Ceilings,
    estimate,
    impossible,
    least_us,
    roofline_us,
    typical_us,
)
from adaexplore_mcp.evaluation.timing.intervals import (
    ALPHA,
    Interval,
    combine,
    conclude,
)
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE, quartiles
from adaexplore_mcp.models import Effort, Latency, Outcome, Speedup, Timing, WorkloadSpeedup

__all__ = ["Timed", "arithmetic_of", "with_times"]

ARITHMETIC = {"float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
"""Of a task's FLOPs by the dtype of its first floating input; float32 by what the policy allows."""
CLASSES = {"tf32": "tf32", "half": "bf16"}
GENEROUS = {"fp32": "tf32", "tf32": "bf16", "bf16": "bf16", "fp16": "fp16", "fp64": "fp64"}
"""A faster arithmetic that may have helped: three TF32 products make one that is nearly a float32's."""
NARROW = ("int8", "uint8", "float8")
"""Dtypes of inputs that some GPUs multiply faster than anything whose rate is measured."""
REFERENCES = ("eager", *MODES)
"""Baselines that are the task's reference."""


@dataclass
class Timed:
    """All that timing a candidate showed.

    Args:
        gpu: Where.
        effort: How narrow the intervals were to be.
        ceilings: What the GPU can do.
        asked: The baselines asked for, in order.
        workloads: By name, the plan and the times.
    """

    gpu: Gpu
    effort: Effort
    ceilings: Ceilings
    asked: Sequence[str]
    workloads: dict[str, tuple[Plan, WorkloadTimes]] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return what a receipt keeps: the medians of all rounds, and how the GPU was."""
        return {
            "device": self.gpu.uuid,
            "effort": self.effort,
            "ceilings": asdict(self.ceilings),
            "workloads": {
                name: {
                    "before": asdict(times.before),
                    "after": asdict(times.after),
                    "dirty": times.dirty,
                    "checked": times.rounds.checked,
                    "clock": {
                        who: _by_the_clock(bursts, self.ceilings.flush_us)
                        for who, bursts in times.rounds.bursts.items()
                    },
                    "medians_us": {
                        who: [round(burst.median_us, 3) for burst in bursts]
                        for who, bursts in times.rounds.bursts.items()
                    },
                }
                for name, (_, times) in self.workloads.items()
            },
        }


def _by_the_clock(bursts: Sequence[Burst], flush_us: float) -> dict[str, float | int]:
    """Return what the judge's clock shows of one contender, in microseconds, for who wants to see why it was believed."""
    seen = estimate(bursts, flush_us)
    shown = {} if seen is None else {"call_us": round(seen.call_us, 2), "error_us": round(seen.error_us, 2)}
    return {**shown, "bursts": len(bursts), "late": sum(burst.late for burst in bursts)}


def with_times(outcome: Outcome, definition: Definition, timed: Timed) -> Outcome:
    """Return an outcome with what was measured; rejected where the times cannot be what the candidate says they are."""
    if outcome.status != "correct":  # a timed call was wrong: `decide` said so
        return outcome
    precision_class = outcome.evidence.precision_class if outcome.evidence else None
    for name, (plan, times) in timed.workloads.items():
        if times.clock is None:
            return _refused(
                outcome,
                "clock",
                f"at workload {name} the judge's clock contradicts the times that its process gives",
            )
        if len(times.rounds) == 0:
            continue
        if bound := _contradicted_us(definition, plan, times, timed.ceilings):
            what = f"{_least_us(times):.3g} µs at workload {name}, where {timed.gpu.name} needs {bound:.3g} µs at least"
            return _refused(outcome, "impossible_time", f"{what} for the task's bytes and FLOPs")
    timing = _timing(definition, timed, precision_class)
    sentences = [each.sentence for each in timing.speedups]
    summary = " ".join([outcome.summary, *sentences[:1]])
    scope = outcome.scope and outcome.scope.model_copy(
        update={"not_covered": [each for each in outcome.scope.not_covered if each != "timing"]}
    )
    return outcome.model_copy(
        update={"summary": summary, "timing": timing, "next_step": _next(timing), "scope": scope}
    )


def doubted(definition: Definition, plan: Plan, ceilings: Ceilings, times: WorkloadTimes) -> bool:
    """Tell whether a candidate's times are refused unless the judge's clock bears them out."""
    return _contradicted_us(definition, plan, times, ceilings) > 0


def _least_us(times: WorkloadTimes) -> float:
    """Return the shortest latency that a candidate's times amount to."""
    return min(times.rounds.median_us(CANDIDATE), typical_us(times.rounds.bursts[CANDIDATE]))


def _contradicted_us(definition: Definition, plan: Plan, times: WorkloadTimes, ceilings: Ceilings) -> float:
    """Return the least time that a candidate's contradict, in microseconds; 0 if they contradict none.

    The bytes of inputs and outputs bound everybody, unless the reference does with fewer too: of a large table it reads the
    rows that indices name. FLOPs and parameters are those of the reference. Fewer may do, where a matrix is diagonal, a sum can
    be taken first, or weights are folded when the module is made, so they contradict only what the judge's clock does not
    bear out. FLOPs contradict nothing where narrower arithmetic may help whose rate is not measured, nor where nothing of
    what goes in matters to what comes out.
    """
    latency_us = _least_us(times)
    confirmed = times.clock == "confirmed"
    nbytes = plan.call_bytes if confirmed or plan.constant else plan.bytes
    by_bytes, by_flops = least_us(
        nbytes, plan.flops, ceilings, GENEROUS[arithmetic_of(definition, plan, None)]
    )
    narrow = any(each.dtype.startswith(NARROW) for each in plan.inputs)
    if not (confirmed or narrow or plan.constant) and impossible(latency_us, by_flops):
        return max(by_bytes, by_flops)
    known = [typical_us(times.rounds.bursts[name]) for name in REFERENCES if name in times.rounds.bursts]
    if impossible(latency_us, by_bytes) and not any(impossible(each, by_bytes) for each in known):
        return by_bytes
    return 0.0


def _refused(outcome: Outcome, check: str, why: str) -> Outcome:
    return outcome.model_copy(
        update={
            "status": "rejected",
            "check": check,
            "summary": f"Rejected: {why}.",
            "next_step": "Do all of the work within the call, on its own stream, and submit again.",
        }
    )


def arithmetic_of(definition: Definition, plan: Plan, precision_class: str | None) -> str:
    """Return the arithmetic in which a task's FLOPs may be done."""
    dtypes = [each.dtype for each in plan.inputs if each.dtype.startswith(("float", "bfloat"))]
    if dtypes and dtypes[0] in ARITHMETIC:
        return ARITHMETIC[dtypes[0]]
    if precision_class in CLASSES:
        return CLASSES[precision_class]
    return "fp32" if definition.policy.precision == "match" else "bf16"


def _timing(definition: Definition, timed: Timed, precision_class: str | None) -> Timing:
    measured = {name: pair for name, pair in timed.workloads.items() if len(pair[1].rounds)}
    alpha = ALPHA / max(1, len(timed.workloads))
    failed = {name: why for _, times in timed.workloads.values() for name, why in times.failed.items()}
    speedups = [
        _speedup(baseline, measured, alpha, definition, precision_class)
        for baseline in timed.asked
        if measured and baseline not in failed
    ]
    return Timing(
        effort=timed.effort,
        device=f"{timed.gpu.label} ({timed.gpu.name}, driver {timed.gpu.driver})",
        latencies={
            name: _latency(times, _bound(definition, plan, timed, precision_class))
            for name, (plan, times) in measured.items()
        },
        speedups=speedups,
        clocks=_clocks([times.after for _, times in measured.values()]),
        dirty=[each for _, times in timed.workloads.values() for each in times.dirty],
        notes=[f"baseline {name} was left out: {why}" for name, why in failed.items()],
    )


def _bound(definition: Definition, plan: Plan, timed: Timed, precision_class: str | None) -> float:
    return roofline_us(
        plan.bytes, plan.flops, timed.ceilings, arithmetic_of(definition, plan, precision_class)
    )


def _latency(times: WorkloadTimes, bound_us: float) -> Latency:
    values = times.rounds.latencies(CANDIDATE)
    low, median, high = quartiles(values)
    return Latency(
        median_us=round(median, 3),
        p25_us=round(low, 3),
        p75_us=round(high, 3),
        calls=len(values),
        call_us=round(statistics.median(times.call_us), 3) if times.call_us else 0.0,
        clock=times.clock or "unconfirmed",
        roofline_us=round(bound_us, 3),
        roofline_share=round(min(1.0, bound_us / median), 4) if bound_us else None,
    )


def _speedup(
    baseline: str,
    measured: Mapping[str, tuple[Plan, WorkloadTimes]],
    alpha: float,
    definition: Definition,
    precision_class: str | None,
) -> Speedup:
    intervals = {name: _interval(times, baseline, alpha) for name, (_, times) in measured.items()}
    weights = {name: plan.workload.weight for name, (plan, _) in measured.items()}
    whole = combine(intervals, weights)
    worst = min(intervals, key=lambda name: intervals[name].ratio)
    each = {
        name: WorkloadSpeedup(
            speedup=round(interval.ratio, 4),
            low=round(interval.low, 4),
            high=round(interval.high, 4),
            baseline_us=round(measured[name][1].rounds.median_us(baseline), 3),
            rounds=len(measured[name][1].rounds),
        )
        for name, interval in intervals.items()
    }
    several = len(intervals) > 1
    borne_out = all(measured[name][1].clock == "confirmed" for name in intervals)
    return Speedup(
        baseline=baseline,
        speedup=round(whole.ratio, 4),
        low=round(whole.low, 4),
        high=round(whole.high, 4),
        conclusion=conclude(whole),
        worst_workload=worst if several else "",
        workloads=each,
        sentence=_sentence(
            baseline,
            whole,
            definition,
            precision_class,
            f"worst {worst} {intervals[worst].ratio:.3g} times" if several else "",
            "" if borne_out else "times not confirmed by the judge's clock",
        ),
    )


def _interval(times: WorkloadTimes, baseline: str, alpha: float) -> Interval:
    return times.rounds.interval(baseline, alpha).widened(times.rounds.between_processes(baseline))


def _sentence(
    baseline: str, interval: Interval, definition: Definition, precision_class: str | None, *more: str
) -> str:
    """Say a speedup in words; it ends with what it rests on."""
    said = {
        "faster": f"{interval.ratio:.3g} times as fast",
        "slower": f"Slower: {interval.ratio:.3g} times as fast",
        "same": f"As fast within 1 % ({interval.ratio:.4g} times)",
        "inconclusive": f"No difference is certain yet ({interval.ratio:.3g} times)",
    }[conclude(interval)]
    ends = "; ".join([f"95 % interval {interval.low:.4g} to {interval.high:.4g}", *filter(None, more)])
    rests = (
        f"policy {definition.policy.precision}, class {precision_class or 'not known'}, baseline {baseline}"
    )
    return f"{said} ({ends}); {rests}."


def _clocks(conditions: Sequence[Condition]) -> dict[str, float | str]:
    if not conditions:
        return {}
    last = conditions[-1]
    found = {
        "sm_mhz": last.sm_mhz,
        "memory_mhz": last.memory_mhz,
        "celsius": last.celsius,
        "watts": last.watts,
        "throttled": ", ".join(last.throttled) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _next(timing: Timing) -> str:
    """Say what helps most now."""
    share = min((each.roofline_share or 0.0 for each in timing.latencies.values()), default=0.0)
    if any(each.conclusion == "inconclusive" for each in timing.speedups) and timing.effort == "quick":
        return "Ask with effort='full' for a narrower interval."
    if share >= 0.9:
        return "It is within 10 % of what this GPU can do for this task: only a cheaper operation would be faster."
    if share:
        return f"It reaches {share:.0%} of what this GPU can do for the task's bytes and FLOPs: look at what holds it back."
    return "Submit a faster candidate."
