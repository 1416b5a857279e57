"""Launches that are left out."""

from adaexplore_mcp.evaluation.workers.omission import Omission

ASKED = {"kernels": [], "most_programs": -1}


def test_nothing_is_left_out_unless_it_is_asked_for():
    for asked in (None, ASKED):
        assert not Omission.of(asked).takes("kernel", (1 << 20, 1, 1))


def test_kernels_are_left_out_by_name_or_all_of_them():
    named = Omission.of({**ASKED, "kernels": ["one"]})
    assert [named.takes(kernel, (1, 1, 1)) for kernel in ("one", "other", "one")] == [True, False, True]
    assert named.count == 2
    assert Omission.of({**ASKED, "kernels": ["*"]}).takes("any", (1, 1, 1))


def test_launches_are_left_out_where_more_programs_would_run_than_asked_for():
    few = Omission.of({**ASKED, "most_programs": 8})
    assert [few.takes("kernel", grid) for grid in ((2, 3, 1), (3, 1, 1), (2, 1, 1), (1, 1, 1))] == [
        False,
        True,
        False,
        True,
    ]
    assert Omission.of({**ASKED, "most_programs": 0}).takes("kernel", (1, 1, 1))
