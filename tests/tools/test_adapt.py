"""The Adapt stage as an agent drives it; stand-ins draw, judge and keep rules."""

import anyio
import pytest
from mcp import Client
from stand_ins import SOURCE, kernel, services_of

from adaexplore_mcp.server import build_server

pytestmark = pytest.mark.anyio

LESSON = "You cannot store a value of one dtype through a pointer to another one."


@pytest.fixture
async def client(settings):
    async with connected(settings) as client:
        yield client


def connected(settings):
    return Client(build_server(settings, services_of(settings)))


async def adapt(client, **arguments):
    with anyio.fail_after(60):
        result = await client.call_tool("adapt_on_task", arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


async def refused(client, **arguments):
    with anyio.fail_after(60):
        result = await client.call_tool("adapt_on_task", arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text


async def test_a_task_comes_with_its_source_instructions_and_the_rules_so_far(client):
    task = await adapt(client, agent="one")
    assert task["operators"] == ["F.gelu", "torch.sum", "F.gelu"]
    assert task["text"] == "class Model: 0, 0"
    assert task["attempt_id"] in task["instructions"]
    assert "rules" not in task
    await adapt(client, agent="one", attempt_id=task["attempt_id"], kernel=kernel("compile_error"))
    await adapt(client, agent="one", attempt_id=task["attempt_id"], lesson=LESSON)
    following = await adapt(client, agent="one")
    assert following["text"] == "class Model: 0, 2"
    assert [rule["rule"] for rule in following["rules"]] == [LESSON]
    assert following["rules"][0]["provenance"]


async def test_a_synthetic_task_that_is_taken_is_registered(client):
    task = await adapt(client)
    listed = (await client.call_tool("list_tasks", {})).structured_content["tasks"]
    assert task["task_id"] in [each["task_id"] for each in listed]


async def test_a_failure_asks_for_its_lesson_and_a_success_for_the_next_task(client):
    attempt_id = (await adapt(client))["attempt_id"]
    failed = await adapt(client, attempt_id=attempt_id, kernel=kernel("compile_error"))
    assert failed["status"] == "compile_error"
    assert failed["lesson_wanted"]
    assert "lesson" in failed["next_step"]
    assert failed["receipt_id"]
    learned = await adapt(client, attempt_id=attempt_id, lesson=LESSON)
    assert learned["rule"]["rule"] == LESSON
    assert learned["candidate_id"] == failed["candidate_id"]
    solved = await adapt(client, attempt_id=attempt_id, kernel=kernel("correct"))
    assert solved["status"] == "correct"
    assert "lesson_wanted" not in solved
    assert "next task" in solved["next_step"]


async def test_an_undecided_kernel_teaches_nothing(client):
    attempt_id = (await adapt(client))["attempt_id"]
    outcome = await adapt(client, attempt_id=attempt_id, kernel=kernel("unsupported"))
    assert "lesson_wanted" not in outcome
    assert "has failed (unsupported)" in await refused(client, attempt_id=attempt_id, lesson=LESSON)


async def test_a_kernel_that_leaves_all_to_torch_counts_for_nothing(client):
    attempt_id = (await adapt(client))["attempt_id"]
    outcome = await adapt(client, attempt_id=attempt_id, kernel=kernel("torch"))
    assert outcome["status"] == "correct"
    assert "Torch did all the work" in outcome["next_step"]
    report = await adapt(client, report=True)
    assert "tasks_solved" not in report
    assert report["by_tens"] == [{"tasks": "1-1"}]


async def test_an_agents_own_task_can_be_attempted_more_than_once(client):
    own = (await client.call_tool("register_task", {"source": SOURCE, "name": "mine"})).structured_content
    first, second = [await adapt(client, task_id=own["task_id"]) for _ in range(2)]
    assert first["task_id"] == second["task_id"] == own["task_id"]
    assert first["attempt_id"] != second["attempt_id"]
    assert first["text"] == SOURCE


async def test_a_kernel_is_taken_from_a_file_and_by_its_candidate_id(client, settings):
    attempt_id = (await adapt(client))["attempt_id"]
    file = settings.roots[0] / "kernel.py"
    file.write_text(kernel("incorrect"))
    outcome = await adapt(client, attempt_id=attempt_id, kernel_path=str(file))
    assert outcome["status"] == "incorrect"
    again = await adapt(client, attempt_id=attempt_id, node_id=outcome["candidate_id"])
    assert again["candidate_id"] == outcome["candidate_id"]


async def test_another_server_on_the_same_store_goes_on(client, settings):
    first = await adapt(client, agent="one")
    await adapt(client, agent="one", attempt_id=first["attempt_id"], kernel=kernel("incorrect"))
    async with connected(settings) as other:
        learned = await adapt(other, agent="one", attempt_id=first["attempt_id"], lesson=LESSON)
        assert learned["attempt_id"] == first["attempt_id"]
        assert (await adapt(other, agent="two"))["text"] == "class Model: 0, 2"


async def test_a_drawn_task_that_registration_refuses_is_passed_over(client):
    texts = [(await adapt(client, seed=13))["text"] for _ in range(2)]
    assert texts == ["class Model: 13, 0", "class Model: 13, 4"]


async def test_drawing_ends_where_nothing_that_is_drawn_can_be_registered(client):
    said = await refused(client, seed=14)
    assert "8 synthetic tasks in a row could not be registered" in said
    assert "The reference defines no class Model" in said


async def test_agents_that_ask_at_once_get_different_tasks(client):
    texts = []

    async def take():
        texts.append((await adapt(client))["text"])

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(take)
    assert len(set(texts)) == 4


async def test_a_report_shows_learning_by_tens_of_tasks(client):
    assert (await adapt(client, report=True))["summary"].startswith("0 of 0 tasks tried")
    for number in range(12):
        attempt_id = (await adapt(client))["attempt_id"]
        if number < 10:
            await adapt(client, attempt_id=attempt_id, kernel=kernel("compile_error"))
            if number == 0:
                await adapt(client, attempt_id=attempt_id, lesson=LESSON)
        await adapt(client, attempt_id=attempt_id, kernel=kernel("correct"))
    report = await adapt(client, report=True, response_format="detailed")
    assert {
        name: report[name] for name in ("tasks_taken", "tasks_tried", "tasks_solved", "kernels", "lessons")
    } == {
        "tasks_taken": 12,
        "tasks_tried": 12,
        "tasks_solved": 12,
        "kernels": 22,
        "lessons": 1,
    }
    assert (report["operators_covered"], report["operators_known"], report["pairs_covered"]) == (2, 3, 2)
    assert report["by_tens"] == [
        {"tasks": "1-10", "kernels": 20, "failing": 10, "failing_share": 0.5, "first_failing_share": 1.0},
        {"tasks": "11-12", "kernels": 2, "failing_share": 0.0, "first_failing_share": 0.0},
    ]


async def test_attempts_at_one_task_count_as_one_task_in_the_report(client):
    own = (await client.call_tool("register_task", {"source": SOURCE, "name": "mine"})).structured_content
    for number in range(12):
        attempt_id = (await adapt(client, task_id=own["task_id"]))["attempt_id"]
        await adapt(client, attempt_id=attempt_id, kernel=kernel("correct" if number else "incorrect"))
    other = (await adapt(client))["attempt_id"]
    await adapt(client, attempt_id=other, kernel=kernel("correct"))
    report = await adapt(client, report=True, response_format="detailed")
    assert report["summary"].startswith("2 of 2 tasks tried, 2 solved, with 13 kernels in 13 attempts")
    counted = [report[name] for name in ("attempts", "tasks_taken", "tasks_tried", "tasks_solved")]
    assert counted == [13, 2, 2, 2]
    assert report["by_tens"] == [
        {"tasks": "1-2", "kernels": 13, "failing": 1, "failing_share": 0.077, "first_failing_share": 0.5}
    ]


async def test_tens_are_of_tasks_in_the_order_in_which_they_were_first_taken(client):
    taken_first = await adapt(client)
    for _ in range(10):
        await adapt(client, attempt_id=(await adapt(client))["attempt_id"], kernel=kernel("correct"))
    again = await adapt(client, task_id=taken_first["task_id"])
    await adapt(client, attempt_id=again["attempt_id"], kernel=kernel("incorrect"))
    await adapt(client, attempt_id=taken_first["attempt_id"], kernel=kernel("correct"))
    report = await adapt(client, report=True, response_format="detailed")
    assert report["by_tens"] == [
        {"tasks": "1-10", "kernels": 11, "failing": 1, "failing_share": 0.091, "first_failing_share": 0.1},
        {"tasks": "11-11", "kernels": 1, "failing_share": 0.0, "first_failing_share": 0.0},
    ]


async def test_a_lesson_without_a_failure_or_given_twice_is_refused(client):
    attempt_id = (await adapt(client))["attempt_id"]
    assert "none was sent" in await refused(client, attempt_id=attempt_id, lesson=LESSON)
    await adapt(client, attempt_id=attempt_id, kernel=kernel("correct"))
    assert "has failed (correct)" in await refused(client, attempt_id=attempt_id, lesson=LESSON)
    await adapt(client, attempt_id=attempt_id, kernel=kernel("incorrect"))
    await adapt(client, attempt_id=attempt_id, lesson=LESSON)
    assert "has its lesson: rule_0" in await refused(client, attempt_id=attempt_id, lesson=LESSON)


async def test_a_kernel_that_is_sent_again_has_its_lesson_still(client):
    attempt_id = (await adapt(client))["attempt_id"]
    await adapt(client, attempt_id=attempt_id, kernel=kernel("incorrect"))
    await adapt(client, attempt_id=attempt_id, lesson=LESSON)
    await adapt(client, attempt_id=attempt_id, kernel=kernel("incorrect"))
    assert "has its lesson: rule_0" in await refused(client, attempt_id=attempt_id, lesson=LESSON)


async def test_a_refused_lesson_leaves_the_failure_open(client):
    attempt_id = (await adapt(client))["attempt_id"]
    await adapt(client, attempt_id=attempt_id, kernel=kernel("incorrect"))
    assert "You cannot" in await refused(client, attempt_id=attempt_id, lesson="Always use float32.")
    assert (await adapt(client, attempt_id=attempt_id, lesson=LESSON))["rule"]["rule"] == LESSON


async def test_nobody_goes_on_with_someone_elses_attempt(client):
    attempt_id = (await adapt(client, agent="one"))["attempt_id"]
    for sent in ({"kernel": kernel("correct")}, {"lesson": LESSON}):
        said = await refused(client, agent="two", attempt_id=attempt_id, **sent)
        assert "agent 'one'" in said
        assert "agent 'two'" in said
        assert "no agent" in await refused(client, attempt_id=attempt_id, **sent)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"kernel": "x"}, "kernel came without attempt_id", id="a kernel for nothing"),
        pytest.param({"lesson": LESSON}, "lesson came without attempt_id", id="a lesson for nothing"),
        pytest.param({"attempt_id": "att_x"}, "'att_x' came alone", id="nothing for an attempt"),
        pytest.param(
            {"attempt_id": "att_x", "kernel": "x"}, "There is no attempt 'att_x'", id="unknown attempt"
        ),
        pytest.param(
            {"attempt_id": "att_x", "kernel": "x", "lesson": LESSON}, "kernel and lesson", id="both at once"
        ),
        pytest.param(
            {"attempt_id": "att_x", "kernel": "x", "kernel_path": "y"}, "kernel_path", id="two kernels"
        ),
        pytest.param(
            {"attempt_id": "att_x", "task_id": "task_x"}, "Both task_id and attempt_id", id="task and attempt"
        ),
        pytest.param({"task_id": "task_x"}, "There is no task 'task_x'", id="unknown task"),
        pytest.param(
            {"report": True, "kernel": "x"}, "report was given with kernel", id="a report of a kernel"
        ),
        pytest.param({"seed": -1}, "'seed' cannot be -1", id="a negative seed"),
    ],
)
async def test_what_does_not_go_together_is_refused_and_nothing_is_written(client, arguments, said):
    text = await refused(client, **arguments)
    assert said in text
    assert (await adapt(client, report=True))["summary"].startswith("0 of 0")


async def test_a_lesson_by_node_needs_no_attempt(client):
    told = await adapt(client, node_id="node_2222_1", lesson=LESSON)
    assert told["rule"]["rule"] == LESSON
    assert "attempt_id" not in told
    said = await refused(client, node_id="node_2222_1", task_id="task_x", lesson=LESSON)
    assert "without attempt_id" in said
    assert "without attempt_id" in await refused(client, lesson=LESSON)
