"""A search as a picture: the best speedup by step above, the tree below, failures marked."""

import io
import math
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.search import ROOT, Node, Search, gains, tree_view

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

__all__ = ["drawn", "png"]

SMOOTH = 2
"""How many times as large as it is shown the picture is drawn."""
WIDTH, HEIGHT = 1000 * SMOOTH, 780 * SMOOTH
LEFT, RIGHT, TOP = 64 * SMOOTH, 32 * SMOOTH, 70 * SMOOTH
CURVE_HEIGHT = 240 * SMOOTH
TREE_TOP = 400 * SMOOTH
TREE_BOTTOM = HEIGHT - 54 * SMOOTH
TEXT_SIZE = 13 * SMOOTH
LINE_HEIGHT = 18 * SMOOTH
NUMBER_SIZE, NUMBER_WIDTH = 10 * SMOOTH, 28 * SMOOTH
TITLE_LINES = 3
BLACK, GREY, LIGHT = (30, 30, 30), (150, 150, 150), (222, 222, 222)
BLUE, ORANGE, RED = (31, 90, 180), (214, 120, 20), (200, 40, 40)
MAX_DRAWN = 2000
"""Nodes of the tree that are drawn; more would be one blot."""


def drawn(search: Search, title: str, *, timed: bool) -> "Picture":
    """Return a picture, for `png`. It takes some 40 ms, in which the search must not grow.

    Args:
        search: What to draw.
        title: Its first line.
        timed: Whether kernels are timed; without it the curve counts right kernels.
    """
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - 60 ms, which only this picture pays

    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    draw.font = ImageFont.load_default(TEXT_SIZE)
    for number, line in enumerate(_lines(draw.font, title)):
        draw.text((LEFT, 8 * SMOOTH + LINE_HEIGHT * number), line, fill=BLACK)
    _curve(draw, search, timed=timed)
    _tree(draw, ImageFont.load_default(NUMBER_SIZE), search, timed=timed)
    return image


def png(image: "Picture") -> bytes:
    """Return a picture at the size it is shown in. It takes some 200 ms, in any thread."""
    file = io.BytesIO()
    image.reduce(SMOOTH).quantize(64).save(file, "PNG", optimize=True)
    return file.getvalue()


def _lines(font: "ImageFont | FreeTypeFont", text: str) -> list[str]:
    """Return a text in lines as wide as the picture; what needs more than a title's is cut, and ends so."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and font.getlength(longer) > WIDTH - LEFT - RIGHT:
            lines.append(word)
        else:
            lines[-1] = longer
    if len(lines) > TITLE_LINES:
        lines[TITLE_LINES - 1] += " …"
    return lines[:TITLE_LINES]


def _curve(draw: "ImageDraw", search: Search, *, timed: bool) -> None:
    """Draw the best speedup, or the number of right kernels, by charged step; failures as crosses at the foot."""
    steps = max(search.charged_steps, 1)
    if timed:
        points = [(0, 0.0), *((gain.charged_steps, gain.node.value) for gain in gains(search))]
    else:
        points = [(0, 0.0)]
    charged = right = 0
    failures = []
    for node in search.nodes:
        charged += node.charged
        right += node.right
        if not node.right:
            failures.append(charged)
        elif not timed:
            points.append((charged, float(right)))
    points.append((steps, points[-1][1]))
    levels = _ticks(max(value for _, value in points) or 1.0, whole=not timed)
    bottom = TOP + CURVE_HEIGHT

    def x_of(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y_of(value: float) -> float:
        return bottom - CURVE_HEIGHT * value / levels[-1]

    for value in levels:
        draw.line((LEFT, y_of(value), WIDTH - RIGHT, y_of(value)), fill=LIGHT, width=SMOOTH)
        label = f"{value:.3g}x" if timed else f"{value:.0f}"
        draw.text((LEFT - 8 * SMOOTH, y_of(value)), label, fill=BLACK, anchor="rm")
    for step in _ticks(steps, whole=True):
        if step > steps:
            break
        draw.text((x_of(step), bottom + 14 * SMOOTH), f"{step:.0f}", fill=BLACK, anchor="ma")
    line: list[tuple[float, float]] = []
    for (step, value), (after, _) in zip(points, [*points[1:], points[-1]], strict=True):
        line += [(x_of(step), y_of(value)), (x_of(after), y_of(value))]
    draw.line(line, fill=BLUE, width=2 * SMOOTH)
    for step in failures:
        _cross(draw, x_of(step), bottom + 7 * SMOOTH, 3 * SMOOTH)
    what = "best speedup by step" if timed else "right kernels by step (nothing is timed on this machine)"
    draw.text((LEFT, bottom + 36 * SMOOTH), f"{what}; x: a kernel that failed", fill=BLACK)


def _ticks(highest: float, *, whole: bool) -> list[float]:
    """Return about five round values from 0 on; the last is the highest, or above it."""
    exponent = math.floor(math.log10(highest / 4))
    apart = next(
        factor * 10.0**exponent for factor in (1, 2, 2.5, 5, 10) if factor * 10.0**exponent * 5 >= highest
    )
    if whole:
        apart = float(math.ceil(apart))
    return [apart * number for number in range(math.ceil(highest / apart - 1e-9) + 1)]


def _tree(draw: "ImageDraw", font: "ImageFont | FreeTypeFont", search: Search, *, timed: bool) -> None:
    """Draw the tree from the left to the right of each level: circles small steps, squares large ones."""
    views = tree_view(search)[:MAX_DRAWN]
    drawn = {view.id for view in views}
    depth = max(view.depth for view in views)
    leaves = [view.id for view in views if not drawn & set(view.children)]
    places: dict[int, float] = {node: float(index) for index, node in enumerate(leaves)}
    for view in reversed(views):  # children come after their parents
        below = [places[child] for child in view.children if child in drawn]
        if below:
            places[view.id] = (below[0] + below[-1]) / 2
    wide = max(len(leaves) - 1, 1)

    def at(node: int, level: int) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (places[node] / wide if len(leaves) > 1 else 0.5)
        return x, TREE_TOP + (TREE_BOTTOM - TREE_TOP) * level / max(depth, 1)

    for view in views:
        for child in view.children:
            if child in drawn:
                draw.line((*at(view.id, view.depth), *at(child, view.depth + 1)), fill=GREY, width=SMOOTH)
    best = search.best() if timed else ()
    size = (5 if len(views) < 300 else 3) * SMOOTH
    numbered = (WIDTH - LEFT - RIGHT) / wide > NUMBER_WIDTH
    for view in views:
        x, y = at(view.id, view.depth)
        _mark(draw, x, y, view.node, size, best=bool(best) and view.id == best[0].id)
        if numbered and view.node is not None:
            draw.text((x + 2 * size, y), str(view.id), fill=BLACK, font=font, anchor="lm")
    words = "square: large step, circle: small step, x: failed, hollow: torch did the work"
    words += (", ring: the best so far" if timed else "") + ("; numbers: nodes" if numbered else "")
    more = f"; the first {MAX_DRAWN} nodes" if len(search.entries) > MAX_DRAWN else ""
    draw.text((LEFT, HEIGHT - 28 * SMOOTH), f"{words}{more}", fill=BLACK)


def _mark(draw: "ImageDraw", x: float, y: float, node: Node | None, size: int, *, best: bool) -> None:
    box: Any = (x - size, y - size, x + size, y + size)
    if node is None:
        draw.polygon([(x, y - size), (x - size, y + size), (x + size, y + size)], fill=BLACK)
        return
    assert node.id != ROOT
    color = BLUE if node.kind == "large" else ORANGE
    shape = draw.rectangle if node.kind == "large" else draw.ellipse
    shape(box, fill=color if node.right and node.eligible else "white", outline=color, width=SMOOTH)
    if not node.right:
        _cross(draw, x, y, size / 2)
    if best:
        draw.ellipse(
            (x - 2 * size, y - 2 * size, x + 2 * size, y + 2 * size), outline=BLACK, width=2 * SMOOTH
        )


def _cross(draw: "ImageDraw", x: float, y: float, size: float) -> None:
    draw.line((x - size, y - size, x + size, y + size), fill=RED, width=int(1.5 * SMOOTH))
    draw.line((x - size, y + size, x + size, y - size), fill=RED, width=int(1.5 * SMOOTH))
