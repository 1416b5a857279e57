"""What becomes of a right candidate's verdict where it cannot be timed."""

from types import SimpleNamespace

import pytest

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation import evaluator as module
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Built
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.evaluator import Evaluator, Race
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.evaluation.timing.baselines import baseline
from adaexplore_mcp.evaluation.timing.benchmark import WorkloadTimes
from adaexplore_mcp.evaluation.timing.clock import Ceilings
from adaexplore_mcp.models import Outcome, Policy, Workload

pytestmark = pytest.mark.anyio

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1 << 37, (9, 0))
TASK = Definition(format="kernelbench", files={"task.py": "class Model: ..."}, entry="Model", module="task")
PLAN = Plan(workload=Workload(name="default"))


class Pool:
    async def properties(self, _):
        return {"l2_bytes": 1 << 26}


async def timed(monkeypatch, *ends):
    """Return what timing gave whose tries end like this."""
    ends = iter(ends)

    class Benchmark:
        def __init__(self, *_, **__): ...

        async def workload(self, *_, **__):
            if isinstance(end := next(ends), Exception):
                raise end
            return end

    monkeypatch.setattr(module, "Benchmark", Benchmark)
    evaluator = Evaluator(Pool(), "sm_90", 1 << 30)
    evaluator.known_ceilings[GPU.uuid] = Ceilings(4e12, {}, 30.0, 1.3)
    verification = SimpleNamespace(
        gpu=GPU,
        candidate=Candidate(b"", "kernelbench", "ModelNew", Policy()),
        compiled={"default": Built()},
    )
    return await evaluator._race(
        TASK,
        Race([baseline("eager", TASK)], "quick"),
        verification,
        [SimpleNamespace(plan=PLAN)],
        Outcome(summary="Correct.", status="correct"),
        timeout_s=5,
        timeline=Timeline(str),
    )


async def test_a_gpu_too_full_to_time_on_costs_no_verdict(monkeypatch):
    found = await timed(monkeypatch, DeviceFullError("12 of 10240 MiB are free"))
    _, times = found.workloads["default"]
    assert "12 of 10240 MiB" in times.failed["eager"]
    assert times.seen.clean


async def test_a_worker_lost_while_timing_costs_no_verdict(monkeypatch):
    seen = WorkloadTimes("default")
    found = await timed(monkeypatch, WorkerLostError("lost"), seen)
    assert found.workloads["default"] == (PLAN, seen)
    with pytest.raises(WorkerError):
        await timed(monkeypatch, WorkerLostError("lost"), WorkerLostError("lost"))
