import ast
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adaexplore_mcp.errors import WorkerError
from adaexplore_mcp.evaluation.channel import Message
from adaexplore_mcp.evaluation.session import EndReport, SessionEndedError
from adaexplore_mcp.evaluation.synthesis import Coverage, Seen, Siblings, SyntheticTask, draw, normalised
from adaexplore_mcp.evaluation.synthesis_site import Operator, Parameter
from adaexplore_mcp.evaluation.synthesizer import WAVE, Synthesizer
from adaexplore_mcp.evaluation.workers import operators as introspection
from adaexplore_mcp.models import RegisterRequest
from adaexplore_mcp.services.connect import FIRST_TASKS
from adaexplore_mcp.services.tasks import TaskService

pytestmark = pytest.mark.anyio

SEED = 3
ELEMENTWISE = [
    Operator(f"torch.{name}", "elementwise", (Parameter("input", required=True),))
    for name in ("abs", "cos", "exp", "neg", "sin", "square", "tan")
]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def pool(tmp_path_factory):
    import sys

    from adaexplore_mcp.evaluation.pool import WorkerPool

    pool = WorkerPool(Path(sys.executable), tmp_path_factory.mktemp("scratch"), 4 << 30)
    yield pool
    await pool.aclose()


@pytest.fixture(scope="module")
async def drawn(pool):
    """The first tasks of a seed, drawn by two processes."""
    siblings = Siblings()
    return await Synthesizer(pool, "sm_90").draw(SEED, 0, siblings, WAVE), siblings


def drawn_without_torch(number, coverage=None, problems=()):
    answers = iter(problems)
    shapes = []

    def begin(first, sizes):
        del sizes
        shapes.append(first.shape)

    def attempt(step, *, most, fewest):
        del step, most, fewest
        return Seen(shapes[0], "float32", next(answers, ""))

    return draw(ELEMENTWISE, coverage or Coverage(), SEED, number, begin=begin, attempt=attempt)


def test_a_draft_is_the_same_whenever_it_is_drawn():
    assert [drawn_without_torch(number).task for number in range(5)] == [
        drawn_without_torch(number).task for number in range(5)
    ]


def test_a_draft_has_three_to_six_different_operators():
    for number in range(30):
        operators = drawn_without_torch(number).task.operators
        assert 3 <= len(operators) <= 6
        assert len(set(operators)) == len(operators)


def test_what_stands_in_tasks_already_is_drawn_less():
    coverage = Coverage()
    for _ in range(20):
        coverage.add(["torch.abs", "torch.cos"])
    found = [
        name for number in range(40) for name in drawn_without_torch(number, coverage).task.operators[:1]
    ]
    assert not {"torch.abs", "torch.cos"} & set(found)


def test_steps_that_do_not_work_are_counted_by_what_was_wrong():
    draft = drawn_without_torch(0, problems=["does nothing", "does nothing", "result too large"])
    assert draft.task is not None
    assert dict(draft.tried) == {"does nothing": 2, "result too large": 1}


def test_a_draft_in_which_nothing_works_comes_to_nothing():
    draft = drawn_without_torch(0, problems=["does nothing"] * 1000)
    assert draft.task is None
    assert draft.problem == "too few operators fit one another"


def test_coverage_survives_the_wire():
    coverage = Coverage()
    coverage.add(["a", "b", "c"])
    assert Coverage.from_wire(coverage.to_wire()) == coverage


def test_tasks_that_differ_in_sizes_alone_are_siblings():
    task = drawn_without_torch(1).task
    other = re.sub(r"(?m)^(N\d) = \d+", r"\1 = 77", task.source)
    assert other != task.source
    assert normalised(other) == normalised(task.source)
    siblings = Siblings([task])
    assert not siblings.add(SyntheticTask(9, other, ("torch.something", "torch.else", "torch.new")))


def test_a_module_and_its_function_in_the_same_order_are_the_same_task():
    siblings = Siblings([SyntheticTask(0, "x = 1", ("nn.LeakyReLU", "torch.sum"))])
    assert not siblings.add(SyntheticTask(1, "def f(): pass", ("F.leaky_relu", "torch.sum")))
    assert siblings.coverage.operators["F.leaky_relu"] == 0


def test_operators_are_read_off_torch_with_what_they_take():
    found = {each.name: each for each in introspection.documented()}
    assert [each.name for each in found["torch.cumsum"].parameters if each.required] == ["input", "dim"]
    assert [each.name for each in found["nn.Linear"].parameters if each.required] == [
        "in_features",
        "out_features",
    ]
    assert [each.name for each in found["nn.Linear"].forward] == ["input"]
    assert found["F.gelu"].family == "activation"
    assert introspection.left_out()["nn.Dropout"] == "random"


class Ending:
    """Sessions of which each answers two drafts and ends at the third, or cannot be had."""

    def __init__(self, opens=100):
        self.opens = opens
        self.opened = 0

    @asynccontextmanager
    async def session(self, role, parent):
        del role, parent
        if self.opened == self.opens:
            raise WorkerError("no worker")
        self.opened += 1
        answers = 0

        class Session:
            async def request(self, body, *, timeout_s):
                nonlocal answers
                del timeout_s
                if body["op"] == "operators":
                    return Message({"ok": {"operators": ["a"], "left_out": {}}}, ())
                answers += 1
                if answers == 3:
                    raise SessionEndedError(EndReport())
                name = f"torch.op{body['number']}"
                task = {"problem": "", "tried": {}, "source": f"def {name[6:]}(): pass", "operators": [name]}
                return Message({"ok": task}, ())

        yield Session()


async def test_a_draft_that_ends_its_process_costs_that_draft_alone():
    pool = Ending()
    drawn = await Synthesizer(pool, "sm_90", processes=1).draw(0, 0, Siblings(), 1)
    assert drawn.rejected == {"ends its process": 2}
    assert [task.number for task in drawn.tasks] == [0, 1, 3, 4, 6, 7]
    assert pool.opened == 4  # one to find the operators, and one after each that ended


async def test_a_worker_that_cannot_be_had_is_said_as_such():
    with pytest.raises(WorkerError, match="no worker"):
        await Synthesizer(Ending(opens=2), "sm_90").draw(0, 0, Siblings(), 1)


@pytest.mark.slow
async def test_drawn_tasks_are_tasks_and_none_is_like_another(drawn):
    found, siblings = drawn
    assert len(found.tasks) >= WAVE
    assert found.next_number % WAVE == 0
    assert len({normalised(task.source) for task in found.tasks}) == len(found.tasks)
    assert len(found.tasks) + found.rejected.total() == found.next_number
    for task in found.tasks:
        assert 3 <= len(task.operators) <= 6
        assert siblings.coverage.operators[task.operators[0]] >= 1
        defined = {getattr(node, "name", "") for node in ast.parse(task.source).body}
        assert {"Model", "get_inputs", "get_init_inputs"} <= defined


@pytest.mark.slow
async def test_the_first_wave_that_is_shipped_is_what_is_drawn(pool):
    synthesizer = Synthesizer(pool, "sm_90")
    if not (await synthesizer.version()).startswith("torch 2.13.0"):
        pytest.skip("it was drawn with torch 2.13.0")
    shipped = json.loads(FIRST_TASKS.read_text())
    found = await synthesizer.draw(shipped["seed"], 0, Siblings(), 1)
    assert [(task.number, task.source) for task in found.tasks] == [
        (task["draft"], task["source"]) for task in shipped["tasks"]
    ]
    assert (found.next_number, found.rejected) == (shipped["next_draft"], shipped["rejected"])


@pytest.mark.slow
async def test_a_seed_gives_the_same_tasks_on_one_process_as_on_two(pool, drawn):
    found, _ = drawn
    again = await Synthesizer(pool, "sm_90", processes=1).draw(SEED, 0, Siblings(), WAVE)
    assert again.tasks == found.tasks
    assert again.rejected == found.rejected


@pytest.mark.slow
async def test_drawing_goes_on_where_it_stopped(pool, drawn):
    found, siblings = drawn
    before = set(found.tasks)
    more = await Synthesizer(pool, "sm_90").draw(SEED, found.next_number, Siblings(found.tasks), 1)
    assert more.tasks
    assert not before & set(more.tasks)
    assert more.tasks[0].number >= found.next_number
    del siblings


@pytest.mark.slow
async def test_a_drawn_task_is_taken_by_registration_without_a_remark(pool, drawn, tmp_path):
    from adaexplore_mcp.evaluation.evaluator import Evaluator
    from adaexplore_mcp.memory_store import Store

    store = Store(tmp_path / "adaexplore.db")
    task = drawn[0].tasks[0]
    summary = await TaskService(store, Evaluator(pool, "sm_90", 4 << 30)).register(
        RegisterRequest(name=task.name, source=task.source.encode()), lambda _: None
    )
    assert summary.name == task.name
    assert summary.findings == []
    await store.aclose()
