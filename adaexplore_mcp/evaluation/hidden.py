"""Workloads that nobody is told of: sizes drawn from what a task's owner allows to vary.

A candidate that is right at the announced sizes alone, by a table of cases or a grid made for them, fails here. Sizes are
named in the outcome only of who fails at them; then others are drawn.
"""

import random
from collections.abc import Mapping

from adaexplore_mcp.models import SizeRange, Workload

__all__ = ["HIDDEN", "draw"]

HIDDEN = 2
"""Hidden workloads of a task that lets sizes vary."""


def draw(vary: Mapping[str, SizeRange], workload: Workload, number: int, chance: random.Random) -> Workload:
    """Return a workload with every size that may vary drawn anew, other than it is where that is possible.

    Args:
        vary: By size, its range.
        workload: Whose other sizes stay.
        number: For its name.
        chance: Source of randomness.
    """
    sizes = dict(workload.sizes)
    for name, limits in vary.items():
        step = limits.multiple_of
        values = range(-(-limits.min // step) * step, limits.max + 1, step)
        drawn = chance.choice(values)
        if drawn == workload.sizes.get(name) and len(values) > 1:
            drawn = values[(values.index(drawn) + 1) % len(values)]
        sizes[name] = drawn
    return Workload(name=f"(hidden {number})", sizes=sizes)
