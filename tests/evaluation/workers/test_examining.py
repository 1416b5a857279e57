"""Drafts of synthetic tasks that registration would remark on, under some draws of their values if not under all."""

import warnings

import pytest

from adaexplore_mcp.evaluation.workers.examining import examined
from adaexplore_mcp.evaluation.workers.judge import Judge
from adaexplore_mcp.evaluation.workers.spaces import HOST

NO_DIFFERENCE = "does not depend on an input or a parameter"


def draft(forward, inputs, module=""):
    """A task in the form in which they are drawn."""
    lines = "\n        ".join(forward)
    return f"""
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {module or "pass"}

    def forward(self, {", ".join("xyzuv"[: len(inputs)])}):
        {lines}
        return x


def get_inputs():
    return [{", ".join(inputs)}]


def get_init_inputs():
    return []
"""


def problem(folder, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return examined(draft(*arguments), folder, "sm_90", Judge(HOST))


def test_a_task_that_is_worth_solving_draws_no_remark(tmp_path):
    forward = ["x = self.linear(x)", "x = F.gelu(x)", "x = torch.cumsum(x, -1)"]
    assert problem(tmp_path, forward, ["torch.randn(33, 17)"], "self.linear = nn.Linear(17, 9)") == ""


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        pytest.param(
            ["x = torch.amax(torch.maximum(x, y))"],
            ["torch.randn(50, 70)", "torch.randn(50, 1)"],
            id="a maximum",
        ),
        pytest.param(
            ["x = F.normalize(F.prelu(x, y), dim=2)", "x = F.cosine_similarity(x, z)"],
            [f"torch.randn({size}, dtype=torch.bfloat16)" for size in ("1, 257, 1", "257", "1, 257, 1")],
            id="a sign",
        ),
        pytest.param(
            [
                "x = torch.cummin(torch.trapz(torch.diff(x, n=2), dim=1), 0)[0]",
                "x = torch.logsumexp(x, 0, keepdim=True)",
            ],
            ["torch.randn(5, 13, dtype=torch.bfloat16)"],
            id="a sum that one element decides",
        ),
        pytest.param(
            ["x = torch.kthvalue(torch.fmin(x.reshape(-1), y), 2000)[0]"],
            ["torch.randn(9, 500)", "torch.randn(1)"],
            id="a median",
        ),
    ],
)
def test_what_chance_decides_is_found_by_many_draws(tmp_path, forward, inputs):
    assert problem(tmp_path, forward, inputs) == NO_DIFFERENCE


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        pytest.param(["x = torch.cumprod(F.softmax(x, -1), -1)"], ["torch.randn(4097)"], id="died out"),
        pytest.param(
            ["x = torch.cummin(torch.diagflat(torch.exp(x)), -1)[0]"],
            ["torch.randn(99)"],
            id="one of a diagonal",
        ),
        pytest.param(["x = F.pad(torch.exp(x), (200, 200))"], ["torch.randn(7, 3)"], id="padding"),
    ],
)
def test_an_output_that_is_nearly_all_one_value_is_turned_down(tmp_path, forward, inputs):
    assert problem(tmp_path, forward, inputs).startswith("nearly all of the output is")


def test_one_value_that_differs_between_draws_is_one_value_all_the_same(tmp_path):
    forward = ["x = F.pad(torch.exp(x), (2000, 2000)) + torch.mean(x)"]
    assert problem(tmp_path, forward, ["torch.randn(7, 3)"]) == "nearly all of the output is one value"


def test_a_diagonal_of_33_rows_stays_a_task(tmp_path):
    assert problem(tmp_path, ["x = torch.diagflat(torch.exp(x))"], ["torch.randn(33)"]) == ""


def test_what_is_not_finite_under_a_trial_of_the_judge_is_turned_down(tmp_path):
    forward = ["x = torch.square(torch.square(torch.square(x)))"]
    inputs = ["torch.randn(64, dtype=torch.float16)"]
    assert problem(tmp_path, forward, inputs) == "not finite with other values"
