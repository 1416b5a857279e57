"""What an agent is shown: working memory with a small step, the kernel pool with a large one."""

import math
from random import Random

from adaexplore_mcp.search.nodes import Node
from adaexplore_mcp.search.settings import SearchSettings
from adaexplore_mcp.search.tree import Entry, Segments

__all__ = ["draw_pool", "pool_candidates", "working_memory"]


def working_memory(entry: Entry, size: int) -> tuple[int, ...]:
    """Return the last nodes of the path from the nearest large step to this entry, the oldest first."""
    path: list[int] = []
    for above in entry.upwards():
        if above.node is None or len(path) == size:
            break
        path.append(above.node.id)
        if above.node.kind == "large":
            break
    return tuple(reversed(path))


def pool_candidates(entry: Entry) -> list[Node]:
    """Return the best right kernel of each segment on the path from the root to this entry, the outermost first."""
    if entry.segment is None:
        return []
    return [segment.best for segment in entry.segment.outwards() if segment.best is not None]


def draw_pool(
    entry: Entry, segments: Segments, settings: SearchSettings, generator: Random
) -> tuple[int, ...]:
    """Return the kernels that a large step is to beat: those on the path, then, where there is room, some from off it."""
    chosen = pool_candidates(entry)
    if len(chosen) > settings.pool_size:
        kept = sorted(generator.sample(range(len(chosen)), settings.pool_size))
        chosen = [chosen[index] for index in kept]
    room = min(settings.pool_size - len(chosen), settings.pool_extra_max)
    if room > 0:
        chosen += _off_path(entry, segments, room, settings, generator)
    return tuple(node.id for node in chosen)


def _off_path(
    entry: Entry, segments: Segments, room: int, settings: SearchSettings, generator: Random
) -> list[Node]:
    """Draw up to `room` kernels of other segments, without replacement, by softmax of their speedups."""
    on_path = set() if entry.segment is None else {segment.head.id for segment in entry.segment.outwards()}
    others = [
        segment.best
        for segment in segments.ranked
        if segment.best is not None and segment.head.id not in on_path
    ]
    if not others:
        return []
    shares = [(1 - settings.pool_extra_p) ** number for number in range(room + 1)]
    number = generator.choices(range(room + 1), shares)[0] if sum(shares) else 0
    drawn: list[Node] = []
    while others and len(drawn) < number:
        fastest = max(node.value for node in others)
        weights = [math.exp((node.value - fastest) / settings.pool_temperature) for node in others]
        drawn.append(others.pop(generator.choices(range(len(others)), weights)[0]))
    return drawn
