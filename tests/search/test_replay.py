"""The recorded runs, chosen step by step as the paper's own search chose them."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from adaexplore_mcp.search import SearchSettings

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
SCRIPT = Path(__file__).parents[2] / "benchmarks/explore_replay.py"


def load_script():
    spec = importlib.util.spec_from_file_location("explore_replay", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_five_recorded_runs():
    assert len(GOLDEN) == 5


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_every_choice_of_a_recorded_run_is_ours(file):
    steps = json.loads(file.read_text())["steps"]
    compared = load_script().replay(steps, SearchSettings.preset("paper"))
    assert len(compared) > 2 * (len(steps) - 1)
    assert [row for row in compared if row[2] != row[3]] == []


def test_the_script_counts_every_choice_and_exits_with_success():
    done = subprocess.run([sys.executable, SCRIPT, *GOLDEN], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[:4] == [
        "parents 982/982",
        "small contexts 633/633",
        "pools 349/349",
        "forced large steps 163/163",
    ]
    assert done.returncode == 0


def test_the_script_exits_with_failure_where_other_numbers_make_other_choices():
    done = subprocess.run(
        [sys.executable, SCRIPT, GOLDEN[0], "--expand-ratio", "0.5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "parents recorded" in done.stdout
    assert done.returncode == 1
