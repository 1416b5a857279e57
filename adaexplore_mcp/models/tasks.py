"""Tasks: what their owners send, and what callers see."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from adaexplore_mcp.models.values import Parameter, Value

__all__ = [
    "Domain",
    "LibraryOps",
    "Policy",
    "Precision",
    "RegisterRequest",
    "RewardBaseline",
    "SizeRange",
    "TaskFormat",
    "TaskPage",
    "TaskSummary",
    "TensorSpec",
    "Workload",
    "WorkloadReport",
]

Precision = Literal["match", "relaxed", "kernelbench", "paper", "custom"]
LibraryOps = Literal["report", "allow", "forbid"]
TaskFormat = Literal["kernelbench", "function"]
RewardBaseline = Literal["own", "eager", "compile", "max_autotune"]
"""What speedups are measured against."""


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
    """Torch calls that do the work: forbid, report, or allow as a search's best."""
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
    reward_baseline: RewardBaseline | Literal[""] = ""
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
    reward_baseline: RewardBaseline | Literal[""] = ""
    """What a search measures its speedups against; empty: the owner's own kernel, else eager."""
    example: str = ""
    """Candidate id of a right kernel that comes with a built-in task."""


class TaskPage(Value):
    """Some of the known tasks."""

    tasks: list[TaskSummary] = []
    has_more: bool = False
    next_cursor: str = ""
    """Cursor of the next page, empty on the last."""
