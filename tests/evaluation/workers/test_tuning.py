"""Which configuration an autotuner takes, without a clock."""

import math
from types import SimpleNamespace

import pytest
from triton.runtime import autotuner

from adaexplore_mcp.evaluation.workers.tuning import Tuning, quick_autotuners


def ranks(count=3, **options):
    """Return what three configurations of a kernel `k` are ranked by, and which of them ran."""
    tuner = SimpleNamespace(base_fn=SimpleNamespace(__name__="k"))
    tuning = Tuning({}, options.pop("config", 0), tune=options.pop("tune", False), **options)
    tuning.pruned(tuner, list(range(count)))
    ran = []
    found = [tuning.measure(tuner, lambda place=place: ran.append(place))[0] for place in range(count)]
    return found, ran


def test_the_first_has_the_lowest_rank_and_nothing_runs():
    assert ranks() == ([0.0, 1.0, 2.0], [])


def test_another_can_be_asked_for():
    assert ranks(config=2)[0] == [1.0, 2.0, 0.0]


def test_tuning_runs_every_configuration():
    assert ranks(tune=True)[1] == [0, 1, 2]


@pytest.mark.parametrize("tune", [False, True])
def test_those_known_not_to_build_are_passed_over_and_never_run(tune):
    found, ran = ranks(tune=tune, good={"k": [False, True, True]})
    assert found == [math.inf, 1.0, 2.0]
    assert ran == ([1, 2] if tune else [])


@pytest.mark.parametrize("good", [{"k": [False, True]}, {"other": [False, False, False]}, {}])
def test_what_is_known_of_another_tuning_counts_for_nothing(good):
    assert ranks(good=good)[0] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("good", "left"),
    [
        ({"k": [False, True, True]}, [1, 2]),
        ({"k": [False, False, False]}, [0, 1, 2]),
        ({"k": [True, False]}, [0, 1, 2]),
        ({"other": [True, False, False]}, [0, 1, 2]),
        ({}, [0, 1, 2]),
    ],
)
def test_the_clock_chooses_among_what_is_known_to_build(monkeypatch, good, left):
    class Tuner:
        base_fn = SimpleNamespace(__name__="k")

        def prune_configs(self, kwargs):
            return [0, 1, 2]

    monkeypatch.setattr(autotuner, "Autotuner", Tuner)
    quick_autotuners(good)
    assert Tuner().prune_configs({}) == left
