"""Profiles: what holds a kernel back."""

from typing import Literal

from adaexplore_mcp.models.outcomes import ArtifactRef, CompiledKernel
from adaexplore_mcp.models.values import FiniteFloat, Value

__all__ = ["Basis", "Bound", "Cause", "MeasuredKernel", "Profile"]

Bound = Literal["memory", "arithmetic", "latency", "unknown"]
"""What a kernel spends its time on: moving bytes, computing, or waiting (launches, dependencies, too little work at once)."""

Basis = Literal["measured", "from binary", "inferred"]
"""How a cause is known: by a counter or a clock, by the compiled code, or by arithmetic on shapes and sizes."""


class Cause(Value):
    """One thing that holds a candidate back, with what shows it and what usually helps."""

    name: str
    """spilled_registers, tiny_grid, narrow_access, bank_conflicts, extra_traffic, no_tensor_cores, low_occupancy, float64,
    many_launches, exposed_latency."""
    kernel: str = ""
    """The kernel it is about; empty for all of them."""
    evidence: str
    remedy: str
    basis: Basis


class MeasuredKernel(Value):
    """One kernel as it was measured, over all its launches in one call; without counters only its time is known."""

    kernel: str
    launches: int = 1
    us: float = 0.0
    """Of the device, in microseconds."""
    share: float = 0.0
    """Of the time of all kernels, 0 to 1."""
    memory_pct: FiniteFloat = None
    """Of what the memory system can do, the busiest part of it."""
    compute_pct: FiniteFloat = None
    """Of what the multiprocessors can do."""
    dram_bytes: int | None = None
    """Read and written."""
    occupancy_pct: FiniteFloat = None
    """Of the warps that a multiprocessor can hold."""


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
    measured: list[MeasuredKernel] = []
    """The longest first; empty where nothing was measured."""
    against: str = ""
    """The candidate that it was compared with."""
    differences: list[str] = []
    """From that one to this one, kernel by kernel."""
    artifacts: list[ArtifactRef] = []
    """The profiler's answer as it was, for read_artifact."""
    notes: list[str] = []
