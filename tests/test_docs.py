"""What users are told is all there is, and nothing is missing."""

import re
from pathlib import Path
from typing import get_args

import pytest

from adaexplore_mcp.evaluation import judging, numerics, verdict
from adaexplore_mcp.models import Status
from adaexplore_mcp.settings import Settings
from adaexplore_mcp.tools import TOOLS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERDICTS = (ROOT / "docs/verdicts.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("status", get_args(Status))
def test_every_status_is_explained(status):
    assert f"`{status}`" in VERDICTS


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r'(?:check=|reason=|check, what = |Mismatch\(\s*)"([a-z_]+)"', SOURCES)))
)
def test_every_check_and_reason_in_the_code_is_explained(name):
    assert f"`{name}`" in VERDICTS


def test_the_tree_in_the_readme_names_only_what_exists():
    tree = README.split("## The tree")[1].split("```")[1]
    for name in re.findall(r"[a-z_]+\.py", tree):
        assert list(ROOT.rglob(name)), name


def test_every_page_that_is_linked_exists():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links {target}"
