"""The rule memory: counts, names, fixes, uses, versions, changes; all or nothing."""

import pytest

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import NewRule, Store
from adaexplore_mcp.models import RuleFix

pytestmark = pytest.mark.anyio

RULE = NewRule("name_missing:tl", "language", "You cannot use {names}.", "You cannot use tanh.", ("tanh",))
OTHER = NewRule("loop_type:loop", "language", "You cannot change it.", "You cannot change it.")


@pytest.fixture
async def store(tmp_path):
    store = Store(tmp_path / "a.db")
    yield store
    await store.aclose()


async def fail(store, rule=RULE, *, task="task_1", family="f1", candidate="cand_1", **more):
    return await store.rules.judged(task_id=task, family=family, candidate_id=candidate, broken=rule, **more)


async def right(store, *, task="task_1", family="f1"):
    assert await store.rules.judged(task_id=task, family=family, candidate_id="cand_9") is None


async def test_support_counts_families_and_not_hits(store):
    told = (("task_1", "f1"), ("task_2", "f1"), ("task_2", "f1"), ("task_3", "f2"))
    for number, (task, family) in enumerate(told):
        rule = await fail(store, task=task, family=family, candidate=f"cand_{number}")
    assert (rule.hits, rule.support) == (4, 2)
    known = await store.rules.outlook(task_id="task_9", family="f2", triton="")
    assert (known.own, known.families) == ({rule.rule_id}, 2)
    _, families = await store.rules.all()
    assert families == 2


async def test_a_kernel_that_is_judged_again_breaks_a_rule_no_second_time(store):
    for _ in range(3):
        rule = await fail(store)
    assert (await fail(store, family="f2")).hits == 2  # on another task it does
    assert rule.hits == 1
    assert len(await store.rules.failures(candidate_id="cand_1")) == 4


async def test_names_are_collected_and_the_rule_worded_anew(store):
    await fail(store)
    another = NewRule(RULE.key, "language", RULE.words, "You cannot use pow.", ("pow", "tanh"))
    rule = await fail(
        store, another, words=lambda words, names: words.replace("{names}", " and ".join(names))
    )
    assert rule.names == ("pow", "tanh")  # what was seen last comes first
    assert rule.text == "You cannot use pow and tanh."


async def test_a_wording_of_an_agent_is_not_overwritten_by_a_name(store):
    rule = await fail(store)
    await store.rules.change(rule.rule_id, "reword", "me", {}, text="You cannot do so.", wording="agent")
    another = NewRule(RULE.key, "language", RULE.words, "x", ("pow",))
    assert (await fail(store, another, words=lambda *_: "template")).text == "You cannot do so."


async def test_use_is_measured_before_and_after_a_rule_was_shown(store):
    rule = await fail(store)
    await right(store)
    await store.rules.show([rule.rule_id], "task_1")
    await store.rules.show([rule.rule_id], "task_1")
    for _ in range(3):
        await right(store)
    await fail(store, candidate="cand_2")
    details = (await store.rules.details([rule]))[rule.rule_id]
    rule = await store.rules.get(rule.rule_id)
    details = (await store.rules.details([rule]))[rule.rule_id]
    assert (details.kernels_before, details.broken_before) == (2, 1)
    assert (details.kernels_after, details.broken_after) == (4, 1)


async def test_the_fix_that_worked_most_often_is_shown(store):
    rule = await fail(store)
    good, other = RuleFix(before="a", after="b"), RuleFix(before="a", after="c")
    for fix in (other, good, good):
        await store.rules.add_fix(rule.rule_id, fix)
    assert (await store.rules.details([rule]))[rule.rule_id].fix == good.model_copy(update={"worked": 2})


async def test_a_merged_rule_gives_all_it_had_and_all_it_gets_to_the_other(store):
    one, other = await fail(store), await fail(store, OTHER, task="task_2", family="f2")
    await store.rules.add_fix(one.rule_id, RuleFix(before="a", after="b"))
    merged = await store.rules.merge(one, other, "me")
    assert (merged.hits, merged.support, merged.names) == (2, 2, ("tanh",))
    later = await fail(store, task="task_3", family="f3")
    assert (later.rule_id, later.hits, later.support) == (other.rule_id, 3, 3)
    rules, _ = await store.rules.all()
    assert [rule.rule_id for rule in rules] == [other.rule_id]
    assert (await store.rules.details([later]))[later.rule_id].fix is not None
    assert [change.action for change in await store.rules.changes(one.rule_id)] == ["merge", "made"]


async def state_of(store, *rules):
    """Return all that is kept of some rules, apart from when they changed."""
    found = []
    for rule in rules:
        now = (await store.rules.get(rule.rule_id))._replace(changed_at=0.0)
        failures = await store.rules.failures(rule_id=rule.rule_id)
        found.append((now, (await store.rules.details([now]))[now.rule_id], failures))
    return found


async def test_a_merge_that_is_undone_leaves_both_rules_as_they_were(store):
    one = await fail(store)
    await fail(store, candidate="cand_2", family="f2", task="task_2")
    other = await fail(store, OTHER, task="task_2", family="f2", candidate="cand_2")
    for rule, fix in ((one, "b"), (one, "c"), (other, "c")):
        await store.rules.add_fix(rule.rule_id, RuleFix(before="a", after=fix))
    await store.rules.show([one.rule_id], "task_1")
    await store.rules.show([one.rule_id, other.rule_id], "task_2")
    await fail(store, candidate="cand_3", family="f2", task="task_2")
    one = await store.rules.get(one.rule_id)
    before = await state_of(store, one, other)
    await store.rules.merge(one, other, "me")
    assert [each.rule_id for each in await store.rules.merges()] == [one.rule_id]
    merged = await store.rules.get(one.rule_id)
    back = await store.rules.restore(merged, "a person")
    assert (back.merged_into, back.hits, back.support) == ("", 3, 2)
    assert await state_of(store, one, other) == before
    assert await store.rules.merges() == []
    latest, *_ = await store.rules.changes(one.rule_id)
    assert (latest.action, latest.agent, latest.detail) == ("restore", "a person", {"from": other.rule_id})
    actions = [change.action for change in await store.rules.changes(other.rule_id)]
    assert actions[:2] == ["merge undone", "merge"]


async def test_a_restored_rule_has_the_failures_that_came_while_it_was_merged(store):
    one, other = await fail(store), await fail(store, OTHER, task="task_2", family="f2")
    await store.rules.merge(one, other, "me")
    later = await fail(store, candidate="cand_4", task="task_3", family="f3")
    assert later.rule_id == other.rule_id
    back = await store.rules.restore(await store.rules.get(one.rule_id), "a person")
    assert (back.hits, back.support) == (2, 2)
    other = await store.rules.get(other.rule_id)
    assert (other.hits, other.support, other.names) == (1, 1, ())
    assert (await fail(store, candidate="cand_5", family="f4")).rule_id == one.rule_id


async def test_merges_of_merged_rules_are_undone_from_the_last_one(store):
    third = NewRule("index_block:block", "language", "You cannot.", "You cannot.")
    a, b = await fail(store), await fail(store, OTHER, family="f2")
    c = await fail(store, third, family="f3")
    await store.rules.merge(a, b, "me")
    await store.rules.merge(await store.rules.get(b.rule_id), c, "me")
    with pytest.raises(RequestError, match=f"Restore {b.rule_id} first"):
        await store.rules.restore(await store.rules.get(a.rule_id), "a person")
    back = await store.rules.restore(await store.rules.get(b.rule_id), "a person")
    assert (back.hits, back.support) == (2, 2)
    assert (await store.rules.get(a.rule_id)).merged_into == b.rule_id
    back = await store.rules.restore(await store.rules.get(a.rule_id), "a person")
    assert back.merged_into == ""
    assert [(await store.rules.get(each.rule_id)).hits for each in (a, b, c)] == [1, 1, 1]


async def test_a_rule_can_be_retired_for_one_version(store):
    rule = await fail(store)
    assert await store.rules.check(rule.rule_id, "3.9.0", holds=False, how="its probe")
    assert not await store.rules.check(rule.rule_id, "3.9.0", holds=False, how="its probe")
    assert await store.rules.refuted("3.9.0") == {rule.rule_id}
    assert await store.rules.refuted("3.8.0") == set()
    details = (await store.rules.details([rule]))[rule.rule_id]
    assert details.holds["3.9.0"][:2] == (False, "its probe")


async def test_another_triton_is_noticed_until_its_probes_were_run(store):
    assert await store.rules.triton() == ""
    assert await store.rules.see_triton("3.8.0")
    assert await store.rules.see_triton("3.8.0")
    await store.rules.probed("3.8.0")
    assert not await store.rules.see_triton("3.8.0")
    assert await store.rules.triton() == "3.8.0"


async def test_a_kernel_that_is_judged_again_has_its_lesson_still(store):
    for _ in range(2):
        rule = await fail(store)
    latest, first = await store.rules.failures(candidate_id="cand_1")
    assert await store.rules.teach(first.number, rule, "me", "You cannot a.", text="You cannot a.")
    rule = await store.rules.get(rule.rule_id)
    assert await store.rules.teach(latest.number, rule, "me", "You cannot b.", text="You cannot b.") is None
    other = await fail(store, task="task_2")
    (elsewhere, *_) = await store.rules.failures(task_id="task_2")
    assert await store.rules.teach(elsewhere.number, other, "me", "You cannot c.", text="You cannot c.")


async def test_a_lesson_is_taken_once(store):
    rule = await fail(store)
    (failure,) = await store.rules.failures(candidate_id="cand_1")
    assert await store.rules.teach(failure.number, rule, "me", "You cannot a.", text="You cannot a.")
    assert await store.rules.teach(failure.number, rule, "me", "You cannot b.", text="You cannot b.") is None
    assert (await store.rules.get(rule.rule_id)).text == "You cannot a."


async def test_nothing_is_kept_of_a_record_that_fails(store):
    await right(store)

    def raises(*_):
        raise ValueError("a defect")

    await fail(store)
    with pytest.raises(ValueError, match="a defect"):
        await fail(store, NewRule(RULE.key, "language", "w", "t", ("other",)), words=raises)
    rules, _ = await store.rules.all()
    assert [(rule.hits, rule.names) for rule in rules] == [(1, ("tanh",))]


async def test_labels_and_names_may_be_any_text(store):
    rule = await fail(store, agent="\ud800 'agent'; DROP TABLE rules")
    assert (await store.rules.failures(task_id="task_1"))[0].agent.startswith("? 'agent'")
    assert await store.rules.get(rule.rule_id) is not None
