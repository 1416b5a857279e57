"""Values that cross the boundary: what callers send, what tools answer, what the store keeps.

Frozen pydantic models that refuse unknown fields. A field that does not apply keeps its empty default and is left
out on the wire, so an answer costs no tokens for what it does not say. No float is ever NaN or infinite: such a value
becomes None.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "ArtifactPage",
    "ArtifactRef",
    "Check",
    "CompiledKernel",
    "Device",
    "Domain",
    "ErrorExcerpt",
    "Evidence",
    "Facts",
    "JobPage",
    "JobView",
    "LibraryOps",
    "Outcome",
    "Parameter",
    "Policy",
    "Precision",
    "PrecisionClass",
    "RegisterRequest",
    "SizeRange",
    "Stage",
    "Status",
    "Target",
    "TaskFormat",
    "TaskPage",
    "TaskSummary",
    "TensorSpec",
    "Value",
    "VerifyRequest",
    "Workload",
    "WorkloadReport",
    "json_safe",
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

Precision = Literal["match", "relaxed", "kernelbench", "paper", "custom"]
PrecisionClass = Literal["exact", "fp32", "tf32", "half", "none"]
LibraryOps = Literal["report", "allow", "forbid"]
TaskFormat = Literal["kernelbench", "function"]
Target = Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"]
"""What a candidate can be compiled for."""


def _finite(value: float | None) -> float | None:
    """Turn NaN and infinities into None: neither exists in JSON."""
    return value if value is None or math.isfinite(value) else None


FiniteFloat = Annotated[float | None, AfterValidator(_finite)]
"""A float that JSON can carry; None where there is no finite value."""


class Value(BaseModel):
    """Base of all values: immutable, closed, documented by its attribute docstrings."""

    # Validators are built at the first use of a class: the first tools/list would wait 20 ms for all of them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def to_wire(self) -> dict[str, Any]:
        """Return data that JSON can carry, without the fields that still hold their default."""
        data: dict[str, Any] = json_safe(self.model_dump(mode="json", exclude_defaults=True))
        return data


def json_safe(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return JSON data with None for NaN and infinities, and without lone surrogates, which no JSON text can carry."""
    match value:
        case float():
            return _finite(value)
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case dict():
            return {json_safe(key): json_safe(item) for key, item in value.items()}
        case list() | tuple():
            return [json_safe(item) for item in value]
    return value


# --- tasks -----------------------------------------------------------------------------------------------


class Parameter(Value):
    """Base of what callers send: its attribute docstrings become the schema they see."""

    # Not for every value: pydantic reads the source of each class for them, 2 ms at import.
    model_config = ConfigDict(use_attribute_docstrings=True)


class Workload(Parameter):
    """One set of sizes at which a task is judged."""

    name: str = Field(min_length=1, max_length=80)
    sizes: dict[str, int | Annotated[float, Field(allow_inf_nan=False)] | str | bool] = {}
    """The reference's size constants, by name."""
    weight: float = Field(default=1.0, gt=0, le=1e6)


class SizeRange(Parameter):
    """How far a size may change in hidden workloads: multiples of `multiple_of` from `min` to `max`, both included."""

    min: int = Field(ge=1)
    max: int = Field(ge=1)
    multiple_of: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _holds_a_value(self) -> "SizeRange":
        if self.max // self.multiple_of * self.multiple_of < self.min:
            msg = f"no multiple of {self.multiple_of} lies between {self.min} and {self.max}"
            raise ValueError(msg)
        return self


Domain = Annotated[str, Field(pattern=r"^(keep|normal|nonnegative|probability|index\([1-9][0-9]*\))$")]
"""Values an input or parameter may take: keep, normal, nonnegative, probability or index(N)."""


class Policy(Parameter):
    """What counts as right, fixed by the owner of a task."""

    precision: Precision = "match"
    """match: as exact as the reference. relaxed: half arithmetic too. kernelbench: 1e-4 fp32, 1e-2 half. paper: 5e-2.
    custom: atol, rtol."""
    library_ops: LibraryOps = "report"
    """Torch calls that do the work: forbid, or report their share (allow: the same)."""
    atol: float = Field(default=0.0, ge=0, le=1e3)
    rtol: float = Field(default=0.0, ge=0, le=1e3)
    max_outlier_share: float = Field(default=0.0, ge=0, le=0.5)
    """Share of elements allowed outside."""

    @model_validator(mode="after")
    def _tolerances_belong_to_custom(self) -> "Policy":
        given = self.atol > 0 or self.rtol > 0 or self.max_outlier_share > 0
        if given and self.precision != "custom":
            msg = f"atol, rtol and max_outlier_share need precision 'custom', not {self.precision!r}"
            raise ValueError(msg)
        if self.precision == "custom" and not (self.atol > 0 or self.rtol > 0):
            msg = "precision 'custom' needs atol or rtol"
            raise ValueError(msg)
        return self


class TensorSpec(Value):
    """One input, output or parameter of a task."""

    name: str
    """Name in the signature, with the path inside containers: x, batch['keep'], xs[0]."""
    dtype: str
    """Torch's name without the prefix, such as float32; for a plain Python value its type."""
    shape: list[int] = []
    """Sizes; empty for a scalar or a plain value."""


class WorkloadReport(Value):
    """What a task costs at one workload."""

    name: str
    sizes: dict[str, int | float | str | bool] = {}
    weight: float = 1.0
    flops: int = 0
    """Floating-point operations of the reference's matrix products and convolutions (torch FlopCounterMode)."""
    bytes: int = 0
    """Each input, parameter and output once, in bytes."""
    judged_at: Literal["own sizes", "reduced sizes"] = "own sizes"
    """Sizes at which numbers are compared on this machine."""
    reduced: dict[str, int] = {}
    """Lowered size constants, where the task's own sizes cost too much without a GPU."""
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []


class RegisterRequest(Value):
    """A task as its owner describes it; files are read and paths checked before it is made."""

    name: str = ""
    source: bytes = b""
    """The reference's source: sent as text, or the content of source_path."""
    source_path: Path | None = None
    """Where the source was read, resolved and inside an allowed root; None when sent as text."""
    extra: bytes = b""
    """Text that runs after the file at source_path and sees its names: a place for make_inputs."""
    import_root: Path | None = None
    """Folder to import the source from, resolved and inside an allowed root."""
    entry: str = ""
    """The object to use, such as Model or fused_add_rmsnorm; empty: as the format names it."""
    format: TaskFormat = "kernelbench"
    workloads: list[Workload] = []
    vary: dict[str, SizeRange] = {}
    domains: dict[str, Domain] = {}
    mutates: list[str] = []
    baseline: bytes = b""
    """Source of the owner's own kernel; empty without one."""
    policy: Policy = Policy()


class TaskSummary(Value):
    """A registered or built-in task."""

    summary: str = ""
    """One sentence, where it answers a call."""
    next_step: str = ""
    task_id: str
    name: str
    format: TaskFormat
    entry: str
    """The class or function that a candidate must define."""
    description: str = ""
    workloads: list[WorkloadReport] = []
    parameters: int = 0
    """Number of learnable parameters and buffer elements."""
    mutates: list[str] = []
    """Inputs that the operation changes by contract."""
    policy: Policy = Policy()
    findings: list[str] = []
    """What registration noticed about the task, in plain words."""
    baseline: str = ""
    """Status of the owner's own kernel, where one was given."""
    example: str = ""
    """Candidate id of a right kernel that comes with a built-in task."""


class TaskPage(Value):
    """Some of the known tasks."""

    tasks: list[TaskSummary] = []
    has_more: bool = False
    next_cursor: str = ""
    """Cursor of the next page, empty on the last."""


# --- outcomes --------------------------------------------------------------------------------------------


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
    stage: Stage | Literal[""] = ""
    """How far the candidate came."""
    check: str = ""
    """The check that decided against the candidate, such as values, shape, out_of_bounds, precision_class."""
    reason: str = ""
    """Why nothing could be decided, for unsupported."""
    error: ErrorExcerpt | None = None
    evidence: Evidence | None = None
    compiled: list[CompiledKernel] = []
    facts: Facts | None = None
    scope: Scope | None = None
    rules: list[str] = []
    """Known rules that this failure or this source touches."""
    artifacts: list[ArtifactRef] = []
    seconds: dict[str, float] = {}
    """Wall time per stage and in total."""
    versions: dict[str, str] = {}


class JobView(Value):
    """Where an evaluation stands."""

    summary: str
    next_step: str = ""
    status: Literal["running", "done", "failed", "interrupted", "cancelled"]
    job_id: str
    tool: str = ""
    about: str = ""
    """What was asked for: the task, or its name, and the candidate."""
    stage: str = ""
    """What it is doing now."""
    elapsed_seconds: float = 0.0
    result: dict[str, Any] = {}
    """The object the tool would have returned, once done."""


class JobPage(Value):
    """The latest evaluations that outlasted their call."""

    summary: str
    next_step: str = ""
    jobs: list[JobView] = []


class Check(Value):
    """One line of the doctor's table."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str = ""
    """What was found."""
    remedy: str = ""
    """What to do about it; empty when ok."""


class DeviceState(Value):
    """One GPU."""

    label: str
    """How it is named in calls, such as cuda:0."""
    name: str
    uuid: str = ""
    arch: str = ""
    driver: str = ""
    memory_mib: int = 0
    free_mib: int | None = None
    running: int = 0
    """Evaluations of this server on it."""
    waiting: int = 0
    others: list[str] = []
    """Other processes on it."""
    lock: str = ""
    """What keeps servers apart that time on it."""


class Device(Value):
    """What this machine can judge, and what it cannot."""

    summary: str
    gpu: str = ""
    """Name of the GPU, empty without one."""
    devices: list[DeviceState] = []
    """The GPUs that are used."""
    target: str = ""
    """Default compilation target."""
    targets: list[str] = []
    isolation: str = ""
    layers: dict[str, str] = {}
    """Sandbox layers: in use, or why not."""
    versions: dict[str, str] = {}
    cannot: list[str] = []
    """What cannot be done here, in plain words."""
    running: int = 0
    """Evaluations of this server in progress."""
