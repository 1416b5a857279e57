"""What users are told is all there is, and nothing is missing."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from adaexplore_mcp.evaluation import judging, numerics, verdict
from adaexplore_mcp.models import JobView, Status
from adaexplore_mcp.settings import Settings
from adaexplore_mcp.tools import TOOLS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERDICTS = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
TREE = (ROOT / "docs/tree.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
SOURCES = "".join(
    Path(module.__file__).read_text(encoding="utf-8") for module in (verdict, judging, numerics)
)


@pytest.mark.parametrize("tool", [entry.function.__name__ for entry in TOOLS])
def test_every_tool_is_in_the_readme(tool):
    assert f"`{tool}`" in README


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_every_setting_is_documented_with_its_variable(name):
    variable = f"`ADAEXPLORE_{name.upper()}`"
    assert variable in SETTINGS


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_every_setting_is_documented_with_its_flag(name):
    flag = "root" if name == "roots" else name.replace("_", "-")
    assert f"`--{flag}`" in SETTINGS


@pytest.mark.parametrize(
    "status", sorted({*get_args(Status), *get_args(JobView.model_fields["status"].annotation)})
)
def test_every_status_is_explained(status):
    assert f"`{status}`" in VERDICTS


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r'(?:check=|reason=|check, what = |Mismatch\(\s*)"([a-z_]+)"', SOURCES)))
)
def test_every_check_and_reason_in_the_code_is_explained(name):
    assert f"`{name}`" in VERDICTS


def lines_of_the_tree():
    """Yield each path in the tree and what is said about it."""
    folders = []
    for line in TREE.split("```")[1].strip().splitlines():
        name, _, comment = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name.rstrip("/")]
        yield "/".join(folders), comment.strip()


def test_every_line_of_the_tree_names_what_exists_and_says_what_it_is_for():
    for path, comment in lines_of_the_tree():
        assert (ROOT / path).exists(), path
        assert comment, path


def test_every_module_has_its_line_in_the_tree():
    told = [path for path, _ in lines_of_the_tree()]
    assert len(told) == len(set(told))
    for top in ("adaexplore_mcp", "tools", "memory_store", "prompts", "benchmarks"):
        for module in (ROOT / top).rglob("*.py"):  # which follows no links
            # A package's own line tells of its __init__, a built-in task's of its files.
            alone = module.name != "__init__.py" and "builtin" not in module.parts
            path = (module if alone else module.parent).relative_to(ROOT).as_posix()
            assert path in told, f"the tree in docs/tree.md has no line for {path}"


def test_the_client_in_the_readme_runs(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = tmp_path / "adaexplore-mcp"
    home = f"ADAEXPLORE_HOME={tmp_path} PYTHONPATH={ROOT}"
    script.write_text(f'#!/bin/sh\nexec env {home} {sys.executable} -m adaexplore_mcp "$@"\n')
    script.chmod(0o755)
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert re.match("correct |plausible |running ", run.stdout)  # it becomes a job where the machine is busy


def test_every_page_that_is_linked_exists():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links {target}"
