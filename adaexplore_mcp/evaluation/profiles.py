"""The digest of a candidate's profile: what bounds it, three causes, headroom; and how it differs from another candidate.

A fact that was measured takes the place of the same one read from the code or inferred. Never more than 1,000 tokens.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaexplore_mcp.evaluation.claims import BuildClaim, quoted
from adaexplore_mcp.evaluation.compilation import CompileReport
from adaexplore_mcp.evaluation.counters.counting import Counted
from adaexplore_mcp.evaluation.counters.digest import (
    Kernel,
    bound_by_counters,
    kernels_of,
    measured_causes,
    rows,
)
from adaexplore_mcp.evaluation.counters.ncu import MOST_LAUNCHES
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.profiling import Machine, Seen, bound_of, looks, worst
from adaexplore_mcp.evaluation.reporting import compiled_kernels
from adaexplore_mcp.models import Cause, CompiledKernel, Profile

__all__ = ["Least", "Profiled", "differences", "profile_of"]

KERNELS = 4
MOST_CHARACTERS = 3500
"""About 1,000 tokens."""
DIFFERENCES = 8
NOTICEABLE = 0.03
"""Of a measured time: less is no difference between two single calls."""


@dataclass(frozen=True)
class Least:
    """The least time that a GPU needs for a task, by its measured ceilings.

    Args:
        bytes_us: For its bytes.
        flops_us: For its FLOPs.
    """

    bytes_us: float = 0.0
    flops_us: float = 0.0

    @property
    def roofline_us(self) -> float:
        """For both, one beside the other."""
        return max(self.bytes_us, self.flops_us)


@dataclass(frozen=True)
class Profiled:
    """What was seen of a candidate for its profile.

    Args:
        compiled: The compilation.
        seen: Its code and launches.
        machine: For which GPU.
        counted: Its counters; None where none were asked for, or nothing was to be run.
        gpu: Where it was run.
    """

    compiled: CompileReport
    seen: Seen
    machine: Machine
    counted: Counted | None = None
    gpu: Gpu | None = None

    @functools.cached_property
    def kernels(self) -> list[Kernel]:
        """What was counted, kernel by kernel."""
        return [] if self.counted is None else kernels_of(self.counted.launches, self.seen.builds)

    @property
    def measured_us(self) -> float | None:
        """The time of all kernels of one call; None where none was measured."""
        return sum(each.microseconds for each in self.kernels) or None


@dataclass
class _Digest:
    causes: list[Cause]
    notes: list[str] = field(default_factory=list)
    why: str = ""


def profile_of(profiled: Profiled, least: Least, given: Mapping[str, Any]) -> Profile:
    """Return the digest.

    Args:
        profiled: What was seen of the candidate.
        least: What its task needs at least, as far as that is known.
        given: Fields that say what was asked for.
    """
    compiled, seen, machine = profiled.compiled, profiled.seen, profiled.machine
    if not compiled.compiled:
        failure = compiled.failure
        why = (
            f"{failure.type}: {quoted(failure.message)}"
            if failure is not None
            else "its process ended, or took too long"
        )
        return Profile(
            summary=f"Not profiled: it does not compile for {machine.name} as it stands ({why}).",
            next_step="compile_and_verify says where.",
            **given,
        )
    kernels, measured_us = profiled.kernels, profiled.measured_us
    digest = _digest(profiled, kernels)
    bound, digest.why = bound_by_counters(kernels)
    if bound == "unknown":
        bound = bound_of(seen, bytes_us=least.bytes_us, flops_us=least.flops_us, measured_us=measured_us)
    headroom = round(measured_us / least.roofline_us, 2) if measured_us and least.roofline_us else None
    return _fitted(
        Profile(
            summary=_summary(digest, measured_us, least, machine),
            next_step=digest.causes[0].remedy if digest.causes else "Time it with benchmark_kernel.",
            bound=bound,
            headroom=headroom,
            causes=digest.causes,
            kernels=_shown(seen),
            measured=rows(kernels),
            notes=digest.notes,
            **given,
        )
    )


def _fitted(profile: Profile) -> Profile:
    """Leave out what matters least until a profile is small enough: names and differences may be long."""
    for smaller in SMALLER:
        if len(json.dumps(profile.to_wire(), ensure_ascii=False)) <= MOST_CHARACTERS:
            break
        profile = profile.model_copy(update=smaller(profile))
    return profile


def _digest(profiled: Profiled, kernels: Sequence[Kernel]) -> _Digest:
    seen, machine = profiled.seen, profiled.machine
    by_counters, settled = measured_causes(kernels, seen, machine)
    by_code = [
        each
        for each in looks(seen, machine)
        if (each.cause.name, each.cause.kernel) not in settled and (each.cause.name, "") not in settled
    ]
    digest = _Digest(worst([*by_counters, *by_code]))
    digest.notes.append(_basis(profiled.counted))
    if len(profiled.counted.launches if profiled.counted else ()) >= MOST_LAUNCHES:
        digest.notes.append(f"Only its first {MOST_LAUNCHES} launches were looked at.")
    library = seen.facts.library_flops / seen.plan.flops if seen.plan.flops else 0.0
    if library > 0.5:
        operators = ", ".join(seen.facts.library_operators[:3])
        digest.notes.append(
            f"torch's own operators ({operators}) do {library:.0%} of the task's FLOPs"
            + (", of which nothing is said here." if not kernels else ".")
        )
    return digest


def _basis(counted: Counted | None) -> str:
    """Say what a digest rests on."""
    if counted is not None and not counted.problem:
        return (
            f"Counters by {counted.by}, one call, caches emptied before each launch, clocks left alone; they come out of the "
            "candidate's own process."
        )
    why = f" ({counted.problem})" if counted is not None else ""
    if counted is not None and counted.launches:
        return (
            f"No counter was read{why}: times are by {counted.by}, of one call with warm caches; causes are from the compiled "
            "code and the sizes of launches."
        )
    return f"No counter was read and nothing was timed{why}: causes are from the compiled code and the sizes of launches."


def _summary(digest: _Digest, measured_us: float | None, least: Least, machine: Machine) -> str:
    worst_of_all = f"{digest.causes[0].evidence}." if digest.causes else ""
    said = f"Most likely: {worst_of_all}" if worst_of_all else ""
    if measured_us:
        times = measured_us / least.roofline_us if least.roofline_us else 0.0
        against = f", {times:.1f} times what this GPU needs for the task's bytes and FLOPs" if times else ""
        said = (
            f"{said or 'No fault stands out.'} Its kernels take {measured_us:.3g} µs{against}; {digest.why}."
        )
    return said or f"Compiled for {machine.name}: nothing in its code or launches stands out."


def _shown(seen: Seen) -> list[CompiledKernel]:
    return compiled_kernels([*seen.launched()])[:KERNELS]


SMALLER: Sequence[Callable[[Profile], dict[str, Any]]] = (
    lambda profile: {"kernels": profile.kernels[:2]},
    lambda profile: {"differences": profile.differences[:4]},
    lambda profile: {"measured": profile.measured[:2]},
    lambda profile: {"differences": [_cut(each, 200) for each in profile.differences]},
    lambda _: {"kernels": []},
    lambda profile: {"notes": [_cut(each, 240) for each in profile.notes]},
    lambda profile: {"measured": profile.measured[:1]},
    lambda profile: {
        "causes": [
            each.model_copy(update={"evidence": _cut(each.evidence, 240), "remedy": _cut(each.remedy, 160)})
            for each in profile.causes
        ]
    },
    lambda profile: {"summary": _cut(profile.summary, 400), "next_step": _cut(profile.next_step, 160)},
)
"""What makes a profile smaller, the least loss first."""


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 2]} …"


# --- against another candidate ---------------------------------------------------------------------------


def differences(one: Profiled, other: Profiled) -> list[str]:
    """Say in what a candidate differs from another, kernel by kernel, times first.

    Args:
        one: The other candidate.
        other: The candidate that is profiled.
    """
    if not (one.compiled.compiled and other.compiled.compiled):
        which = "The other" if other.compiled.compiled else "It"
        return [f"{which} does not compile, so there is nothing to compare."]
    found = [*_times(one, other), *_launches(one, other)]
    before = {build.kernel: build for build in one.seen.launched()}
    after = {build.kernel: build for build in other.seen.launched()}
    if len(before) == len(after) == 1 and before.keys() != after.keys():  # the same kernel under another name
        before = dict(zip(after, before.values(), strict=True))
    for name, build in after.items():
        if name not in before:
            found.append(f"{name} is new.")
        elif changed := _changed(before[name], build):
            found.append(f"{name}: {', '.join(changed)}.")
    found += [f"{name} is gone." for name in before if name not in after]
    return found[:DIFFERENCES] or ["Nothing in their compiled code and launches differs."]


def _times(one: Profiled, other: Profiled) -> list[str]:
    before, after = one.measured_us, other.measured_us
    if not before or not after:
        return []
    times = before / after
    faster = "as fast" if abs(times - 1) < NOTICEABLE else f"{times:.3g} times as fast"
    said = f"Measured: its kernels take {after:.3g} µs, {faster} as {before:.3g} µs"
    if all(kernel.known("dram_read", "dram_written") for each in (one, other) for kernel in each.kernels):
        moved = [
            sum(kernel.total("dram_read", "dram_written") for kernel in each.kernels) / 1e6
            for each in (one, other)
        ]
        said += f", and move {moved[1]:.3g} MB through DRAM instead of {moved[0]:.3g} MB"
    return [f"{said}. One call each: benchmark_kernel says what is certain."]


def _launches(one: Profiled, other: Profiled) -> list[str]:
    before, after = (
        sum(each.seen.facts.launches.values()) + sum(each.seen.facts.operators.values())
        for each in (one, other)
    )
    return [] if before == after else [f"{after} launches and operators of torch instead of {before}."]


def _changed(before: BuildClaim, after: BuildClaim) -> list[str]:
    pairs: list[tuple[str, object, object]] = [
        ("registers", before.registers, after.registers),
        ("bytes spilled", before.spill_bytes, after.spill_bytes),
        ("bytes of shared memory", before.shared_bytes, after.shared_bytes),
        ("warps", before.num_warps, after.num_warps),
        ("stages", before.num_stages, after.num_stages),
        ("occupancy", _percent(before.occupancy), _percent(after.occupancy)),
    ]
    kinds = sorted({*before.instructions, *after.instructions})
    pairs += [
        (kind.replace("_", " "), before.instructions.get(kind, 0), after.instructions.get(kind, 0))
        for kind in kinds
    ]
    return [f"{new} {what} instead of {old}" for what, old, new in pairs if old != new]


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"
