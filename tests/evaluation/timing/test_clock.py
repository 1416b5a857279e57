import pytest

from adaexplore_mcp.evaluation.timing.clock import (
    AROUND_US,
    Burst,
    Ceilings,
    against_the_clock,
    impossible,
    roofline_us,
)

H200 = Ceilings(4e12, {"fp32": 50e12, "bf16": 700e12})


def burst(*, calls_us, total_us, wall_us, calls=10):
    return Burst([calls_us] * calls, total_us, wall_us)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (burst(calls_us=1_000, total_us=12_000, wall_us=13_000), "confirmed"),
        (burst(calls_us=5, total_us=3_000, wall_us=4_000), "unconfirmed"),
        # Half of the work is done after the device's last event.
        (burst(calls_us=1_000, total_us=12_000, wall_us=24_000), None),
        # Its calls are said to take longer than all of it.
        (burst(calls_us=2_000, total_us=12_000, wall_us=13_000), None),
        # More of the device's time than there was.
        (burst(calls_us=1_000, total_us=14_000, wall_us=13_000), None),
    ],
)
def test_the_judges_clock_bounds_what_the_process_says(given, found):
    assert against_the_clock([given] * 20) == found


def test_what_passes_around_a_burst_is_no_contradiction():
    assert against_the_clock([burst(calls_us=100, total_us=1_100, wall_us=1_100 + AROUND_US)]) is not None


def test_the_roofline_is_the_larger_of_memory_and_arithmetic():
    assert roofline_us(4_000_000, 0, H200, "fp32") == pytest.approx(1.0)
    assert roofline_us(4_000_000, 10**9, H200, "fp32") == pytest.approx(20.0)
    assert roofline_us(4_000_000, 10**9, H200, "bf16") == pytest.approx(10 / 7)


def test_a_rate_that_was_not_measured_bounds_nothing():
    assert roofline_us(4_000_000, 10**12, H200, "fp64") == pytest.approx(1.0)


def test_well_below_the_bound_is_impossible_and_a_little_below_is_not():
    assert impossible(8.0, 10.0)
    assert not impossible(9.5, 10.0)
    assert not impossible(5.0, 0.0)
