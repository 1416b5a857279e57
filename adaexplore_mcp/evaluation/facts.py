"""What was seen while a candidate ran, for the outcome: who did the work, and by what means. Reported, not judged."""

from collections.abc import Iterator, Mapping, Sequence

from adaexplore_mcp.evaluation.claims import CallFacts, SourceClaim
from adaexplore_mcp.evaluation.numerics import NumericsReport
from adaexplore_mcp.evaluation.reporting import HARMLESS_OPERATORS, HOST_ELEMENTS, WorkloadResult, brief
from adaexplore_mcp.models import Facts

__all__ = ["facts"]

SHOWN = 8
SIGNS = {
    kind: rank
    for rank, kind in enumerate(
        (
            "fallback_try",
            "fallback_branch",
            "hides_work",
            "runs_text",
            "reads_files",
            "loads_binary",
            "looks_inside",
            "torch_compile",
            "global_flag",
            "autocast",
        )
    )
}
"""Signs of `workers.source` in order of what they mean to a reader."""


def facts(results: Sequence[WorkloadResult]) -> Facts | None:
    """Return the facts of the last workload judged, from full size where it was compiled there."""
    result = results[-1]
    seen, full = result.numerics.facts, result.compilation.facts
    # An autotuner's tuning launches are left out of the first, and cannot be told apart in the second.
    launches = seen.launches or full.launches
    operators = {
        name: count
        for name, count in (full.operators or seen.operators).items()
        if name not in HARMLESS_OPERATORS
    }
    if not result.numerics.calls and not launches and not operators and not result.numerics.source.signs:
        return None
    share = result.library_share
    return Facts(
        launches=dict(list(launches.items())[:SHOWN]),
        operators=dict(list(operators.items())[:SHOWN]),
        library_flops_share=None if share is None else round(share, 4),
        own_share=_own_share(result, launches, operators),
        device_us=_device_times(result.numerics.shares),
        source=_signs(result.numerics.source),
        autotuned=seen.autotuned,
        shape_specialised=next(filter(None, map(_specialised, results)), ""),
        configurations_checked=result.numerics.configurations,
        notes=list(dict.fromkeys(_notes(result, launches, list(operators))))[:12],
    )


def _own_share(
    result: WorkloadResult, launches: Mapping[str, int], operators: Mapping[str, int]
) -> float | None:
    """Return the share of the device's time in its own kernels; where none was taken, their share of the calls."""
    shares = result.numerics.shares
    own, library = (
        (sum(launches.values()), sum(operators.values()))
        if shares is None
        else (shares.own_ns, sum(shares.library_ns.values()))
    )
    if shares is not None and launches and not own:  # a graph that is replayed launches past what is timed
        return None
    return round(own / (own + library), 4) if own + library else None


def _specialised(result: WorkloadResult) -> str:
    """Say at which sizes near the task's own it fails, and how; empty where it does not, or was not tried."""
    other, wrong = result.plan.elsewhere, result.numerics.elsewhere
    if other is None or not wrong:
        return ""
    sizes = ", ".join(
        f"{name}={value}"
        for name, value in other.workload.sizes.items()
        if result.plan.workload.sizes.get(name) != value
    )
    return f"fails at {sizes}: {wrong[:200]}"


def _device_times(shares: CallFacts | None) -> dict[str, float]:
    """Return times by operator in microseconds, longest first, its own kernels before all."""
    if shares is None:
        return {}
    longest = sorted(shares.library_ns.items(), key=lambda pair: -pair[1])[:SHOWN]
    return {name: round(time / 1e3, 1) for name, time in (("own", shares.own_ns), *longest)}


def _signs(source: SourceClaim) -> list[str]:
    """Return what stands in the source, what matters most first; one narrow type stands for all."""
    ranked = sorted(source.signs, key=lambda sign: (SIGNS.get(sign.kind, len(SIGNS)), sign.line))
    half = [sign for sign in ranked if sign.kind == "half_type"][1:]
    return [f"Line {sign.line}: {sign.what}." for sign in ranked if sign not in half][:SHOWN]


def _who_did_it(
    result: WorkloadResult, launches: Mapping[str, int], operators: Sequence[str]
) -> Iterator[str]:
    """Yield what is known about whose work the outputs are."""
    full, numerics = result.compilation.facts, result.numerics
    share = result.library_share
    if not launches:
        did = f": torch did the work ({', '.join(operators[:4])})" if operators else ""
        yield f"No kernel of its own was launched{did}."
    elif result.compilation.compiled and full.launches and not full.programs and not numerics.facts.programs:
        yield "Its launches have empty grids: they run nothing."
    if numerics.facts.to_host > HOST_ELEMENTS:
        yield f"A call brings {numerics.facts.to_host:,} elements to the host."
    if numerics.unused:
        without = f"ithout the launches of {', '.join(numerics.unused)} its outputs are right all the same"
        yield (
            f"At reduced sizes {result.sizes} w{without}: at full size they may rest on what is written there."
            if result.reduced
            else f"W{without}: they do not rest on what is written there."
        )
    if idle := [name for name in numerics.source.kernels if name not in _ran(result, launches)]:
        line = numerics.source.kernels[idle[0]]
        yield f"Kernel {idle[0]} (line {line}) is defined and was not launched."
    if share is not None and share >= 0.01:
        did = ", ".join(full.library_operators[:4])
        yield f"Torch's own matmul and convolution operators did {share:.0%} of the task's FLOPs ({did})."
    if dots := [kind for kind in numerics.facts.dots if kind != "ieee"]:
        yield f"tl.dot multiplied {' and '.join(dots)} operands."


def _notes(result: WorkloadResult, launches: Mapping[str, int], operators: Sequence[str]) -> Iterator[str]:
    seen, full, numerics = result.numerics.facts, result.compilation.facts, result.numerics
    yield from _who_did_it(result, launches, operators)
    yield from _circumstances(result)
    if result.constant:
        yield "The reference's output is constant: it does not depend on inputs or weights."
    if numerics.weights_bound:
        yield "Weights are bound at construction: loading others later has no effect."
    if result.first_look is not None and numerics.clean and not result.first_look.clean:
        yield f"It fails at smaller sizes ({_first(result.first_look)}): it assumes multiples of its block sizes."
    if result.sampled is not None and numerics.clean:
        for access in result.sampled.accesses[:1]:
            yield (
                f"At full size, where nothing was computed, {access.detail} ({access.kernel}, line {access.line}): offsets beyond 2^31 "
                "do not fit 32 bits; program_id(0).to(tl.int64) makes them 64 bits wide."
            )
    if numerics.undefined_lanes:
        yield (
            "Its result rests on lanes that a masked load leaves undefined: right only if they hold zeros, as a GPU was "
            "seen to leave them. Pass other=0.0 to tl.load."
        )
    if numerics.other_layout:
        yield f"Another layout in memory: {numerics.other_layout}."
    if numerics.order_unknown:
        yield "With its programs in another order it did not end: they wait for each other."
    if numerics.unloaded:
        yield (
            f"It has no tensor named and shaped like {', '.join(numerics.unloaded[:4])}: whether its result follows them could "
            "be tried by other seeds of the constructor alone."
        )
    yield from _conduct(numerics)
    for finding in numerics.findings:
        if not finding.kind.startswith("out_of_bounds"):
            yield f"{finding.kind} in {finding.kernel}: {finding.detail} (line {finding.line})."
    yield from full.notes
    yield from seen.notes
    for refused in (*full.refused, *seen.refused)[:2]:
        yield f"It asked for what needs a GPU: {refused}."


def _ran(result: WorkloadResult, launches: Mapping[str, int]) -> set[str]:
    """Return the names of kernels that were launched or compiled anywhere."""
    return {*launches, *result.launched, *(build.kernel for build in result.compilation.builds)}


def _circumstances(result: WorkloadResult) -> Iterator[str]:
    """Yield what was special about the machine."""
    if result.occupants:
        yield f"Others use the GPU too: {', '.join(result.occupants)}."


def _conduct(numerics: NumericsReport) -> Iterator[str]:
    """Yield what it did beside computing that is no reason to reject it."""
    if threads := len(numerics.integrity.threads):
        yield f"It left {threads} thread{'s' * (threads > 1)} running."
    if any(event.kind == "socket" for event in numerics.integrity.events):
        yield "It tried to open a network connection."
    if any(event.kind == "search" for event in numerics.integrity.events):
        yield "It looked through /proc; nothing of the reference is in its process."


def _first(numerics: NumericsReport) -> str:
    if numerics.mismatch is not None:
        return str(numerics.mismatch.evidence.get("detail") or numerics.mismatch.check)
    return brief(numerics.failure) if numerics.failure is not None else "it did not finish"
