"""What is asked again is answered from the receipt that stands, and nothing else is."""

from dataclasses import replace

import pytest

from adaexplore_mcp.memory_store import ReceiptRecord
from adaexplore_mcp.models import Outcome, Speedup, Timing
from adaexplore_mcp.services.standing import Asked, standing

ON_CPU = Asked("triton 3.6", "sm_90")
ON_GPU = Asked("triton 3.6", "", ["GPU-0", "GPU-1"])
TIMED = replace(ON_GPU, baselines=["eager"])


def record(status="correct", *, asked=ON_CPU, device="", timing=None, check="", number=1):
    receipt = {"asked": asked.to_wire(), "target": "sm_90"} | ({"device": {"uuid": device}} if device else {})
    outcome = Outcome(
        summary="It is so.", status=status, check=check, timing=timing, receipt_id=f"rcpt_{number}"
    )
    return ReceiptRecord(f"rcpt_{number}", receipt, outcome, 1_000_000.0)


def timing(effort="quick", dirty=()):
    speedup = Speedup(baseline="eager", speedup=2.0, low=1.9, high=2.1, conclusion="faster")
    return Timing(effort=effort, device="cuda:0", speedups=[speedup], dirty=list(dirty))


def test_the_latest_that_answers_is_given_with_its_date():
    outcome = standing([record(number=2), record(number=1)], ON_CPU)
    assert outcome.summary == ("It is so. Answered from receipt rcpt_2 of 1970-01-12 13:46 UTC.")
    assert outcome.answered_from_receipt
    assert outcome.receipt_id == "rcpt_2"


@pytest.mark.parametrize(
    "status", ["correct", "plausible", "incorrect", "compile_error", "runtime_error", "rejected"]
)
def test_what_another_evaluation_would_find_again_stands(status):
    assert standing([record(status)], ON_CPU).status == status


@pytest.mark.parametrize("status", ["timeout", "crashed", "out_of_memory", "unsupported", "interrupted"])
def test_what_may_have_met_with_something_that_has_passed_does_not(status):
    assert standing([record(status)], ON_CPU) is None


@pytest.mark.parametrize(
    "asked",
    [
        replace(ON_CPU, software="triton 3.7"),
        replace(ON_CPU, target="sm_80"),
        replace(ON_CPU, gpus=["GPU-0"]),
    ],
    ids=["software", "target", "on a GPU"],
)
def test_other_software_another_target_or_a_gpu_is_another_question(asked):
    assert standing([record()], asked) is None


def test_without_a_gpu_nothing_is_answered_by_one():
    assert standing([record(device="GPU-0", asked=ON_GPU)], replace(ON_CPU, software=ON_GPU.software)) is None


def test_a_pinned_device_answers_for_itself_only():
    kept = [record(device="GPU-1", asked=ON_GPU)]
    assert standing(kept, ON_GPU) is not None
    assert standing(kept, replace(ON_GPU, gpus=["GPU-1"])) is not None
    assert standing(kept, replace(ON_GPU, gpus=["GPU-0"])) is None


def test_times_are_answered_by_times_against_the_same_baselines_and_at_least_as_narrow():
    def kept(**fields):
        return [record(device="GPU-0", asked=TIMED, timing=timing(**fields))]

    assert standing(kept(), TIMED) is not None
    assert standing(kept(effort="full"), TIMED) is not None
    assert standing(kept(), replace(TIMED, effort="full")) is None
    assert standing(kept(dirty=["hot"]), TIMED) is None
    assert standing(kept(), replace(TIMED, baselines=["compile"])) is None
    assert standing(kept(), ON_GPU) is not None  # a verdict it is too
    assert standing([record(device="GPU-0", asked=ON_GPU)], TIMED) is None
    assert standing([record("incorrect", device="GPU-0", asked=ON_GPU)], TIMED) is not None


@pytest.mark.parametrize("check", ["clock", "impossible_time"])
def test_a_measurement_that_was_not_believed_may_be_made_again(check):
    assert standing([record("rejected", device="GPU-0", asked=TIMED, check=check)], TIMED) is None


def test_a_receipt_of_an_earlier_version_answers_nothing():
    old = record()
    assert standing([replace(old, receipt={"target": "sm_90"})], ON_CPU) is None
