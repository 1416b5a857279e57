"""How numbers that are no tensors are compared."""

import pytest

from adaexplore_mcp.evaluation.judging import _same_plain, plain_scale
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet

MATCH = {"precision": "match"}


def trials(*numbers, weights="constructor"):
    none = Attachment([], None)
    made = [
        Trial(f"{n}", weights, none, Attachment([{"path": "sum", "plain": number}], None), n, [])
        for n, number in enumerate(numbers)
    ]
    return TrialSet(1, 2, none, none, {}, made, [], {}, 1, [])


@pytest.mark.parametrize(
    ("got", "expected", "scale", "same"),
    [
        ("10.0", "10.00005", 0.0, True),
        ("10.0", "10.0005", 0.0, False),
        ("0.00102", "0.001", 10.0, True),  # a sum that cancels out: float32 has no more digits
        ("0.00102", "0.001", 0.001, False),
        ("0.002", "0.001", 10.0, False),
        ("97", "98", 1e9, False),  # a whole number is exact
        ("nan", "1.0", 1.0, False),
        ("True", "1.0", 1.0, False),
    ],
)
def test_a_number_is_held_to_what_it_usually_is(got, expected, scale, same):
    assert _same_plain(got, expected, MATCH, scale=scale) is same


def test_what_a_number_usually_is_is_told_by_the_trials_with_the_same_weights():
    some = trials("9.0", "-11.0", "0.001", "30.0", "nan", "None")
    some.trials += trials("1e6", weights="randomised").trials
    assert plain_scale(some, some.trials[2], "sum") == 10.0
    assert plain_scale(some, some.trials[-1], "sum") == 1e6
    assert plain_scale(trials("'a'"), trials("'a'").trials[0], "sum") == 0.0
