import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import long_outcome

from adaexplore_mcp.models import ArtifactPage, Device, JobView
from adaexplore_mcp.tools.outline import outline


def leaves(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def written(leaf):
    match leaf:
        case None:
            return "none"
        case bool():
            return "yes" if leaf else "no"
        case float():
            return f"{leaf:.6g}"
    return str(leaf)


def assert_all_told(data):
    text = outline(data)
    squeezed = "".join(text.split())
    for leaf in leaves(data):
        assert "".join(written(leaf).split()) in squeezed, leaf


def test_an_outcome_reads_as_status_next_step_and_facts():
    text = outline(long_outcome().to_wire())
    lines = text.splitlines()
    assert lines[0].startswith("incorrect: Output out[1] differs")
    assert lines[1].startswith("Next: Mask the tail")
    assert "check: values" in lines
    assert any(line.startswith("evidence: output=out[1], workload=tail") for line in lines)
    assert any("index=[3, 129]" in line for line in lines)
    assert any(line.startswith("- kernel=kernel_0, registers=40") for line in lines)
    assert any(line == "    message line 3 with some words" for line in lines)


@pytest.mark.parametrize(
    "value",
    [
        long_outcome(),
        JobView(summary="It ended.", status="done", job_id="job_a", result=long_outcome().to_wire()),
        Device(
            summary="No GPU.",
            target="sm_90",
            targets=["sm_80", "sm_90"],
            layers={"seccomp": "in use"},
            cannot=["a"],
        ),
    ],
)
def test_the_text_holds_every_fact_of_the_structured_content(value):
    assert_all_told(value.to_wire())


def test_a_long_text_stands_last_and_as_it_is():
    page = ArtifactPage(summary="Page.", artifact_id="art_a", kind="log", size=9, text="  a\n\n  b")
    assert outline(page.to_wire()).endswith("\n\n  a\n\n  b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=20), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(min_size=1, max_size=20), JSON, max_size=6))
def test_whatever_an_answer_holds_is_in_its_text(data):
    assert_all_told(json.loads(json.dumps(without_texts(data))))


def without_texts(value):
    """Leave out the fields that are texts by contract, wherever they stand."""
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    texts = ("status", "summary", "next_step", "text")
    return {name: without_texts(each) for name, each in value.items() if name not in texts}
