"""What every outcome tells beside its status: evidence, compiled kernels, facts, scope, times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaexplore_mcp.evaluation.claims import BuildClaim, Failure, quoted
from adaexplore_mcp.evaluation.compilation import CompileReport
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.numerics import NumericsReport
from adaexplore_mcp.evaluation.sampling import Sampled
from adaexplore_mcp.models import CompiledKernel, ErrorExcerpt, Evidence, Scope

__all__ = [
    "HARMLESS_OPERATORS",
    "HOST_ELEMENTS",
    "Environment",
    "WorkloadResult",
    "agreement",
    "brief",
    "compiled",
    "compiled_kernels",
    "evidence_of",
    "excerpt",
    "scope",
    "seconds",
]

HARMLESS_OPERATORS = frozenset({
    "copy_", "clone", "_to_copy", "fill_", "zero_", "zeros", "ones", "full", "empty", "arange", "contiguous", "detach",
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
    "empty_strided", "new_empty_strided", "scalar_tensor", "_local_scalar_dense", "resize_", "set_",
})  # fmt: skip
"""Operators that move or make memory: no arithmetic that a kernel should have done."""

HOST_ELEMENTS = 64
"""Brought to the host by a call, more than sizes and flags: work can be done there with them."""
NOT_COVERED_ON_GPU = ("timing", "races and accesses beyond a tensor that did not show in these calls")
NOT_COVERED = (
    "timing",
    "races that only show when programs run at the same time",
    "barriers between the threads of one program",
)
SHOWN = 8
EVIDENCE_FIELDS = (
    *("output", "index", "got", "expected", "bound", "outside_share", "nrmse"),
    *("zeros_would_pass", "mean_would_pass", "precision_class", "detail"),
)


@dataclass(frozen=True)
class Environment:
    """What every outcome says about the machine.

    Args:
        versions: Of torch and triton.
        isolation: Level and layers.
        target: What was compiled for.
    """

    versions: Mapping[str, str]
    isolation: str
    target: str


@dataclass
class WorkloadResult:
    """What one workload showed.

    Args:
        plan: How it was judged.
        sizes_used: Lowered constants of the deciding run, by readable name; empty at own sizes.
        numerics: Of the deciding run.
        compilation: At full size.
        first_look: The run at smaller sizes, where one at larger, aligned sizes decided.
        larger: One call at larger, aligned sizes, where the run at smaller ones passed and left programs alone.
        sampled: Where some of its programs reach at full size; None where nobody asked.
        gpu: The GPU it ran on; None where it was interpreted, or compiled only.
        constant: Whether the reference's outputs were the same in all trials.
        occupants: Processes of others on the GPU, in words.
        left_out: Trials for which there was too little GPU memory or time.
    """

    plan: Plan
    sizes_used: Mapping[str, int]
    numerics: NumericsReport
    compilation: CompileReport
    constant: bool = False
    first_look: NumericsReport | None = None
    larger: NumericsReport | None = None
    sampled: Sampled | None = None
    gpu: Gpu | None = None
    left_out: Sequence[str] = ()
    occupants: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.plan.workload.name

    @property
    def reduced(self) -> bool:
        """Whether numbers were compared at lowered sizes."""
        return self.gpu is None and self.plan.reduced

    @property
    def right_before(self) -> bool:
        """Whether it agreed at other sizes than those that decide."""
        return self.first_look is not None and self.first_look.clean

    @property
    def sizes(self) -> str:
        """The lowered sizes in words."""
        shown = [f"{name}={value}" for name, value in list(self.sizes_used.items())[:SHOWN]]
        return ", ".join(shown) or "as registered"

    @property
    def launched(self) -> list[str]:
        """The kernels that ran."""
        larger = self.larger.facts.launches if self.larger else {}
        return list({**self.numerics.facts.launches, **larger})

    def alone(self) -> list[str]:
        """Return the kernels that ran as one program, or not at all, along an axis that has several at full size."""
        if not self.reduced or not self.numerics.clean or not self.compilation.faked:
            return []
        here = {**self.numerics.facts.grids, **(self.larger.facts.grids if self.larger else {})}
        return [
            kernel
            for kernel, extents in self.compilation.facts.grids.items()
            if any(
                full > 1 and small <= 1
                for full, small in zip(extents, here.get(kernel, (0, 0, 0)), strict=True)
            )
        ]

    @property
    def library_share(self) -> float | None:
        """Share of the task's FLOPs that torch's own operators did, 0 to 1; None where it is not known."""
        if not self.plan.flops or not self.compilation.compiled:
            return None
        return min(1.0, self.compilation.facts.library_flops / self.plan.flops)


# --- errors and evidence ---------------------------------------------------------------------------------


def brief(failure: Failure) -> str:
    """Return a failure in one line, without a full stop."""
    said = f": {quoted(failure.message)}" if failure.message.strip() else ""
    where = f" (line {failure.line})" if failure.line else ""
    return f"{failure.type}{said}{where}"


def excerpt(failure: Failure) -> ErrorExcerpt:
    """Return a failure as an outcome carries it."""
    return ErrorExcerpt(
        type=failure.type,
        message=failure.message,
        line=failure.line,
        source=failure.source,
        kernel=failure.kernel,
    )


def evidence_of(source: Mapping[str, Any], workload: str, trial: str) -> Evidence:
    """Return the numbers of a comparison."""
    values = {name: source[name] for name in EVIDENCE_FIELDS if source.get(name) is not None}
    return Evidence(workload=workload, trial=trial, **values)


def agreement(result: WorkloadResult) -> Evidence | None:
    """Return the numbers of the worst output that passed, for a candidate whose numbers all agreed."""
    passed = result.numerics.passed
    if passed is None or not result.numerics.clean:
        return None
    return evidence_of(passed, result.name, str(passed["trial"]))


# --- what was compiled -----------------------------------------------------------------------------------


def compiled(results: Sequence[WorkloadResult]) -> list[CompiledKernel]:
    """Return one entry per kernel over all workloads; see `compiled_kernels`."""
    return compiled_kernels([build for result in results for build in result.compilation.builds])


def compiled_kernels(builds: Sequence[BuildClaim]) -> list[CompiledKernel]:
    """Return one entry per kernel: the specialisation that spills most, then the one with most registers."""
    groups: dict[str, list[BuildClaim]] = {}
    for build in builds:
        groups.setdefault(build.kernel, []).append(build)
    kernels = []
    for name, all_of_it in groups.items():
        good = [build for build in all_of_it if not build.failure]
        if not good:
            continue
        worst = max(good, key=lambda build: (build.spill_bytes, build.registers))
        kernels.append(
            CompiledKernel(
                kernel=name,
                registers=worst.registers,
                spill_bytes=worst.spill_bytes,
                shared_bytes=worst.shared_bytes,
                num_warps=worst.num_warps,
                num_stages=worst.num_stages,
                occupancy=None if worst.occupancy is None else round(worst.occupancy, 3),
                occupancy_limit=worst.occupancy_limit,
                configurations=len(good),
                failed_configurations=len(all_of_it) - len(good),
            )
        )
    return kernels[:SHOWN]


# --- scope and times -------------------------------------------------------------------------------------


def scope(results: Sequence[WorkloadResult], environment: Environment) -> Scope:
    """Return what was covered, and what was not."""
    versions = environment.versions
    gpu = results[-1].gpu
    not_covered = list(NOT_COVERED if gpu is None else NOT_COVERED_ON_GPU)
    for result in results:
        where = f" (at reduced sizes {result.sizes})" if result.reduced else ""
        not_covered += [f"{each}{where}" for each in result.numerics.facts.uncovered]
        if result.reduced and not result.compilation.faked and result.compilation.compiled:
            not_covered.append(
                "compilation at full size: host code looks at values, so smaller sizes were used"
            )
    for result in results:
        if alone := result.alone():
            not_covered.append(f"more than one program of {alone[0]} along an axis: only at larger sizes")
        count = max(result.numerics.facts.autotuned.values(), default=0)
        if result.numerics.clean and count > result.numerics.configurations + 1:
            left = count - 1 - result.numerics.configurations
            not_covered.append(f"the numbers of {left} of {count} autotuner configurations")
    for result in results:
        if result.left_out:
            not_covered.append(
                f"{', '.join(result.left_out)}: not tried: the task is too large for all trials"
            )
    if any(result.numerics.clean and 0 < result.numerics.calls < 3 for result in results):
        not_covered.append("repeated calls: one takes too long here")
    software = f"triton {versions.get('triton', '?')}, torch {versions.get('torch', '?')}"
    where = "Triton interpreter, CPU" if gpu is None else f"{gpu.name} ({gpu.label}, driver {gpu.driver})"
    ran = any(result.numerics.stage != "load" or result.numerics.calls for result in results)
    return Scope(
        numerics=f"{where}; {software}" if gpu is not None or ran else f"none; {software}",
        target=environment.target,
        workloads={result.name: _sizes_of(result) for result in results},
        calls=sum(result.numerics.calls for result in results),
        not_covered=list(dict.fromkeys(not_covered))[:SHOWN],
        isolation=environment.isolation,
    )


def _sizes_of(result: WorkloadResult) -> str:
    if result.plan.hidden:
        return "sizes that are not told" if result.numerics.clean else str(result.plan.workload.sizes)
    if not result.reduced:
        return "own sizes"
    if result.larger is None:
        return f"reduced: {result.sizes}"
    larger = ", ".join(f"{name}={value}" for name, value in result.plan.lowered(result.plan.aligned).items())
    return f"reduced: {result.sizes}; one call at {larger}"


def seconds(results: Sequence[WorkloadResult]) -> dict[str, float]:
    """Return wall times per stage; the two run at the same time."""
    return {
        "numerics": round(sum(result.numerics.seconds for result in results), 3),
        "compile": round(sum(result.compilation.seconds for result in results), 3),
    }
