"""Kernels with one known fault each: it is named first. Compiled for real, never run."""

import sys
from pathlib import Path

import pytest

from adaexplore_mcp.evaluation.claims import BuildClaim, CallFacts
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.profiles import Least, differences, profile_of
from adaexplore_mcp.evaluation.profiling import Machine, Seen, bound_of, looks, worst
from adaexplore_mcp.models import Workload
from tests.support.faults import FAULTS, HEALTHY, task_source

pytestmark = pytest.mark.anyio

H200 = Machine("sm_90", 132)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def evaluator(tmp_path_factory):
    pool = WorkerPool(Path(sys.executable), tmp_path_factory.mktemp("profiles"), 4 << 30)
    evaluator = Evaluator(pool, "sm_90", 4 << 30)
    yield evaluator
    await evaluator.aclose()


def definition_of(forward, inputs):
    source = task_source(forward, inputs)
    return Definition(format="kernelbench", files={"task.py": source}, entry="Model")


async def profiled(evaluator, forward, inputs, candidate):
    definition = definition_of(forward, inputs)
    (plan,) = await evaluator.examine(definition, lambda _: None)
    return await evaluator.profile(
        definition, plan, candidate.encode(), target="sm_90", timeout_s=60, report=lambda _: None
    )


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_one_fault_of_a_kernel_is_named_first(evaluator, fault):
    seen = await profiled(evaluator, *FAULTS[fault])
    assert seen.compiled.compiled, seen.compiled.failure
    found = worst(looks(seen.seen, seen.machine))
    assert found, seen
    assert found[0].name == fault, found
    assert all(len(f"{each.evidence} {each.remedy}") < 500 for each in found)


async def test_a_kernel_without_a_fault_has_none(evaluator):
    seen = await profiled(evaluator, *HEALTHY)
    assert worst(looks(seen.seen, seen.machine)) == []


async def test_without_counters_a_digest_says_so_and_what_differs_from_another_candidate(evaluator):
    one, other = [await profiled(evaluator, *each) for each in (FAULTS["narrow_access"], HEALTHY)]
    profile = profile_of(one, Least(), {"task_id": "task_x"})
    assert profile.causes[0].basis == "from binary"
    assert "No counter was read" in profile.notes[0]
    (difference,) = differences(one, other)
    assert "load 128 instead of 0" in difference
    assert differences(other, other) == ["Nothing in their compiled code and launches differs."]


def seen_of(launch_bytes=100, nbytes=100, **facts):
    plan = Plan(workload=Workload(name="w"), bytes=nbytes)
    return Seen(
        plan,
        [BuildClaim("k", 32, 0, 0, 4, 1, "")],
        CallFacts(launches={"k": 1}, **facts),
        {"k": launch_bytes},
    )


@pytest.mark.parametrize(
    ("bytes_us", "flops_us", "measured_us", "bound"),
    [
        (10.0, 1.0, 12.0, "memory"),
        (1.0, 10.0, 12.0, "arithmetic"),
        (1.0, 2.0, 50.0, "latency"),
        (1.0, 2.0, None, "arithmetic"),
        (0.0, 0.0, 5.0, "unknown"),
    ],
)
def test_what_takes_longest_bounds_it(bytes_us, flops_us, measured_us, bound):
    assert bound_of(seen_of(), bytes_us=bytes_us, flops_us=flops_us, measured_us=measured_us) == bound


def test_what_is_moved_twice_counts_twice():
    found = seen_of(launch_bytes=1_000, nbytes=100)
    assert bound_of(found, bytes_us=1.0, flops_us=5.0, measured_us=12.0) == "memory"


def test_small_tasks_of_many_launches_are_told():
    names = {f"k{number}": 1 for number in range(16)}
    plan = Plan(workload=Workload(name="w"), bytes=1 << 20)
    (cause,) = worst(looks(Seen(plan, [], CallFacts(launches=names), {}), H200))
    assert cause.name == "many_launches"
    assert "16 launches" in cause.evidence
