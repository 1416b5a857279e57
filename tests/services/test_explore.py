"""Searches that agents drive, with a judge that obeys the kernels."""

import json
import os

import anyio
import pytest
from search_stand_ins import Judge, kernel
from stand_ins import StandInTasks

from adaexplore_mcp.errors import NotFoundError, RequestError, WorkerLostError
from adaexplore_mcp.memory_store import Owner, StepRecord, Store
from adaexplore_mcp.models import (
    CompiledKernel,
    Edit,
    Facts,
    Policy,
    RegisterRequest,
    SearchRequest,
    StartKernel,
)
from adaexplore_mcp.search import Search, SearchSettings
from adaexplore_mcp.services import owners, runviews
from adaexplore_mcp.services.explore import ExploreService
from adaexplore_mcp.services.kernels import Kernels
from adaexplore_mcp.services.runviews import RunViews

pytestmark = pytest.mark.anyio


def quiet(stage):
    pass


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Bench:
    """A service on a database, as one server has it."""

    def __init__(self, home, *, times=True, clock=None, owner=None):
        self.clock = clock or Clock()
        self.store = Store(home / "adaexplore.db")
        self.tasks = StandInTasks(self.store)
        self.judge = Judge(self.store, home, times=times)
        self.service = ExploreService(
            self.store, self.tasks, self.judge, lease_s=1800, now=self.clock, owner=owner
        )
        self.run_id = ""

    async def task(self, **fields):
        request = RegisterRequest(source=b"def f(x): ...\n", name="f", format="function", entry="f", **fields)
        return (await self.tasks.register(request, quiet)).task_id

    async def ask(self, **fields):
        """Call once and wait for the answer."""
        if "kernel" in fields:
            fields["source"] = fields.pop("kernel").encode()
        if "task_id" not in fields:
            fields.setdefault("run_id", self.run_id)
        with anyio.fail_after(60):
            async with self.service.asked(SearchRequest(**fields)) as ask:
                answer = await self.service.advance(ask, quiet)
        self.run_id = answer.run_id
        return answer

    async def begin(self, **fields):
        return await self.ask(task_id=await self.task(), **fields)

    async def tree(self):
        return (await self.service.searches.now(self.run_id)).search

    async def refused(self, **fields):
        before = await self.store.runs.get(fields.get("run_id", self.run_id))
        with pytest.raises(RequestError) as caught:
            await self.ask(**fields)
        assert await self.store.runs.get(fields.get("run_id", self.run_id)) == before
        assert caught.value.next_step
        return f"{caught.value.problem} {caught.value.next_step}"


@pytest.fixture
async def bench(home):
    bench = Bench(home)
    yield bench
    await bench.store.aclose()


@pytest.fixture
async def other(home, bench):
    """Another server on the same database: it passes for another process that lives."""
    pid = os.getppid()
    owner = Owner(owners.this_process().host, pid, owners._start_time(pid))
    other = Bench(home, clock=bench.clock, owner=owner)
    yield other
    await other.store.aclose()


@pytest.fixture
async def blind(home):
    """A server that times nothing."""
    bench = Bench(home, times=False)
    yield bench
    await bench.store.aclose()


# --- one agent -------------------------------------------------------------------------------------------


async def test_a_run_begins_with_a_proposal_and_each_answer_holds_the_next(bench):
    first = await bench.begin(max_steps=5)
    assert (first.status, first.kind, first.parent, first.steps_left) == ("open", "large", "", 5)
    assert "def f(x)" in first.text
    second = await bench.ask(step_id=first.step_id, kernel=kernel("correct 1.5"), idea="as it is")
    assert (second.status, second.node_id[-2:], second.steps_left) == ("correct", "_1", 4)
    assert second.best == second.node_id
    assert second.receipt_id.startswith("rcpt_")
    assert second.step_id not in {"", first.step_id}


@pytest.mark.parametrize(
    ("verdict", "status", "value"),
    [("correct 2.0", "correct", 2.0), ("incorrect", "incorrect", 0), ("compile_error", "compile_error", 0),
     ("rejected", "rejected", 0), ("timeout", "timeout", 0), ("plausible", "plausible", 1.0)],
)  # fmt: skip
async def test_outcomes_become_nodes(bench, verdict, status, value):
    step = await bench.begin()
    answer = await bench.ask(step_id=step.step_id, kernel=kernel(verdict))
    assert answer.status == status
    (node,) = (await bench.tree()).nodes
    assert (node.status, node.value) == (status, value)


async def test_what_cannot_be_judged_makes_no_node_and_its_step_stays_open(bench):
    step = await bench.begin(max_steps=3)
    answer = await bench.ask(step_id=step.step_id, kernel=kernel("unsupported"))
    assert (answer.status, answer.step_id, answer.steps_left, answer.node_id) == (
        "unsupported",
        step.step_id,
        3,
        "",
    )
    assert "no step used" in answer.summary
    assert (await bench.ask(step_id=step.step_id, kernel=kernel())).status == "correct"


async def test_a_fault_of_ours_costs_nothing_and_the_next_call_takes_the_kernel_up(bench):
    step = await bench.begin()
    with pytest.raises(WorkerLostError):
        await bench.ask(step_id=step.step_id, kernel=kernel("lost"))
    assert (await bench.store.runs.step(step.step_id)).state == "submitted"
    judged = len(bench.judge.judged)
    with pytest.raises(WorkerLostError):
        await bench.ask(step_id=step.step_id)
    assert len(bench.judge.judged) == judged + 1
    answer = await bench.ask(step_id=step.step_id, kernel=kernel())
    assert (answer.status, answer.steps_left) == ("correct", 99)


async def test_the_same_kernel_is_answered_from_its_node(bench):
    step = await bench.begin(max_steps=9)
    first = await bench.ask(step_id=step.step_id, kernel=kernel("correct 1.5"))
    judged = len(bench.judge.judged)
    laid_out = "# a comment\nIS = 'correct 1.5'\n\ndef f( x ):\n    return (x * 1)\n"
    again = await bench.ask(step_id=first.step_id, kernel=laid_out)
    assert (again.duplicate, again.node_id, again.step_id) == (True, first.node_id, first.step_id)
    assert again.steps_left == first.steps_left
    assert "same kernel as node 1" in again.summary
    assert len(bench.judge.judged) == judged
    assert (await bench.tree()).root.visits == 1


async def small_step(bench, source=None, **begin):
    """Bring a run to a small step and return its answer."""
    answer = await bench.begin(max_steps=50, **begin)
    answer = await bench.ask(step_id=answer.step_id, kernel=source or kernel("correct 1.5", body="11"))
    number = 100
    while answer.kind != "small":
        number += 1
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 1.5", body=str(number)))
    return answer


async def test_edits_are_applied_to_the_parent_all_together(bench):
    answer = await small_step(bench)
    parent = await bench.store.evaluations.candidate(answer.parent)
    edits = [Edit(old='"correct 1.5"', new='"correct 1.9"'), Edit(old="return x", new="return 1 * x")]
    done = await bench.ask(step_id=answer.step_id, edits=edits, idea="reorder")
    new = await bench.store.evaluations.candidate(done.node_id)
    assert new == parent.replace(b"1.5", b"1.9").replace(b"return x", b"return 1 * x")
    record = await bench.store.runs.nodes(bench.run_id, [int(done.node_id.rpartition("_")[2])])
    (node,) = record.values()
    assert (node.idea, node.tree.kind, node.tree.speedup) == ("reorder", "small", 1.9)
    assert node.change.startswith("+2 -2: ")


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("retrun x", "y")], "stands nowhere in node"),
        ([("retrun x * ", "y")], "Nearest, at line 3"),
        ([("x", "y")], "stands 2 times"),
        ([("def f(x)", "def f(y)"), ("f(x):", "f(z):")], "overlap at line 2"),
    ],
)
async def test_an_edit_that_does_not_fit_changes_nothing(bench, edits, said):
    answer = await small_step(bench)
    text = await bench.refused(step_id=answer.step_id, edits=[Edit(old=old, new=new) for old, new in edits])
    assert said in text
    assert "no step used" in text
    assert (await bench.ask()).step_id == answer.step_id


async def test_an_outcome_shows_what_one_has_to_see_before_one_believes_it(bench):
    step = await bench.begin(max_steps=5)
    verify = bench.judge._verify

    async def with_facts(request, report):
        facts = Facts(
            shape_specialised="fails at N=63: " + "x" * 200,
            source=[f"Line {number}: what follows is text that is run." for number in range(5)],
            notes=["Kernel idle (line 9) is defined and was not launched."],
        )
        compiled = [CompiledKernel(kernel=f"k{number}", registers=number) for number in (30, 90, 60)]
        outcome = await verify(request, report)
        return outcome.model_copy(update={"facts": facts, "compiled": compiled})

    bench.judge._verify = with_facts
    answer = await bench.ask(step_id=step.step_id, kernel=kernel())
    lines = [f"Line {number}: what follows is text that is run." for number in range(3)]
    assert answer.outcome["facts"] == {
        "shape_specialised": "fails at N=63: " + "x" * 200,
        "source": [*lines, "and 2 more, in the receipt"],
        "notes": ["Kernel idle (line 9) is defined and was not launched."],
    }
    assert answer.outcome["compiled"]["kernel"] == "k90"
    assert answer.outcome["compiled"]["kernels_with_less"] == 2
    kernels = Kernels(bench.store, bench.tasks, bench.judge, bench.service.searches)
    taken = await kernels.take(answer.node_id, "", "source")
    assert (await kernels.answer(taken, "source", quiet)).outcome == answer.outcome


# --- bad input -------------------------------------------------------------------------------------------


async def test_every_bad_input_is_named_and_leaves_the_run_as_it_is(bench):
    first = await bench.begin(max_steps=4)
    run_id = first.run_id
    for fields, said in (
        ({"step_id": "step_nnnnnnnnnnnn", "kernel": "k"}, "There is no step 'step_nnnnnnnnnnnn'"),
        ({"step_id": first.step_id, "kernel": "  \n"}, "The kernel is empty"),
        ({"step_id": first.step_id, "kernel": "# to do\n\n  # it\n"}, "holds comments alone, no code"),
        ({"step_id": first.step_id, "kernel": "x = 1\n" * 200_000}, "1200000 bytes"),
        ({"step_id": first.step_id, "edits": [Edit(old="a")]}, "is a large step"),
        ({"step_id": first.step_id, "edits": [Edit(old="a")], "kernel": "k"}, "Both a kernel and edits"),
        ({"kernel": "k"}, "without step_id"),
        ({"task_id": "task_none", "run_id": run_id}, "Both task_id and run_id"),
        ({"resume": True, "max_steps": 9}, "has not stopped"),
    ):
        assert said in await bench.refused(**fields)
    with pytest.raises(NotFoundError, match="There is no run 'run_none'"):
        await bench.ask(run_id="run_none")
    with pytest.raises(RequestError, match="Neither task_id nor run_id"):
        await bench.ask(run_id="")
    with pytest.raises(NotFoundError):
        await bench.ask(task_id="task_none")
    for fields in ({"max_steps": -1}, {"preset": "best"}, {"step_id": "step_x"}):
        with pytest.raises(RequestError):
            await bench.ask(task_id=await bench.task(), **fields)
    assert (await bench.ask(run_id=run_id)).step_id == first.step_id


async def test_every_next_step_names_the_agent_that_asked(bench):
    """Else whoever goes by it gets a second proposal, under no name."""
    first = await bench.begin(max_steps=2, agent="ann")
    named = "agent 'ann'"
    assert named in first.next_step
    sent = {"step_id": first.step_id, "agent": "ann"}
    for fields in (
        {"kernel": "k", "agent": "ann"},
        {"step_id": first.step_id},
        {"step_id": "step_x", "kernel": "k", "agent": "ann"},
        {"seed": 3, "agent": "ann"},
        {"resume": True, "max_steps": 9, "agent": "ann"},
    ):
        assert named in await bench.refused(**fields)
    task_id = await bench.task()
    with pytest.raises(RequestError, match=named):
        await bench.ask(task_id=task_id, step_id="step_x", agent="ann")
    views = RunViews(bench.store, bench.service.searches)
    said = (await views.view(bench.run_id, "summary", cursor=0, limit=1, timed=True)).next_step
    assert "and agent, if you go by a name there (ann)" in said
    answer = await bench.ask(**sent, kernel=kernel())
    assert f"run_id {bench.run_id!r} and {named} alone" in await bench.refused(**sent, kernel="k")
    third = await bench.ask(agent="bob")
    assert (third.step_id, "agent 'bob' later" in third.next_step) == ("", True)
    answer = await bench.ask(step_id=answer.step_id, agent="ann", kernel=kernel(body="2"))
    assert f"search_step with it, {named}, resume" in answer.next_step
    assert f"{named} and resume" in await bench.refused(
        step_id=(await open_step(bench)), kernel="k", agent="ann"
    )
    assert f"{named}, resume and max_steps" in await bench.refused(resume=True, agent="ann")
    said = (await views.view(bench.run_id, "summary", cursor=0, limit=1, timed=True)).next_step
    assert "(ann" in said


async def test_a_step_of_another_run_is_refused(bench):
    mine = await bench.begin()
    other = await bench.ask(task_id=await bench.task())
    assert f"belongs to run {mine.run_id}" in await bench.refused(
        run_id=other.run_id, step_id=mine.step_id, kernel=kernel()
    )


async def test_a_step_answered_twice_gives_its_outcome_or_is_refused(bench):
    first = await bench.begin(max_steps=9)
    second = await bench.ask(step_id=first.step_id, kernel=kernel("correct 1.5"))
    judged = len(bench.judge.judged)
    again = await bench.ask(step_id=first.step_id, kernel=kernel("correct 1.5"))
    assert (again.node_id, again.status, again.step_id) == (second.node_id, "correct", second.step_id)
    assert len(bench.judge.judged) == judged
    said = await bench.refused(step_id=first.step_id, kernel=kernel("correct 9.0", body="7"))
    assert "answered with another kernel: node 1" in said


# --- the end ---------------------------------------------------------------------------------------------


async def test_a_run_stops_at_its_budget_and_times_the_best_again(bench):
    answer = await bench.begin(max_steps=3)
    bench.judge.final_scale = 0.8
    for speed in ("1.5", "2.0", "incorrect"):
        verdict = speed if speed == "incorrect" else f"correct {speed}"
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel(verdict, body=speed[0]))
    assert (answer.status, answer.stop_reason, answer.step_id) == ("incorrect", "budget", "")
    assert "The best is node 2, timed again: 1.6x" in answer.summary
    assert bench.judge.efforts.count("full") == 2
    assert "It takes no kernels" not in answer.summary
    assert "has stopped (budget)" in await bench.refused(step_id=(await open_step(bench)), kernel=kernel())


async def open_step(bench):
    """Return a step that was never answered; where there is none, one is kept as another agent's."""
    state = await bench.store.runs.state(bench.run_id)
    waiting = [step.step_id for step in state.steps if step.state == "open"]
    if waiting:
        return waiting[0]
    from adaexplore_mcp.memory_store import StepRecord

    step = StepRecord(step_id="step_late", run_id=bench.run_id, step=9, kind="large", parent=0, agent="z")
    assert await bench.store.runs.propose(step, state.run.version)
    return step.step_id


async def test_a_stopped_run_goes_on_when_told_to(bench):
    answer = await bench.begin(max_steps=1)
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel())
    assert answer.stop_reason == "budget"
    assert "has used 1 step, and its budget is 1. Call" in await bench.refused(resume=True)
    assert "budget is 1; max_steps 1 leaves none" in await bench.refused(resume=True, max_steps=1)
    answer = await bench.ask(resume=True, max_steps=2)
    assert (answer.status, answer.steps_left) == ("open", 1)
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 3", body="3"))
    assert "The best is node 2" in answer.summary


async def test_a_pinned_run_is_judged_on_its_gpu_to_the_end(bench):
    answer = await bench.begin(max_steps=2, device="cuda:1")
    for body in ("1", "2"):
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 2.0", body=body))
    answer = await bench.ask(resume=True, max_steps=3)
    await bench.ask(step_id=answer.step_id, kernel=kernel("correct 3.0", body="3"))
    assert "full" in bench.judge.efforts
    assert len(bench.judge.devices) > 3
    assert set(bench.judge.devices) == {"GPU-1"}
    views = RunViews(bench.store, bench.service.searches)
    assert (await views.view(bench.run_id, "summary", cursor=0, limit=1, timed=True)).device == "GPU-1"


async def test_the_judge_is_told_which_kernel_a_step_edits(bench):
    answer = await bench.begin(max_steps=20)
    parents = {}
    for number in range(8):
        parents[answer.step_id] = (answer.kind, answer.parent)
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 1.5", body=str(number)))
    expected = []
    for kind, parent in parents.values():
        node = int(parent.rpartition("_")[2]) if kind == "small" and parent else 0
        expected.append(
            (await bench.store.runs.nodes(bench.run_id, [node]))[node].candidate_id if node else ""
        )
    assert bench.judge.edited == expected
    assert {""} < set(expected)


async def test_a_gpu_that_is_not_there_or_comes_too_late_is_refused(bench, blind):
    task_id = await bench.task()
    with pytest.raises(RequestError, match="There is no GPU 'cuda:7'"):
        await bench.ask(task_id=task_id, device="cuda:7")
    assert await bench.store.runs.latest() == []
    await bench.begin()
    assert "has begun: device 'cuda:1' comes too late" in await bench.refused(device="cuda:1")
    late = await bench.refused(seed=3, preset="paper", max_steps=7)
    assert "seed 3 and preset 'paper' and max_steps 7 come too late" in late
    with pytest.raises(RequestError, match="There is no GPU"):
        await blind.begin(device="cuda:1")


async def test_a_run_stops_near_the_roofline(bench):
    answer = await bench.begin()
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 4.0 0.95"))
    assert answer.stop_reason == "roofline"
    answer = await bench.ask(resume=True)
    assert answer.status == "open"


async def test_a_node_whose_kernels_do_no_work_is_never_the_best(bench):
    answer = await bench.begin(max_steps=2)
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 9.0 library"))
    assert answer.best == ""
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 1.2", body="2"))
    assert answer.best.endswith("_2")
    allowing = await bench.task(policy=Policy(library_ops="allow"))
    answer = await bench.ask(task_id=allowing, max_steps=2)
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 9.0 library"))
    assert answer.best.endswith("_1")


async def test_a_kernel_without_one_of_its_own_is_said_to_lack_it(bench):
    start = StartKernel(path="torch_only.py", source=kernel("correct 1.0 library", body="42").encode())
    answer = await bench.begin(starts=[start], max_steps=30, seed=1)
    assert "no kernel is right yet" not in answer.text
    assert (
        "Standing: 1 of 1 kernel is right, 1 of these by torch's operators, without a kernel of its own"
        in answer.text
    )
    views = RunViews(bench.store, bench.service.searches)
    said = (await views.view(bench.run_id, "summary", cursor=0, limit=1, timed=True)).summary
    assert "1 of 1 kernel is right, 1 of these by torch's operators" in said
    seen = set()
    for number in range(12):
        pool = "(start kernel torch_only.py" in answer.text
        if answer.kind == "large" and pool:
            assert "A kernel of its own that does the work is wanted: node 1 has none." in answer.text
        if answer.parent.endswith("_1"):
            assert "a kernel of its own is missing: write the Triton kernel" in answer.text
        seen.add((answer.kind, pool))
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel("incorrect", body=str(number)))
    assert {("large", True), ("small", True)} <= seen


async def test_of_kernels_that_nobody_timed_it_is_said_which_is_given(blind):
    answer = await blind.begin(max_steps=9)
    for verdict in ("incorrect", "correct", "correct"):
        answer = await blind.ask(step_id=answer.step_id, kernel=kernel(verdict, body=answer.step_id))
    kernels = Kernels(blind.store, blind.tasks, blind.judge, blind.service.searches)
    given = await kernels.answer(await kernels.take("", blind.run_id, "source"), "source", quiet)
    assert given.summary == (
        "Node 2: correct. Nothing is timed on this machine: it is the first that is right (2 of 3 kernels are right), and "
        "not known to be the fastest."
    )
    named = await kernels.answer(await kernels.take(given.node_id, "", "source"), "source", quiet)
    assert named.summary == "Node 2: correct."


async def test_a_view_tells_a_nodes_own_reward_from_the_mean_below_it_and_its_handle(blind):
    answer = await small_step(blind, source=kernel("compile_error"))
    while not answer.parent.endswith("_1"):
        answer = await blind.ask(step_id=answer.step_id, kernel=kernel("compile_error", body=answer.step_id))
    await blind.ask(step_id=answer.step_id, kernel=kernel("correct", body="7"))
    views = RunViews(blind.store, blind.service.searches)
    first, *_, last = (await views.view(blind.run_id, "history", cursor=0, limit=99, timed=False)).nodes
    assert (first.node_id, first.reward, last.reward, last.subtree_mean) == (
        f"node_{blind.run_id[4:]}_1",
        0.0,
        0.5091,
        0.5091,
    )
    assert first.subtree_mean == round(0.5091 / first.visits, 4) > 0


async def test_a_page_past_the_end_of_a_view_is_refused(bench):
    answer = await bench.begin(max_steps=9)
    views = RunViews(bench.store, bench.service.searches)
    assert (await views.view(bench.run_id, "history", cursor=0, limit=9, timed=True)).nodes == []
    await bench.ask(step_id=answer.step_id, kernel=kernel())
    with pytest.raises(RequestError, match=r"cursor 500 is past the end: view history of run .* has 1 row\."):
        await views.view(bench.run_id, "history", cursor=500, limit=9, timed=True)


def long_kernel(*, changed=-1, name="base"):
    lines = (f"    {name} = {name} + {each}{' + 1' if each == changed else ''}" for each in range(40))
    return "\n".join(['IS = "correct 1.0"', "def f(x):", f"    {name} = x", *lines, f"    return {name}", ""])


async def test_a_kernel_that_differs_little_from_one_that_is_shown_is_told_by_what_differs(bench):
    answer = await bench.begin(max_steps=9)
    for source in (long_kernel(), long_kernel(changed=20), long_kernel(name="other")):
        answer = await bench.ask(step_id=answer.step_id, kernel=source, agent="author")
    now = await bench.service.searches.now(bench.run_id)

    async def text(agent, mode, **step):
        step = StepRecord(step_id="step_1", run_id=bench.run_id, step=4, **step)
        proposed = bench.service._proposals.text(now, step, agent, mode, timed=True, place="here")
        said, shown = await proposed
        return said.partition("**What led to it**" if step.kind == "small" else "**Kernels to beat**"), shown

    (before, _, after), shown = await text("fresh", "new", kind="small", parent=2, context=(3, 1, 2))
    assert long_kernel(changed=20).strip() in before
    assert long_kernel(name="other").strip() in after
    assert "Node 2 with these changes:\n```diff\n--- node 2\n+++ node 1\n@@ " in after
    assert "\n-    base = base + 20 + 1\n+    base = base + 20\n     base = base + 21\n```" in after
    assert {1, 2, 3} <= set(shown)
    (_, _, pool), _ = await text("fresh", "full", kind="large", parent=0, context=(1, 2, 3))
    assert pool.count("```python") == 2
    assert pool.count("```diff") == 1
    (_, _, pool), _ = await text("fresh", "ids", kind="large", parent=0, context=(1, 2, 3))
    assert "```" not in pool
    await bench.store.runs.know(bench.run_id, "other", [2])
    (before, _, after), _ = await text("other", "new", kind="small", parent=2, context=(1, 2))
    assert 'context="full" shows it again' in before
    assert "Node 2 with these changes" in after


async def test_advice_on_a_kernel_is_left_out_where_the_next_step_is_not_on_it(bench):
    verify = bench.judge._verify

    async def advised(request, report):
        return (await verify(request, report)).model_copy(
            update={"next_step": "Fix that line and submit again."}
        )

    bench.judge._verify = advised
    answer = await bench.begin(max_steps=30)
    for number in range(20):
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel("incorrect", body=str(number)))
        assert ("next_step" in answer.outcome) == (answer.parent == answer.node_id)
    unjudged = await bench.ask(step_id=answer.step_id, kernel=kernel("unsupported"))
    assert "next_step" in unjudged.outcome


async def test_a_proposal_says_no_more_than_there_is(bench):
    first = await bench.begin(max_steps=2, agent="a")
    assert "Write a first kernel. Standing: no kernel is right yet; 2 steps are left." in first.text
    assert "It is judged on a stand-in (sm_90)." in first.text
    await bench.ask(agent="b")
    assert (await bench.ask(agent="c")).summary.startswith(
        "The last 2 steps of the budget are out with other agents."
    )
    await bench.ask(step_id=first.step_id, kernel=kernel("incorrect"), agent="a")
    third = await bench.ask(agent="c")
    assert third.summary == "The last step of the budget is out with another agent."
    again = await bench.ask(agent="b")
    assert "1 step is left." in again.text
    assert (
        "None stands on the way here: write a whole new kernel, unlike those that are known"
        in (await bench.ask(agent="b", context="full")).text
    )


async def test_without_times_there_are_verdicts_and_no_best_by_speed(blind):
    answer = await blind.begin(max_steps=2)
    for number in range(2):
        assert answer.best == ""
        answer = await blind.ask(step_id=answer.step_id, kernel=kernel(body=str(number)))
    assert "2 of 2 kernels are right" in answer.summary
    assert "Nothing is timed on this machine" in answer.summary
    assert "node 1 was judged again and is correct" in answer.summary
    assert blind.judge.efforts == []


async def test_a_best_kernel_that_fails_at_the_end_is_not_the_result(bench):
    answer = await bench.begin(max_steps=2)
    for speed in ("1.5", "2.0"):
        last = await bench.ask(step_id=answer.step_id, kernel=kernel(f"correct {speed}", body=speed[0]))
        if last.step_id:
            answer = last
            original = bench.judge._verify

            async def fails(request, report, original=original):
                outcome = await original(request, report)
                wrong = b"2.0" in request.source and getattr(request, "effort", "") == "full"
                return (
                    outcome.model_copy(update={"status": "incorrect", "timing": None}) if wrong else outcome
                )

            bench.judge._verify = fails
    assert "The best is node 1, timed again: 1.5x" in last.summary
    assert "Evaluated again, node 2 was incorrect." in last.summary


# --- kernels that one already has ------------------------------------------------------------------------


async def test_start_kernels_are_judged_first_and_cost_no_step(bench):
    starts = [StartKernel(path="a.py", source=kernel("correct 1.3").encode()),
              StartKernel(path="b.py", source=kernel("incorrect", body="2").encode()),
              StartKernel(path="c.py", source=kernel("unsupported", body="3").encode()),
              StartKernel(path="d.py", source=kernel("correct 1.3").encode())]  # fmt: skip
    answer = await bench.begin(starts=starts, max_steps=4)
    assert answer.steps_left == 4
    tree = await bench.tree()
    assert [(node.parent, node.kind, node.charged, node.status) for node in tree.nodes] == [
        (0, "large", False, "correct"),
        (0, "large", False, "incorrect"),
    ]


# --- several agents --------------------------------------------------------------------------------------


async def test_the_text_of_a_start_kernel_is_shown_to_who_named_its_path(bench):
    start = StartKernel(path="start.py", source=kernel("correct 1.0", body="42").encode())
    answer = await bench.begin(starts=[start], max_steps=30, seed=1)
    while answer.parent.rpartition("_")[2] != "1":  # the first step may not be one from it
        number = str(answer.steps_left)
        answer = await bench.ask(step_id=answer.step_id, kernel=kernel("correct 0.5", body=number))
    assert "return x * 42" in answer.text


async def test_a_rule_stands_once_in_a_proposal_however_it_is_worded(bench):
    async def rules(task_id):
        return [
            "You cannot do so. [rule_abc, learned]",
            "You cannot do else. [rule_def, a probe confirms it]",
        ]

    bench.service._proposals._rules = rules
    answer = await bench.begin(max_steps=9)
    bench.judge.rules = ["default: You cannot do so. [rule_abc, seen on 1 task family]"]
    answer = await bench.ask(step_id=answer.step_id, kernel=kernel("compile_error"))
    assert answer.text.count("rule_abc") == 1
    assert answer.text.count("rule_def") == 1


async def test_without_times_no_kernel_is_preferred_and_none_is_missed(blind):
    """Which of right kernels is faster nobody knows: so none is the best that most steps edit, and no gain is awaited."""
    answer = await blind.begin(max_steps=130)
    parents = []
    while answer.step_id:
        parents.append(answer.parent)
        answer = await blind.ask(step_id=answer.step_id, kernel=kernel(body=str(len(parents))))
    assert answer.stop_reason == "budget"
    assert max(map(parents.count, set(parents))) < 40


async def test_each_agent_gets_its_own_proposal_and_the_same_when_it_asks_again(bench, other):
    one = await bench.begin(agent="a")
    two = await other.ask(run_id=one.run_id, agent="b")
    assert two.step_id != one.step_id
    assert (await other.ask(agent="a")).step_id == one.step_id
    assert (await bench.ask(agent="b")).step_id == two.step_id


async def test_a_proposal_whose_time_is_up_is_given_out_again_and_takes_a_late_answer(bench):
    one = await bench.begin(agent="a", max_steps=3)
    bench.clock.now += 1801
    two = await bench.ask(agent="b")
    assert two.step_id != one.step_id
    assert (await bench.store.runs.step(two.step_id)).step == 1
    late = await bench.ask(step_id=one.step_id, kernel=kernel("correct 2", body="late"))
    assert (late.status, late.steps_left) == ("correct", 3)
    done = await bench.ask(step_id=two.step_id, kernel=kernel("correct 3", body="new"), agent="b")
    assert done.steps_left == 2


async def test_more_agents_than_steps_do_not_exceed_the_budget(bench):
    first = await bench.begin(agent="a", max_steps=2)
    await bench.ask(agent="b")
    third = await bench.ask(agent="c")
    assert (third.step_id, third.status) == ("", "open")
    assert "out with other agents" in third.summary
    bench.clock.now += 1801
    assert (await bench.ask(agent="c")).step_id
    await bench.ask(step_id=first.step_id, kernel=kernel())


async def agents_at_work(benches, run_id, budget):
    """Let eight agents, each at one of some servers, work until the run stops; return all nodes they were told."""
    told = []

    async def work(number):
        mine = benches[number % len(benches)]
        name, count = f"agent{number}", 0
        answer = await mine.ask(run_id=run_id, agent=name)
        while answer.status != "stopped" and not answer.stop_reason:
            if not answer.step_id:
                await anyio.sleep(0.05)
                answer = await mine.ask(run_id=run_id, agent=name)
                continue
            count += 1
            source = kernel(f"correct {1 + count / 10}", body=f"{number}{count:03}")
            answer = await mine.ask(run_id=run_id, step_id=answer.step_id, kernel=source, agent=name)
            if answer.node_id:
                told.append(answer.node_id)

    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(work, number)
    state = await benches[0].store.runs.state(run_id)
    assert len(told) == len(set(told)) == len(state.nodes) == budget
    assert len({row.step for row in state.nodes}) == budget
    search = Search(SearchSettings.from_data(state.run.settings), state.run.seed)
    for one in benches:
        tree = (await one.service.searches.now(run_id)).search
        assert tree.root.visits == tree.charged_steps == budget
        assert not set(search.nodes) & set(tree.nodes)
    return state


async def test_eight_agents_at_one_server_lose_and_double_nothing(bench):
    await bench.begin(agent="x", max_steps=1)
    run = await bench.ask(task_id=await bench.task(), agent="agent0", max_steps=40)
    await agents_at_work([bench], run.run_id, 40)


async def test_eight_agents_at_two_servers_lose_and_double_nothing(bench, other):
    run = await bench.begin(agent="agent0", max_steps=40)
    await agents_at_work([bench, other], run.run_id, 40)


async def test_the_same_kernel_sent_at_once_by_many_is_judged_once(bench, other):
    run = await bench.begin(agent="a0", max_steps=30)
    servers = (bench, other)
    later = [await servers[number % 2].ask(run_id=run.run_id, agent=f"a{number}") for number in range(1, 12)]
    steps = [run, *later]
    answers = []

    async def send(number):
        server = (bench, other)[number % 2]
        source = kernel("correct 1.5") if number < 6 else kernel("incorrect", body="2")
        answers.append(
            await server.ask(
                run_id=run.run_id, step_id=steps[number].step_id, kernel=source, agent=f"a{number}"
            )
        )

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(send, number)
    assert len(answers) == 12
    assert sum(not answer.duplicate for answer in answers) == 2
    tree = await bench.tree()
    assert len(tree.nodes) == tree.root.visits == 2
    assert len(bench.judge.judged) + len(other.judge.judged) == 2


async def test_one_agent_gets_the_papers_order_from_the_same_seed(bench):
    orders = []
    for _ in range(2):
        answer = await bench.begin(seed=5, preset="paper", max_steps=12)
        order = []
        for number in range(11):
            order.append((answer.kind, answer.parent.rpartition("_")[2]))
            answer = await bench.ask(
                step_id=answer.step_id, kernel=kernel(f"correct {1 + number % 4}", body=str(number))
            )
        orders.append(order)
        search = Search(SearchSettings.preset("paper", max_steps=12), 5)
        nodes = (await bench.tree()).nodes
        for step, node in enumerate(nodes, 1):
            proposal = search.propose(step)
            assert (proposal.kind, proposal.parent) == (node.kind, node.parent)
            search.record(node)
    assert orders[0] == orders[1]


# --- interrupted -----------------------------------------------------------------------------------------


async def test_a_cancelled_evaluation_is_taken_up_by_the_next_call(bench):
    step = await bench.begin(max_steps=5)
    request = SearchRequest(run_id=step.run_id, step_id=step.step_id, source=kernel("gated").encode())
    async with anyio.create_task_group() as group:

        async def call():
            async with bench.service.asked(request) as ask:
                await bench.service.advance(ask, quiet)

        group.start_soon(call)
        with anyio.fail_after(10):
            while not bench.judge.begun:  # noqa: ASYNC110 - bounded
                await anyio.sleep(0.01)
        said = await bench.refused(step_id=step.step_id, kernel=kernel())
        assert "is being judged" in said
        group.cancel_scope.cancel()
    bench.judge.gate.set()
    answer = await bench.ask()
    assert (answer.steps_left, answer.status) == (4, "open")
    assert (await bench.tree()).root.visits == 1


async def test_a_second_server_waits_for_the_first_and_sees_its_node(bench, other):
    step = await bench.begin(max_steps=5)
    source = kernel("gated")
    answers = {}

    async def call(server, name):
        answers[name] = await server.ask(run_id=step.run_id, step_id=step.step_id, kernel=source)

    async with anyio.create_task_group() as group:
        group.start_soon(call, bench, "one")
        while not bench.judge.begun:  # noqa: ASYNC110 - bounded
            await anyio.sleep(0.01)
        group.start_soon(call, other, "two")
        await anyio.sleep(0.3)
        bench.judge.gate.set()
    assert other.judge.begun == 0
    assert answers["one"].node_id == answers["two"].node_id != ""
    assert json.dumps(answers["two"].outcome) == json.dumps(answers["one"].outcome)


@pytest.mark.parametrize(
    ("pid", "said"),
    [(os.getpid(), "being judged"), (2**22 - 1, "interrupted, the next call with it takes it up")],
    ids=["alive", "gone"],
)
def test_a_kernel_whose_server_has_ended_is_not_said_to_be_judged(pid, said):
    mine = owners.this_process()
    owner = Owner(host=mine.host, pid=pid, started=mine.started)
    step = StepRecord(
        step_id="step_1", run_id="run_a", step=1, kind="large", parent=0, state="submitted", owner=owner
    )
    assert runviews._open(step).endswith(said)
