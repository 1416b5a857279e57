"""What verdicts rest on: small tasks and candidates through the real evaluator, one behaviour each."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.models import Policy, SizeRange, Workload

pytestmark = pytest.mark.anyio

MEMORY_BYTES = 1 << 30
IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"


class Court:
    """One evaluator, and the plans of the tasks it has seen."""

    def __init__(self, scratch):
        self.pool = WorkerPool(Path(sys.executable), scratch, MEMORY_BYTES)
        self.evaluator = Evaluator(self.pool, "sm_90", MEMORY_BYTES)
        self.plans = {}

    async def examined(self, task):
        if task.digest not in self.plans:
            self.plans[task.digest] = await self.evaluator.examine(task, str)
        return self.plans[task.digest]

    async def evaluation(self, task, candidate, *, target=None, timeout_s=30.0):
        return await self.evaluator.verify(
            task,
            await self.examined(task),
            candidate.encode(),
            task_id="task_x",
            target=target,
            timeout_s=timeout_s,
            report=str,
        )

    async def verdict(self, task, candidate, **options):
        return (await self.evaluation(task, candidate, **options)).outcome

    async def refused(self, task):
        """Return what is said of a reference that is none."""
        with pytest.raises(TaskError) as caught:
            await self.evaluator.examine(task, str)
        return str(caught.value)


@pytest.fixture(scope="module")
async def court(tmp_path_factory):
    court = Court(tmp_path_factory.mktemp("evaluator") / "scratch")
    yield court
    await court.evaluator.aclose()


def function(body, inputs, entry="op", **fields):
    """Return a task of the function format; `body` defines the entry, `inputs` is what make_inputs returns."""
    source = (
        f"import torch\n{textwrap.dedent(body)}\n\ndef make_inputs(workload, device, seed):\n"
        f"    torch.manual_seed(seed)\n    return {inputs}\n"
    )
    fields["policy"] = Policy(**fields.pop("policy", {}))
    fields["workloads"] = [
        Workload(name=name, sizes=sizes) for name, sizes in fields.pop("workloads", {}).items()
    ]
    return Definition(format="function", files={"task.py": source}, entry=entry, **fields)


def kernelbench(model, inputs, init="[]", **fields):
    """Return a task of the kernelbench format; `model` is the text of class Model, and constants before it."""
    source = (
        f"import torch\nfrom torch import nn\n{textwrap.dedent(model)}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {init}\n"
    )
    fields["policy"] = Policy(**fields.pop("policy", {}))
    return Definition(format="kernelbench", files={"task.py": source}, entry="Model", **fields)


def elementwise(expression, *, before="", block=64, mask=", mask=o < n", grid="triton.cdiv(n, BLOCK)"):
    """Return a candidate `op(x, y)` whose kernel computes an expression of x and y, element by element."""
    other = f"{mask}, other=0.0" if mask else ""
    return IMPORTS + textwrap.dedent(f"""
        BLOCK = {block}

        @triton.jit
        def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
            o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + o{other})
            y = tl.load(y_ptr + o{other})
            tl.store(z_ptr + o, {expression}{mask})

        def op(x, y):
            {before or "pass"}
            n = x.numel()
            z = torch.empty_like(x)
            kernel[({grid},)](x, y, z, n, BLOCK=BLOCK)
            return z
    """)


def add(**fields):
    return function(
        "N = 96\ndef op(x, y):\n    return x + y",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
        **fields,
    )


ADD = add()
RIGHT = elementwise("x + y")


# --- one test per status ---------------------------------------------------------------------------------


async def test_a_right_function_is_correct_and_says_what_that_rests_on(court):
    evaluation = await court.evaluation(ADD, RIGHT)
    outcome = evaluation.outcome
    assert (outcome.status, outcome.stage, outcome.check) == ("correct", "done", "")
    assert outcome.evidence.precision_class in {"exact", "fp32"}
    assert outcome.compiled[0].kernel == "kernel"
    assert outcome.compiled[0].registers > 0
    assert outcome.facts.launches == {"kernel": 1}
    assert outcome.scope.workloads == {"default": "own sizes"}
    assert outcome.scope.target == "sm_90"
    assert outcome.scope.calls >= 6
    assert evaluation.receipt["task"] == ADD.digest
    assert set(evaluation.receipt["workloads"]["default"]["inputs"]) >= {"first inputs", "other values"}


async def test_a_right_module_is_correct(court):
    task = kernelbench(
        "N = 40\nclass Model(nn.Module):\n    def forward(self, x, y):\n        return x + y",
        "[torch.randn(3, N), torch.randn(3, N)]",
    )
    candidate = (
        RIGHT + "\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return op(x, y)\n"
    )
    assert (await court.verdict(task, candidate)).status == "correct"


async def test_wrong_numbers_are_incorrect_with_the_worst_element(court):
    outcome = await court.verdict(ADD, elementwise("tl.where(o == 70, x - y, x + y)"))
    assert (outcome.status, outcome.check, outcome.stage) == ("incorrect", "values", "compare")
    assert outcome.evidence.index == [70]
    assert outcome.evidence.outside_share == pytest.approx(1 / 96)
    assert outcome.evidence.got != outcome.evidence.expected
    assert outcome.evidence.zeros_would_pass is False


@pytest.mark.parametrize(
    ("candidate", "check"),
    [
        pytest.param(
            elementwise("x + y") + "\nright = op\ndef op(x, y):\n    return right(x, y).half()\n", "dtype"
        ),
        pytest.param(
            elementwise("x + y") + "\nright = op\ndef op(x, y):\n    return right(x, y)[None]\n", "shape"
        ),
        pytest.param(
            elementwise("x + y") + "\nright = op\ndef op(x, y):\n    return right(x, y), x\n", "structure"
        ),
        pytest.param(
            elementwise("x + y") + "\nright = op\ndef op(x, y):\n    return right(x, y).cpu()\n", "device"
        ),
        pytest.param(elementwise("x + y", grid="n // BLOCK"), "unwritten"),
        pytest.param(elementwise("x / (o != 5).to(tl.float32) + y"), "nonfinite"),
        pytest.param(elementwise("x + y", mask=""), "out_of_bounds"),
        pytest.param(elementwise("x + y").replace("z = torch", "x += 0.5; z = torch"), "input_mutated"),
    ],
)
async def test_each_check_that_fails_is_named(court, candidate, check):
    outcome = await court.verdict(ADD, candidate)
    assert (outcome.status, outcome.check) == ("incorrect", check)


async def test_what_triton_does_not_know_is_a_compile_error_at_the_line_of_the_candidate(court):
    broken = elementwise("x + y").replace(
        "    y = tl.load", "    for _ in range(3):\n        break\n    y = tl.load"
    )
    outcome = await court.verdict(ADD, broken)
    assert (outcome.status, outcome.stage) == ("compile_error", "compile")
    assert outcome.error.line == broken.splitlines().index("        break") + 1
    assert outcome.error.kernel == "kernel"


async def test_what_is_no_python_is_a_compile_error_at_its_line(court):
    outcome = await court.verdict(ADD, "x = 1\ny = = 2\n")
    assert (outcome.status, outcome.stage, outcome.error.line) == ("compile_error", "load", 2)


async def test_a_candidate_without_the_entry_names_what_it_defines(court):
    outcome = await court.verdict(ADD, RIGHT.replace("def op", "def opp"))
    assert outcome.status == "compile_error"
    assert "op" in outcome.error.message
    assert "opp" in outcome.error.message


async def test_an_exception_is_a_runtime_error_at_its_line(court):
    raising = elementwise("x + y", before="raise ValueError('no such luck')")
    outcome = await court.verdict(ADD, raising)
    assert (outcome.status, outcome.error.type) == ("runtime_error", "ValueError")
    assert "no such luck" in outcome.error.message
    assert "raise ValueError" in raising.splitlines()[outcome.error.line - 1]


@pytest.mark.parametrize("limit_s", [1.0, 2.0])
async def test_the_time_limit_of_the_call_is_the_one_that_ends_it(court, limit_s):
    outcome = await court.verdict(ADD, elementwise("x + y", before="while True: pass"), timeout_s=limit_s)
    assert (outcome.status, outcome.check) == ("timeout", "deadline")
    assert f"within {limit_s:g} s" in outcome.summary


async def test_a_kernel_that_never_ends_is_a_timeout(court):
    endless = elementwise("x + y").replace("    y = tl", "    while n > 0:\n        x += 0.0\n    y = tl")
    assert (await court.verdict(ADD, endless, timeout_s=2.0)).status == "timeout"


async def test_too_much_memory_is_out_of_memory(court):
    outcome = await court.verdict(ADD, elementwise("x + y", before="torch.ones(1 << 32)"))
    assert (outcome.status, outcome.check) == ("out_of_memory", "memory")


async def test_a_process_that_ends_crashed(court):
    outcome = await court.verdict(ADD, elementwise("x + y", before="__import__('os').abort()"))
    assert (outcome.status, outcome.error.type) == ("crashed", "SIGABRT")


async def test_replacing_what_a_harness_compares_with_is_rejected(court):
    outcome = await court.verdict(ADD, RIGHT + "\ntorch.allclose = lambda *_, **__: True\n")
    assert (outcome.status, outcome.check) == ("rejected", "patched")
    assert "torch.allclose" in outcome.summary


async def test_what_only_a_gpu_can_do_is_unsupported(court):
    outcome = await court.verdict(ADD, elementwise("x + y", before="torch.cuda.CUDAGraph()"))
    assert (outcome.status, outcome.reason) == ("unsupported", "needs_gpu")


# --- workloads -------------------------------------------------------------------------------------------


async def test_sizes_of_a_workload_reach_the_reference_and_the_candidate(court):
    task = add(workloads={"short": {"N": 10}, "long": {"N": 200}})
    fixed = RIGHT.replace("BLOCK = 64", "BLOCK = 64\nN = 96").replace("n = x.numel()", "n = N")
    outcome = await court.verdict(task, fixed)
    assert outcome.status == "correct"
    assert list(outcome.scope.workloads) == ["short", "long"]


async def test_the_workload_that_fails_is_named(court):
    task = add(workloads={"even": {"N": 128}, "odd": {"N": 100}, "last": {"N": 64}})
    outcome = await court.verdict(task, elementwise("x + y", grid="n // BLOCK"))
    assert outcome.status == "incorrect"
    assert outcome.evidence.workload == "odd"


async def test_the_workload_is_handed_to_make_inputs(court):
    task = function(
        "def op(x, y):\n    return x + y",
        "[torch.randn(workload['rows'], device=device), torch.randn(workload['rows'], device=device)]",
        workloads={"a": {"rows": 7}},
    )
    assert (await court.examined(task))[0].inputs[0].shape == [7]
    assert (await court.verdict(task, RIGHT)).status == "correct"


# --- inputs: changes, domains ----------------------------------------------------------------------------

RESIDUAL = """
    N = 80

    def op(x, residual):
        residual.add_(x)
        return torch.relu(residual)
"""
RESIDUAL_INPUTS = "[torch.randn(N, device=device), torch.randn(N, device=device)]"
RESIDUAL_KERNEL = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x_ptr, residual_ptr, z_ptr, n, BLOCK: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        r = tl.load(x_ptr + o, mask=o < n, other=0.0) + tl.load(residual_ptr + o, mask=o < n, other=0.0)
        tl.store(residual_ptr + o, r, mask=o < n)
        tl.store(z_ptr + o, tl.maximum(r, 0.0), mask=o < n)

    def op(x, residual):
        z = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 32),)](x, residual, z, x.numel(), BLOCK=32)
        return z
""")


@pytest.mark.parametrize("declared", [["residual"], []])
async def test_an_input_that_the_reference_changes_must_be_changed(court, declared):
    task = function(RESIDUAL, RESIDUAL_INPUTS, mutates=declared)
    assert (await court.examined(task))[0].mutates == ["residual"]
    assert (await court.verdict(task, RESIDUAL_KERNEL)).status == "correct"
    leaves_it = RESIDUAL_KERNEL.replace("    tl.store(residual_ptr + o, r, mask=o < n)\n", "")
    outcome = await court.verdict(task, leaves_it)
    assert (outcome.status, outcome.evidence.output) == ("incorrect", "residual")


async def test_a_reference_that_changes_more_than_it_declares_is_refused(court):
    task = function(
        "N = 8\ndef op(x, residual):\n    x.mul_(2)\n    residual.add_(x)\n    return x + residual",
        RESIDUAL_INPUTS,
        mutates=["residual"],
    )
    said = await court.refused(task)
    assert "x in place" in said
    assert "mutates=['residual', 'x']" in said


GATHER = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(ids_ptr, table_ptr, z_ptr, width, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        column = tl.arange(0, BLOCK)
        i = tl.load(ids_ptr + row)
        value = tl.load(table_ptr + i * width + column, mask=column < width, other=0.0)
        tl.store(z_ptr + row * width + column, value, mask=column < width)

    def op(ids, table):
        z = torch.empty(ids.numel(), table.shape[1], device=table.device)
        kernel[(ids.numel(),)](ids, table, z, table.shape[1], BLOCK=16)
        return z
""")


async def test_an_index_input_is_redrawn_within_its_domain(court):
    task = function(
        "ROWS = 12\ndef op(ids, table):\n    return table[ids]",
        "[torch.zeros(9, dtype=torch.long, device=device), torch.randn(ROWS, 10, device=device)]",
        domains={"ids": "index(12)"},
    )
    assert (await court.verdict(task, GATHER)).status == "correct"
    fixed = GATHER.replace("i = tl.load(ids_ptr + row)", "i = 0")
    # Its make_inputs draws zeros alone; index(N) never goes above the largest value drawn.
    assert (await court.verdict(task, fixed)).status == "correct"
    varied = function(
        "ROWS = 12\ndef op(ids, table):\n    return table[ids]",
        "[torch.arange(9, device=device) + 3, torch.randn(ROWS, 10, device=device)]",
        domains={"ids": "index(12)"},
    )
    outcome = await court.verdict(varied, GATHER.replace("i = tl.load(ids_ptr + row)", "i = row + 3"))
    assert outcome.status == "incorrect"
    assert outcome.evidence.trial.startswith("inputs redrawn within their domains")


@pytest.mark.parametrize(("domain", "status"), [("nonnegative", "correct"), ("normal", "runtime_error")])
async def test_inputs_are_negated_only_where_their_domain_allows_it(court, domain, status):
    task = function(
        "N = 40\ndef op(x, y):\n    return x + y",
        "[torch.rand(N, device=device), torch.rand(N, device=device)]",
        domains={"x": domain},
    )
    careful = elementwise("x + y", before="assert not torch.is_tensor(x) or not (x < 0).any()")
    assert (await court.verdict(task, careful)).status == status


async def test_inputs_drawn_symmetrically_are_tried_negated_without_being_asked(court):
    first_signs = elementwise("x + y", before="if x[0] * seen.setdefault('sign', x[0]) < 0: y = -y")
    outcome = await court.verdict(ADD, "seen = {}\n" + first_signs)
    assert outcome.status == "incorrect"


# --- weights ---------------------------------------------------------------------------------------------

LINEAR = """
    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, 8)

        def forward(self, x):
            return self.linear(x)
"""
LINEAR_TASK = kernelbench(LINEAR, "[torch.randn(4, 16)]", "[16]")


async def test_both_sides_draw_the_same_weights(court):
    candidate = IMPORTS + textwrap.dedent("""
        class ModelNew(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                self.other_name = torch.nn.Linear(width, 8)

            def forward(self, x):
                return self.other_name(x)
    """)
    outcome = await court.verdict(LINEAR_TASK, candidate)
    assert outcome.status == "correct"
    assert any("no tensor named" in note for note in outcome.facts.notes)


async def test_weights_packed_at_construction_are_accepted_and_told(court):
    candidate = IMPORTS + textwrap.dedent("""
        class ModelNew(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                self.linear = torch.nn.Linear(width, 8)
                packed = self.linear.weight.detach().t().contiguous()
                self.register_buffer("packed", packed, persistent=False)

            def forward(self, x):
                return x @ self.packed + self.linear.bias
    """)
    outcome = await court.verdict(LINEAR_TASK, candidate)
    assert outcome.status == "correct"
    assert any("bound at construction" in note for note in outcome.facts.notes)


NORM_TASK = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            return self.norm(x)
    """,
    "[torch.randn(4, 16)]",
)
NORM = IMPORTS + textwrap.dedent("""
    class ModelNew(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x):
            return torch.nn.functional.layer_norm(x, (16,), WEIGHTS)
""")


async def test_a_norm_that_uses_its_weights_is_right(court):
    right = NORM.replace("WEIGHTS", "self.norm.weight, self.norm.bias")
    assert (await court.verdict(NORM_TASK, right)).status == "correct"


@pytest.mark.parametrize(
    "weights",
    [
        pytest.param("None", id="left out"),
        pytest.param("self.norm.weight, self.norm.weight - 1", id="mistaken for another"),
        pytest.param("self.norm.weight.detach() * 0 + 1, self.norm.bias", id="replaced by ones"),
    ],
)
async def test_a_weight_that_begins_as_ones_must_be_used(court, weights):
    outcome = await court.verdict(NORM_TASK, NORM.replace("WEIGHTS", weights))
    assert outcome.status == "incorrect"
    assert outcome.evidence.trial.startswith("random weights")


async def test_weights_of_another_name_are_told_where_the_numbers_differ_too(court):
    candidate = IMPORTS + textwrap.dedent("""
        class ModelNew(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                self.before = torch.randn(3)
                self.w = torch.nn.Parameter(torch.randn(8, width) / width**0.5)
                self.b = torch.nn.Parameter(torch.zeros(8))

            def forward(self, x):
                return torch.nn.functional.linear(x, self.w, self.b)
    """)
    outcome = await court.verdict(LINEAR_TASK, candidate)
    assert outcome.status == "incorrect"
    assert any("no tensor named and shaped like" in note for note in outcome.facts.notes)


async def test_a_weight_that_begins_as_ones_cannot_be_loaded_under_another_name_and_that_is_told(court):
    renamed = NORM.replace(
        "self.norm = torch.nn.LayerNorm(16)",
        "self.gamma, self.beta = (torch.nn.Parameter(value(16)) for value in (torch.ones, torch.zeros))",
    ).replace("WEIGHTS", "self.gamma, self.beta")
    outcome = await court.verdict(NORM_TASK, renamed)
    assert outcome.status == "correct"
    assert any(
        "no tensor named and shaped like norm.weight, norm.bias" in note for note in outcome.facts.notes
    )


MASK_WRONG = IMPORTS + textwrap.dedent("""
    @triton.jit
    def subtract_mean(x_ptr, n, BLOCK: tl.constexpr):
        row = tl.program_id(0) * n
        total = 0.0
        for start in range(0, n, BLOCK):
            o = start + tl.arange(0, BLOCK)
            total += tl.sum(tl.load(x_ptr + row + o, mask=o < n - START, other=0.0))
        for start in range(0, n, BLOCK):
            o = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row + o, mask=o < n - START, other=0.0)
            tl.store(x_ptr + row + o, x - total / n, mask=o < n - START)

    class ModelNew(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(256)

        def forward(self, x):
            y = self.norm(x)
            subtract_mean[(y.shape[0],)](y, y.shape[1], BLOCK=64)
            return y
""")


@pytest.mark.parametrize(("start", "status"), [("0", "correct"), ("start", "incorrect")])
async def test_a_fault_that_ones_and_zeros_hide_shows_with_other_weights(court, start, status):
    task = kernelbench(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.LayerNorm(256)

            def forward(self, x):
                y = self.norm(x)
                return y - y.mean(dim=1, keepdim=True)
        """,
        "[torch.randn(64, 256)]",
        policy={"precision": "paper"},
    )
    assert (await court.verdict(task, MASK_WRONG.replace("START", start))).status == status


async def test_tied_parameters_stay_tied(court):
    tied = """
        class MODEL(nn.Module):
            def __init__(self):
                super().__init__()
                self.encode = nn.Linear(12, 12, bias=False)
                self.decode = nn.Linear(12, 12, bias=False)
                self.decode.weight = self.encode.weight

            def forward(self, x):
                return self.decode(torch.relu(self.encode(x)))
    """
    task = kernelbench(tied.replace("MODEL", "Model"), "[torch.randn(4, 12)]")
    assert (await court.examined(task))[0].parameters == 144
    candidate = "import torch\nfrom torch import nn\n" + textwrap.dedent(tied.replace("MODEL", "ModelNew"))
    assert (await court.verdict(task, candidate)).status == "correct"
    wrong = candidate.replace("self.decode(torch", "self.encode(torch")
    assert (await court.verdict(task, wrong)).status == "correct"  # the same weight by another name


# --- tasks too large for this machine --------------------------------------------------------------------

LARGE = function(
    "N = 16777216\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)


async def test_a_large_task_is_judged_at_reduced_sizes_and_compiled_at_its_own(court):
    (plan,) = await court.examined(LARGE)
    assert plan.reduced
    outcome = await court.verdict(LARGE, elementwise("x + y", block=256))
    assert outcome.status == "plausible"
    assert outcome.scope.workloads["default"].startswith("reduced: N=")
    assert "16777216" not in outcome.scope.workloads["default"]


async def test_a_difference_at_reduced_sizes_only_is_unsupported(court):
    # Right for whole blocks of four million elements, as the task has them.
    outcome = await court.verdict(LARGE, elementwise("tl.where(n % 4194304 == 0, x + y, x - y)", block=4096))
    assert (outcome.status, outcome.reason) == ("unsupported", "differs_at_reduced_sizes")
    assert outcome.evidence.index


async def test_an_exception_at_reduced_sizes_only_is_unsupported(court):
    outcome = await court.verdict(
        LARGE, elementwise("x + y", block=4096, before="assert x.numel() % 4194304 == 0")
    )
    assert (outcome.status, outcome.reason) == ("unsupported", "fails_at_reduced_sizes")
    assert outcome.error.type == "AssertionError"


async def test_an_exception_at_full_size_too_is_a_runtime_error(court):
    outcome = await court.verdict(LARGE, elementwise("x + y", block=256, before="assert x.numel() < 0"))
    assert outcome.status == "runtime_error"


async def test_an_access_outside_of_memory_is_incorrect_at_any_size(court):
    outcome = await court.verdict(LARGE, elementwise("x + y + tl.load(y_ptr + n + o)", block=256))
    assert (outcome.status, outcome.check) == ("incorrect", "out_of_bounds")


async def test_an_access_that_runs_from_one_input_into_the_next_is_out_of_bounds(court):
    task = function(
        "N = 1024\ndef op(x, y):\n    return x + y",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    )
    outcome = await court.verdict(task, elementwise("x + tl.load(x_ptr + n + o)", block=256))
    assert (outcome.status, outcome.check) == ("incorrect", "out_of_bounds")


WHOLE_BLOCKS = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x_ptr, y_ptr, z_ptr, columns, BLOCK: tl.constexpr):
        o = tl.program_id(0) * columns + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z_ptr + o, tl.load(x_ptr + o) + tl.load(y_ptr + o))

    def op(x, y):
        z = torch.empty_like(x)
        kernel[(x.shape[0], x.shape[1] // 512)](x, y, z, x.shape[1], BLOCK=512)
        return z
""")


async def test_a_kernel_made_for_whole_blocks_passes_at_a_second_look_and_that_is_told(court):
    task = function(
        "R = 2048\nC = 4096\ndef op(x, y):\n    return x + y",
        "[torch.randn(R, C, device=device), torch.randn(R, C, device=device)]",
    )
    (plan,) = await court.examined(task)
    assert plan.lowered()["C"] < 512 <= plan.lowered(plan.aligned)["C"]
    outcome = await court.verdict(task, WHOLE_BLOCKS)
    assert outcome.status == "plausible"
    assert any("fails at smaller sizes" in note for note in outcome.facts.notes)


# --- precision -------------------------------------------------------------------------------------------

MATMUL = """
    N = 32

    def op(x, y):
        return x @ y
"""
MATMUL_INPUTS = "[torch.randn(N, N, device=device), torch.randn(N, N, device=device)]"
DOT = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr, PRECISION: tl.constexpr):
        i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        z = tl.dot(tl.load(x_ptr + i * N + j), tl.load(y_ptr + i * N + j), input_precision=PRECISION)
        tl.store(z_ptr + i * N + j, z)

    def op(x, y):
        z = torch.empty_like(x)
        kernel[(1,)](x, y, z, N=x.shape[0], PRECISION="tf32")
        return z
""")


@pytest.mark.parametrize(
    ("precision", "status", "check"), [("match", "incorrect", "precision_class"), ("relaxed", "correct", "")]
)
async def test_tf32_is_for_tasks_that_ask_for_less_than_float32(court, precision, status, check):
    task = function(MATMUL, MATMUL_INPUTS, policy={"precision": precision})
    outcome = await court.verdict(task, DOT)
    assert (outcome.status, outcome.check) == (status, check)
    assert outcome.evidence.precision_class == "tf32"
    exact = await court.verdict(task, DOT.replace('"tf32"', '"ieee"'))
    assert exact.status == "correct"
    assert exact.evidence.precision_class in {"fp32", "exact"}


@pytest.mark.parametrize(
    ("policy", "passes", "fails"),
    [
        pytest.param({"precision": "match"}, "x + y", "(x + y) * 1.00001", id="match"),
        pytest.param({"precision": "kernelbench"}, "(x + y) * 1.00005", "(x + y) * 1.001", id="kernelbench"),
        pytest.param({"precision": "paper"}, "(x + y) * 1.02", "(x + y) * 1.3", id="paper"),
        pytest.param({"precision": "custom", "atol": 0.5}, "x + y + 0.4", "x + y + 0.6", id="custom atol"),
        pytest.param(
            {"precision": "custom", "rtol": 0.2}, "(x + y) * 1.1", "(x + y) * 1.3", id="custom rtol"
        ),
        pytest.param(
            {"precision": "custom", "atol": 0.1, "max_outlier_share": 0.05},
            "tl.where(o == 7, 9.0, x + y)",
            "tl.where(o < 7, 9.0, x + y)",
            id="custom outliers",
        ),
    ],
)
async def test_how_far_off_is_wrong_is_the_policy_of_the_task(court, policy, passes, fails):
    task = add(policy=policy)
    assert (await court.verdict(task, elementwise(passes))).status == "correct"
    outcome = await court.verdict(task, elementwise(fails))
    assert outcome.status == "incorrect"


# --- library operators -----------------------------------------------------------------------------------

BY_TORCH = "import torch\ndef op(x, y):\n    return torch.add(x, y)\n"


async def test_a_task_that_forbids_library_operators_rejects_torch_and_takes_a_kernel(court):
    task = add(policy={"library_ops": "forbid"})
    outcome = await court.verdict(task, BY_TORCH)
    assert (outcome.status, outcome.check) == ("rejected", "library_ops")
    assert (await court.verdict(task, RIGHT)).status == "correct"


async def test_otherwise_work_done_by_torch_is_told(court):
    outcome = await court.verdict(ADD, BY_TORCH)
    assert outcome.status == "correct"
    assert any("No kernel of its own" in note for note in outcome.facts.notes)
    outcome = await court.verdict(function(MATMUL, MATMUL_INPUTS), "def op(x, y):\n    return x @ y\n")
    assert outcome.facts.library_flops_share == 1.0


# --- autotuners ------------------------------------------------------------------------------------------

TUNED = IMPORTS + textwrap.dedent("""
    @triton.autotune(configs=[CONFIGS], key=["n"]RESET)
    @triton.jit
    def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr, WRONG: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=0.0)
        y = tl.load(y_ptr + o, mask=o < n, other=0.0)
        STORE

    def op(x, y):
        z = torch.zeros_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, z, x.numel())
        return z
""")
PLAIN_STORE = "tl.store(z_ptr + o, x + y + WRONG, mask=o < n)"
ATOMIC_STORE = "tl.atomic_add(z_ptr + o, x + y, mask=o < n)"


def tuned(*configurations, store=PLAIN_STORE, reset=""):
    listed = ", ".join(
        f'triton.Config({{"BLOCK": {block}, "WRONG": {wrong}}})' for block, wrong in configurations
    )
    return TUNED.replace("CONFIGS", listed).replace("RESET", reset).replace("STORE", store)


async def test_every_configuration_of_an_autotuner_is_checked(court):
    outcome = await court.verdict(ADD, tuned((32, 0), (64, 0)))
    assert outcome.status == "correct"
    assert outcome.facts.autotuned == {"kernel": 2}
    assert outcome.facts.configurations_checked >= 1
    outcome = await court.verdict(ADD, tuned((32, 0), (64, 1)))
    assert outcome.status == "incorrect"
    assert "configuration 2 of 2" in outcome.evidence.trial


async def test_an_accumulating_kernel_that_is_tuned_without_a_reset_is_found(court):
    outcome = await court.verdict(ADD, tuned((32, 0), (64, 0), store=ATOMIC_STORE))
    assert outcome.status == "incorrect"
    right = tuned((32, 0), (64, 0), store=ATOMIC_STORE, reset=', reset_to_zero=["z_ptr"]')
    assert (await court.verdict(ADD, right)).status == "correct"


# --- work that is not done when it is asked for ----------------------------------------------------------

AFTER = RIGHT + "\nright = op\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            "kept = {}\ndef op(x, y):\n    return kept.setdefault(x.shape, right(x, y))\n",
            {("rejected", "stale_output")},
            id="an output kept by shape",
        ),
        pytest.param(
            "kept = {}\ndef op(x, y):\n"
            "    key = x.data_ptr()\n    if key not in kept: kept[key] = right(x, y)\n    return kept[key].clone()\n",
            {("rejected", "stale_output")},
            id="an output kept by address",
        ),
        pytest.param(
            "buffer = []\ndef op(x, y):\n    z = right(x, y)\n    buffer[:] = buffer or [torch.empty_like(z)]\n"
            "    buffer[0].copy_(z)\n    return buffer[0]\n",
            {("incorrect", "output_overwritten")},
            id="one buffer for all calls",
        ),
        pytest.param(
            "class Lazy(torch.Tensor):\n    @classmethod\n"
            "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
            "        return right(*args[0].both)\n"
            "def op(x, y):\n    z = torch.empty_like(x).as_subclass(Lazy)\n    z.both = x, y\n    return z\n",
            {("rejected", "output_type")},
            id="computed when it is looked at",
        ),
        pytest.param(
            "import threading, time\ndef op(x, y):\n    z = torch.empty_like(x)\n"
            "    threading.Thread(target=lambda: (time.sleep(0.3), z.copy_(x + y)), daemon=True).start()\n    return z\n",
            {("incorrect", "unwritten"), ("incorrect", "nonfinite"), ("incorrect", "values")},
            id="computed by a thread later",
        ),
        pytest.param(
            "calls = []\ndef op(x, y):\n    calls.append(1)\n    return right(x, y) if len(calls) < 3 else x.clone()\n",
            {("incorrect", "values")},
            id="right at first only",
        ),
    ],
)
async def test_what_does_not_do_the_work_in_every_call_is_found(court, source, expected):
    outcome = await court.verdict(ADD, AFTER + source)
    assert (outcome.status, outcome.check) in expected


async def test_an_input_returned_in_place_of_a_new_tensor_is_rejected(court):
    task = function("N = 30\ndef op(x):\n    return x.clone()", "[torch.randn(N, device=device)]")
    outcome = await court.verdict(task, "def op(x):\n    return x\n")
    assert (outcome.status, outcome.check) == ("rejected", "output_aliases_input")


async def test_a_view_of_an_input_is_right_where_the_reference_returns_one(court):
    task = function("N = 30\ndef op(x):\n    return x.view(5, 6)", "[torch.randn(N, device=device)]")
    outcome = await court.verdict(task, "def op(x):\n    return x.view(5, 6)\n")
    assert outcome.status == "correct"


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


# --- targets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"])
async def test_a_candidate_is_compiled_for_the_target_that_was_asked_for(court, target):
    outcome = await court.verdict(ADD, RIGHT, target=target)
    assert outcome.status == "correct"
    assert outcome.scope.target == target
    assert target in outcome.summary


STAGES = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x_ptr, y_ptr, z_ptr, K, N: tl.constexpr, BLOCK: tl.constexpr):
        i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        k = tl.arange(0, BLOCK)
        z = tl.zeros((N, N), dtype=tl.float32)
        for start in range(0, K, BLOCK):
            x = tl.load(x_ptr + i * K + start + k[None, :])
            y = tl.load(y_ptr + (start + k)[:, None] * N + j)
            z += tl.dot(x, y)
        tl.store(z_ptr + i * N + j, z.to(tl.float16))

    def op(x, y):
        z = torch.empty_like(x)
        kernel[(1,)](x, y, z, x.shape[1], N=x.shape[0], BLOCK=64, num_stages=5)
        return z
""")


async def test_shared_memory_that_one_gpu_has_and_another_has_not(court):
    task = function(
        "N = 128\ndef op(x, y):\n    return x @ y",
        "[torch.randn(N, N, device=device).half(), torch.randn(N, N, device=device).half()]",
    )
    fits = await court.verdict(task, STAGES, target="sm_90")
    assert fits.status == "correct"
    assert fits.compiled[0].shared_bytes > 101_376  # what a block may use on sm_86
    outcome = await court.verdict(task, STAGES, target="sm_86")
    assert (outcome.status, outcome.check) == ("compile_error", "resources")
    assert "sm_86" in outcome.summary
    assert "shared memory" in outcome.error.message


# --- kernels that deserve less than their numbers -----------------------------------------------------------

TWO_KERNELS = IMPORTS + textwrap.dedent("""
    @triton.jit
    def compiles(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=0.0) + tl.load(y_ptr + o, mask=o < n, other=0.0)
        tl.store(z_ptr + o, x, mask=o < n)

    @triton.jit
    def does_not(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=0.0) + tl.load(y_ptr + o, mask=o < n, other=0.0)
        tl.store(z_ptr + o, x * {"one": 1.0}["one"], mask=o < n)

    def op(x, y):
        z = torch.zeros_like(x)
        CHOICE
        return z
""")


@pytest.mark.parametrize(
    ("choice", "status"),
    [
        pytest.param(
            "try: does_not[(2,)](x, y, z, 96, BLOCK=64)\n    except Exception: pass",
            "compile_error",
            id="caught",
        ),
        pytest.param(
            "(does_not if __import__('os').environ.get('TRITON_INTERPRET') else compiles)[(2,)](x, y, z, 96, BLOCK=64)",
            "unsupported",
            id="another one where nothing is computed",
        ),
        pytest.param(
            "(does_not if float(x.abs().max()) > 0 else compiles)[(2,)](x, y, z, 96, BLOCK=64)",
            "compile_error",
            id="chosen by values",
        ),
        pytest.param(
            "(compiles if float(x.abs().max()) > 0 else does_not)[(2,)](x, y, z, 96, BLOCK=64)",
            "correct",
            id="chosen by values, rightly",
        ),
    ],
)
async def test_every_kernel_that_ran_must_compile(court, choice, status):
    outcome = await court.verdict(ADD, TWO_KERNELS.replace("CHOICE", choice))
    assert outcome.status == status, outcome.summary


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "return x + y if __import__('os').environ.get('TRITON_INTERPRET') else z", id="interpreter only"
        ),
        pytest.param(
            "t = threading.Thread(target=lambda: torch.add(x, y, out=z))\n    t.start()\n    t.join()\n    return z",
            id="in a thread",
        ),
    ],
)
async def test_a_task_that_forbids_library_operators_sees_them_wherever_they_run(court, body):
    task = add(policy={"library_ops": "forbid"})
    candidate = "import threading\n" + TWO_KERNELS.replace(
        "CHOICE\n    return z", f"compiles[(2,)](x, y, z, 96, BLOCK=64)\n    {body}"
    )
    outcome = await court.verdict(task, candidate)
    assert (outcome.status, outcome.check) == ("rejected", "library_ops"), outcome.summary


async def test_a_slow_first_call_does_not_save_a_candidate_from_other_weights(court):
    slow = NORM.replace("WEIGHTS", "None").replace(
        "def forward(self, x):",
        "calls = []\n\n    def forward(self, x):\n        import time\n"
        "        self.calls or time.sleep(2.5)\n        self.calls.append(1)",
    )
    outcome = await court.verdict(NORM_TASK, slow, timeout_s=6.0)
    assert outcome.status == "incorrect"


async def test_a_ring_of_output_buffers_is_found_at_the_end(court):
    ring = elementwise("x + y").replace("z = torch.empty_like(x)", "z = ring.pop(0); ring.append(z)")
    assert "ring.pop" in ring
    candidate = ring.replace(
        "BLOCK = 64", "BLOCK = 64\nring = [torch.zeros(96, device='cuda') for _ in range(5)]", 1
    )
    outcome = await court.verdict(ADD, candidate)
    assert outcome.check == "output_overwritten", outcome.summary


SCAN = function("N = 96\ndef op(x):\n    return x.cumsum(0)", "[torch.randn(N, device=device)]")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(
            "tl.atomic_add(total, 0.0)\n    s = tl.load(total) + tl.load(x + i)\n    tl.store(total, s)",
            "incorrect",
            id="a running sum",
        ),
        pytest.param(
            "v = tl.load(x + i)\n    s = tl.atomic_add(total, v) + v", "incorrect", id="one of atomics"
        ),
        pytest.param(
            "o = tl.arange(0, 128)\n    s = tl.sum(tl.load(x + o, mask=o <= i, other=0.0))",
            "correct",
            id="none",
        ),
        pytest.param(
            "while tl.atomic_add(turn, 0) != i:\n        pass\n    s = tl.load(total) + tl.load(x + i)\n"
            "    tl.store(total, s)\n    tl.debug_barrier()\n    tl.atomic_add(turn, 1)",
            "correct",
            id="by turns",
        ),
    ],
)
async def test_no_result_may_rest_on_the_order_of_programs(court, body, status):
    candidate = IMPORTS + textwrap.dedent(f"""
        @triton.jit
        def scan(x, y, total, turn):
            i = tl.program_id(0)
            {textwrap.indent(body, "        ").strip()}
            tl.store(y + i, s)

        def op(x):
            y = torch.empty_like(x)
            scan[(x.numel(),)](x, y, torch.zeros(1, device=x.device), torch.zeros(1, dtype=torch.int32, device=x.device))
            return y
    """)
    outcome = await court.verdict(SCAN, candidate)
    assert outcome.status == status, outcome.summary
    if "turn, 0" in body:
        assert any("wait for each other" in note for note in outcome.facts.notes)


async def test_a_part_that_is_small_beside_the_rest_must_be_right_too(court):
    task = function(
        "N = 64\ndef op(x, s):\n    return x * s[:, None]",
        "[torch.randn(N, N, device=device), torch.logspace(-6, 6, N, device=device)]",
    )
    lost = "def op(x, s):\n    y = x * s[:, None]\n    y[:16] = 0\n    return y\n"
    outcome = await court.verdict(task, lost)
    assert outcome.status == "incorrect"
    assert "slices along dimension 0 are lost" in outcome.evidence.detail
    assert (await court.verdict(task, lost.replace("y[:16] = 0", "pass"))).status == "correct"


async def test_complex_outputs_are_compared(court):
    task = function(
        "N = 64\ndef op(x):\n    return torch.conj(x) * 2",
        "[torch.randn(N, dtype=torch.complex64, device=device)]",
    )
    assert (await court.verdict(task, "def op(x):\n    return 2 * x.conj()\n")).status == "correct"
    assert (await court.verdict(task, "def op(x):\n    return 2 * x\n")).status == "incorrect"


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


@pytest.mark.parametrize(
    ("choice", "status", "reason"),
    [
        pytest.param("compiles", "plausible", "", id="one kernel"),
        pytest.param(
            "(compiles if n > 1 << 23 else other)",
            "unsupported",
            "differs_at_reduced_sizes",
            id="another one",
        ),
        pytest.param(
            "compiles if n < 1 << 23 else 1 / 0", "unsupported", "compilation_not_possible_here", id="raises"
        ),
    ],
)
async def test_what_a_candidate_does_at_full_size_only_is_not_vouched_for(court, choice, status, reason):
    candidate = TWO_KERNELS.replace("def does_not", "def other").replace(' * {"one": 1.0}["one"]', "")
    candidate = candidate.replace(
        "CHOICE",
        f"n = x.numel()\n    chosen = {choice}\n    chosen[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)",
    )
    outcome = await court.verdict(LARGE, candidate)
    assert (outcome.status, outcome.reason) == (status, reason), outcome.summary


async def test_a_way_round_for_what_needs_a_gpu_is_not_vouched_for(court):
    candidate = TWO_KERNELS.replace(
        "CHOICE",
        "try:\n        torch.cuda.CUDAGraph()\n    except Exception:\n        compiles[(2,)](x, y, z, 96, BLOCK=64)",
    )
    outcome = await court.verdict(ADD, candidate)
    assert (outcome.status, outcome.reason) == ("unsupported", "needs_gpu"), outcome.summary


async def test_a_full_disk_is_nobodys_fault(court):
    full = "import errno\ndef op(x, y):\n    raise RuntimeError('in') from OSError(errno.ENOSPC, 'No space left on device')\n"
    outcome = await court.verdict(ADD, full)
    assert (outcome.status, outcome.reason) == ("unsupported", "disk_full")


async def test_a_kernel_right_with_zeros_in_undefined_lanes_is_accepted_and_told(court):
    candidate = RIGHT.replace(", other=0.0", "").replace("x + y, mask", "tl.sum(x) * 0 + x + y, mask")
    assert "tl.sum" in candidate
    outcome = await court.verdict(ADD, candidate)
    assert outcome.status == "correct", outcome.summary
    assert any("leaves undefined" in note for note in outcome.facts.notes)


@pytest.mark.parametrize(
    ("dtype", "wrong"), [("bfloat16", "y * 96 / 97"), ("float16", "y * 1.0015"), ("float8_e4m3fn", "y * 0.8")]
)
async def test_a_factor_that_hides_in_the_rounding_of_single_elements_is_found(court, dtype, wrong):
    task = function(
        f"N = 4096\ndef op(x):\n    return (x.float() * 3).to(torch.{dtype})",
        f"[torch.randn(N, device=device).to(torch.{dtype})]",
    )
    candidate = "import torch\ndef op(x):\n    y = x.float() * 3\n    return (WRONG).to(x.dtype)\n"
    assert (await court.verdict(task, candidate.replace("WRONG", "y"))).status == "correct"
    outcome = await court.verdict(task, candidate.replace("WRONG", wrong))
    assert outcome.status == "incorrect"
    assert "wrong factor" in outcome.evidence.detail


async def test_an_input_that_never_varies_is_told(court):
    task = function(
        "N = 64\ndef op(x, w):\n    return x * w",
        "[torch.randn(N, device=device), torch.ones(N, device=device)]",
    )
    (plan,) = await court.examined(task)
    assert plan.fixed == ["w"]


async def test_a_call_that_launches_nothing_returns_a_cached_result(court):
    cached = elementwise(
        "x + y", before="key = float(x.sum())\n            if key in seen: return seen[key].clone()"
    )
    cached = cached.replace("return z", "seen[key] = z\n    return z")
    outcome = await court.verdict(ADD, "seen = {}\n" + cached)
    assert (outcome.status, outcome.check) == ("rejected", "stale_output"), outcome.summary


TILED = function(
    "N = 8192\ndef op(a, b):\n    return a @ b",
    "[torch.randn(N, N, device=device), torch.randn(N, N, device=device)]",
)


@pytest.mark.parametrize(
    ("row", "status"),
    [("tl.program_id(0)", "plausible"), ("tl.program_id(1)", "incorrect"), ("0", "incorrect")],
)
async def test_the_place_of_a_program_counts_on_tasks_that_are_judged_at_small_sizes_too(court, row, status):
    candidate = IMPORTS + textwrap.dedent(f"""
        @triton.jit
        def matmul(a, b, c, n, B: tl.constexpr, K: tl.constexpr):
            i = {row} * B + tl.arange(0, B)
            j = tl.program_id(1) * B + tl.arange(0, B)
            total = tl.zeros((B, B), tl.float32)
            for start in range(0, n, K):
                k = start + tl.arange(0, K)
                x = tl.load(a + i[:, None] * n + k, mask=(i[:, None] < n) & (k < n), other=0.0)
                y = tl.load(b + k[:, None] * n + j, mask=(k[:, None] < n) & (j < n), other=0.0)
                total = tl.dot(x, y, total, input_precision="ieee")
            tl.store(c + i[:, None] * n + j, total, mask=(i[:, None] < n) & (j < n))

        def op(a, b):
            c = torch.zeros_like(a)
            grid = triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 64)
            matmul[grid](a, b, c, a.shape[0], B=64, K=64)
            return c
    """)
    outcome = await court.verdict(TILED, candidate)
    assert outcome.status == status, outcome.summary


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
    assert task.digest not in court.evaluator._hidden  # now that they are known, others are drawn


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
    assert task.digest not in court.evaluator._hidden
    silent = await court.evaluation(task, RIGHT)
    assert task.digest in court.evaluator._hidden
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
