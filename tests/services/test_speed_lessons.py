"""Lessons about what a step of a search did to a kernel's speed."""

import pytest
from search_stand_ins import Judge, kernel
from stand_ins import StandInTasks

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import RegisterRequest, Review, RulesRequest, SearchRequest
from adaexplore_mcp.services.explore import ExploreService
from adaexplore_mcp.services.rules import RuleService, TaskTraits

pytestmark = pytest.mark.anyio

LESSON = "You cannot keep a long row in one program without losing bandwidth."


class Bench:
    """A search with its rules; tasks are of the dtype that `dtypes` gives, by id."""

    def __init__(self, home):
        self.store = Store(home / "adaexplore.db")
        self.tasks = StandInTasks(self.store)
        self.dtypes = {}
        self.judge = Judge(self.store, home)
        self.service = ExploreService(self.store, self.tasks, self.judge)
        self.rules = RuleService(self.store, self.describe, here={"sm_90", "stand-in"})

    async def describe(self, task_id):
        return TaskTraits(task_id, dtype=self.dtypes.get(task_id, "float32"))

    async def task(self, name, dtype="float32"):
        request = RegisterRequest(source=f"def f(x): {name}\n".encode(), format="function", entry="f")
        task_id = (await self.tasks.register(request, lambda _: None)).task_id
        self.dtypes[task_id] = dtype
        return task_id

    async def ask(self, **fields):
        async with self.service.asked(SearchRequest(agent="me", **fields)) as ask:
            return await self.service.advance(ask, lambda _: None)

    async def stepped(self, task_id, *speeds):
        """Search until a kernel was made from another one, each as fast as told; return the last answer."""
        answer = await self.ask(task_id=task_id, max_steps=20)
        parent = ""
        for number in range(20):
            speed = speeds[1] if answer.parent else speeds[0]
            parent = answer.parent
            answer = await self.ask(
                run_id=answer.run_id,
                step_id=answer.step_id,
                source=kernel(f"correct {speed}", body=str(number)).encode(),
            )
            if parent:
                return answer
        raise AssertionError("no kernel was made from another one")


@pytest.fixture
async def bench(home):
    bench = Bench(home)
    yield bench
    await bench.store.aclose()


async def test_a_step_that_surely_slows_a_kernel_teaches_with_the_ratio_as_evidence(bench):
    task_id = await bench.task("one", "float16")
    answer = await bench.stepped(task_id, 2.0, 1.0)
    assert "0.5 times as fast [0.409 to 0.611] as its parent" in answer.summary
    told = await bench.rules.lesson(answer.node_id, LESSON, "me")
    assert told.rule == LESSON
    assert told.holds_for == "float16 tasks on stand-in"
    assert "a step made a right kernel 0.5 times as fast [0.409 to 0.611]" in told.provenance
    assert told.kind.startswith("performance:")
    assert (await bench.rules.rules_for(task_id=task_id, limit=1))[0].rule == LESSON


async def test_a_faster_step_teaches_too_and_equal_sentences_are_one_rule_with_support(bench):
    first = await bench.rules.lesson(
        (await bench.stepped(await bench.task("a"), 1.0, 2.0)).node_id, LESSON, "me"
    )
    for name in "bc":
        answer = await bench.stepped(await bench.task(name), 1.0, 2.5)
        told = await bench.rules.lesson(answer.node_id, LESSON, "me")
    assert told.rule_id == first.rule_id
    assert told.support == 3
    assert "3 steps made right kernels 2 to 2.5 times as fast" in told.provenance
    same = await bench.rules.get(RulesRequest(task_id=await bench.task("d"), limit=100))
    assert told.rule_id in [rule.rule_id for rule in same.rules]
    other = await bench.rules.get(RulesRequest(task_id=await bench.task("e", "float16"), limit=100))
    assert told.rule_id not in [rule.rule_id for rule in other.rules]
    elsewhere = RuleService(bench.store, bench.describe, here={"sm_86"})
    there = await elsewhere.get(RulesRequest(task_id=await bench.task("f"), limit=100))
    assert told.rule_id not in [rule.rule_id for rule in there.rules]


async def test_what_was_not_measured_teaches_nothing_about_speed(bench):
    answer = await bench.stepped(await bench.task("one"), 1.0, 0.95)
    assert "as its parent" not in answer.summary
    with pytest.raises(RequestError, match="that may be neither"):
        await bench.rules.lesson(answer.node_id, LESSON, "me")
    first = f"{answer.node_id.rpartition('_')[0]}_1"
    with pytest.raises(RequestError, match="began with no kernel"):
        await bench.rules.lesson(first, LESSON, "me")
    bench.judge.times = False
    untimed = await bench.stepped(await bench.task("two"), 1.0, 1.0)
    with pytest.raises(RequestError, match="it was not timed"):
        await bench.rules.lesson(untimed.node_id, LESSON, "me")


async def test_a_lesson_about_speed_is_the_agents_own_given_once_and_a_rules_text(bench):
    node_id = (await bench.stepped(await bench.task("one"), 2.0, 1.0)).node_id
    with pytest.raises(RequestError, match="another label"):
        await bench.rules.lesson(node_id, LESSON, "you")
    with pytest.raises(RequestError, match="cannot be the text"):
        await bench.rules.lesson(node_id, "Use more warps.", "me")
    assert await bench.store.rules.speed_lesson(node_id) is None
    await bench.rules.lesson(node_id, LESSON, "me")
    with pytest.raises(RequestError, match="has its lesson already"):
        await bench.rules.lesson(node_id, LESSON, "me")


async def test_merging_takes_the_measurements_along_and_stays_within_one_dtype(bench):
    told = []
    for number, dtype in enumerate(("float32", "float32", "float16")):
        answer = await bench.stepped(await bench.task(f"t{number}", dtype), 2.0, 1.0)
        text = LESSON.replace("long row", ("long row", "wide row", "deep row")[number])
        told.append(await bench.rules.lesson(answer.node_id, text, "me"))
    merge = Review(rule_id=told[0].rule_id, action="merge", into=told[1].rule_id, agent="me")
    merged = await bench.rules.reviews.review(merge)
    assert merged.support == 2
    assert "2 steps made right kernels" in merged.provenance
    wrong = Review(rule_id=told[2].rule_id, action="merge", into=told[1].rule_id, agent="me")
    with pytest.raises(RequestError, match="holds for float16 tasks on stand-in"):
        await bench.rules.reviews.review(wrong)


async def test_measurements_come_back_with_the_rule_that_a_merge_took(bench):
    told = []
    for number, text in enumerate((LESSON, LESSON.replace("long", "wide"))):
        answer = await bench.stepped(await bench.task(f"t{number}"), 2.0, 1.0)
        told.append(await bench.rules.lesson(answer.node_id, text, "me"))
    merge = Review(rule_id=told[0].rule_id, action="merge", into=told[1].rule_id, agent="me")
    await bench.rules.reviews.review(merge)
    back = await bench.rules.reviews.decide(told[0].rule_id, "restore", "Ada")
    other = await bench.rules.reviews.one(told[1].rule_id)
    for rule in (back, other):
        assert rule.support == 1
        assert "a step made a right kernel 0.5 times as fast" in rule.provenance


async def test_a_lesson_about_speed_names_nothing_of_the_two_kernels(bench):
    node_id = (await bench.stepped(await bench.task("one"), 2.0, 1.0)).node_id
    with pytest.raises(RequestError, match="something of one kernel") as raised:
        await bench.rules.lesson(node_id, "You cannot keep IS in one program without losing bandwidth.", "me")
    assert "'IS'" in str(raised.value)


async def test_a_failing_kernel_of_a_search_teaches_by_its_node(bench):
    task_id = await bench.task("one")
    answer = await bench.ask(task_id=task_id)
    done = await bench.ask(
        run_id=answer.run_id, step_id=answer.step_id, source=kernel("compile_error").encode()
    )
    node = (await bench.store.runs.nodes(answer.run_id, [1]))[1]
    with pytest.raises(RequestError, match="no failure"):  # the stand-in learns nothing
        await bench.rules.lesson(done.node_id, LESSON, "me")
    (outcome,) = await bench.store.evaluations.outcomes(task_id, node.candidate_id)
    failed = outcome.model_copy(update={"stage": "compile"})
    await bench.rules.learn(failed, kernel("compile_error").encode(), "me")
    assert (await bench.rules.lesson(done.node_id, LESSON, "me")).rule == LESSON
