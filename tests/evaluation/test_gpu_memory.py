"""What memory of a GPU an evaluation is counted with, and what it has in common with others."""

import os

import pytest

from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.gpu_memory import (
    Needs,
    judging_bytes,
    making_bytes,
    timing_bytes,
    together_bytes,
    trials_bytes,
)
from adaexplore_mcp.evaluation.references import KEPT_SHARE, MEANWHILE_SHARE, References, _on_gpu
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.trials import Attachment, Trial, TrialSet
from adaexplore_mcp.models import TensorSpec, Workload

pytestmark = pytest.mark.anyio

MIB = 1 << 20
GPU = Gpu(0, "GPU-0", "stand-in", 100 << 30, (9, 0))
PLAN = Plan(
    workload=Workload(name="default"),
    inputs=[TensorSpec(name="x", dtype="float32", shape=[1024, 1024])],
    outputs=[TensorSpec(name="out", dtype="float16", shape=[1024, 1024])],
    peak_bytes=16 * MIB,
)


def task(name):
    return Definition(format="kernelbench", files={"task.py": f"class {name}: ..."}, entry=name)


@pytest.fixture
def devices(tmp_path):
    return Devices([GPU], {GPU.uuid: DeviceLock(GPU, tmp_path)})


@pytest.fixture
def references(devices):
    return References(None, "sm_90", 1 << 34, devices)


def test_it_grows_with_the_trials_that_have_to_be_made():
    trial = (4 + 2 + 8) * MIB
    assert PLAN.trial_bytes == trial
    assert trials_bytes(PLAN, 5) - trials_bytes(PLAN, 2) == 3 * trial
    heavy = PLAN.model_copy(update={"parameters": 1 << 28})
    assert trials_bytes(heavy, 1) - trials_bytes(PLAN, 1) == 2 << 30


def test_it_is_that_of_who_runs_at_the_same_time():
    one = judging_bytes(PLAN)
    assert one >= PLAN.peak_bytes + 4 * 4 * MIB
    # Weights are loaded while it is judged, and constructed while it is timed.
    heavy = PLAN.model_copy(update={"parameters": 1 << 28})
    assert judging_bytes(heavy) == one + (2 << 30)
    assert timing_bytes(heavy) == timing_bytes(PLAN)
    changing = PLAN.model_copy(update={"mutates": ["x"]})
    assert timing_bytes(changing) - timing_bytes(PLAN) == 3 * 4 * MIB
    large = PLAN.model_copy(update={"peak_bytes": 1 << 34})
    # The reference in its own dtype and in float64, before the candidate runs.
    assert making_bytes(large) > 3 * large.peak_bytes > judging_bytes(large)
    two = PLAN.model_copy(update={"elsewhere": PLAN.model_copy(update={"once": True})})
    assert judging_bytes(two) - one == PLAN.trial_bytes


def test_candidates_of_one_task_have_its_trials_in_common_and_those_of_two_have_nothing(references):
    one, same, other = (references.needs(task(name), PLAN) for name in ("A", "A", "B"))
    assert one.own_bytes == making_bytes(PLAN)  # there are no trials yet
    assert one.shared
    assert together_bytes([one, same]) == together_bytes([one]) + same.own_bytes
    assert together_bytes([one, other]) == together_bytes([one]) + together_bytes([other])


def test_who_is_timed_with_baselines_needs_memory_for_all_of_them(references):
    three = references.needs(task("A"), PLAN, contenders=3)
    assert three.own_bytes == max(making_bytes(PLAN), 3 * timing_bytes(PLAN))
    assert references.timing_needs(task("A"), PLAN, 3) == three
    away = PLAN.model_copy(update={"workload": Workload(name="away"), "once": True})
    both = PLAN.model_copy(update={"elsewhere": away})
    judged, timed = references.needs(task("A"), both, 1), references.timing_needs(task("A"), both, 1)
    assert set(judged.shared) > set(timed.shared) == set(three.shared)


async def test_trials_that_nobody_uses_stay_while_evaluations_leave_room_for_them(devices, references):
    assert references._idle_bytes(GPU.uuid) == int(KEPT_SHARE * GPU.memory_bytes)
    needs = Needs(20 << 30, {"trials": 30 << 30})
    async with devices.use(needs=needs, report=str), devices.use(needs=needs, report=str):
        left = MEANWHILE_SHARE * GPU.memory_bytes - (70 << 30)
        assert references._idle_bytes(GPU.uuid) == int(left)
    async with devices.use(needs=Needs(GPU.memory_bytes), report=str):
        assert references._idle_bytes(GPU.uuid) == 0


async def test_those_who_will_be_given_other_trials_have_none_in_common(devices, references):
    before = references.needs(task("A"), PLAN)
    trials = await kept_trials(references, task("A"))
    same = references.needs(task("A"), PLAN)
    assert same.shared == before.shared
    assert same.own_bytes == judging_bytes(PLAN)  # they are there
    trials.spent = True
    after = references.needs(task("A"), PLAN)
    assert not set(after.shared) & set(before.shared)
    assert after.own_bytes == making_bytes(PLAN)


async def kept_trials(references, definition):
    """Have trials of a task kept, as if they had been made on the GPU."""
    none = Attachment([], None)

    async def make(_):
        inputs = Attachment([], os.open("/dev/null", os.O_RDONLY), MIB)
        trial = Trial("first", "constructor", inputs, none, 1, [])
        return TrialSet(1, 2, none, none, {}, [trial], [], {}, 1, [], gpu=GPU.uuid)

    return await references._kept.get(_on_gpu(definition, PLAN, GPU), make, gpu=GPU.uuid)


async def test_trials_of_who_has_a_place_and_has_not_asked_for_them_yet_stay(devices, references):
    await kept_trials(references, task("A"))
    everything = Needs(GPU.memory_bytes, references.needs(task("A"), PLAN).shared)
    async with devices.use(needs=everything, report=str):
        await kept_trials(references, task("B"))
        references._kept.tidy(GPU.uuid, "what comes")
        assert _on_gpu(task("A"), PLAN, GPU) in references._kept
        assert _on_gpu(task("B"), PLAN, GPU) not in references._kept
    references.close()


def test_what_is_shared_counts_as_large_as_anybody_says():
    one, other = Needs(1, {"trials": 5}), Needs(2, {"trials": 7})
    assert together_bytes([one, other]) == together_bytes([other, one]) == 10
