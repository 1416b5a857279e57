"""What Nsight Compute answers is read as data, whatever it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.counters import ncu
from adaexplore_mcp.evaluation.counters.digest import kernels_of, rows
from adaexplore_mcp.evaluation.counters.ncu import (
    METRICS,
    MOST_LAUNCHES,
    Ncu,
    command,
    find,
    launches,
    problem_in,
)
from tests.support.counters import HEALTHY_VALUES, answer_of, stand_in


def test_every_launch_is_read_with_all_that_was_asked_for():
    (launch, other) = launches(answer_of(("kernel", {}), ("kernel", {"duration_ns": 5})))
    assert launch.kernel == "kernel"
    assert launch.values == pytest.approx(HEALTHY_VALUES)
    assert other.values["duration_ns"] == 5


def test_units_are_understood_and_separators_of_thousands_too():
    metric = "gpu__time_duration.sum"
    said = f'"ID","Kernel Name","{metric}"\n"","","usecond"\n"0","k","1,234.5"\n'
    assert launches(said)[0].values == {"duration_ns": 1_234_500.0}


def test_what_was_not_measured_is_not_there():
    (launch,) = launches(
        answer_of(
            (
                "kernel",
                {"tensor_pct": "n/a", "dram_pct": "nan", "fp64": -1, "grid": "inf", "dram_read": 1e300},
            )
        )
    )
    assert not {"tensor_pct", "dram_pct", "fp64", "grid", "dram_read"} & launch.values.keys()


@pytest.mark.parametrize("forged", ["1e308", "9" * 400, "1e18", "-0.1", "0x10", "nan"])
def test_a_counter_beyond_what_any_launch_comes_to_is_not_there(forged):
    (launch,) = launches(answer_of(("kernel", {"dram_read": forged, "duration_ns": forged})))
    assert not {"dram_read", "duration_ns"} & launch.values.keys()
    (row,) = rows(kernels_of([launch, *launches(answer_of(("kernel", {"dram_read": 9e17})))] * 20, []))
    assert row.launches == 40


def test_names_lose_what_no_name_has_and_launches_are_bounded():
    said = answer_of(*[("k\x1b[31m<script>\n", {})] * 60)
    found = launches(said)
    assert len(found) == MOST_LAUNCHES
    assert not set(found[0].kernel) & set("\x1b[ \n")


@given(st.text(alphabet='",\nID0kernl Name=\x00é'))
def test_nonsense_is_no_launch_and_no_error(said):
    header = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *METRICS))
    for each in launches(f"{header}\n{said}"):
        assert all(value >= 0 for value in each.values.values())
    assert isinstance(problem_in(said), str)


def test_a_driver_that_shows_counters_to_administrators_only_is_told_plainly():
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    assert "only administrators" in problem_in(said)
    assert (
        problem_in("==ERROR== Failed to prepare kernel for profiling\n")
        == 'it says "Failed to prepare kernel for profiling"'
    )
    assert not problem_in("==PROF== Connected to process 1\n")


def test_clocks_are_left_alone(tmp_path):
    words = command(Ncu("/usr/bin/ncu", "1"), tmp_path / "log", ["python"])
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[-1] == "python"


def test_it_is_found_on_the_path_or_not_at_all(tmp_path):
    assert find(str(tmp_path), ()).problem == "Nsight Compute (ncu) is not installed here"
    file = stand_in(tmp_path, "")
    found = find(str(tmp_path), ())
    assert (found.path, found.version, found.problem) == (str(file), "2025.3.1.0", "")
    assert find("/nowhere", (str(tmp_path / "n*u"),)).path == str(file)


def test_a_command_that_says_no_version_is_none_of_ours(tmp_path):
    file = tmp_path / "ncu"
    file.write_text("#!/bin/sh\nexit 3\n")
    file.chmod(0o700)
    assert "does not say which version" in find(str(tmp_path), ()).problem


def test_where_the_driver_refuses_an_ordinary_user_nothing_is_started(tmp_path, monkeypatch):
    stand_in(tmp_path, "")
    (tmp_path / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(ncu, "DRIVER", tmp_path / "params")
    monkeypatch.setattr(ncu.os, "geteuid", lambda: 1000)
    assert "only administrators" in find(str(tmp_path), ()).problem
    monkeypatch.setattr(ncu.os, "geteuid", lambda: 0)
    assert not find(str(tmp_path), ()).problem
