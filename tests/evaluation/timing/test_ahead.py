"""What baselines choose from is compiled before a GPU is taken."""

import os

import pytest
from contenders import Bench, side

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.compilation import Built, Compilation, CompileReport
from adaexplore_mcp.evaluation.definition import Plan
from adaexplore_mcp.evaluation.memfiles import empty_file
from adaexplore_mcp.evaluation.timing import ahead
from adaexplore_mcp.evaluation.timing.ahead import built_ahead
from adaexplore_mcp.evaluation.timing.baselines import Contender
from adaexplore_mcp.evaluation.timing.rounds import CANDIDATE
from adaexplore_mcp.models import Policy, Workload

pytestmark = pytest.mark.anyio

PLAN = Plan(workload=Workload(name="default"))
BUILT = CompileReport(tuned={"k": [True, False]})


def contender(name, *, tunes):
    return Contender(name, Candidate(name.encode(), "kernelbench", "ModelNew", Policy()), tunes=tunes)


async def test_those_that_tune_kernels_of_triton_are_compiled_and_let_go_in_the_end(monkeypatch):
    world = []

    class Fake(Compilation):
        def __init__(self, _, candidate, **given):
            self.name = candidate.source.decode()
            assert given["jobs"] == 3
            assert given["launchers"]

        async def at(self, plan):
            assert plan is PLAN
            world.append(("compiled", self.name))
            return Built(BUILT, empty_file())

        async def close(self):
            world.append(("closed", self.name))

    monkeypatch.setattr(ahead, "Compilation", Fake)
    baselines = [
        contender("eager", tunes=False),
        contender("max_autotune", tunes=True),
        contender("node:a", tunes=True),
        contender("node:b", tunes=False),
        contender("own", tunes=True),
    ]
    given = {"target": {"name": "NVIDIA H200"}, "timeout_s": 5, "jobs": 3, "report": str}
    async with built_ahead(None, baselines, PLAN, **given) as found:
        assert list(found) == ["node:a", "own"]
        files = [file for each in found.values() for file in each.files]
        assert [os.fstat(file).st_size for file in files] == [0, 0]
    assert world == [("compiled", "node:a"), ("compiled", "own"), ("closed", "own"), ("closed", "node:a")]
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


async def test_each_process_is_given_what_was_compiled_for_it(monkeypatch):
    bench = Bench(monkeypatch, side(), side("eager"), side("node:a"))
    await bench.times(
        built={CANDIDATE: Built(CompileReport(tuned={"c": [True]}), 7), "node:a": Built(BUILT, 8)}
    )
    assert {name: each.load["tuned"] for name, each in bench.settings.items()} == {
        CANDIDATE: {"c": [True]}, "eager": {}, "node:a": {"k": [True, False]},
    }  # fmt: skip
    assert {name: each.files for name, each in bench.settings.items()} == {
        CANDIDATE: [7], "eager": [], "node:a": [8],
    }  # fmt: skip
