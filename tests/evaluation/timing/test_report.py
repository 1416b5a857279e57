"""What a benchmark says, from bursts that are made up."""

import math

import pytest

from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.devices import Condition, Gpu
from adaexplore_mcp.evaluation.timing.benchmark import WorkloadTimes
from adaexplore_mcp.evaluation.timing.clock import Burst, Ceilings
from adaexplore_mcp.evaluation.timing.intervals import BETWEEN_PROCESSES_US, SHORT_MORE_US, SHORT_US
from adaexplore_mcp.evaluation.timing.report import Timed, with_times
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE, Rounds
from adaexplore_mcp.models import Evidence, Outcome, Policy, Scope, TensorSpec, Workload

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1 << 37, (9, 0), driver="580.1")
CEILINGS = Ceilings(4e12, {"fp32": 50e12, "tf32": 400e12, "bf16": 800e12}, 30.0, 1.3)
FLOAT = TensorSpec(name="x", dtype="float32", shape=[1])


def task(precision="match"):
    return Definition(
        format="kernelbench",
        files={"task.py": "class Model: ..."},
        entry="Model",
        policy=Policy(precision=precision),
    )


def plan(name="default", *, nbytes=4_000_000, flops=0, weight=1.0, large=False):
    inputs = [TensorSpec(name="x", dtype="float32", shape=[nbytes // 4])] if large else [FLOAT]
    return Plan(workload=Workload(name=name, weight=weight), bytes=nbytes, flops=flops, inputs=inputs)


def times(name="default", *, ours_us=100.0, clock="confirmed", failed=None, dirty=(), **baselines):
    """Return what 20 rounds showed of contenders whose every call takes the same."""

    def bursts(latency_us):
        return [Burst([latency_us * (1 + 0.0001 * (number % 3))] * 4, 1e3, 2e3) for number in range(20)]

    rounds = Rounds(
        {
            CANDIDATE: bursts(ours_us),
            **{each: bursts(latency_us) for each, latency_us in baselines.items()},
        }
    )
    after = Condition(1_980, 3_201, 41, 300.5, ("software power cap",))
    return WorkloadTimes(
        name,
        rounds,
        call_us=[130.0, 140.0],
        clock=clock,
        failed=failed or {},
        after=after,
        dirty=list(dirty),
    )


def said(*pairs, asked=("eager",), of=None, precision_class="fp32", effort="quick"):
    outcome = Outcome(
        summary="Correct: agrees.",
        status="correct",
        evidence=Evidence(precision_class=precision_class),
        scope=Scope(not_covered=["timing", "other sizes"]),
    )
    timed = Timed(GPU, effort, CEILINGS, asked, {each.workload.name: (each, seen) for each, seen in pairs})
    return with_times(outcome, of or task(), timed)


def test_a_speedup_ends_with_what_it_rests_on():
    outcome = said((plan(), times(eager=200.0)))
    (speedup,) = outcome.timing.speedups
    assert (speedup.conclusion, speedup.speedup) == ("faster", pytest.approx(2.0, rel=1e-3))
    assert speedup.sentence.endswith("policy match, class fp32, baseline eager.")
    assert speedup.sentence.startswith("2 times as fast (95 % interval 1.997 to 2.003)")
    assert outcome.summary == f"Correct: agrees. {speedup.sentence}"
    assert outcome.scope.not_covered == ["other sizes"]


def test_latency_stands_beside_what_the_gpu_can_do():
    (latency,) = said((plan(nbytes=40_000_000), times(eager=200.0))).timing.latencies.values()
    assert latency.roofline_us == pytest.approx(10.0)
    assert latency.roofline_share == pytest.approx(0.1, rel=1e-3)
    assert (latency.calls, latency.call_us) == (80, 135.0)


@pytest.mark.parametrize(
    ("precision", "precision_class", "bound_us"),
    [("match", "fp32", 200.0), ("match", "tf32", 25.0), ("paper", None, 12.5), ("kernelbench", "half", 12.5)],
)
def test_flops_are_bounded_by_the_arithmetic_that_is_allowed(precision, precision_class, bound_us):
    given = plan(flops=10**10), times(ours_us=500.0, eager=900.0)
    (latency,) = said(given, of=task(precision), precision_class=precision_class).timing.latencies.values()
    assert latency.roofline_us == pytest.approx(bound_us)


def test_faster_than_the_gpu_can_be_is_rejected():
    outcome = said((plan(nbytes=400_000_000, large=True), times(ours_us=50.0, eager=200.0)))
    assert (outcome.status, outcome.check) == ("rejected", "impossible_time")
    assert "50 µs at workload default, where NVIDIA H200 needs 100 µs" in outcome.summary
    assert outcome.timing is None


def test_bytes_that_the_reference_does_without_bound_nobody():
    table = plan(nbytes=400_000_000, large=True)
    assert said((table, times(ours_us=3.0, eager=5.0))).status == "correct"
    assert said((table, times(ours_us=3.0, own=5.0)), asked=["own"]).status == "rejected"


@pytest.mark.parametrize(
    ("given", "clock", "status"),
    [
        # 10¹¹ FLOPs take 250 µs in TF32; a product with a diagonal matrix does without most of them.
        ({}, "confirmed", "correct"),
        ({}, "unconfirmed", "rejected"),
        ({"inputs": [TensorSpec(name="x", dtype="int8", shape=[1])]}, "unconfirmed", "correct"),
    ],
)
def test_flops_of_the_reference_bound_what_the_clock_does_not_bear_out(given, clock, status):
    product = plan(flops=10**11).model_copy(update=given)
    assert said((product, times(ours_us=50.0, eager=400.0, clock=clock))).status == status


@pytest.mark.parametrize(
    ("given", "clock", "status"),
    [
        ({}, "confirmed", "correct"),  # its weights were folded when it was made
        ({}, "unconfirmed", "rejected"),
        ({"constant": True}, "unconfirmed", "correct"),
    ],
)
def test_parameters_bound_what_the_clock_does_not_bear_out(given, clock, status):
    weights = plan(nbytes=400_000_000, flops=10**10).model_copy(update=given)
    assert said((weights, times(ours_us=8.0, eager=200.0, clock=clock))).status == status


@pytest.mark.parametrize(
    "given", [{"constant": True}, {"independent": ["x"]}], ids=["constant", "independent"]
)
def test_an_input_that_makes_no_difference_bounds_nobody(given):
    blind = plan(nbytes=400_000_000, large=True).model_copy(update=given)
    assert said((blind, times(ours_us=8.0, eager=200.0))).status == "correct"


def test_a_speedup_says_that_its_times_are_not_confirmed():
    (speedup,) = said((plan(), times(eager=200.0, clock="unconfirmed"))).timing.speedups
    assert "(95 % interval 1.997 to 2.003; times not confirmed by the judge's clock)" in speedup.sentence


def test_what_the_judges_clock_contradicts_is_rejected():
    outcome = said((plan(), times(eager=200.0, clock=None)))
    assert (outcome.status, outcome.check) == ("rejected", "clock")


def test_an_interval_is_no_narrower_than_what_differs_between_processes():
    (speedup,) = said((plan(nbytes=0), times(ours_us=5.0, eager=5.1))).timing.speedups
    assert speedup.conclusion == "inconclusive"
    assert (
        speedup.high - speedup.low
        > 2 * (BETWEEN_PROCESSES_US + SHORT_MORE_US * math.exp(-5.1 / SHORT_US)) / 5.1
    )
    (speedup,) = said((plan(nbytes=0), times(ours_us=500.0, eager=510.0))).timing.speedups
    assert speedup.conclusion == "faster"


def test_workloads_are_weighed_and_the_worst_is_named():
    pairs = (
        (plan("small", weight=1), times("small", eager=90.0)),
        (plan("large", weight=3), times("large", eager=400.0)),
    )
    (speedup,) = said(*pairs).timing.speedups
    assert speedup.speedup == pytest.approx((0.9 * 4.0**3) ** 0.25, rel=1e-3)
    assert speedup.worst_workload == "small"
    assert "worst small 0.9 times" in speedup.sentence


def test_a_baseline_that_failed_is_left_out_by_name():
    failed = {"compile": "RuntimeError: no such thing"}
    timing = said((plan(), times(eager=200.0, failed=failed)), asked=["compile", "eager"]).timing
    assert [each.baseline for each in timing.speedups] == ["eager"]
    assert timing.notes == ["baseline compile was left out: RuntimeError: no such thing"]


def test_a_marred_measurement_says_so():
    timing = said((plan(), times(eager=200.0, dirty=["default: hardware slowdown"]))).timing
    assert timing.dirty == ["default: hardware slowdown"]
    assert timing.clocks["throttled"] == "software power cap"
    assert timing.device == "cuda:0 (NVIDIA H200, driver 580.1)"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ours_us": 1.05, "eager": 200.0}, "within 10 %"),
        ({"ours_us": 100.0, "eager": 200.0}, "reaches 1%"),
        ({"ours_us": 3.0, "eager": 3.0}, "effort='full'"),
    ],
)
def test_the_next_step_follows_from_what_was_measured(given, words):
    assert words in said((plan(), times(**given))).next_step


def test_nothing_is_said_of_times_where_a_timed_call_was_wrong():
    wrong = Outcome(summary="Incorrect.", status="incorrect")
    assert with_times(wrong, task(), Timed(GPU, "quick", CEILINGS, ["eager"])) is wrong


def test_a_receipt_keeps_the_rounds_and_what_the_clock_showed():
    given = times(eager=200.0)
    (workload,) = (
        Timed(GPU, "full", CEILINGS, ["eager"], {"default": (plan(), given)}).to_wire()["workloads"].values()
    )
    assert len(workload["medians_us"]["eager"]) == 20
    assert workload["clock"]["candidate"] == {"bursts": 20, "late": 0}
    assert workload["after"]["sm_mhz"] == 1_980
