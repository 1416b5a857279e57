"""Searches as they are kept: submissions first, nodes in one transaction, several servers on one file."""

import anyio
import pytest

from adaexplore_mcp.memory_store import (
    FreshNode,
    Owner,
    RunRecord,
    StepRecord,
    Store,
    Submission,
    TaskRecord,
    node_handle,
    read_node_handle,
)
from adaexplore_mcp.models import TaskSummary

pytestmark = pytest.mark.anyio

HERE = Owner("here", 1, 1)
THERE = Owner("here", 2, 2)
RIGHT = FreshNode(status="correct", speedup=1.5)


def nobody_is_gone(step):
    return step.owner.pid == 0


def everybody_is_gone(step):
    return True


@pytest.fixture
async def stores(home):
    """Two servers on one database, with one run."""
    pair = [Store(home / "adaexplore.db") for _ in range(2)]
    summary = TaskSummary(task_id="task_1", name="t", format="function", entry="f")
    await pair[0].tasks.put(TaskRecord("task_1", {}, summary))
    await pair[0].runs.create(RunRecord(run_id="run_a", task_id="task_1", settings={}, seed=1, max_steps=9))
    yield pair
    for store in pair:
        await store.aclose()


async def proposed(store, number, **fields):
    version = (await store.runs.get("run_a")).version
    step = StepRecord(step_id=f"step_{number}", run_id="run_a", step=number, kind="large", parent=0, **fields)
    assert await store.runs.propose(step, version)
    return step.step_id


async def judged(store, step_id, text, fresh=RIGHT, owner=HERE):
    given = Submission(source=text.encode(), digest=text, agent="a")
    assert (await store.runs.submit(step_id, given, owner, nobody_is_gone)).verdict == "accepted"
    claim = await store.runs.claim(step_id, owner, nobody_is_gone)
    if claim.verdict != "claimed":
        return claim
    return await store.runs.finish(step_id, owner, fresh, {"status": "correct"}, 9.0)


async def test_a_submission_is_kept_before_it_is_judged(stores):
    one, other = stores
    step_id = await proposed(one, 1)
    given = Submission(source=b"k", digest="d", idea="tile", change="+1", agent="a")
    await one.runs.submit(step_id, given, HERE, nobody_is_gone)
    kept = await other.runs.step(step_id)
    assert (kept.state, kept.digest, kept.idea, kept.owner) == ("submitted", "d", "tile", HERE)
    assert await other.evaluations.candidate(kept.candidate_id) == b"k"


async def test_a_node_its_step_and_what_its_agent_knows_are_kept_together(stores):
    one, other = stores
    step = await judged(one, await proposed(one, 1), "k")
    assert (step.state, step.node, step.answer) == ("answered", 1, {"status": "correct"})
    state = await other.runs.state("run_a")
    assert [(row.node, row.speedup, row.charged) for row in state.nodes] == [(1, 1.5, True)]
    assert state.steps == ()
    assert await other.runs.known("run_a", "a") == {1}
    assert await other.evaluations.candidate(node_handle("run_a", 1)) == b"k"
    assert (await other.runs.nodes("run_a", [1, 7]))[1].node_id == "node_a_1"


async def test_a_proposal_made_for_another_state_of_the_run_is_not_kept(stores):
    one, other = stores
    version = (await one.runs.get("run_a")).version
    step = StepRecord(step_id="step_1", run_id="run_a", step=1, kind="large", parent=0)
    assert await one.runs.propose(step, version)
    late = StepRecord(step_id="step_2", run_id="run_a", step=1, kind="large", parent=0)
    assert not await other.runs.propose(late, version)
    assert await other.runs.step("step_2") is None
    assert (await other.runs.get("run_a")).next_step == 2


async def test_only_one_of_many_takes_up_a_submission(stores):
    step_id = await proposed(stores[0], 1)
    await stores[0].runs.submit(step_id, Submission(source=b"k", digest="d"), HERE, nobody_is_gone)
    verdicts = []

    async def take(number):
        owner = Owner("here", number + 1, 0)
        verdicts.append((await stores[number % 2].runs.claim(step_id, owner, nobody_is_gone)).verdict)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(take, number)
    assert sorted(verdicts) == ["claimed"] + ["wait"] * 7


async def test_what_an_owner_left_is_taken_up_and_its_late_end_changes_nothing(stores):
    one, other = stores
    step_id = await proposed(one, 1)
    await one.runs.submit(step_id, Submission(source=b"k", digest="d"), HERE, nobody_is_gone)
    await one.runs.claim(step_id, HERE, nobody_is_gone)
    assert (await other.runs.claim(step_id, THERE, everybody_is_gone)).verdict == "claimed"
    await one.runs.finish(step_id, HERE, RIGHT, {}, 0.0)
    assert (await other.runs.state("run_a")).nodes == ()
    assert (await other.runs.finish(step_id, THERE, RIGHT, {}, 0.0)).node == 1


async def test_the_same_kernel_makes_one_node(stores):
    one, other = stores
    first, second = await proposed(one, 1), await proposed(other, 2)
    for store, step_id in ((one, first), (other, second)):
        await store.runs.submit(step_id, Submission(source=b"k", digest="d"), HERE, nobody_is_gone)
    assert (await one.runs.claim(first, HERE, nobody_is_gone)).verdict == "claimed"
    assert (await other.runs.claim(second, THERE, nobody_is_gone)).verdict == "wait"
    await one.runs.finish(first, HERE, RIGHT, {}, 0.0)
    claim = await other.runs.claim(second, THERE, nobody_is_gone)
    assert (claim.verdict, claim.node, claim.step.state) == ("duplicate", 1, "open")
    third = await proposed(one, 3)
    again = await one.runs.submit(third, Submission(source=b"k", digest="d"), HERE, nobody_is_gone)
    assert (again.verdict, again.node) == ("duplicate", 1)
    assert len((await one.runs.state("run_a")).nodes) == 1


async def test_an_outcome_that_makes_no_node_opens_the_proposal_again(stores):
    step = await judged(stores[0], await proposed(stores[0], 1), "k", fresh=None)
    assert (step.state, step.candidate_id, step.leased_until) == ("open", None, 9.0)
    assert (await stores[1].runs.state("run_a")).nodes == ()


async def test_another_kernel_replaces_only_one_that_nobody_judges(stores):
    one, other = stores
    step_id = await proposed(one, 1)
    await one.runs.submit(step_id, Submission(source=b"k", digest="d"), HERE, nobody_is_gone)
    new = Submission(source=b"m", digest="e")
    assert (await other.runs.submit(step_id, new, THERE, nobody_is_gone)).verdict == "busy"
    await one.runs.release(step_id, HERE)
    assert (await other.runs.submit(step_id, new, THERE, nobody_is_gone)).verdict == "accepted"
    assert (await one.runs.step(step_id)).digest == "e"


async def test_a_proposal_given_out_again_takes_a_late_answer_as_an_extra(stores):
    one, _ = stores
    old = await proposed(one, 1)
    version = (await one.runs.get("run_a")).version
    new = StepRecord(step_id="step_new", run_id="run_a", step=1, kind="large", parent=0)
    assert await one.runs.propose(new, version, replaces=old)
    assert (await one.runs.get("run_a")).next_step == 2
    assert (await judged(one, old, "late")).node == 1
    assert (await judged(one, "step_new", "new")).node == 2
    assert [row.charged for row in (await one.runs.state("run_a")).nodes] == [False, True]


async def test_a_stopped_run_takes_nothing_until_it_goes_on(stores):
    one, other = stores
    step_id = await proposed(one, 1)
    version = (await one.runs.get("run_a")).version
    final = StepRecord(step_id="step_f", run_id="run_a", step=0, purpose="final", kind="large", parent=0,
                       state="submitted", digest="d", node=None)  # fmt: skip
    assert await one.runs.stop("run_a", version, "budget", [(final, b"k")])
    given = Submission(source=b"k", digest="d")
    assert (await other.runs.submit(step_id, given, HERE, nobody_is_gone)).verdict == "closed"
    state = await other.runs.state("run_a")
    assert [step.step_id for step in state.steps] == [step_id, "step_f"]
    assert await other.runs.resume("run_a", state.run.version, 20, 5)
    run = await one.runs.get("run_a")
    assert (run.status, run.max_steps, run.resumed_at, run.round) == ("open", 20, 5, 1)
    assert [step.step_id for step in (await one.runs.state("run_a")).steps if step.state == "open"] == [
        step_id
    ]


def test_handles_of_nodes_are_read_back():
    assert read_node_handle(node_handle("run_7k2m", 12)) == ("run_7k2m", 12)
    for wrong in ("node_a_0", "cand_a_1", "node_a", "node_a_b", "node_../_1"):
        assert read_node_handle(wrong) is None
