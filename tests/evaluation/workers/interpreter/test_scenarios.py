"""Every function without arguments in `scenarios/` is a test; it runs in a process that has the interpreter installed."""

import ast
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).parent / "scenarios"


def scenarios():
    for file in sorted(SCENARIOS.glob("*.py")):
        if file.name in ("support.py", "elsewhere.py"):
            continue
        for node in ast.parse(file.read_text()).body:
            if (
                isinstance(node, ast.FunctionDef)
                and not node.decorator_list
                and not node.name.startswith("_")
            ):
                arguments = node.args
                if not (arguments.args or arguments.posonlyargs or arguments.vararg or arguments.kwonlyargs):
                    yield pytest.param(file.name, node.name, id=f"{file.stem}-{node.name}")


@pytest.mark.parametrize(("file", "name"), list(scenarios()))
def test_interpreter(interpreter_host, file, name):
    result = interpreter_host.run(file, name)
    if result["status"] == "skipped":
        pytest.skip(result["text"])
    assert result["status"] == "passed", f"{result['text']}\n{result['output']}"
