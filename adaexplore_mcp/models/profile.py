"""Profiles: what holds a kernel back."""

from typing import Literal

from adaexplore_mcp.models.outcomes import CompiledKernel
from adaexplore_mcp.models.values import FiniteFloat, Value

__all__ = ["Basis", "Bound", "Cause", "Profile"]

Bound = Literal["memory", "arithmetic", "latency", "unknown"]
"""What a kernel spends its time on: moving bytes, computing, or waiting (launches, dependencies, too little work at once)."""

Basis = Literal["measured", "from binary", "inferred"]
"""How a cause is known: by a counter or a clock, by the compiled code, or by arithmetic on shapes and sizes."""


class Cause(Value):
    """One thing that holds a candidate back, with what shows it and what usually helps."""

    name: str
    """spilled_registers, tiny_grid, narrow_access, extra_traffic, no_tensor_cores, low_occupancy, many_launches, …"""
    kernel: str = ""
    """The kernel it is about; empty for all of them."""
    evidence: str
    remedy: str
    basis: Basis


class Profile(Value):
    """What bounds a candidate at one workload, and what may help."""

    summary: str
    next_step: str = ""
    task_id: str = ""
    candidate_id: str = ""
    workload: str = ""
    target: str = ""
    bound: Bound = "unknown"
    headroom: FiniteFloat = None
    """How many times faster the GPU could do the task's bytes and FLOPs, by measured ceilings; None where it is not known."""
    causes: list[Cause] = []
    """The three that matter most, worst first."""
    kernels: list[CompiledKernel] = []
    notes: list[str] = []
