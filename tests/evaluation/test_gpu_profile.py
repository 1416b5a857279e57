"""On a real GPU: kernels with one known fault each, which the digest of their counters names first.

`ADAEXPLORE_TEST_PROFILES` names a folder in which each answer of the profiler and each digest is kept.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from adaexplore_mcp.evaluation.counters import ncu
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import find
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.profiles import Least, differences, profile_of
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.timing.clock import least_us
from tests.support.faults import FAULTS, HEALTHY, task_source

GPUS = find(())
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no GPU"),
]
COUNTED = (
    "narrow_access",
    "spilled_registers",
    "tiny_grid",
    "bank_conflicts",
    "extra_traffic",
    "no_tensor_cores",
)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def evaluator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    locks = {gpu.uuid: DeviceLock(gpu, folder / "locks") for gpu in GPUS}
    pool = WorkerPool(Path(sys.executable), folder / "scratch", 6 << 30, gpus=GPUS)
    evaluator = Evaluator(pool, "sm_90", 6 << 30, Devices(GPUS, locks), jobs=4)
    yield evaluator
    await evaluator.aclose()


@pytest.fixture(scope="module")
def counting():
    """Whether counters can be read here at all, which the machine decides."""
    if problem := ncu.find().problem:
        pytest.skip(problem)


async def profiled(evaluator, name, forward, inputs, candidate):
    definition = Definition(
        format="kernelbench", files={"task.py": task_source(forward, inputs)}, entry="Model"
    )
    (plan,) = await evaluator.examine(definition, str)
    seen = await evaluator.profile(
        definition, plan, candidate.encode(), target=None, timeout_s=60, report=str, count=True
    )
    assert seen.compiled.compiled, seen.compiled.failure
    ceilings = await evaluator.ceilings(seen.gpu, str)
    digest = profile_of(seen, Least(*least_us(plan.bytes, plan.flops, ceilings, "fp32")), {})
    _keep(name, seen.counted.raw, json.dumps(digest.to_wire(), indent=1, ensure_ascii=False))
    return seen, digest


def _keep(name, raw, digest):
    if folder := os.environ.get("ADAEXPLORE_TEST_PROFILES"):
        Path(folder, f"{name}.csv").write_text(raw, encoding="utf-8")
        Path(folder, f"{name}.json").write_text(digest, encoding="utf-8")


@pytest.mark.parametrize("fault", COUNTED)
async def test_the_one_fault_of_a_kernel_is_measured_and_named_first(evaluator, counting, fault):
    seen, digest = await profiled(evaluator, fault, *FAULTS[fault])
    assert seen.counted.launches, seen.counted.problem
    assert digest.causes, digest
    assert digest.causes[0].name == fault, digest.causes
    if fault != "no_tensor_cores":
        assert digest.causes[0].basis == "measured"
    assert len(json.dumps(digest.to_wire(), ensure_ascii=False)) / 3.6 < 1000


async def test_a_kernel_without_a_fault_is_near_what_the_gpu_can_do(evaluator, counting):
    seen, digest = await profiled(evaluator, "healthy", *HEALTHY)
    assert seen.counted.launches, seen.counted.problem
    assert digest.bound == "memory"
    assert digest.headroom < 1.5, digest
    assert [each for each in digest.causes if each.name != "exposed_latency"] == []


async def test_the_same_task_done_with_and_without_a_fault_differs_in_time(evaluator, counting):
    forward, inputs, slow = FAULTS["extra_traffic"]
    kernel = HEALTHY[2]
    (one, _), (other, _) = [
        await profiled(evaluator, name, forward, inputs, each)
        for name, each in (("detour", slow), ("direct", kernel.replace("x + 1", "x + 4")))
    ]
    assert differences(one, other)[0].startswith("Measured: its kernels take ")
    assert other.measured_us < one.measured_us / 3


async def test_without_counters_torch_takes_the_time_of_each_kernel(evaluator, monkeypatch):
    monkeypatch.setattr(ncu, "find", lambda: ncu.Ncu(problem="Nsight Compute (ncu) is not installed here"))
    monkeypatch.setattr(evaluator, "_uncounted", {})
    _, digest = await profiled(evaluator, "times", *FAULTS["extra_traffic"])
    assert [each.kernel for each in digest.measured].count("kernel") == 1
    assert sum(each.launches for each in digest.measured) == 6
    assert digest.causes[0].name == "extra_traffic"
    assert "times are by torch's profiler" in digest.notes[0]
