"""What is no task, what a task is worth, and what its owner lets vary; through the real evaluator."""

import re

import pytest
from court import ADD, RIGHT, add, function, kernelbench

from adaexplore_mcp.evaluation.task_process import TaskProcess
from adaexplore_mcp.models import Policy, SizeRange, Workload
from adaexplore_mcp.services.findings import findings

pytestmark = pytest.mark.anyio

# --- references that are no yardstick --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param("def op(x):\n    return x + torch.rand_like(x)", "random numbers", id="random"),
        pytest.param(
            "def op(x):\n    return torch.nn.functional.dropout(x.repeat(16), 0.5, True)",
            "random numbers",
            id="dropout",
        ),
        pytest.param(
            "calls = []\ndef op(x):\n    calls.append(1)\n    return x * len(calls)",
            "two calls",
            id="counts calls",
        ),
        pytest.param("def op(x):\n    raise ValueError('bad luck')", "bad luck", id="raises"),
        pytest.param("def op(x):\n    return 5", "5", id="returns a number"),
        pytest.param("def op(x):\n    return None", "None", id="returns nothing"),
        pytest.param("def op(x):\n    return 'text'", "str", id="returns text"),
        pytest.param("def op(x):\n    return []", "no tensor", id="returns an empty list"),
        pytest.param("def op(x):\n    return set([x])", "set", id="returns a set"),
        pytest.param("def other(x):\n    return x", "op", id="is missing"),
        pytest.param("op = 5", "op", id="is no function"),
        pytest.param(
            "import nowhere_to_be_found\ndef op(x):\n    return x", "nowhere_to_be_found", id="needs a module"
        ),
        pytest.param("def op(x)\n    return x", "line 2", id="is no Python"),
        pytest.param("def op(x, y):\n    return x", "y", id="takes other arguments"),
        pytest.param("import os\ndef op(x):\n    os._exit(3)", "exit code 3", id="ends its process"),
        pytest.param(
            "def op(x):\n    return torch.ones(1 << 34, device=x.device)", "MiB", id="takes too much memory"
        ),
    ],
)
async def test_what_cannot_be_a_yardstick_is_refused_with_the_reason(court, body, said):
    assert said in await court.refused(function(body, "[torch.randn(4, device=device)]"))


async def test_a_reference_that_keeps_state_in_its_module_is_refused(court):
    task = kernelbench(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(1))

            def forward(self, x):
                self.seen += 1
                return x + self.seen
        """,
        "[torch.randn(4)]",
    )
    assert "keeps state between calls" in await court.refused(task)


async def test_inputs_that_raise_blame_the_function_that_makes_them(court):
    said = await court.refused(function("def op(x):\n    return x", "[torch.randn(-1, device=device)]"))
    assert "make_inputs" in said


async def test_a_task_that_does_not_fit_in_memory_says_how_much_it_takes(court):
    fixed = function(
        "def op(x):\n    return x * 2", "[torch.zeros(int('1073741824'), device=device)]"
    )  # no constant that could be lowered
    said = await court.refused(fixed)
    assert "8192 MiB" in said
    assert "1024 MiB" in said


async def test_a_size_that_the_reference_does_not_have_is_refused_with_those_it_has(court):
    task = kernelbench(
        "N = 40\nclass Model(nn.Module):\n    def forward(self, x):\n        return x", "[torch.randn(3, N)]"
    )
    task = task.model_copy(update={"workloads": [Workload(name="a", sizes={"M": 5})]})
    said = await court.refused(task)
    assert "no constant M" in said
    assert "N" in said


# --- kernels that deserve less than their numbers --------------------------------------------------------


async def test_what_cannot_be_compared_is_no_task(court):
    task = function(
        "N = 64\ndef op(x):\n    return x.view(torch.uint4)",
        "[torch.zeros(N, dtype=torch.uint8, device=device)]",
    )
    assert "cannot" in await court.refused(task)


async def test_a_task_for_which_zeros_would_do_is_told(court):
    task = function("N = 512\ndef op(x):\n    return torch.sin(x * 1e8)", "[torch.randn(N, device=device)]")
    (plan,) = await court.examined(task)
    assert plan.zeros_pass
    (plan,) = await court.examined(ADD)
    assert plan.independent == []
    assert not any((plan.zeros_pass, plan.mean_pass, plan.narrow, plan.input_pass))


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("torch.ones_like(x) + 1e-9 * x", "mean_pass"),
        ("100 + 1e-3 * x", "narrow"),
        ("x + 1e-9 * y", "input_pass"),
    ],
)
async def test_an_output_that_hardly_needs_computing_is_told(court, expression, field):
    task = function(
        f"N = 512\ndef op(x, y):\n    return {expression}",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    )
    (plan,) = await court.examined(task)
    assert plan.model_dump()[field] == ("x" if field == "input_pass" else True)


async def test_an_output_that_is_nearly_all_one_value_is_told(court):
    source = "N = 512\ndef op(x):\n    return torch.where(torch.arange(N, device=x.device) < {kept}, x, 0.5)"
    inputs = "[torch.randn(N, device=device)]"
    task = function(source.format(kept=3), inputs)
    (plan,) = await court.examined(task)
    assert plan.same_share == 509 / 512
    (said,) = findings(task, [plan])
    assert "99.4% of the output's elements hold one and the same value" in said
    task = function(source.format(kept=100), inputs)
    (plan,) = await court.examined(task)
    assert plan.same_share == 412 / 512
    assert not list(findings(task, [plan]))


async def test_what_makes_no_difference_to_the_output_is_told(court):
    """A bias before a normalisation cancels out, up to rounding; and an input that is not read at all."""
    task = kernelbench(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 8)
                self.scale = nn.Parameter(torch.ones(8))

            def forward(self, x, unused):
                y = self.linear(x)
                return (y - y.mean(0)) * self.scale
        """,
        "[torch.randn(16, 8), torch.randn(3)]",
    )
    (plan,) = await court.examined(task)
    assert plan.independent == ["unused", "linear.bias"]


async def test_work_that_reaches_no_output_is_told(court):
    task = function(
        "N = 64\ndef op(x, w):\n    w @ x\n    return (w @ w) * x",
        "[torch.randn(N, N, device=device), torch.randn(N, N, device=device)]",
    )
    (plan,) = await court.examined(task)
    assert plan.unneeded == {"mm": 2 * 64**3}
    assert plan.flops == 4 * 64**3
    assert any("50% of the reference's FLOPs (mm) reach nothing" in each for each in findings(task, [plan]))


@pytest.mark.parametrize(
    ("expression", "transforms"),
    [
        ("x @ y", {"negated", "times 3", "times 0.01", "whole numbers"}),
        ("x + y", {"negated", "times 3", "times 0.01"}),  # no sums of products that could be exact
        ("(x @ y).argmax(0)", {"negated", "times 3", "times 0.01"}),  # among equal values any will do
    ],
)
async def test_inputs_are_scaled_and_rounded_where_they_may_be(court, expression, transforms):
    task = function(
        f"N = 32\ndef op(x, y):\n    return {expression}",
        "[torch.randn(N, N, device=device), torch.randn(N, N, device=device)]",
    )
    (plan,) = await court.examined(task)
    trials = await court.evaluator.references.trials(task, plan.workload, {})
    names = " ".join(trial.name for trial in trials.trials)
    assert {
        each for each in ("negated", "times 3", "times 0.01", "whole numbers") if each in names
    } == transforms


@pytest.mark.parametrize(
    ("expression", "one_sign", "zeros"),
    [
        ("x + 1", True, True),
        ("x.amax(0)", True, True),
        ("x.argmax(0)", True, False),  # which of several zeros it names is free
        ("x @ x", False, True),
        ("x / x.abs()", True, False),  # no number at zero
        ("(x.sum(0) + 20).log()", False, True),  # no number where all are below zero: above it is one
    ],
)
async def test_inputs_are_of_one_sign_and_zero_where_the_reference_takes_it(
    court, expression, one_sign, zeros
):
    task = function(f"N = 32\ndef op(x):\n    return {expression}", "[torch.randn(N, N, device=device)]")
    (plan,) = await court.examined(task)
    names = [
        trial.name for trial in (await court.evaluator.references.trials(task, plan.workload, {})).trials
    ]
    assert ("inputs all below zero" in names) == one_sign
    assert ("inputs times 0.01, some of them zero" in names) == zeros
    assert ("inputs times 0.01" in names) != zeros


async def test_what_only_an_input_that_changes_needs_does_matter(court):
    task = function(
        "N = 64\ndef op(x, y, w):\n    x.add_(y)\n    return w * 2",
        "[torch.randn(N, device=device) for _ in range(3)]",
    )
    (plan,) = await court.examined(task)
    assert plan.independent == []


async def test_what_does_not_matter_is_found_out_once(court, monkeypatch):
    task = function(
        "N = 64\ndef op(x, w):\n    return x + 0 * w",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    )
    (plan,) = await court.examined(task)
    assert plan.independent == ["w"]
    asked = []
    ask = TaskProcess.ask
    monkeypatch.setattr(
        TaskProcess, "ask", lambda self, op, **fields: (asked.append(op), ask(self, op, **fields))[1]
    )
    references = court.evaluator.references
    first = await references.trials(task, plan.workload, {})
    first.spent = True
    second = await references.trials(task, plan.workload, {})
    assert second is not first
    assert second.independent == ["w"]
    assert "trial" in asked
    assert "dependence" not in asked


async def test_a_task_under_another_policy_has_the_same_trials_and_an_audit_of_its_own(court):
    task = function("N = 512\ndef op(x):\n    return 1e-3 * x", "[torch.randn(N, device=device)]")
    wide = task.model_copy(update={"policy": Policy(precision="paper")})
    (plan,), (other,) = [await court.examined(each) for each in (task, wide)]
    one, same = [await court.evaluator.references.trials(each, plan.workload, {}) for each in (task, wide)]
    assert one is same
    assert (plan.zeros_pass, other.zeros_pass) == (False, True)


async def test_an_input_that_never_varies_is_told(court):
    task = function(
        "N = 64\ndef op(x, w):\n    return x * w",
        "[torch.randn(N, device=device), torch.ones(N, device=device)]",
    )
    (plan,) = await court.examined(task)
    assert plan.fixed == ["w"]


# --- hidden workloads ------------------------------------------------------------------------------------


RANGE = {"N": SizeRange(min=65, max=200, multiple_of=5)}


async def test_a_candidate_that_is_right_everywhere_passes_hidden_workloads_that_are_not_told(court):
    evaluation = await court.evaluation(add(vary=RANGE), RIGHT)
    outcome = evaluation.outcome
    assert outcome.status == "correct", outcome.summary
    assert outcome.scope.workloads == {
        "default": "own sizes",
        "(hidden 1)": "sizes that are not told",
        "(hidden 2)": "sizes that are not told",
    }
    assert "N=" not in outcome.summary


async def test_a_candidate_that_is_right_at_the_announced_size_alone_is_told_at_which_it_is_not(court):
    task = add(vary=RANGE)
    special = RIGHT.replace(
        "z = torch.empty_like(x)", "z = torch.empty_like(x) if n == 96 else torch.ones_like(x)"
    )
    special = special.replace("kernel[(", "if n == 96: kernel[(")
    outcome = await court.verdict(task, special)
    assert outcome.status == "incorrect"
    size = int(re.search(r"This is at N=(\d+), a hidden workload", outcome.summary)[1])
    assert 65 <= size <= 200
    assert size % 5 == 0
    assert not court.evaluator.references.known_hidden(task)  # now that they are known, others are drawn


async def test_a_range_at_which_the_reference_fails_is_refused_at_registration(court):
    task = function(
        "N = 96\ndef op(x):\n    assert x.numel() == 96, 'only 96'\n    return x * 2",
        "[torch.randn(N, device=device)]",
        vary={"N": SizeRange(min=10, max=20)},
    )
    said = await court.refused(task)
    assert "At N=1" in said or "At N=20" in said
    assert "which vary allows" in said
    assert "only 96" in said


async def test_hidden_sizes_that_a_right_candidate_told_of_are_drawn_anew(court):
    task = add(vary={"N": SizeRange(min=70, max=900)})
    told = RIGHT.replace("n = x.numel()", "n = x.numel(); print('n is', n)")
    evaluation = await court.evaluation(task, told)
    assert evaluation.outcome.status == "correct"
    assert not court.evaluator.references.known_hidden(task)
    silent = await court.evaluation(task, RIGHT)
    assert court.evaluator.references.known_hidden(task)
    hidden = [seeds["edits"] for name, seeds in silent.receipt["workloads"].items() if "hidden" in name]
    assert hidden == [{}, {}]


async def test_inputs_that_belong_together_are_no_reason_to_refuse_a_task(court):
    task = function(
        """
        def op(x, start, stop):
            assert int(stop - start) == 10, "start and stop disagree"
            return x * start
        """,
        "window(device)",
    )
    text = task.files["task.py"] + (
        "\ndef window(device):\n    at = torch.randint(1, 1 << 30, (), device=device)\n"
        "    return [torch.randn(96, device=device), at, at + 10]\n"
    )
    (plan,) = await court.examined(task.model_copy(update={"files": {"task.py": text}}))
    assert plan.independent == []


async def test_an_output_that_the_reference_returns_on_the_cpu_may_be_there(court):
    body = "def op(x):\n    return x * 2, torch.tensor([3.0])"
    task = function(f"N = 96\n{body}", "[torch.randn(N, device=device)]")
    outcome = await court.verdict(task, f"import torch\n{body}\n")
    assert outcome.status == "correct", outcome.summary
