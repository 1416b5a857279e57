"""Outcomes: what is asked about a candidate, and what became of it."""

from typing import Literal

from pydantic import Field

from adaexplore_mcp.models.timing import Effort, Timing
from adaexplore_mcp.models.values import FiniteFloat, Value

__all__ = [
    "ArtifactPage",
    "ArtifactRef",
    "BenchmarkRequest",
    "CompiledKernel",
    "ErrorExcerpt",
    "Evidence",
    "Facts",
    "Outcome",
    "PrecisionClass",
    "Scope",
    "Stage",
    "Status",
    "Target",
    "VerifyRequest",
]

Status = Literal[
    "correct",
    "plausible",
    "incorrect",
    "compile_error",
    "runtime_error",
    "timeout",
    "out_of_memory",
    "crashed",
    "rejected",
    "unsupported",
    "running",
    "interrupted",
    "cancelled",
]
"""What became of a candidate, or of the job that judges it."""

Stage = Literal["load", "construct", "run", "compile", "compare", "done"]
"""How far a candidate came: import, constructor, forward, compilation for the target, comparison."""

PrecisionClass = Literal["exact", "fp32", "tf32", "half", "none"]

Target = Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"]
"""What a candidate can be compiled for."""


class ErrorExcerpt(Value):
    """The first lines that matter of a failure."""

    type: str
    """Exception class, or the signal."""
    message: str
    """At most about 1,200 characters, head and tail."""
    line: int = 0
    """Line of the candidate's own source, counted from 1; 0 where none is known."""
    source: str = ""
    """That line's text."""
    kernel: str = ""
    """Name of the Triton kernel in which it happened."""


class Evidence(Value):
    """The numbers behind a comparison; of the worst output of the trial that decided."""

    output: str = ""
    """Which output, such as out, out[1] or out['mean']."""
    workload: str = ""
    trial: str = ""
    """What was special about this trial: fresh inputs, same address, random weights, scaled by -1, …"""
    index: list[int] = []
    """Where the worst element is."""
    got: FiniteFloat | str | None = None
    """The candidate's value there; text where it is not a finite number."""
    expected: FiniteFloat | str | None = None
    """The reference's value there."""
    bound: FiniteFloat = None
    """Largest difference allowed at that element."""
    outside_share: FiniteFloat = None
    """Share of elements outside the bound."""
    nrmse: FiniteFloat = None
    """Root of the summed squared error over that of expected around its mean."""
    zeros_would_pass: bool | None = None
    """Whether an output of zeros would have met the tolerance."""
    mean_would_pass: bool | None = None
    """Whether the constant mean of the expected output would have met the tolerance."""
    precision_class: PrecisionClass | None = None
    """How exact the candidate is, by its error against float64."""
    detail: str = ""
    """What else the check saw, in one sentence."""


class CompiledKernel(Value):
    """One kernel as compiled for the target; the worst configuration where several compiled."""

    kernel: str
    registers: int = 0
    """Registers per thread."""
    spill_bytes: int = 0
    """Bytes of local memory per thread used for spilled registers."""
    shared_bytes: int = 0
    """Shared memory per block, in bytes."""
    num_warps: int = 0
    num_stages: int = 0
    occupancy: FiniteFloat = None
    """Share of a multiprocessor's warps that its blocks can fill, 0 to 1."""
    occupancy_limit: str = ""
    """What keeps out one block more: registers, shared memory, threads or blocks."""
    configurations: int = 1
    """How many specialisations and autotune configurations of it were compiled."""
    failed_configurations: int = 0
    """How many exceeded the target's resources (an autotuner skips them)."""


class Facts(Value):
    """What was seen while the candidate ran; reported, not judged."""

    launches: dict[str, int] = {}
    """Launches per Triton kernel in one call."""
    operators: dict[str, int] = {}
    """Operators dispatched by torch in one call, most frequent first, views and allocations left out."""
    library_flops_share: FiniteFloat = None
    """Share of the task's FLOPs done by torch's own matrix products and convolutions, 0 to 1."""
    own_share: FiniteFloat = None
    """Share of the work in the candidate's own kernels, 0 to 1: of the device's time on a GPU, of calls without one."""
    device_us: dict[str, float] = {}
    """Device time of one call in microseconds: `own` kernels, and each operator of torch's, longest first."""
    source: list[str] = []
    """What a reader should look at in the source, with its line: fallbacks, flags, narrow types, text that is run."""
    shape_specialised: str = ""
    """Sizes near the task's own at which it fails, and how: it is made for its own. No fault where `vary` is silent."""
    autotuned: dict[str, int] = {}
    """Configurations per autotuned kernel."""
    configurations_checked: int = 0
    """How many autotune configurations were run for their numbers."""
    notes: list[str] = []
    """Anything else worth knowing, one sentence each."""


class Scope(Value):
    """What the verdict covers, and what it does not."""

    numerics: str = ""
    """Where the numbers were computed, such as interpreter (triton 3.9.0, torch 2.13.0)."""
    target: str = ""
    """What was compiled for, such as sm_90."""
    workloads: dict[str, str] = {}
    """Per workload: own sizes, or the reduced sizes used."""
    calls: int = 0
    """Times the candidate was called and compared."""
    not_covered: list[str] = []
    """What could not be judged here: races, timing, …"""
    isolation: str = ""
    """strong, partial or weak, with the layers in use."""


class ArtifactRef(Value):
    """A long text kept aside for read_artifact."""

    artifact_id: str
    kind: str
    """log, traceback, ptx, …"""
    size: int
    """Characters."""


class VerifyRequest(Value):
    """One candidate to judge against one task."""

    task_id: str
    source: bytes
    """The candidate as it was sent or read: any bytes."""
    target: Literal["", Target] = ""
    """What to compile for, without a GPU; empty: the GPU that is used, or the server's default."""
    device: str = ""
    """A GPU's label, index or UUID; cpu for none; empty for any."""
    timeout_s: float = Field(default=60.0, ge=1, le=600)
    """Time limit per stage, in seconds."""
    agent: str = ""
    """Label of who asks."""
    again: bool = False
    """Judge it anew even where a receipt answers."""
    edits: str | None = None
    """candidate_id of the kernel that it is an edit of; empty for a new one; None where nobody knows."""


class BenchmarkRequest(VerifyRequest):
    """One candidate to time against baselines, once it is found right."""

    baselines: list[str] = Field(default=[], max_length=5)
    """own, eager, compile, max_autotune or node:<id>; empty: the task's reward baseline."""
    effort: Effort = "quick"


class ArtifactPage(Value):
    """Part of a long text that was kept aside."""

    summary: str
    next_step: str = ""
    artifact_id: str
    kind: str = ""
    size: int = 0
    """Characters in the whole text."""
    offset: int = 0
    """Where this page begins, in characters."""
    has_more: bool = False
    next_offset: int = 0
    """Where the next page begins; 0 on the last."""
    text: str = ""


class Outcome(Value):
    """What became of one candidate; unused fields stay empty."""

    summary: str
    """One or two sentences for a person and a model."""
    next_step: str = ""
    """The call or the change that helps most now."""
    status: Status
    task_id: str = ""
    candidate_id: str = ""
    """Handle of the stored source: usable as node_id."""
    job_id: str = ""
    receipt_id: str = ""
    """Handle of the record that reproduces this outcome."""
    answered_from_receipt: bool = False
    """Whether that is the record of an earlier evaluation, and nothing was judged now."""
    stage: Stage | Literal[""] = ""
    """How far the candidate came."""
    check: str = ""
    """The check that decided against the candidate, such as values, shape, out_of_bounds, precision_class."""
    reason: str = ""
    """Why nothing could be decided, for unsupported."""
    error: ErrorExcerpt | None = None
    evidence: Evidence | None = None
    compiled: list[CompiledKernel] = []
    timing: Timing | None = None
    """What a benchmark measured, if the candidate is right."""
    facts: Facts | None = None
    scope: Scope | None = None
    rules: list[str] = []
    """Known rules that this failure or this source touches."""
    artifacts: list[ArtifactRef] = []
    seconds: dict[str, float] = {}
    """Wall time per stage and in total."""
    versions: dict[str, str] = {}
