import pytest

from adaexplore_mcp.memory_store import Store, SyntheticRecord

pytestmark = pytest.mark.anyio

TASKS = [SyntheticRecord(draft, f"task {draft}", "source", ("F.gelu", "torch.sum")) for draft in (0, 3)]


@pytest.fixture
async def store(home):
    store = Store(home / "adaexplore.db")
    yield store
    await store.aclose()


async def test_a_campaign_comes_back_as_it_was_drawn(store):
    empty = await store.adapt.campaign(7)
    assert (empty.next_draft, empty.tasks) == (0, ())
    kept = await store.adapt.keep_drawn(empty, 8, 300, {"constant": 2}, TASKS)
    assert kept == await store.adapt.campaign(7)
    assert (kept.next_draft, kept.known_operators, kept.rejected) == (8, 300, {"constant": 2})
    assert list(kept.tasks) == TASKS
    more = await store.adapt.keep_drawn(
        kept, 16, 300, {"constant": 1, "too large": 1}, [SyntheticRecord(9, "nine", "source", ("F.elu",))]
    )
    assert more.rejected == {"constant": 3, "too large": 1}
    assert [each.draft for each in more.tasks] == [0, 3, 9]


async def test_what_two_processes_draw_at_once_is_kept_once(store):
    empty = await store.adapt.campaign(7)
    first = await store.adapt.keep_drawn(empty, 8, 300, {"constant": 2}, TASKS)
    assert await store.adapt.keep_drawn(empty, 8, 300, {"constant": 2}, TASKS) == first


async def test_a_synthetic_task_is_given_to_one_agent_only(store):
    await store.adapt.keep_drawn(await store.adapt.campaign(7), 8, 300, {}, TASKS)
    first = await store.adapt.begin("task_a", "one", (7, 0))
    assert first.startswith("att_")
    assert await store.adapt.begin("task_a", "other", (7, 0)) == ""
    assert [each.attempt_id for each in await store.adapt.attempts()] == [first]
    assert (await store.adapt.campaign(7)).tasks[0].task_id == "task_a"


async def test_a_refused_task_says_why(store):
    await store.adapt.keep_drawn(await store.adapt.campaign(7), 8, 300, {}, TASKS)
    await store.adapt.refuse(7, 3, "random")
    assert [each.refused for each in (await store.adapt.campaign(7)).tasks] == ["", "random"]


async def test_an_attempt_holds_its_kernels_in_order_and_what_they_taught(store):
    attempt_id = await store.adapt.begin("task_a", "one")
    other = await store.adapt.begin("task_a", "two")
    one, two = [await store.evaluations.keep_candidate(text) for text in (b"1", b"2")]
    await store.adapt.submit(attempt_id, one, "compile_error")
    await store.adapt.submit(other, one, "correct")
    await store.adapt.submit(attempt_id, two, "correct", own=False)
    attempt = await store.adapt.attempt(attempt_id)
    assert [(each.candidate_id, each.status, each.own) for each in attempt.submissions] == [
        (one, "compile_error", True),
        (two, "correct", False),
    ]
    await store.adapt.taught(attempt.submissions[0].number, "rule_a")
    await store.adapt.taught(attempt.submissions[0].number, "rule_b")
    assert [each.rule_id for each in (await store.adapt.attempt(attempt_id)).submissions] == ["rule_a", ""]
    assert await store.adapt.attempt("att_none") is None
    assert await store.adapt.attempt_ids() == [other, attempt_id]
