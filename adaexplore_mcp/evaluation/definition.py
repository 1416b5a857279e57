"""A task as the evaluation knows it: its content, and per workload the plan by which it is judged here."""

import hashlib
import json
import math
import re
from typing import Any, Literal

from adaexplore_mcp.models import (
    Domain,
    Policy,
    RewardBaseline,
    SizeRange,
    TaskFormat,
    TensorSpec,
    Value,
    Workload,
)

__all__ = ["Definition", "Plan", "Sizes", "bytes_per_element", "tensor_bytes"]

Sizes = dict[str, list[int]]
"""Lowered size constants: by key, the value at the workload's own sizes and the lowered one."""


class Definition(Value):
    """What fixes a task; equal definitions are the same task."""

    format: TaskFormat
    files: dict[str, str]
    """Relative path to text: `task.py`, or the snapshot of a package."""
    module: str = "task"
    """Dotted name of the module to import."""
    entry: str
    """The reference's class or function."""
    extra: str = ""
    """Text that runs after the module and sees its names."""
    workloads: list[Workload] = []
    vary: dict[str, SizeRange] = {}
    domains: dict[str, Domain] = {}
    mutates: list[str] = []
    policy: Policy = Policy()
    baseline: str = ""
    """Source of the owner's own kernel."""
    reward_baseline: RewardBaseline | Literal[""] = ""
    """What speedups are measured against unless a call says otherwise; empty: the owner's own kernel, else eager."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything that makes the task what it is, hexadecimal."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def operation(self) -> str:
        """SHA-256 of what is computed and on what, however it is judged; the trials of a task depend on nothing else."""
        return self.model_copy(update={"policy": Policy(), "baseline": "", "reward_baseline": ""}).digest

    @property
    def candidate_entry(self) -> str:
        """What a candidate must define."""
        return "ModelNew" if self.format == "kernelbench" else self.entry

    @property
    def usual_baseline(self) -> RewardBaseline:
        """What speedups are measured against unless a call says otherwise."""
        return self.reward_baseline or ("own" if self.baseline else "eager")

    def to_worker(self, workload: Workload, edits: Sizes) -> dict[str, Any]:
        """Return the message from which a worker loads the task at some sizes."""
        return {
            "format": self.format,
            "files": self.files,
            "module": self.module,
            "entry": self.entry,
            "extra": self.extra,
            "sizes": workload.sizes,
            "edits": edits,
        }


class Plan(Value):
    """How one workload of a task is judged here."""

    workload: Workload
    edits: Sizes = {}
    """Lowered constants at which numbers are compared; empty: at the workload's own sizes."""
    aligned: Sizes = {}
    """Larger, aligned ones for a second look at a kernel that differs at `edits`."""
    stretched: list[Sizes] = []
    """`edits` with one constant at its own value: what a kernel leaves out beyond some extent shows there alone."""
    hidden: bool = False
    """Drawn from the task's `vary`, and told to nobody before a candidate fails there."""
    flops: int = 0
    bytes: int = 0
    parameters: int = 0
    accumulation: int = 1
    """K of the error bound at the workload's own sizes."""
    peak_bytes: int = 0
    """Most bytes alive at once in one call of the reference, an estimate."""
    lowering_tried: bool = True
    """Smaller sizes were looked for; a machine that judges on a GPU does not."""
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    mutates: list[str] = []
    """Inputs that the reference was seen to change."""
    changes: list[dict[str, list[int | float | str | bool]]] = []
    """Changes of size constants that a candidate's source gets at the workload's own sizes."""
    init_outline: dict[str, Any] = {}
    """Constructor arguments at own sizes, without contents; see `workers.tensors.outline`."""
    inputs_outline: dict[str, Any] = {}
    """Arguments of a call at own sizes, without contents."""
    state: list[str] = []
    """Names of parameters and buffers."""
    constants: dict[str, int | None] = {}
    """Values of the size constants by name; None where one is no whole number."""
    once: bool = False
    """Sizes at which a candidate is called once, for information."""
    elsewhere: "Plan | None" = None
    """The same operation at other sizes than the task's own, near them."""
    unused_sizes: list[str] = []
    """The workload's sizes that nothing in the source uses."""
    unneeded: dict[str, int] = {}
    """FLOPs by operator whose result reaches nothing that the reference returns or changes."""
    too_large: bool = False
    """More than the interpreter can do in seconds; lowered where that was possible."""
    constant: bool = False
    """The reference's output is the same whatever its inputs and weights are."""
    fixed: list[str] = []
    """Floating inputs that are the same under every seed."""
    zeros_pass: bool = False
    """Zeros in place of the reference's output would pass: the bound is too wide for it to be a yardstick."""
    mean_pass: bool = False
    """Its mean would, everywhere."""
    narrow: bool = False
    """All its values are nearly one."""
    same_share: float = 0.0
    """Share of its elements that hold one and the same value; 0 below a half."""
    input_pass: str = ""
    """An input that would."""
    independent: list[str] = []
    """Inputs, parameters and buffers that do not change it beyond rounding."""
    not_wide: str = ""
    """Why the reference does not run in float64; empty if it does."""
    values_needed: bool = False
    """The reference looks at values, so it cannot run without computing."""

    @property
    def trial_bytes(self) -> int:
        """Bytes that one trial takes: inputs, and expected outputs in their own dtype and in float64."""
        outputs = [*self.outputs, *(each for each in self.inputs if each.name in self.mutates)]
        expected = sum(tensor_bytes(each) + 8 * math.prod(each.shape) for each in outputs)
        return sum(map(tensor_bytes, self.inputs)) + expected

    @property
    def call_bytes(self) -> int:
        """Bytes that a call itself cannot do without: inputs that matter to its outputs, and these.

        What is a parameter may have been folded into less when the module was made.
        """
        matter = [] if self.constant else [each for each in self.inputs if each.name not in self.independent]
        return sum(map(tensor_bytes, [*matter, *self.outputs]))

    @property
    def reduced(self) -> bool:
        """Whether numbers are compared at other sizes than the workload's own."""
        return bool(self.edits)

    def lowered(self, edits: Sizes | None = None) -> dict[str, int]:
        """Return the lowered constants by their readable name."""
        chosen = self.edits if edits is None else edits
        return {_readable(key): new for key, (_, new) in chosen.items()}


def _readable(key: str) -> str:
    """Return a constant's name as its author finds it: `get_inputs#1` is the second number there."""
    name, _, position = key.rpartition(":")[2].partition("#")
    return f"number {int(position) + 1} of {name}" if position.isdecimal() else key.rpartition(":")[2]


def bytes_per_element(dtype: str) -> int:
    """Return the size of an element; names of dtypes say how many bits one has."""
    bits = re.search(r"\d+", dtype)
    return int(bits.group()) // 8 if bits else 1


def tensor_bytes(tensor: TensorSpec) -> int:
    """Return the bytes that a tensor's elements take."""
    return math.prod(tensor.shape) * bytes_per_element(tensor.dtype)
