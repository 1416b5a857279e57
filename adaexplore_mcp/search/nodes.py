"""A node: one kernel with its outcome, as the search sees it."""

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard, get_args

__all__ = ["ROOT", "Kind", "Node", "NodeStatus", "Score", "makes_node"]

ROOT: Final = 0
"""Id of the empty root, which every search has and nobody stores."""

Kind = Literal["small", "large"]
"""small: an edit of the parent; large: a whole new kernel."""

NodeStatus = Literal[
    "correct",
    "plausible",
    "incorrect",
    "runtime_error",
    "timeout",
    "crashed",
    "out_of_memory",
    "compile_error",
    "rejected",
]
"""The statuses of an outcome that make a node; all others cost no step."""

Score = tuple[bool, bool, float]
"""(compiled, correct, speedup if correct else 0): compared as tuples."""

RIGHT = ("correct", "plausible")
NOT_COMPILED = ("compile_error", "rejected")
STATUSES = frozenset(get_args(NodeStatus))


def makes_node(status: str) -> TypeGuard[NodeStatus]:
    """Tell whether an outcome of this status becomes a node; `unsupported`, `interrupted` and faults of ours do not."""
    return status in STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One kernel with its outcome.

    Args:
        id: 1 or greater, unlike every other of the run.
        parent: Id of the node it was made from; `ROOT` for the first kernels.
        kind: How it was made.
        status: What became of it.
        step: Step that asked for it; 0 for a kernel that a run begins with.
        speedup: Against the task's reward baseline; None where nothing was timed, which counts as 1.0.
        low: Lower end of the speedup's interval, if there is one.
        eligible: False if its own kernels do none of the work: then it counts as no faster than 1.0 and is never the best.
        charged: False if it costs no step of the budget.
        roofline_share: Share of the device's ceiling that it reaches, 0 to 1.
    """

    id: int
    parent: int
    kind: Kind
    status: NodeStatus
    step: int = 0
    speedup: float | None = None
    low: float | None = None
    eligible: bool = True
    charged: bool = True
    roofline_share: float | None = None

    def __post_init__(self) -> None:
        if self.id <= ROOT or self.parent < ROOT or self.id == self.parent:
            raise ValueError(f"node {self.id} with parent {self.parent}: ids of nodes begin with {ROOT + 1}")
        if self.kind == "small" and self.parent == ROOT:
            raise ValueError(f"node {self.id}: a small step needs a kernel to edit, and the root has none")
        if not makes_node(self.status):
            raise ValueError(f"node {self.id}: an outcome that is {self.status!r} makes no node")
        for name, value in (("speedup", self.speedup), ("low", self.low)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"node {self.id}: {name} {value} is no ratio of times")

    @property
    def right(self) -> bool:
        """Whether it computes what the task asks for, as far as could be judged."""
        return self.status in RIGHT

    @property
    def compiled(self) -> bool:
        """Whether it counts as compiled; one that broke the rules of measurement does not."""
        return self.status not in NOT_COMPILED

    @property
    def value(self) -> float:
        """The speedup that counts: 0 if wrong, 1.0 if not timed, at most 1.0 if not eligible."""
        if not self.right:
            return 0.0
        speedup = 1.0 if self.speedup is None else self.speedup
        return speedup if self.eligible else min(speedup, 1.0)

    @property
    def score(self) -> Score:
        """What is compared to find the best node of a segment."""
        return (self.compiled, self.right, self.value)

    def cautious_score(self) -> Score:
        """Return the score with the lower end of the speedup's interval, where there is one, instead of the speedup."""
        value = self.value
        return (self.compiled, self.right, value if self.low is None else min(value, self.low))
