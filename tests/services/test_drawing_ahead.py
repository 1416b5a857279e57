"""Synthetic tasks are there when they are asked for: shipped, drawn ahead, their operators found once."""

import pytest
from stand_ins import StandInEvaluations, StandInLessons, StandInSynthesis, StandInTasks

from adaexplore_mcp.memory_store import Store, SyntheticRecord
from adaexplore_mcp.services.adapt import AHEAD, AdaptService, Shipped
from adaexplore_mcp.services.connect import FIRST_TASKS, _shipped_tasks

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(home):
    store = Store(home / "adaexplore.db")
    yield store
    await store.aclose()


def service(store, home, synthesis=None, **more):
    evaluations = StandInEvaluations(store, home)
    synthesis = synthesis or StandInSynthesis()
    return AdaptService(store, StandInTasks(store), evaluations, StandInLessons(), synthesis, **more)


def quiet(stage):
    pass


async def test_tasks_are_drawn_behind_the_calls_before_the_last_is_taken(store, home):
    adapt = service(store, home)
    await adapt.take("me", quiet)
    await adapt.draw_if_due()
    campaign = await store.adapt.campaign(0)
    assert sum(not each.task_id for each in campaign.tasks) > AHEAD
    said = []
    await adapt.take("me", said.append)
    assert "drawing synthetic tasks" not in said


async def test_operators_are_found_once_for_all_servers_of_a_store(store, home):
    first, second = StandInSynthesis(), StandInSynthesis()
    await service(store, home, first).take("me", quiet)
    await service(store, home, second).take("me", quiet, seed=1)
    assert (first.finds, second.finds) == (1, 0)
    assert second.used.names == ("F.gelu", "torch.sum", "nn.Linear")


async def test_the_first_tasks_of_the_usual_seed_are_shipped(store, home):
    ready = Shipped(
        0, 8, 3, {"constant": 1}, [SyntheticRecord(4, "ready", "class Model: ready", ("F.gelu",))]
    )
    synthesis = StandInSynthesis()
    adapt = service(store, home, synthesis, shipped=ready)
    assert (await adapt.take("me", quiet)).text == "class Model: ready"
    assert synthesis.finds == 0
    assert (await store.adapt.campaign(0)).next_draft == 8
    assert (await adapt.take("me", quiet, seed=2)).text == "class Model: 2, 0"


def test_what_is_shipped_is_a_whole_wave():
    ready = _shipped_tasks()
    assert FIRST_TASKS.is_file()
    assert (ready.seed, ready.next_draft) == (0, 8)
    assert len(ready.tasks) + sum(ready.rejected.values()) == 8
