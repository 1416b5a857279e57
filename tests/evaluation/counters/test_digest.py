"""A digest names first what counters show, drops what they refute, and stays small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adaexplore_mcp.evaluation.claims import BuildClaim, CallFacts
from adaexplore_mcp.evaluation.compilation import CompileReport
from adaexplore_mcp.evaluation.counters import counting
from adaexplore_mcp.evaluation.counters.counting import Counted
from adaexplore_mcp.evaluation.counters.ncu import Launch, launches
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.profiles import Least, Profiled, differences, profile_of
from adaexplore_mcp.evaluation.profiling import Machine, Seen
from adaexplore_mcp.models import TensorSpec, Workload
from tests.support.counters import answer_of

H200 = Machine("NVIDIA H200", 132)
BYTES = 536_870_912
WIDE = {"load_128": 4, "store_128": 4}
NARROW = {"load_32": 16, "store_32": 16, "shared_single": 200}
BUILD = BuildClaim("kernel", 24, 0, 0, 4, 1, "", 1.0, "threads", WIDE)


def profiled(*counts, builds=None, nbytes=BYTES, facts=None):
    names = [name for name, _ in counts] or ["kernel"]
    builds = builds or [replace(BUILD, kernel=name) for name in names]
    facts = facts or CallFacts(launches=dict.fromkeys(names, 1), grids=dict.fromkeys(names, (32768, 1, 1)))
    seen = Seen(Plan(workload=Workload(name="w"), bytes=nbytes), builds, facts, dict.fromkeys(names, BYTES))
    raw = answer_of(*counts)
    return Profiled(
        CompileReport(builds=list(builds)),
        seen,
        H200,
        Counted(launches(raw), raw=raw, by="Nsight Compute 2025.3"),
    )


def digest(*counts, **options):
    return profile_of(profiled(*counts, **options), Least(bytes_us=112.0), {})


UNCOALESCED = {
    "load_sectors": 4 * 16_777_216,
    "load_requests": 2_097_152,
    "duration_ns": 900_000,
    "dram_pct": 60,
    "memory_pct": 88,
}
SPILLED = {
    "local_loads": 3_000_000, "local_stores": 1_000_000, "instructions": 20_000_000, "registers": 255, "warps_pct": 12, "tensor_pct": 9,
    "dram_pct": 55, "dram_read": 2.5e9,
}  # fmt: skip
FEW = {
    "grid": 4, "cycles_active": 6_000, "cycles_elapsed": 200_000, "waves": 0.01, "warps_pct": 6.2, "memory_pct": 2, "compute_pct": 1,
    "dram_pct": 2,
}  # fmt: skip
CONFLICTED = {
    "load_wavefronts": 4_000_000, "load_conflicts": 3_870_000, "store_wavefronts": 130_000, "lsu_pct": 92, "memory_pct": 92,
    "dram_pct": 20, "stall_shared_memory_queue": 25, "stall_shared_memory": 20, "stall_global_memory": 3,
}  # fmt: skip
DETOUR = {"dram_read": 268e6, "dram_written": 268e6}


@pytest.mark.parametrize(
    ("fault", "counts", "options"),
    [
        ("narrow_access", [("kernel", UNCOALESCED)], {"builds": [BuildClaim("kernel", 24, 0, 0, 4, 1, "", 1.0, "", {"load_32": 16, "store_128": 4})]}),
        ("spilled_registers", [("kernel", SPILLED)], {}),
        ("tiny_grid", [("kernel", FEW)], {}),
        ("bank_conflicts", [("kernel", CONFLICTED)], {}),
        ("extra_traffic", [("kernel", DETOUR)] * 5, {"nbytes": BYTES // 2}),
    ],
)  # fmt: skip
def test_the_fault_that_counters_show_is_named_first(fault, counts, options):
    found = digest(*counts, **options)
    assert found.causes[0].name == fault, found.causes
    assert found.causes[0].basis == "measured"
    assert found.summary.startswith(f"Most likely: {found.causes[0].evidence}.")
    assert len(json.dumps(found.to_wire(), ensure_ascii=False)) / 3.6 < 1000


PRODUCT = Plan(
    workload=Workload(name="w"),
    bytes=134_217_728,
    flops=2 * 4096**3,
    inputs=[TensorSpec(name="a", shape=[4096, 4096], dtype="float32")],
)
SMALL = Plan(workload=Workload(name="w"), bytes=67_108_880)
COPY = Plan(workload=Workload(name="w"), bytes=BYTES)
HALF = Plan(workload=Workload(name="w"), bytes=BYTES // 2)
ASYNC = {"async_copies": 16, "store_128": 8}


@pytest.mark.parametrize(
    ("answer", "fault", "bound", "plan", "instructions"),
    [
        ("healthy", None, "memory", COPY, WIDE),
        ("narrow_access", "narrow_access", "memory", COPY, {"load_32": 16, "store_128": 4}),
        ("spilled_registers", "spilled_registers", "memory", PRODUCT, {**ASYNC, "tensor_core": 16}),
        ("tiny_grid", "tiny_grid", "latency", SMALL, WIDE),
        ("bank_conflicts", "bank_conflicts", "memory", COPY, {**WIDE, "shared_single": 32}),
        ("extra_traffic", "extra_traffic", "memory", HALF, WIDE),
        ("no_tensor_cores", "no_tensor_cores", "memory", PRODUCT, ASYNC),
    ],
)
def test_answers_of_an_h200_are_understood(answer, fault, bound, plan, instructions):
    """Of the fault kernels in tests/support/faults.py, by Nsight Compute on an H200; columns that nobody asked for left out."""
    raw = (Path(__file__).parent / "answers" / f"{answer}.csv").read_text(encoding="utf-8")
    builds = [replace(BUILD, instructions=instructions)]
    facts = CallFacts(launches={"kernel": 1})
    counted = Counted(launches(raw), raw=raw, by="Nsight Compute 2025.3.1.0")
    seen = Profiled(CompileReport(builds=builds), Seen(plan, builds, facts, {}), H200, counted)
    found = profile_of(seen, Least(bytes_us=plan.bytes / 4.2e6), {})
    assert [each.name for each in found.causes[:1]] == ([fault] if fault else [])
    assert found.bound == bound
    assert len(json.dumps(found.to_wire(), ensure_ascii=False)) / 3.6 < 1000


def test_a_kernel_without_a_fault_has_none_and_its_headroom_is_told():
    found = digest(("kernel", {}))
    assert found.causes == []
    assert found.bound == "memory"
    assert found.headroom == pytest.approx(130 / 112, abs=0.01)
    assert "130 µs, 1.2 times what this GPU needs" in found.summary


def test_what_the_code_looks_like_and_counters_refute_is_not_told():
    suspect = [replace(BUILD, spill_bytes=64, occupancy=0.9, instructions=NARROW)]
    without = Profiled(
        CompileReport(builds=suspect), profiled(builds=suspect).seen, H200, Counted(problem="no ncu")
    )
    assert {each.name for each in profile_of(without, Least(), {}).causes} == {
        "narrow_access",
        "spilled_registers",
        "bank_conflicts",
    }
    coalesced = {"load_sectors": 2_097_152, "store_sectors": 2_097_152}
    assert digest(("kernel", coalesced), builds=suspect).causes == []


def test_a_kernel_that_hardly_counts_is_not_blamed():
    found = digest(
        ("main", {"duration_ns": 1_000_000}),
        ("short", {**CONFLICTED, "duration_ns": 10_000, "dram_read": 0, "dram_written": 0}),
    )
    assert found.causes == []
    assert [each.kernel for each in found.measured] == ["main", "short"]
    assert found.measured[0].share == pytest.approx(0.99, abs=0.001)


def test_waiting_is_a_cause_only_where_no_unit_is_busy():
    waiting = {"memory_pct": 20, "compute_pct": 12, "dram_pct": 20, "warps_pct": 40}
    found = digest(("kernel", waiting))
    assert [each.name for each in found.causes] == ["exposed_latency"]
    assert found.bound == "latency"


def test_why_no_counter_was_read_is_told():
    seen = profiled(("kernel", {}))
    without = Profiled(
        seen.compiled, seen.seen, H200, Counted(problem="Nsight Compute (ncu) is not installed here")
    )
    (note,) = profile_of(without, Least(), {}).notes
    assert note.startswith(
        "No counter was read and nothing was timed (Nsight Compute (ncu) is not installed here)"
    )


def test_times_without_counters_leave_the_causes_to_the_code():
    took = [Launch("kernel", {"duration_ns": 900_000.0})]
    counted = Counted(took, problem="Nsight Compute (ncu) is not installed here", by="torch's profiler")
    seen = replace(profiled(builds=[replace(BUILD, instructions=NARROW)]), counted=counted)
    found = profile_of(seen, Least(bytes_us=112.0), {})
    assert found.causes[0].basis == "from binary"
    assert found.bound == "latency"
    assert found.headroom == pytest.approx(8.04, abs=0.01)
    assert "times are by torch's profiler, of one call" in found.notes[0]
    assert "DRAM" not in differences(seen, seen)[0]


def test_what_a_process_says_of_times_is_data():
    said = [
        {"name": "void at::kernel<int>(int)", "ns": 5},
        {"name": 3, "ns": 2},
        {"ns": -1},
        {"ns": "1"},
        None,
    ]
    assert counting._times(said) == [
        Launch("at.kernel<int>", {"duration_ns": 5.0}),
        Launch("", {"duration_ns": 2.0}),
    ]
    assert counting._times("nothing") == []
    assert len(counting._times([{"name": "k", "ns": 1}] * 100)) == 40


def test_measured_times_come_first_in_what_differs():
    slow, fast = profiled(("kernel", {"duration_ns": 260_000, "dram_read": 8e8})), profiled(("kernel", {}))
    (difference,) = differences(slow, fast)
    assert "its kernels take 130 µs, 2 times as fast as 260 µs" in difference
    assert "530 MB through DRAM instead of 1.06e+03 MB" in difference


def test_what_does_not_compile_is_not_compared():
    broken = Profiled(CompileReport(timed_out_s=5.0), profiled().seen, H200)
    assert differences(broken, profiled()) == ["The other does not compile, so there is nothing to compare."]
    assert profile_of(broken, Least(), {}).causes == []


def test_a_digest_stays_small_whatever_names_are_like():
    names = [f"{'long_name_' * 12}{number}" for number in range(12)]
    builds = [
        BuildClaim(name, 255, 640, 1, 4, 1, "", 0.01, "registers", dict.fromkeys(map(str, range(40)), 7))
        for name in names
    ]
    counts = [(name, {**CONFLICTED, **SPILLED, **FEW, **UNCOALESCED}) for name in names]
    given = {"differences": ["x" * 900] * 8, "against": "cand_x"}
    found = profile_of(profiled(*counts, builds=builds), Least(bytes_us=1.0), given)
    assert len(json.dumps(found.to_wire(), ensure_ascii=False)) <= 3500
    assert len(found.causes) == 3
    assert found.measured
