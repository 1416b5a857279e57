"""Say what holds a candidate back: from its compiled code and the sizes of its launches, each cause with its evidence.

No counter is read here. What the code shows is `from binary`, what follows from shapes and sizes is `inferred`. Causes are
ranked by how much of the time they usually cost: what stops a multiprocessor from working comes before what slows it down.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adaexplore_mcp.evaluation.claims import BuildClaim, CallFacts
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.models import Basis, Bound, Cause

__all__ = [
    "EXTRA",
    "FULL_WAVES",
    "LOW_OCCUPANCY",
    "Found",
    "Machine",
    "Seen",
    "bound_of",
    "found",
    "looks",
    "width_of",
    "worst",
]

SHOWN = 3
FULL_WAVES = 2.0
"""Programs per multiprocessor below which some of them idle for a good part of the time."""
EXTRA = 1.5
"""Times the task's bytes that launches may touch before that is worth a word."""
LOW_OCCUPANCY = 0.25
MANY_LAUNCHES = 8
WIDE_BITS = 64
MANY_SINGLE = 24
"""Loads of one element of shared memory per thread in a kernel: a reduction has a few."""
REPEATED = 4
"""Narrow loads of one thread in a kernel from which on they were not one element each."""
TENSOR_FLOPS_PER_BYTE = 8.0
SMALL_BYTES = 32 << 20
"""A task that moves less than this is done in about 10 µs: about as long as two or three launches take."""
REMEDIES = {
    "spilled_registers": "Use smaller blocks, more warps, or fewer values alive at once in the loop.",
    "tiny_grid": "Give each program less: smaller blocks, a grid over another axis too, or a split of the reduction.",
    "bank_conflicts": "Change the order in which lanes meet shared memory: another block shape, order of axes or index, or padding by one column; "
    "avoid tl.gather, tl.trans or tl.reshape with a stride of 32 words between lanes.",
    "narrow_access": "Let the last axis of a block run along contiguous memory, pad rows or go over them as one, transpose once through shared "
    "memory, or, only where it holds, state it (tl.multiple_of, tl.max_contiguous, a stride of 1 as constexpr).",
    "extra_traffic": "Keep intermediate results in registers by fusing kernels, and in the task's own dtype where they must be stored; read each "
    "input once.",
    "no_tensor_cores": "Use tl.dot on blocks of at least 16 by 16; float32 operands need input_precision='tf32' or 'tf32x3' for it, which the task's "
    "policy must allow.",
    "low_occupancy": "Use smaller blocks or fewer stages, so that other warps work while some wait for memory.",
    "many_launches": "Fuse them, or do all of it in one kernel.",
    "float64": "Look for a Python float or a float64 constant that widens the expression.",
    "exposed_latency": "Have more in flight: more programs or warps, loads ahead of their use (num_stages), several elements per thread.",
}
"""What usually helps, by cause; the same however the cause is known."""


@dataclass(frozen=True)
class Machine:
    """The GPU that a candidate is looked at for.

    Args:
        name: Of the target or of the device.
        multiprocessors: How many it has.
    """

    name: str
    multiprocessors: int


@dataclass(frozen=True)
class Seen:
    """What compiling and running a candidate once showed.

    Args:
        plan: The task at the workload.
        builds: Its kernels, those that compiled.
        facts: Launches, grids and operators of one call.
        launch_bytes: By kernel, the bytes of the tensors that one launch is given, each once.
    """

    plan: Plan
    builds: Sequence[BuildClaim]
    facts: CallFacts
    launch_bytes: Mapping[str, int]

    def launched(self) -> Iterator[BuildClaim]:
        """Yield one build of each kernel that runs: the one that spills most, then the one with most registers."""
        kernels: dict[str, BuildClaim] = {}
        for build in self.builds:
            known = kernels.get(build.kernel)
            if not build.failure and (known is None or _size(build) > _size(known)):
                kernels[build.kernel] = build
        for name, build in kernels.items():
            if name in self.facts.launches or not self.facts.launches:
                yield build

    @property
    def wide(self) -> bool:
        """Whether a tensor of the task is of float64."""
        return any(each.dtype == "float64" for each in (*self.plan.inputs, *self.plan.outputs))

    @property
    def traffic(self) -> int:
        """Bytes that all launches of a call are given, each launch's once."""
        return sum(count * self.launch_bytes.get(kernel, 0) for kernel, count in self.facts.launches.items())


@dataclass(frozen=True)
class Found:
    """A cause and how much it matters.

    Args:
        severity: From 1, worth a word, to 12: nothing else matters beside it.
        cause: As it is told.
    """

    severity: float
    cause: Cause


def looks(seen: Seen, machine: Machine) -> list[Found]:
    """Return everything that the code and the launches show, in no order."""
    return [each for look in LOOKS for each in look(seen, machine)]


def worst(every: Sequence[Found]) -> list[Cause]:
    """Return the three that matter most, the worst first."""
    return [each.cause for each in sorted(every, key=lambda each: -each.severity)[:SHOWN]]


def bound_of(seen: Seen, *, bytes_us: float, flops_us: float, measured_us: float | None) -> Bound:
    """Say what bounds a candidate.

    Args:
        seen: What it does.
        bytes_us: The least time for the task's bytes.
        flops_us: The least time for its FLOPs.
        measured_us: How long it takes; None where nothing was timed.
    """
    least = max(bytes_us, flops_us)
    if not least:
        return "unknown"
    moved_us = bytes_us * max(1.0, seen.traffic / max(1, seen.plan.bytes))
    if measured_us is not None and measured_us > 4 * max(moved_us, flops_us):
        return "latency"
    return "arithmetic" if flops_us > moved_us else "memory"


# --- looks -----------------------------------------------------------------------------------------------


def _spills(seen: Seen, _: Machine) -> Iterator[Found]:
    for build in seen.launched():
        if build.spill_bytes:
            yield found(
                math.log2(max(2, build.spill_bytes / 8)),
                "spilled_registers",
                build.kernel,
                f"{build.kernel} keeps {build.spill_bytes} bytes of every thread in local memory: its {build.registers} registers "
                "do not do",
                "from binary",
            )


def _tiny_grid(seen: Seen, machine: Machine) -> Iterator[Found]:
    for build in seen.launched():
        grid = seen.facts.grids.get(build.kernel)
        if grid is None:
            continue
        programs = math.prod(grid)
        waves = programs / machine.multiprocessors
        busy = seen.launch_bytes.get(build.kernel, 0)
        if waves < FULL_WAVES and busy > programs * 4096:
            yield found(
                8.0 * (1 - waves / FULL_WAVES) if waves >= 1 else 6.0 + 6.0 * (1 - waves),
                "tiny_grid",
                build.kernel,
                f"{build.kernel} runs as {programs} programs on {machine.multiprocessors} multiprocessors",
                "inferred",
            )


def _conflicts(seen: Seen, _: Machine) -> Iterator[Found]:
    for build in seen.launched():
        single = build.instructions.get("shared_single", 0)
        if single >= MANY_SINGLE:
            yield found(
                3.0 + min(3.0, math.log2(single / MANY_SINGLE + 1)),
                "bank_conflicts",
                build.kernel,
                f"{build.kernel} reads shared memory one element at a time ({single} times per thread): where lanes lie a "
                "multiple of 32 words apart, they wait for one bank",
                "inferred",
            )


def _narrow(seen: Seen, _: Machine) -> Iterator[Found]:
    for build in seen.launched():
        counts = build.instructions
        narrow = sum(count for kind, count in counts.items() if width_of(kind) and width_of(kind) < WIDE_BITS)
        wide = sum(count for kind, count in counts.items() if width_of(kind) >= WIDE_BITS)
        if narrow >= REPEATED and narrow > 2 * wide and not counts.get("async_copies"):
            widths = ", ".join(
                f"{count} of {width_of(kind)} bits" for kind, count in counts.items() if width_of(kind)
            )
            yield found(
                5.0 + min(3.0, math.log2(narrow / REPEATED + 1)),
                "narrow_access",
                build.kernel,
                f"{build.kernel} reads and writes global memory one element at a time ({widths} per thread): neighbouring "
                "lanes do not hold neighbouring addresses, or that is not known when it is compiled (a row length that is no multiple "
                "of 16 is enough)",
                "from binary",
            )


def _traffic(seen: Seen, _: Machine) -> Iterator[Found]:
    if not seen.plan.bytes:
        return
    times = seen.traffic / seen.plan.bytes
    if times > EXTRA:
        launches = sum(seen.facts.launches.values())
        yield found(
            3.0 + 2.0 * math.log2(times),
            "extra_traffic",
            "",
            f"its {launches} launches are given {times:.1f} times the bytes of the task's inputs and outputs "
            f"({seen.traffic / 1e6:.1f} MB for {seen.plan.bytes / 1e6:.1f} MB)",
            "inferred",
        )


def _tensor_cores(seen: Seen, _: Machine) -> Iterator[Found]:
    own = seen.plan.flops - seen.facts.library_flops
    if own < TENSOR_FLOPS_PER_BYTE * max(1, seen.plan.bytes) or own < seen.plan.flops / 2:
        return
    kernels = list(seen.launched())
    if kernels and not any(build.instructions.get("tensor_core") for build in kernels):
        yield found(
            10.0,
            "no_tensor_cores",
            "",
            f"{own / 1e9:.1f} GFLOP of products are done without a tensor-core instruction in any kernel",
            "from binary",
        )


def _occupancy(seen: Seen, _: Machine) -> Iterator[Found]:
    for build in seen.launched():
        if (
            build.occupancy is not None
            and build.occupancy < LOW_OCCUPANCY
            and not build.instructions.get("tensor_core")
        ):
            yield found(
                4.0 * (1 - build.occupancy / LOW_OCCUPANCY) + 1.0,
                "low_occupancy",
                build.kernel,
                f"{build.kernel} fills {build.occupancy:.0%} of a multiprocessor's warps: {build.occupancy_limit} keep out more "
                f"({build.registers} registers, {build.shared_bytes} bytes of shared memory)",
                "from binary",
            )


def _launches(seen: Seen, _: Machine) -> Iterator[Found]:
    launches = sum(seen.facts.launches.values()) + sum(seen.facts.operators.values())
    if launches >= MANY_LAUNCHES and seen.plan.bytes < SMALL_BYTES:
        yield found(
            2.0 + math.log2(launches / MANY_LAUNCHES),
            "many_launches",
            "",
            f"{launches} launches and operators for {seen.plan.bytes / 1e6:.2f} MB: each costs a few microseconds whatever it does",
            "inferred",
        )


def _slow_arithmetic(seen: Seen, _: Machine) -> Iterator[Found]:
    for build in seen.launched():
        if build.instructions.get("fp64") and not seen.wide:
            yield found(
                5.0,
                "float64",
                build.kernel,
                f"{build.kernel} computes in float64 ({build.instructions['fp64']} instructions), which no tensor of the task is",
                "from binary",
            )


Look = Callable[[Seen, Machine], Iterator[Found]]
LOOKS: Sequence[Look] = (
    _spills,
    _tiny_grid,
    _narrow,
    _conflicts,
    _traffic,
    _tensor_cores,
    _occupancy,
    _launches,
    _slow_arithmetic,
)


def found(severity: float, name: str, kernel: str, evidence: str, basis: Basis) -> Found:
    """Return a cause, with what usually helps against it."""
    return Found(
        severity, Cause(name=name, kernel=kernel, evidence=evidence, remedy=REMEDIES[name], basis=basis)
    )


def width_of(kind: str) -> int:
    """Return the width of a kind of access to memory; 0 of any other instruction."""
    name, _, bits = kind.partition("_")
    return int(bits) if name in {"load", "store"} and bits.isdigit() else 0


def _size(build: BuildClaim) -> tuple[int, int]:
    return build.spill_bytes, build.registers
