import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.timing.intervals import FIRST_LOOK, Interval, combine, conclude, interval_of


def test_the_interval_lies_around_the_geometric_mean_of_the_rounds():
    found = interval_of([math.log(2.0), math.log(8.0)] * 10)
    assert found.ratio == pytest.approx(4.0)
    assert found.low < 4.0 < found.high
    assert math.log(4.0 / found.low) == pytest.approx(math.log(found.high / 4.0))


def test_more_rounds_of_the_same_spread_narrow_it():
    widths = [interval_of([0.0, 0.02] * rounds).half_width for rounds in (10, 20, 50, 200)]
    assert widths == sorted(widths, reverse=True)


def test_a_smaller_error_widens_it():
    rounds = [0.0, 0.02] * 20
    assert interval_of(rounds, alpha=0.01).half_width > interval_of(rounds, alpha=0.05).half_width


@pytest.mark.parametrize("noise", ["normal", "outliers"])
def test_looked_at_after_every_round_it_misses_the_truth_less_often_than_it_says(noise):
    chance = random.Random(7)

    def draw():
        if noise == "outliers":
            return chance.gauss(0, 0.05 if chance.random() < 0.05 else 0.005)
        return chance.gauss(0, 0.02)

    missed = 0
    for _ in range(400):
        rounds = [draw() for _ in range(FIRST_LOOK - 1)]
        for _ in range(40):
            rounds.append(draw())
            found = interval_of(rounds)
            if not found.low <= 1.0 <= found.high:
                missed += 1
                break
    assert missed <= 20  # 5 % of 400


@given(st.floats(0.5, 2.0), st.floats(0.001, 0.2))
def test_workloads_alike_combine_to_the_same(ratio, width):
    one = Interval(ratio, ratio * math.exp(-width), ratio * math.exp(width))
    both = combine({"a": one, "b": one}, {"a": 1.0, "b": 3.0})
    assert both.ratio == pytest.approx(one.ratio)
    assert (both.low, both.high) == (pytest.approx(one.low), pytest.approx(one.high))


def test_weights_say_how_much_a_workload_counts():
    fast, slow = Interval(4.0, 3.9, 4.1), Interval(1.0, 0.99, 1.01)
    assert combine({"a": fast, "b": slow}, {"a": 1.0, "b": 1.0}).ratio == pytest.approx(2.0)
    assert combine({"a": fast, "b": slow}, {"a": 3.0, "b": 1.0}).ratio == pytest.approx(4.0**0.75)


@pytest.mark.parametrize(
    ("low", "high", "conclusion"),
    [
        (1.011, 1.2, "faster"),
        (1.005, 1.2, "inconclusive"),
        (0.8, 0.985, "slower"),
        (0.8, 0.995, "inconclusive"),
        (0.992, 1.008, "same"),
        (0.98, 1.02, "inconclusive"),
    ],
)
def test_a_difference_below_one_percent_is_none(low, high, conclusion):
    assert conclude(Interval(math.sqrt(low * high), low, high)) == conclusion
