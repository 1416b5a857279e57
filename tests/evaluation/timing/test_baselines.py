import pytest

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.timing.baselines import baseline

SOURCE = "class Model:\n    pass\n"
TASK = Definition(format="kernelbench", files={"task.py": SOURCE}, entry="Model")
PACKAGE = Definition(
    format="function",
    files={"pkg/__init__.py": "", "pkg/ops.py": "def add(x): ..."},
    module="pkg.ops",
    entry="add",
)


def test_eager_is_the_reference_itself():
    found = baseline("eager", TASK)
    assert found.candidate.entry == "Model"
    assert found.candidate.source.decode().startswith(SOURCE)
    assert not found.package
    assert not found.tunes


def test_a_reference_in_a_package_is_imported_from_its_files():
    found = baseline("eager", PACKAGE)
    assert "from pkg.ops import add" in found.candidate.source.decode()
    assert found.package == PACKAGE.files


@pytest.mark.parametrize(
    ("name", "mode", "tunes"), [("compile", "default", False), ("max_autotune", "max-autotune", True)]
)
@pytest.mark.parametrize("task", [TASK, PACKAGE])
def test_compiled_baselines_wrap_the_reference(name, mode, tunes, task):
    found = baseline(name, task)
    text = found.candidate.source.decode()
    compile(text, "candidate.py", "exec")
    assert found.candidate.entry in text
    assert f"mode='{mode}" in text
    assert found.tunes is tunes


def test_own_is_the_owners_kernel_under_the_candidates_name():
    task = TASK.model_copy(update={"baseline": "class ModelNew: ...  # @triton.autotune"})
    found = baseline("own", task)
    assert (found.candidate.entry, found.candidate.source) == ("ModelNew", task.baseline.encode())
    assert found.tunes


def test_a_node_is_an_earlier_candidate():
    assert baseline("node:cand_x", TASK, b"class ModelNew: ...").candidate.source == b"class ModelNew: ..."


@pytest.mark.parametrize(
    ("name", "words"), [("own", "no kernel of its owner's"), ("fast", "no baseline 'fast'")]
)
def test_what_there_is_not_is_refused_by_name(name, words):
    with pytest.raises(RequestError, match=words):
        baseline(name, TASK)
