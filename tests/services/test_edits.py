"""What stands for a change on one line."""

import pytest

from adaexplore_mcp.services.edits import MAX_TELLING, change_of
from adaexplore_mcp.services.searchwords import beginning

CALL = "    _kernel[grid](x, residual, weight, out, hidden, epsilon, BLOCK={block}, num_warps={warps}, num_stages={stages})"
USUAL = {"block": 1024, "warps": 4, "stages": 3}


def of(**changes):
    return f"def f(x):\n    y = 1\n{CALL.format(**USUAL | changes)}\n    return y\n".encode()


@pytest.mark.parametrize(
    ("changes", "shown"),
    [({"block": 2048}, "BLOCK=2048"), ({"warps": 8}, "num_warps=8"), ({"stages": 1}, "num_stages=1")],
)
def test_a_change_of_a_long_line_shows_where_it_differs(changes, shown):
    said = change_of(of(), of(**changes))
    assert said.startswith("+1 -1: …")
    assert shown in said
    assert len(said) <= len("+1 -1: ") + MAX_TELLING


def test_three_edits_of_one_line_read_differently():
    edits = [of(block=2048), of(block=4096), of(warps=8), of(stages=4), of(stages=5)]
    assert len({change_of(of(), edit) for edit in edits}) == len(edits)


def test_a_long_part_that_differs_is_shown_from_its_beginning():
    old = b"value = tl.load(pointer + offset, mask=inside, other=0.0)\n"
    new = b"value = tl.load(pointer + offset, mask=inside & (row < rows) & (column < columns) & (batch < batches), other=0.0)\n"
    assert " & (row < rows) & (column" in change_of(old, new)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"", b"a\nb\n", "2 lines"),
        (b"a = 10\n", b"a = 20\n", "+1 -1: a = 20"),
        (b"a = 10\nb = 20\n", b"a = 10\n", "+0 -1: b = 20"),
        (b"a = 10\n", b"a = 10\n" + b"x" * 70, "+1 -0: " + "x" * 58 + "…"),
        (b"a = 10\n)\n", b"a = 10\n]\n", "+1 -1"),
    ],
)
def test_a_change_is_counted_and_named(old, new, said):
    assert change_of(old, new) == said


def test_a_reason_is_cut_after_a_word_and_keeps_the_values_that_differ():
    reason = (
        "Incorrect: right to TF32 precision only, where a float32 task asks for float32 arithmetic: out at [2, 105] is "
        "0.77, expected 0.75"
    )
    assert beginning(reason) == reason
    assert beginning(f"{reason} {'and so on ' * 30}").startswith(reason)
    assert beginning("one two three", 9) == "one two…"
    assert beginning("x" * 20, 9) == "x" * 8 + "…"
