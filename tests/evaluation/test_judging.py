"""How numbers that are no tensors are compared."""

import pytest

from adaexplore_mcp.evaluation.judging import _same_plain

MATCH = {"precision": "match"}


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
