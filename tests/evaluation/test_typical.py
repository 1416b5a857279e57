"""How large an output usually is."""

import math
import time

import pytest

from adaexplore_mcp.evaluation.trials import MOST_OUTPUTS, SCHEDULE, Attachment, Trial
from adaexplore_mcp.evaluation.typical import FEW, note_typical

NONE = Attachment([], None)


def trial(name, entry, weights="constructor"):
    return Trial(name, weights, NONE, Attachment([{"path": "out", **entry}], None), 0, [])


def number(value):
    return {"plain": value}


def tensor(rms, elements=1):
    return {"shape": [elements], "rms": rms}


def noted(trials, small=()):
    note_typical(trials, small=set(small))
    return [trial.expected.message[0].get("typical", 0.0) for trial in trials]


@pytest.mark.parametrize("kind", [lambda size: number(str(-size)), tensor])
def test_what_is_small_by_chance_is_usually_as_large_as_with_the_same_weights(kind):
    trials = [trial(f"{n}", kind(size)) for n, size in enumerate([9.0, 11.0, 0.001, 30.0, math.nan])]
    trials += [trial(f"random {n}", kind(size), "randomised") for n, size in enumerate([1e6, 3e6, 10.0])]
    assert noted(trials) == [10.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0, 1e6]


def test_one_trial_with_its_weights_is_held_to_what_all_have():
    trials = [trial(f"{n}", tensor(size)) for n, size in enumerate([9.0, 10.0, 11.0])]
    assert noted([*trials, trial("other seed", tensor(0.001), "other seed")]) == [10.0, 0.0, 0.0, 9.5]


def test_what_is_no_number_is_of_no_size():
    trials = [trial("a", number("None")), trial("b", number("'0.5 of it'")), trial("c", tensor(None))]
    assert noted(trials) == [0.0] * 3


def test_many_elements_are_not_small_by_chance():
    trials = [trial(f"{n}", tensor(size, FEW + 1)) for n, size in enumerate([9.0, 10.0, 0.001])]
    assert noted(trials) == [0.0] * 3


@pytest.mark.parametrize("elements", [1, 1000])
def test_what_small_inputs_give_is_held_to_its_usual_size_within_bounds(elements):
    trials = [trial(f"{n}", tensor(1.0, elements)) for n in range(3)]
    trials.append(trial("small", tensor(0.01, elements)))
    assert noted(trials, ["small"]) == [0.0, 0.0, 0.0, 1.0]
    trials[-1] = trial("small", tensor(1e-6, elements))  # a sixth power
    assert noted(trials, ["small"])[-1] == pytest.approx(1e-4)


def test_as_many_outputs_as_there_may_be_hold_up_nobody():
    outputs = [{"path": f"out[{n}]", **tensor(1.0)} for n in range(MOST_OUTPUTS)]
    trials = [
        Trial(f"{n}", "constructor", NONE, Attachment(outputs, None), n, []) for n in range(len(SCHEDULE))
    ]
    started = time.monotonic()
    note_typical(trials, small=set())
    assert time.monotonic() - started < 10  # looked up anew for each output it takes two minutes
