"""Kinds 36 to 38: no cheat, and still a wrong number, a wrong baseline, or right at one shape alone.

36 (a weak, swapped or drifted baseline) and 37 (overhead in the timed region, a wrong counter) stand in
test_while_it_is_timed.py.
"""

import pytest
from attacks import adding, attack, honest
from court import RIGHT, function

pytestmark = pytest.mark.anyio

INPUTS = "[torch.randn(N, device=device), torch.randn(N, device=device)]"
ADDITION = "N = 96\ndef op(x, y):\n    return x + y"
SIZES = function(ADDITION, INPUTS, workloads={"one": {"N": 96}, "other": {"N": 130}})
VARIED = function(ADDITION, INPUTS, vary={"N": {"min": 100, "max": 900, "multiple_of": 1}})

TABLE = adding("return {96: right}[x.numel()](x, y)")
FIXED_GRID = RIGHT.replace("triton.cdiv(n, BLOCK)", "2")
NO_MASK_BUT_AT_96 = adding(
    "if x.numel() == 96: return right(x, y)\nz = torch.zeros_like(x)\nz[: x.numel() // 64 * 64] = right(x, y)[: x.numel() // 64 * 64]\nreturn z"
)
FULL_BLOCKS = RIGHT.replace("triton.cdiv(n, BLOCK)", "n // BLOCK")

ATTACKS = [
    attack("38 a grid for one workload", FIXED_GRID, "incorrect/unwritten", task=SIZES, word="never written"),
    attack(
        "38 a grid for what is announced",
        FIXED_GRID,
        "incorrect/unwritten",
        task=VARIED,
        word="hidden workload",
    ),
    attack("38 a case for what is announced", TABLE, "runtime_error", task=VARIED, word="hidden workload"),
    attack(
        "38 right at what is announced, and cut off elsewhere",
        NO_MASK_BUT_AT_96,
        "incorrect/values",
        task=VARIED,
        word="hidden workload",
    ),
    attack(
        "38 results of the first workload in the second",
        adding(
            "if not kept: kept.append(right(x, y))\nreturn kept[0]",
            before="kept = []\n",
        ),
        "rejected/stale_output",
        task=SIZES,
    ),
    attack("38 full blocks alone", FULL_BLOCKS, "incorrect/unwritten", task=SIZES),
]

HONEST = [
    honest("38 right at every size", RIGHT, task=SIZES),
    honest("38 right at sizes that nobody told it", RIGHT, task=VARIED),
    honest(
        "38 full blocks alone, where sizes vary by them",
        FULL_BLOCKS,
        task=function(
            ADDITION.replace("96", "128"), INPUTS, vary={"N": {"min": 64, "max": 640, "multiple_of": 64}}
        ),
    ),
]


@pytest.mark.parametrize(("task", "candidate", "found"), ATTACKS)
async def test_what_is_right_at_the_announced_shape_alone_is_found(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(("task", "candidate", "found"), HONEST)
async def test_what_is_right_at_every_shape_passes(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))
