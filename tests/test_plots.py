import io

import pytest
from PIL import Image

from adaexplore_mcp.search import ROOT, Node, Search, SearchSettings
from adaexplore_mcp.services.plots import LEFT, RIGHT, SMOOTH, TITLE_LINES, WIDTH, _lines, _ticks, drawn, png


def a_search() -> Search:
    """Return a search of a large step, a faster small one, and one of each that failed."""
    search = Search(SearchSettings.preset("paper"), 1)
    for number, (parent, kind, status, speedup) in enumerate(
        [
            (ROOT, "large", "correct", 1.5),
            (1, "small", "correct", 2.5),
            (1, "small", "incorrect", None),
            (ROOT, "large", "compile_error", None),
        ],
        1,
    ):
        search.record(Node(id=number, parent=parent, kind=kind, status=status, speedup=speedup))
    return search


@pytest.mark.parametrize("timed", [True, False])
def test_a_search_is_a_png_of_the_size_it_is_shown_in(timed):
    with Image.open(io.BytesIO(png(drawn(a_search(), "a title", timed=timed)))) as image:
        assert (image.format, image.width) == ("PNG", WIDTH // SMOOTH)


def test_a_search_without_kernels_has_a_picture_too():
    assert png(drawn(Search(SearchSettings(), 1), "", timed=True)).startswith(b"\x89PNG")


def test_a_long_title_is_broken_into_lines_and_says_where_it_is_cut():
    font = _font()
    title = " ".join(f"word{number}" for number in range(40))
    lines = _lines(font, title)
    assert len(lines) > 1
    assert " ".join(lines) == title
    assert all(font.getlength(line) <= WIDTH - LEFT - RIGHT for line in lines)
    cut = _lines(font, title * 10)
    assert len(cut) == TITLE_LINES
    assert cut[-1].endswith(" …")


def _font():
    from PIL import ImageFont

    return ImageFont.load_default(26)


@pytest.mark.parametrize(
    ("highest", "whole", "expected"),
    [
        (1.0, False, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (7.4, False, [0, 2, 4, 6, 8]),
        (0.03, False, [0, 0.01, 0.02, 0.03]),
        (3, True, [0, 1, 2, 3]),
        (200, True, [0, 50, 100, 150, 200]),
    ],
)
def test_ticks_are_round_and_reach_the_highest_value(highest, whole, expected):
    assert _ticks(highest, whole=whole) == pytest.approx(expected)


def test_a_kernel_whose_work_torch_did_does_not_look_like_one_of_its_own():
    pictures = set()
    for eligible in (True, False):
        search = Search(SearchSettings.preset("paper"), 1)
        search.record(Node(id=1, parent=ROOT, kind="large", status="correct", eligible=eligible))
        pictures.add(png(drawn(search, "a title", timed=False)))
    assert len(pictures) == 2
