"""A search as a picture: the best speedup by step above, the tree below, failures marked."""

import io
from typing import TYPE_CHECKING, Any

from adaexplore_mcp.search import ROOT, Node, Search, gains, tree_view

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["plot"]

WIDTH, HEIGHT = 1000, 760
LEFT, RIGHT, TOP = 70, 20, 46
CURVE_HEIGHT = 250
TREE_TOP = 380
TREE_BOTTOM = HEIGHT - 50
BLACK, GREY, LIGHT = (30, 30, 30), (150, 150, 150), (222, 222, 222)
BLUE, ORANGE, RED = (31, 90, 180), (214, 120, 20), (200, 40, 40)
MAX_DRAWN = 2000
"""Nodes of the tree that are drawn; more would be one blot."""


def plot(search: Search, title: str, *, timed: bool) -> bytes:
    """Return a PNG.

    Args:
        search: What to draw.
        title: Its first line.
        timed: Whether kernels are timed; without it the curve counts right kernels.
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415 - 60 ms, which only this picture pays

    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    draw.text((LEFT, 12), title[:150], fill=BLACK)
    _curve(draw, search, timed=timed)
    _tree(draw, search, timed=timed)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


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
    highest = max(value for _, value in points) * 1.1 or 1.0
    bottom = TOP + CURVE_HEIGHT

    def x_of(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y_of(value: float) -> float:
        return bottom - CURVE_HEIGHT * value / highest

    for part in range(5):
        value = highest * part / 4
        draw.line((LEFT, y_of(value), WIDTH - RIGHT, y_of(value)), fill=LIGHT)
        draw.text((12, y_of(value) - 6), f"{value:.3g}x" if timed else f"{value:.0f}", fill=BLACK)
        draw.text((x_of(steps * part / 4) - 8, bottom + 14), f"{steps * part // 4}", fill=BLACK)
    line: list[tuple[float, float]] = []
    for (step, value), (after, _) in zip(points, [*points[1:], points[-1]], strict=True):
        line += [(x_of(step), y_of(value)), (x_of(after), y_of(value))]
    draw.line(line, fill=BLUE, width=3)
    for step in failures:
        _cross(draw, x_of(step), bottom + 7, 3)
    what = "best speedup by step" if timed else "right kernels by step (nothing is timed on this machine)"
    draw.text((LEFT, bottom + 32), f"{what}; x: a kernel that failed", fill=BLACK)


def _tree(draw: "ImageDraw", search: Search, *, timed: bool) -> None:
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
                draw.line((*at(view.id, view.depth), *at(child, view.depth + 1)), fill=GREY)
    best = search.best() if timed else ()
    size = 5 if len(views) < 300 else 3
    for view in views:
        _mark(draw, *at(view.id, view.depth), view.node, size, best=bool(best) and view.id == best[0].id)
    words = "square: large step, circle: small step, x: failed" + (", ring: the best so far" if timed else "")
    more = f"; the first {MAX_DRAWN} nodes" if len(search.entries) > MAX_DRAWN else ""
    draw.text((LEFT, HEIGHT - 28), f"{words}{more}", fill=BLACK)


def _mark(draw: "ImageDraw", x: float, y: float, node: Node | None, size: int, *, best: bool) -> None:
    box: Any = (x - size, y - size, x + size, y + size)
    if node is None:
        draw.polygon([(x, y - size), (x - size, y + size), (x + size, y + size)], fill=BLACK)
        return
    assert node.id != ROOT
    color = BLUE if node.kind == "large" else ORANGE
    fill = color if node.right else "white"
    if node.kind == "large":
        draw.rectangle(box, fill=fill, outline=color)
    else:
        draw.ellipse(box, fill=fill, outline=color)
    if not node.right:
        _cross(draw, x, y, size)
    if best:
        draw.ellipse((x - 2 * size, y - 2 * size, x + 2 * size, y + 2 * size), outline=BLACK, width=2)


def _cross(draw: "ImageDraw", x: float, y: float, size: int) -> None:
    draw.line((x - size, y - size, x + size, y + size), fill=RED, width=2)
    draw.line((x - size, y + size, x + size, y - size), fill=RED, width=2)
