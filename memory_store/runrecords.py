"""What the store gives back about searches: runs, steps and nodes as typed, immutable values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from adaexplore_mcp.memory_store.records import Owner

__all__ = [
    "FreshNode",
    "NodeRecord",
    "Purpose",
    "RunRecord",
    "StepRecord",
    "StepState",
    "TreeRow",
    "node_handle",
    "read_node_handle",
]

NOBODY = Owner("", 0, 0)

Purpose = Literal["start", "ask", "final"]
"""A kernel that the run begins with; a proposal to an agent; the best, evaluated again at the end."""

StepState = Literal["open", "submitted", "answered", "expired"]
"""Waits for a kernel; has one that is judged, or was when a server ended; done; given out again under another id."""


def node_handle(run_id: str, node: int) -> str:
    """Return the handle of a run's node, as guessable as the run's own: node_7k2mhd93xqap_12."""
    return f"node_{run_id.partition('_')[2]}_{node}"


def read_node_handle(handle: str) -> tuple[str, int] | None:
    """Return run and number of a node's handle; None where it is none."""
    found = re.fullmatch(r"node_([a-z0-9]+)_([1-9][0-9]{0,8})", handle)
    return (f"run_{found[1]}", int(found[2])) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One search."""

    run_id: str
    task_id: str
    settings: Mapping[str, Any]
    seed: int
    max_steps: int
    status: Literal["open", "stopped"] = "open"
    stop_reason: str = ""
    resumed_at: int | None = None
    """Charged steps when somebody last had it go on."""
    round: int = 0
    """How often it went on."""
    next_step: int = 1
    """Number of the next proposal."""
    version: int = 0
    """Grows with every change of the run, its steps or nodes."""
    agent: str = ""
    device: str = ""
    """UUID of the only GPU that judges its kernels; empty for any."""
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A proposal with what was submitted for it; or a kernel that the run itself has judged."""

    step_id: str
    run_id: str
    step: int
    purpose: Purpose = "ask"
    kind: Literal["small", "large"]
    parent: int
    context: tuple[int, ...] = ()
    forced: bool = False
    agent: str = ""
    state: StepState = "open"
    leased_until: float = 0.0
    """When it may be given to somebody else, in seconds since the epoch."""
    candidate_id: str | None = None
    digest: str = ""
    """Equal for kernels of the same syntax tree."""
    idea: str = ""
    change: str = ""
    """What it changes of its parent, on one line."""
    path: str = ""
    """Where the kernel was read, for one that the run begins with: relative to its root."""
    charged: bool = True
    owner: Owner = NOBODY
    """Who works on a submitted one, or has it in line."""
    claimed_at: float = 0.0
    """When its evaluation began; 0: not begun."""
    node: int | None = None
    """The node that it became, or that it equals."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The outcome as it was answered."""
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """A node as the search needs it."""

    node: int
    parent: int
    kind: Literal["small", "large"]
    step: int
    status: str
    speedup: float | None
    low: float | None
    eligible: bool
    charged: bool
    roofline_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshNode:
    """What an outcome says about the node that it makes."""

    status: str
    speedup: float | None = None
    low: float | None = None
    eligible: bool = True
    roofline_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node with all that is known about it."""

    run_id: str
    tree: TreeRow
    digest: str
    candidate_id: str
    idea: str
    change: str
    path: str
    agent: str
    outcome: Mapping[str, Any]
    created_at: float

    @property
    def node_id(self) -> str:
        """The handle under which callers name it."""
        return node_handle(self.run_id, self.tree.node)
