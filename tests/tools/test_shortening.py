import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import long_outcome

from adaexplore_mcp.models import (
    CompiledKernel,
    ErrorExcerpt,
    Facts,
    JobView,
    Outcome,
    Policy,
    Scope,
    TaskSummary,
    TensorSpec,
    WorkloadReport,
)
from adaexplore_mcp.tools.answers import answer
from adaexplore_mcp.tools.outline import outline
from adaexplore_mcp.tools.shortening import BUDGET_CHARACTERS, shorten


def size(data):
    return max(len(json.dumps(data, ensure_ascii=False)), len(outline(data)))


def test_a_long_outcome_fits_the_budget_and_keeps_what_decides():
    full = long_outcome().to_wire()
    assert size(full) > 2 * BUDGET_CHARACTERS
    short = shorten(full)
    assert size(short) <= BUDGET_CHARACTERS
    for key in ("status", "summary", "next_step", "check", "task_id", "stage"):
        assert short[key] == full[key]
    assert short["error"]["line"] == 31
    assert short["error"]["kernel"] == "fused_kernel"
    numbers = {key: value for key, value in full["evidence"].items() if key != "detail"}
    assert {key: short["evidence"][key] for key in numbers} == numbers
    assert short["omitted"][:3] == ["versions", "seconds", "facts.operators"]


def test_isolation_is_kept_in_a_word():
    outcome = Outcome(
        summary="Right.",
        status="correct",
        scope=Scope(isolation="partial: namespaces, no landlock"),
        rules=["rule " * 100] * 6,
    )
    assert shorten(outcome.to_wire())["scope"] == {"isolation": "partial"}


def test_what_was_left_out_is_named_in_both_forms():
    result = answer(long_outcome().to_wire(), "concise")
    assert "versions" in result.structured_content["omitted"]
    assert "omitted: [versions, " in result.content[0].text


def test_a_short_outcome_is_left_alone():
    outcome = Outcome(summary="Right.", status="correct", versions={"torch": "2.13.0"}).to_wire()
    assert shorten(outcome) == outcome


def test_detailed_leaves_nothing_out():
    full = long_outcome().to_wire()
    assert answer(full, "detailed").structured_content == full


def test_the_result_of_a_job_is_shortened_as_its_tool_would():
    view = JobView(
        summary="It ended.", status="done", job_id="job_a", result=long_outcome().to_wire()
    ).to_wire()
    assert shorten(view)["result"] == shorten(long_outcome().to_wire())


def test_the_kernels_kept_are_those_with_spills_and_failures():
    kernels = [CompiledKernel(kernel=f"k{number}", registers=number) for number in range(90)]
    kernels[7] = CompiledKernel(kernel="spills", registers=1, spill_bytes=64)
    outcome = Outcome(summary="Right.", status="correct", compiled=kernels).to_wire()
    assert [kernel["kernel"] for kernel in shorten(outcome)["compiled"]] == ["spills", "k89", "k88"]


def test_the_answer_itself_is_not_changed():
    full = long_outcome().to_wire()
    before = json.dumps(full)
    shorten(full)
    assert json.dumps(full) == before


def test_a_large_task_fits_the_budget():
    tensors = [
        TensorSpec(name=f"input_{number}", dtype="float32", shape=[64, 128, 256]) for number in range(20)
    ]
    task = TaskSummary(
        summary="Registered.",
        task_id="task_1",
        name="fused",
        format="function",
        entry="f",
        description="word " * 200,
        workloads=[
            WorkloadReport(name=f"w{number}", sizes={"N": number}, inputs=tensors, outputs=tensors)
            for number in range(12)
        ],
        findings=["Something was noticed. " * 20] * 8,
        policy=Policy(precision="relaxed"),
    ).to_wire()
    short = shorten(task)
    assert size(short) <= BUDGET_CHARACTERS
    assert short["policy"] == {"precision": "relaxed"}


words = st.text(alphabet="ab \n", max_size=400)
outcomes = st.builds(
    Outcome,
    summary=st.text(max_size=1500),
    next_step=st.text(max_size=1500),
    status=st.just("runtime_error"),
    check=st.text(max_size=40),
    reason=st.text(max_size=800),
    error=st.builds(ErrorExcerpt, type=words, message=st.text(max_size=3000), line=st.just(7), source=words),
    compiled=st.lists(st.builds(CompiledKernel, kernel=st.text(min_size=1, max_size=60)), max_size=60),
    facts=st.builds(
        Facts, operators=st.dictionaries(words, st.integers(0, 9), max_size=60), notes=st.lists(words)
    ),
    rules=st.lists(st.text(max_size=900), max_size=20),
    versions=st.dictionaries(st.text(max_size=20), words, max_size=20),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(outcomes)
def test_no_outcome_is_over_the_budget(outcome):
    short = shorten(outcome.to_wire())
    assert size(short) <= BUDGET_CHARACTERS
    assert short["status"] == "runtime_error"
    assert short["error"]["line"] == 7


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_no_number_that_json_lacks_leaves(value):
    result = answer({"summary": "x", "seconds": {"total": value}, "list": [value, {"deep": value}]})
    json.dumps(result.structured_content, allow_nan=False)
    assert result.structured_content["seconds"] == {"total": None}
    assert "nan" not in result.content[0].text
    assert "inf" not in result.content[0].text


def test_no_lone_surrogate_leaves():
    result = answer({"summary": "a\ud800b"})
    assert result.model_dump_json()
    assert result.structured_content == {"summary": "a?b"}


def test_a_task_to_work_on_is_left_whole():
    task = {"summary": "a task", "instructions": "do it", "rules": ["x" * 300] * 20, "text": "y" * 3000}
    assert shorten(task) == task
    assert shorten({"result": task}) == {"result": task}
