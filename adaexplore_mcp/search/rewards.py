"""What a node is worth to those above it."""

import math

from adaexplore_mcp.search.nodes import Node, NodeStatus
from adaexplore_mcp.search.settings import SearchSettings

__all__ = ["reward"]

RIGHT = 0.4
"""Of a right kernel at the slowest end of the scale; the fastest has SPAN more."""
SPAN = 1.2
SLOWEST = 0.1
FASTEST = {"clipped": 10.0, "log": 100.0}

WRONG = 0.05
"""Of a kernel that compiles and is wrong, whatever the kind."""

WRONG_BY_KIND: dict[NodeStatus, float] = {
    "incorrect": 0.12,  # it runs: the nearest to being right
    "runtime_error": 0.05,
    "out_of_memory": 0.05,
    "timeout": 0.02,
    "crashed": 0.02,
}


def reward(node: Node, settings: SearchSettings) -> float:
    """Return the reward of a node: 0 not compiled, up to 0.12 wrong, 0.4 to 1.6 right."""
    if not node.compiled:
        return 0.0
    if not node.right:
        return WRONG_BY_KIND[node.status] if settings.failure_rewards else WRONG
    fastest = FASTEST[settings.reward_scale]
    speedup = min(max(node.value, SLOWEST), fastest)
    if settings.reward_scale == "log":
        return RIGHT + SPAN * math.log(speedup / SLOWEST) / math.log(fastest / SLOWEST)
    return RIGHT + SPAN * (speedup - SLOWEST) / (fastest - SLOWEST)
