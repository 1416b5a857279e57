"""Ranks rest on what is sure, not on how often something was shown."""

import pytest

from adaexplore_mcp.rules.ranking import effect


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [
        ((60, 100), (2, 100), True),
        ((2, 100), (60, 100), False),
        ((1, 2), (0, 1), False),  # too few to be sure of
        ((0, 0), (0, 50), False),
        ((30, 100), (25, 100), False),
    ],
)
def test_a_rule_helps_where_surely_fewer_kernels_break_it_once_it_is_shown(before, after, helps):
    assert (effect(*before, *after) > 0) is helps


def test_it_is_a_share():
    assert 0.9 < effect(10_000, 10_000, 0, 10_000) <= 1.0
