"""What an evaluation did when."""

import time

from adaexplore_mcp.evaluation.timeline import MOST, Timeline


def test_every_stage_lasts_until_the_next_and_the_last_until_now():
    said = []
    timeline = Timeline(said.append)
    timeline.begin("compiling")
    time.sleep(0.02)
    timeline.begin("running")
    time.sleep(0.01)
    first, second = timeline.to_wire()
    assert said == ["compiling", "running"]
    assert (first["stage"], second["stage"]) == ("compiling", "running")
    assert first["seconds"] >= 0.02
    assert abs(first["at"] + first["seconds"] - second["at"]) < 0.001
    assert second["seconds"] >= 0.01


def test_a_stage_goes_on_after_others():
    timeline = Timeline(lambda _: None)
    timeline.begin("running")
    goes_on = timeline.mark()
    timeline.begin("making way")
    timeline.begin("waiting")
    goes_on()
    assert [each["stage"] for each in timeline.to_wire()] == ["running", "making way", "waiting", "running"]


def test_stages_without_end_are_cut():
    timeline = Timeline(lambda _: None)
    for number in range(2 * MOST):
        timeline.begin(str(number))
    assert len(timeline.to_wire()) == MOST
