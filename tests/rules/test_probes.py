"""The shipped rules, with the Triton that is installed and the processes that compile candidates."""

import sys
from pathlib import Path

import pytest

from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.rules import STARTERS
from adaexplore_mcp.rules.probes import framed
from adaexplore_mcp.services.probing import Prober

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def prober(tmp_path):
    pool = WorkerPool(Path(sys.executable), tmp_path / "scratch", 4 << 30)
    yield Prober(pool, "sm_90")
    await pool.aclose()


async def test_every_probe_does_what_is_said_of_it_and_its_frame_compiles(prober):
    triton = await prober.triton()
    assert await prober.fails_as(framed()) == ""
    for starter in STARTERS:
        if triton in (*starter.holds, *starter.compiles):
            expected = starter.key if triton in starter.holds else ""
            assert await prober.fails_as(starter.probe) == expected, starter.key


async def test_every_name_that_a_rule_lists_is_missing(prober):
    names = next(starter.names for starter in STARTERS if starter.key == "name_missing:triton.language")
    assert await prober.present(names) == set()
    assert await prober.present([*names, "arange", "math.exp"]) == {"arange", "math.exp"}


def test_at_least_fifteen_kinds_are_shipped():
    assert len({starter.key for starter in STARTERS if starter.holds}) >= 15
