"""What counters show of what holds a candidate back: causes by kernel, each weighed by how much of the time it concerns.

Counters come out of a process that runs a stranger's code. A forged one misleads its own author, and decides nothing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from adaexplore_mcp.evaluation.claims import BuildClaim
from adaexplore_mcp.evaluation.counters.ncu import Launch
from adaexplore_mcp.evaluation.profiling import (
    EXTRA,
    FULL_WAVES,
    LOW_OCCUPANCY,
    Found,
    Machine,
    Seen,
    found,
    width_of,
)
from adaexplore_mcp.models import Bound, MeasuredKernel

__all__ = ["Kernel", "bound_by_counters", "kernels_of", "measured_causes", "rows"]

BUSY_PCT = 40.0
"""Of what the hardware does at most: below it in both, neither memory nor arithmetic is what a kernel waits for."""
SATURATED_PCT = 70.0
"""Of what DRAM can do at most: a copy reaches 80 to 90."""
WASTEFUL = 1.8
"""Times the sectors that aligned, neighbouring accesses of the same width would take."""
CONFLICTED = 0.25
"""Of the passes through shared memory: those that only a bank conflict makes necessary."""
SPILLING = 0.01
"""Of all instructions: those that reach for local memory."""
WAITING = 0.5
"""Of all waiting of warps that one reason must come to, to be named."""
CONCERNS = 0.1
"""Of the call's time: kernels below that are left out."""
SECTOR_BYTES, LANES = 32, 32
NARROWEST_BITS, ASYNC_BITS = 32, 128
SHOWN = 4

STALLS = {
    "stall_global_memory": "data of global or local memory",
    "stall_shared_memory": "data of shared memory",
    "stall_shared_memory_queue": "the queue to shared memory",
    "stall_global_memory_queue": "the queue to global and local memory",
    "stall_barrier": "other warps at a barrier",
    "stall_arithmetic": "a free arithmetic unit",
}


@dataclass
class Kernel:
    """All launches of one kernel in a call.

    Args:
        name: As the profiler has it.
        launches: What was counted of each.
        share: Of the time of all kernels in the call, 0 to 1.
        build: What the compiler said of it, where that is known.
    """

    name: str
    launches: list[Launch] = field(default_factory=list)
    share: float = 1.0
    build: BuildClaim | None = None

    def known(self, *names: str) -> bool:
        """Tell whether these were measured."""
        return all(name in launch.values for launch in self.launches for name in names)

    def total(self, *names: str) -> float:
        """Return the sum over launches and names."""
        return sum(launch.values.get(name, 0.0) for launch in self.launches for name in names)

    def mean(self, name: str) -> float:
        """Return the mean over launches, weighed by how long each took."""
        weights = [launch.values.get("duration_ns", 1.0) for launch in self.launches]
        values = [launch.values.get(name, 0.0) for launch in self.launches]
        return sum(map(float.__mul__, weights, values)) / (sum(weights) or 1.0)

    def percent(self, name: str) -> float | None:
        """Return the mean as it is told; None where it was not measured."""
        return round(self.mean(name), 1) if self.known(name) else None

    @property
    def microseconds(self) -> float:
        """How long all its launches took."""
        return self.total("duration_ns") / 1e3


def kernels_of(launches: Sequence[Launch], builds: Sequence[BuildClaim]) -> list[Kernel]:
    """Return what was counted kernel by kernel, the longest first."""
    kernels: dict[str, Kernel] = {}
    for launch in launches:
        kernels.setdefault(launch.kernel, Kernel(launch.kernel)).launches.append(launch)
    total = sum(each.microseconds for each in kernels.values())
    for each in kernels.values():
        each.share = each.microseconds / total if total else 1 / len(kernels)
        same = [build for build in builds if build.kernel == each.name and not build.failure]
        registers = each.launches[0].values.get("registers")
        # Of several configurations the one that ran.
        each.build = next(
            (build for build in same if build.registers == registers), same[0] if same else None
        )
    return sorted(kernels.values(), key=lambda each: -each.microseconds)


def bound_by_counters(kernels: Sequence[Kernel]) -> tuple[Bound, str]:
    """Say what the call spends its time on, by the throughputs of its kernels, and in words how that is known."""
    known = [each for each in kernels if each.known("memory_pct", "compute_pct")]
    if not known:
        return "unknown", ""
    weight = sum(each.share for each in known) or 1.0
    memory, compute, dram = (
        sum(each.share * each.mean(name) for each in known) / weight
        for name in ("memory_pct", "compute_pct", "dram_pct")
    )
    words = (
        f"memory at {memory:.0f} % of what it can do (DRAM {dram:.0f} %), multiprocessors at {compute:.0f} %"
    )
    if max(memory, compute) < BUSY_PCT:
        return "latency", words
    return ("memory" if memory >= compute else "arithmetic"), words


def rows(kernels: Sequence[Kernel]) -> list[MeasuredKernel]:
    """Return what an answer tells of the kernels that take longest."""
    return [
        MeasuredKernel(
            kernel=each.name,
            launches=len(each.launches),
            us=round(each.microseconds, 2),
            share=round(each.share, 3),
            memory_pct=each.percent("memory_pct"),
            compute_pct=each.percent("compute_pct"),
            dram_bytes=round(each.total("dram_read", "dram_written")) if each.known("dram_read") else None,
            occupancy_pct=each.percent("warps_pct"),
        )
        for each in kernels[:SHOWN]
    ]


def measured_causes(
    kernels: Sequence[Kernel], seen: Seen, machine: Machine
) -> tuple[list[Found], set[tuple[str, str]]]:
    """Return what counters show, and what they settle: names of causes with the kernel, or none for all of them.

    What is settled and not among the causes was measured and is not so, whatever the code looks like.
    """
    causes: list[Found] = []
    settled: set[tuple[str, str]] = set()
    for each in kernels:
        for look, name, needed in LOOKS:
            if each.known(*needed):
                settled.add((name, each.name))
                if each.share >= CONCERNS:
                    causes += look(each, seen, machine)
        if each.share >= CONCERNS:
            causes += _waits(each)
    if kernels and all(each.known("dram_read", "dram_written") for each in kernels):
        settled.add(("extra_traffic", ""))
        causes += _traffic(kernels, seen)
    if any(each.mean("tensor_pct") > 0 for each in kernels):
        settled.add(("no_tensor_cores", ""))
    return causes, settled


# --- looks -----------------------------------------------------------------------------------------------


def _measured(severity: float, each: Kernel, name: str, evidence: str) -> Found:
    """Return a cause; what concerns half of the time weighs a third less."""
    return found(severity * (0.35 + 0.65 * each.share), name, each.name, evidence, "measured")


def _spills(each: Kernel, _: Seen, __: Machine) -> Iterator[Found]:
    local = each.total("local_loads", "local_stores")
    share = local / (each.total("instructions") or 1.0)
    if share > SPILLING:
        spilled = f"{each.build.spill_bytes} bytes of every thread" if each.build else "registers"
        yield _measured(
            5.0 + 7.0 * min(1.0, 6 * share),
            each,
            "spilled_registers",
            f"{share:.0%} of {each.name}'s instructions move {spilled} to and from local memory: "
            f"{each.mean('registers'):.0f} registers do not do",
        )


def _narrow(each: Kernel, seen: Seen, _: Machine) -> Iterator[Found]:
    requests = each.total("load_requests", "store_requests")
    sectors = each.total("load_sectors", "store_sectors")
    moved = each.total("dram_read", "dram_written") / len(each.launches)
    saturated = each.mean("dram_pct") > SATURATED_PCT and moved < EXTRA * seen.plan.bytes
    # Without its code the width of its accesses is not known; and what the L1 cache makes up for costs nothing.
    if not requests or each.build is None or saturated:
        return
    ideal = _sectors(each.build, "load") * each.total("load_requests")
    ideal += _sectors(each.build, "store") * each.total("store_requests")
    times = sectors / ideal
    if times < WASTEFUL:
        return
    loads, stores = (
        each.total(f"{kind}_sectors") / (each.total(f"{kind}_requests") or 1.0) for kind in ("load", "store")
    )
    yield _measured(
        6.0 + 1.6 * math.log2(times),
        each,
        "narrow_access",
        f"an access of a warp of {each.name} touches {loads:.1f} sectors of 32 bytes where it loads and {stores:.1f} where it "
        f"stores, {times:.1f} times what neighbouring addresses would take",
    )


def _sectors(build: BuildClaim, kind: str) -> float:
    """Return the sectors that one access of a warp takes at best, by the widest that the code has."""
    widths = [width_of(each) for each in build.instructions if each.startswith(f"{kind}_")]
    if kind == "load" and build.instructions.get("async_copies"):  # of 16 bytes, unless they cannot be
        widths.append(ASYNC_BITS)
    return LANES * max([NARROWEST_BITS, *widths]) / 8 / SECTOR_BYTES


def _conflicts(each: Kernel, _: Seen, __: Machine) -> Iterator[Found]:
    passes = each.total("load_wavefronts", "store_wavefronts")
    conflicts = each.total("load_conflicts", "store_conflicts")
    if not passes or conflicts < CONFLICTED * passes:
        return
    share = min(1.0, conflicts / passes)
    waits = _waiting(each)
    busy = max(
        each.mean("lsu_pct") / 100,
        waits.get("stall_shared_memory", 0.0) + waits.get("stall_shared_memory_queue", 0.0),
    )
    yield _measured(
        2.0 + 8.0 * share * min(1.0, 1.4 * busy),
        each,
        "bank_conflicts",
        f"{share:.0%} of {each.name}'s passes through shared memory are bank conflicts ({1 / max(1e-3, 1 - share):.0f} passes "
        f"where one would do)",
    )


def _tiny_grid(each: Kernel, _: Seen, machine: Machine) -> Iterator[Found]:
    active = each.total("cycles_active") / (each.total("cycles_elapsed") or 1.0)
    grid = each.mean("grid")
    if grid < FULL_WAVES * machine.multiprocessors and active < 1 - 1 / FULL_WAVES:
        yield _measured(
            6.0 + 6.0 * (1 - active),
            each,
            "tiny_grid",
            f"{each.name} runs as {grid:.0f} programs: on average {active:.0%} of the {machine.multiprocessors} "
            "multiprocessors work",
        )


def _occupancy(each: Kernel, _: Seen, __: Machine) -> Iterator[Found]:
    share = each.mean("warps_pct") / 100
    if share >= LOW_OCCUPANCY or each.mean("tensor_pct") > 0:
        return
    limits = {name: each.mean(f"limit_{name}") for name in ("registers", "shared_memory", "warps", "blocks")}
    least = min(limits, key=lambda name: limits[name] or math.inf).replace("_", " ")
    yield _measured(
        1.0 + 4.0 * (1 - share / LOW_OCCUPANCY),
        each,
        "low_occupancy",
        f"{share:.0%} of the warps that a multiprocessor can hold are there while {each.name} runs (limited by {least}, "
        f"{each.mean('registers'):.0f} registers, {each.mean('grid'):.0f} programs)",
    )


def _fp64(each: Kernel, seen: Seen, _: Machine) -> Iterator[Found]:
    share = each.total("fp64") / (each.total("instructions") or 1.0)
    if share > SPILLING and not seen.wide:
        yield _measured(
            5.0 + 4.0 * min(1.0, 4 * share),
            each,
            "float64",
            f"{share:.0%} of {each.name}'s instructions are of float64, which no tensor of the task is",
        )


def _waiting(each: Kernel) -> dict[str, float]:
    """Return for what warps wait, as shares of all waiting that is known."""
    waits = {name: each.mean(name) for name in STALLS}
    total = sum(waits.values())
    return {name: value / total for name, value in waits.items()} if total else {}


def _waits(each: Kernel) -> Iterator[Found]:
    waits = _waiting(each)
    if not waits or max(each.mean("memory_pct"), each.mean("compute_pct")) >= BUSY_PCT:
        return
    name = max(waits, key=lambda one: waits[one])
    if waits[name] >= WAITING:
        yield _measured(
            2.0,
            each,
            "exposed_latency",
            f"{waits[name]:.0%} of the time that warps of {each.name} wait, they wait for {STALLS[name]}, and no unit is busy",
        )


def _traffic(kernels: Sequence[Kernel], seen: Seen) -> Iterator[Found]:
    moved = sum(each.total("dram_read", "dram_written") for each in kernels)
    times = moved / max(1, seen.plan.bytes)
    pressure = sum(each.share * each.mean("dram_pct") for each in kernels)
    if times <= EXTRA or not seen.plan.bytes:
        return
    launches = sum(len(each.launches) for each in kernels)
    severity = min(10.0, 3.0 + 2.0 * math.log2(times)) * min(1.0, pressure / (1.5 * BUSY_PCT))
    yield found(
        severity,
        "extra_traffic",
        "",
        f"its {launches} launches move {moved / 1e6:.1f} MB through DRAM, {times:.1f} times the task's inputs and outputs "
        f"({seen.plan.bytes / 1e6:.1f} MB)",
        "measured",
    )


LOOKS = (
    (_spills, "spilled_registers", ("local_loads", "local_stores", "instructions")),
    (_narrow, "narrow_access", ("load_requests", "load_sectors", "store_requests", "store_sectors")),
    (
        _conflicts,
        "bank_conflicts",
        ("load_wavefronts", "store_wavefronts", "load_conflicts", "store_conflicts"),
    ),
    (_tiny_grid, "tiny_grid", ("cycles_active", "cycles_elapsed", "grid")),
    (_occupancy, "low_occupancy", ("warps_pct",)),
    (_fp64, "float64", ("fp64", "instructions")),
)
"""Each look, the cause that it settles, and what it needs."""
