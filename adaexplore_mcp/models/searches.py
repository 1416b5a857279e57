"""Searches: what agents send, and what they get."""

from typing import Any, Literal

from pydantic import Field

from adaexplore_mcp.models.values import FiniteFloat, Parameter, Value

__all__ = [
    "ContextMode",
    "Edit",
    "KernelAnswer",
    "KernelFormat",
    "NodeRow",
    "RunPage",
    "RunRow",
    "RunView",
    "RunViewName",
    "SearchAnswer",
    "SearchRequest",
    "StartKernel",
]

ContextMode = Literal["new", "full", "ids"]
"""new: kernels this agent got or wrote are only named; full: all are shown; ids: none is."""

RunViewName = Literal["summary", "tree", "pool", "history", "plot"]
KernelFormat = Literal["source", "standalone", "patch"]


class Edit(Parameter):
    """One change of the parent's text."""

    old: str = Field(min_length=1)
    """Stands exactly once in the parent."""
    new: str = ""


class StartKernel(Value):
    """A kernel that a run begins with."""

    path: str
    """Relative to its root."""
    source: bytes


class SearchRequest(Value):
    """What an agent asks of a search, files read."""

    task_id: str = ""
    """Begins a run."""
    run_id: str = ""
    """Goes on with one."""
    step_id: str = ""
    """The step that a kernel is for."""
    source: bytes | None = None
    """A whole kernel; None where none was sent."""
    edits: list[Edit] = []
    idea: str = ""
    agent: str = ""
    seed: int = 0
    max_steps: int = 0
    """Budget; 0: the preset's."""
    preset: str = "default"
    device: str = ""
    """The only GPU that is to judge a run's kernels: label, index or UUID; empty for any."""
    starts: list[StartKernel] = []
    context: ContextMode = "new"
    resume: bool = False


class SearchAnswer(Value):
    """What became of a submission, and what to do next."""

    summary: str
    next_step: str = ""
    status: str
    """Of the outcome, where a kernel was submitted; else open or stopped."""
    run_id: str
    step_id: str = ""
    """The step that waits for a kernel now."""
    kind: Literal["", "small", "large"] = ""
    parent: str = ""
    """node_id of the kernel that a small step edits."""
    node_id: str = ""
    """The node that the submitted kernel became, or that it equals."""
    duplicate: bool = False
    """Whether the submitted kernel equals an earlier one: it cost no step."""
    receipt_id: str = ""
    outcome: dict[str, Any] = {}
    """What was found about the submitted kernel, in short."""
    steps_left: int = 0
    best: str = ""
    """node_id of the fastest kernel, where kernels are timed."""
    stop_reason: str = ""
    text: str = ""
    """The proposal, to be read."""


class NodeRow(Value):
    """One kernel of a run."""

    node: int
    """Number in its run."""
    node_id: str = ""
    """Handle for get_kernel and for compile_and_verify."""
    parent: int
    """0 for the root."""
    kind: Literal["small", "large"]
    status: str
    speedup: FiniteFloat = None
    visits: int = 0
    """Of the node and all below it: one for each node."""
    reward: FiniteFloat = None
    """Of the node alone: 0 not compiled, 0.05 wrong, 0.4 to 1.6 right, by its speedup (1.0 where nobody timed it: 0.51)."""
    subtree_mean: FiniteFloat = None
    """Mean reward of the node and all below it: what the search goes by."""
    agent: str = ""
    idea: str = ""
    change: str = ""
    """What it changes of its parent."""
    detail: str = ""
    """Why it failed, or what it may not be called."""


class RunRow(Value):
    """A search among others."""

    run_id: str
    task_id: str
    status: str
    nodes: int
    agent: str = ""


class RunPage(Value):
    """The latest searches."""

    summary: str
    next_step: str = ""
    runs: list[RunRow] = []


class RunView(Value):
    """The state of a search."""

    summary: str
    next_step: str = ""
    run_id: str
    task_id: str
    status: str
    """open or stopped."""
    view: RunViewName = "summary"
    stop_reason: str = ""
    device: str = ""
    """UUID of the only GPU that judges its kernels; empty for any."""
    steps_done: int = 0
    steps_left: int = 0
    counts: dict[str, int] = {}
    """Nodes per status."""
    best: str = ""
    result: str = ""
    """What the last evaluations of the best kernels found."""
    open_steps: list[str] = []
    """Proposals out now: step_id, agent, kind and parent."""
    has_more: bool = False
    next_cursor: int = 0
    nodes: list[NodeRow] = []


class KernelAnswer(Value):
    """A kernel of a run."""

    summary: str
    next_step: str = ""
    status: str
    node_id: str
    receipt_id: str = ""
    speedup: FiniteFloat = None
    outcome: dict[str, Any] = {}
    text: str = ""
    """The source, or the patch."""
