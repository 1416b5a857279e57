"""Workloads that nobody announced: sizes drawn from what a task's owner allows to vary, or near its own for information.

A candidate that is right at the announced sizes alone, by a table of cases or a grid made for them, fails here. Where the
owner allows it, that is a fault, and the sizes are named in the outcome only of who fails at them; then others are drawn.
Where nothing is said it is a fact.
"""

import random
from collections.abc import Iterator, Mapping

from adaexplore_mcp.models import SizeRange, Workload

__all__ = ["HIDDEN", "draw", "neighbours"]

HIDDEN = 2
"""Hidden workloads of a task that lets sizes vary."""
SMALLEST = 3
"""A constant below is a rank or a flag more often than a size."""


def draw(vary: Mapping[str, SizeRange], workload: Workload, number: int, chance: random.Random) -> Workload:
    """Return a workload with every size that may vary drawn anew, other than it is where that is possible.

    The first has sizes of the upper half of what may be: what was made for fewer elements, or programs, fails there.

    Args:
        vary: By size, its range.
        workload: Whose other sizes stay.
        number: From 1 on; for its name too.
        chance: Source of randomness.
    """
    sizes = dict(workload.sizes)
    for name, limits in vary.items():
        step = limits.multiple_of
        values = range(-(-limits.min // step) * step, limits.max + 1, step)
        drawn = chance.choice(values[len(values) // 2 :] if number == 1 else values)
        if drawn == workload.sizes.get(name) and len(values) > 1:
            drawn = values[(values.index(drawn) + 1) % len(values)]
        sizes[name] = drawn
    return Workload(name=f"(hidden {number})", sizes=sizes)


def neighbours(constants: Mapping[str, int | None], workload: Workload) -> Iterator[Workload]:
    """Yield workloads at which one size is a little smaller and odd: first what a batch is called.

    Args:
        constants: Of the task, by name.
        workload: Whose other sizes stay.
    """
    sizes = {name: value for name, value in constants.items() if value is not None and value >= SMALLEST}
    for name in sorted(sizes, key=lambda name: "batch" not in name.lower()):
        smaller = sizes[name] - max(1, sizes[name] // 8)
        yield Workload(name="(other sizes)", sizes={**workload.sizes, name: smaller - (smaller % 2 == 0)})
