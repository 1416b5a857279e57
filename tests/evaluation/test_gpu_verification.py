"""The way of a candidate to a GPU, with stand-ins for GPUs, compiler and candidate's process."""

import os
from contextlib import nullcontext
from types import SimpleNamespace

import anyio
import pytest

from adaexplore_mcp.evaluation import gpu_verification
from adaexplore_mcp.evaluation.buffers import DeviceFullError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import Failure
from adaexplore_mcp.evaluation.compilation import Compilation, CompileReport
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu, Occupant, Usage
from adaexplore_mcp.evaluation.gpu_memory import Needs, making_bytes, trials_bytes
from adaexplore_mcp.evaluation.gpu_verification import GpuVerification
from adaexplore_mcp.evaluation.memfiles import empty_file
from adaexplore_mcp.evaluation.numerics import NumericsReport
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.timeline import Timeline
from adaexplore_mcp.models import Policy, TensorSpec, Workload

pytestmark = pytest.mark.anyio

GPUS = [Gpu(n, f"GPU-{n}", "stand-in", 10 << 30, (9, 0), -1, position=n) for n in range(2)]
PLAN = Plan(
    workload=Workload(name="default"),
    inputs=[TensorSpec(name="x", dtype="float32", shape=[1024, 1024])],
    outputs=[TensorSpec(name="out", dtype="float16", shape=[1024, 1024])],
    peak_bytes=16 << 20,
)
GOOD = NumericsReport(stage="done", calls=9)
NO_MEMORY = NumericsReport(stage="run", failure=Failure("memory", message="tried to allocate 20 GiB"))


class World:
    """Devices, and what a candidate does on them.

    Args:
        folder: For locks.
        report: What the compiler says.
    """

    def __init__(self, folder, report=None):
        self.devices = Devices(GPUS, {gpu.uuid: DeviceLock(gpu, folder) for gpu in GPUS})
        self.report = report or CompileReport(tuned={"k": [False, True, True]})
        self.seen = []
        self.settings = []
        self.ends = {}
        self.files = []
        self.trials = SimpleNamespace(used=nullcontext, constant=False, left_out=[])
        self.full = 0
        self.kept_for_others = set()

    def compilation(self, *_, **__):
        world = self

        class Compiled(Compilation):
            def __init__(self): ...

            async def run(self, **_):
                world.seen.append("compiled")
                return world.report

            async def packed(self):
                world.files.append(empty_file())
                return world.files[-1]

            async def close(self):
                world.seen.append("closed")

        return Compiled()

    async def trials_on(self, _, gpu):
        if self.full:
            self.full -= 1
            raise DeviceFullError("12 of 10240 MiB are free")
        return self.trials

    async def make_room(self, gpu):
        self.seen.append(f"room on {gpu.label}")

    async def numerics(self, setting, *_, **__):
        gpu = setting.buffers.gpu
        self.settings.append(setting)
        self.seen.append(f"ran on {gpu.label}")
        await anyio.sleep(0.01)
        ends = self.ends.get(gpu.label, [GOOD])
        return ends.pop(0) if len(ends) > 1 else ends[0]

    async def at_once(self, result, place, trials, _):
        assert trials is self.trials
        self.seen.append(f"{result.numerics.calls} calls right, {self.devices.running(place.gpu)} there")

    async def verify(self, pinned="", plan=PLAN, at_once=None):
        verification = GpuVerification(
            SimpleNamespace(pids=set),
            Candidate(b"", "kernelbench", "ModelNew", Policy()),
            self.trials_on,
            lambda needs: self.devices.use(pinned, needs=needs, report=str),
            devices=self.devices,
            make_room=self.make_room,
            keeps_others=lambda gpu: gpu.label in self.kept_for_others,
            needs=lambda plan: Needs(making_bytes(plan), {"trials": trials_bytes(plan, 3)}),
            target={"name": "sm_90"},
            timeout_s=10,
            jobs=2,
            timeline=Timeline(str),
            at_once=at_once,
        )
        try:
            return await verification.workload(plan), verification
        finally:
            await verification.close()


@pytest.fixture
def world(tmp_path, monkeypatch):
    def make(report=None):
        world = World(tmp_path, report)
        monkeypatch.setattr(gpu_verification, "Compilation", world.compilation)
        monkeypatch.setattr(gpu_verification, "run_numerics", world.numerics)
        used = Usage(1 << 30, 9 << 30, (Occupant(7, 1 << 20),))
        monkeypatch.setattr(gpu_verification, "usage", lambda *_: used)
        return world

    return make


async def test_it_is_compiled_before_a_gpu_is_taken_and_then_run_there(world):
    world = world()
    result, verification = await world.verify()
    assert world.seen == ["compiled", "ran on cuda:0", "closed"]
    assert result.gpu == GPUS[0]
    assert not result.reduced
    assert result.occupants == ["process 7 (1 MiB)"]
    assert verification.described()["others"] == [{"pid": 7, "used_bytes": 1 << 20}]
    (setting,) = world.settings
    assert setting.load["tuned"] == {"k": [False, True, True]}
    assert setting.configurations == [1, 2]
    assert not setting.measure


async def test_what_follows_at_once_does_so_at_the_same_place_and_for_who_is_right(world):
    world = world()
    await world.verify(at_once=world.at_once)
    assert world.seen == ["compiled", "ran on cuda:0", "9 calls right, 1 there", "closed"]
    world.seen.clear()
    world.ends = {"cuda:0": [NumericsReport(failure=Failure("exception"))]}
    await world.verify("cuda:0", at_once=world.at_once)
    assert world.seen == ["compiled", "ran on cuda:0", "closed"]


@pytest.mark.parametrize(
    "report",
    [
        CompileReport(failure=Failure("language", message="no")),
        CompileReport(failure=Failure("syntax", phase="load")),
        CompileReport(failure=Failure("time")),
        CompileReport(timed_out_s=5.0),
        CompileReport(forged="it sent what is no result"),
    ],
)
async def test_what_compiling_decides_never_takes_a_gpu(world, report):
    world = world(report)
    result, verification = await world.verify()
    assert world.seen == ["compiled", "closed"]
    assert result.gpu is None
    assert verification.described() == {"used": False}


async def test_what_fake_tensors_could_not_show_is_seen_on_the_gpu(world):
    world = world(CompileReport(failure=Failure("not_fakeable", message="it looks at values")))
    result, _ = await world.verify()
    assert result.gpu is not None
    assert world.settings[0].measure


async def test_the_file_of_what_was_compiled_is_closed(world):
    world = world()
    await world.verify()
    (file,) = world.files
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


async def test_two_gpus_are_used_side_by_side(world):
    world = world()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(world.verify)
    ran = [each for each in world.seen if each.startswith("ran")]
    assert sorted(ran) == ["ran on cuda:0", "ran on cuda:0", "ran on cuda:1", "ran on cuda:1"]


async def test_a_pinned_candidate_stays(world):
    world = world()
    for _ in range(3):
        result, _ = await world.verify("cuda:1")
        assert result.gpu == GPUS[1]


async def test_who_ran_out_of_memory_beside_others_runs_once_more_alone(world):
    world = world()
    world.ends = {"cuda:0": [NO_MEMORY, NO_MEMORY, GOOD]}
    results = []

    async def verify():
        results.append((await world.verify("cuda:0"))[0].numerics)

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(verify)
    assert [each.clean for each in results] == [True, True]
    assert "room on cuda:0" in world.seen


async def test_who_ran_out_of_memory_alone_is_not_run_again(world):
    world = world()
    world.ends = {"cuda:0": [NO_MEMORY, GOOD]}
    result, _ = await world.verify("cuda:0")
    assert result.numerics is NO_MEMORY


async def test_what_is_kept_for_other_tasks_costs_no_candidate_its_verdict(world):
    world = world()
    world.ends = {"cuda:0": [NO_MEMORY, GOOD]}
    world.kept_for_others = {"cuda:0"}
    result, _ = await world.verify("cuda:0")
    assert result.numerics is GOOD
    assert "room on cuda:0" in world.seen


async def test_a_gpu_without_room_is_said_to_be_full_and_by_whom(world):
    world = world()
    world.full = 1
    result, _ = await world.verify("cuda:1")
    failure = result.numerics.failure
    assert failure.kind == "no_room"
    assert "cuda:1 (stand-in, 10240 MiB): 12 of 10240 MiB are free" in failure.message
    assert "process 7 (1 MiB)" in failure.message
