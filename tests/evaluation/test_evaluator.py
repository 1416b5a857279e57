"""What verdicts rest on: small tasks and candidates through the real evaluator, one behaviour each."""

import textwrap

import pytest
from court import ADD, IMPORTS, LARGE, RIGHT, add, elementwise, function, kernelbench

from adaexplore_mcp.rules import observed

pytestmark = pytest.mark.anyio

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


NAMED = function(
    "N = 96\ndef op(x):\n    return {'sum': x.sum().item(), 'twice': 2 * x, 'count': len(x)}",
    "[torch.randn(N, device=device)]",
)


@pytest.mark.parametrize(
    ("returned", "check", "word"),
    [
        ("{'twice': x + x, 'count': len(x), 'sum': float(x.double().sum())}", "", ""),
        ("{'sum': x.sum().item() + 1.0, 'twice': 2 * x, 'count': len(x)}", "values", "the reference returns"),
        ("{'sum': x.sum().item(), 'twice': 2 * x, 'count': len(x) + 1}", "values", "out['count'] is \"97\""),
        ("{'sum': 0.0, 'twice': 2 * x, 'size': len(x)}", "structure", "1 tensor and 2 other values"),
        ("[x] * 5000", "structure", "more than 4,096 values"),
        ("{'sum': 0.0, 'twice': x.to('meta'), 'count': len(x)}", "device", "meta device"),
    ],
)
async def test_containers_and_python_numbers_are_compared_as_what_they_are(court, returned, check, word):
    outcome = await court.verdict(NAMED, f"import torch\ndef op(x):\n    return {returned}\n")
    assert (outcome.status, outcome.check) == ("incorrect" if check else "correct", check)
    assert word in outcome.summary


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


async def test_programs_that_wait_for_each_other_are_run_in_turns(court):
    waiting = elementwise(
        "x + y", before="flags = torch.zeros(2, dtype=torch.int32, device=x.device)"
    ).replace(
        "    y = tl",
        "    p = tl.program_id(0)\n    if p == 0:\n        while tl.atomic_add(flags, 0) == 0:\n            pass\n"
        "    tl.atomic_xchg(flags + 1 - p, 1)\n    y = tl",
    )
    waiting = waiting.replace("def kernel(", "def kernel(flags, ").replace("](x,", "](flags, x,")
    outcome = await court.verdict(ADD, waiting)
    assert outcome.status == "correct"
    assert not outcome.facts.notes
    outcome = await court.verdict(ADD, waiting.replace("if p == 0", "if p < 2"))
    assert (outcome.status, outcome.check, outcome.error.type) == ("timeout", "deadline", "Deadlock")
    assert "2 of its 2 programs wait, in a loop, for what no program is going to write" in outcome.summary


async def test_who_reads_what_another_program_writes_is_told_how_to_wait(court):
    passing_on = elementwise("y + tl.load(z_ptr + o - BLOCK, mask=(o >= BLOCK) & (o < n), other=0.0) + x")
    outcome = await court.verdict(ADD, passing_on)
    assert (outcome.status, outcome.check) == ("incorrect", "race")
    assert "wait for it in a while loop" in outcome.next_step


async def test_host_code_may_size_its_launches_by_the_compiled_kernel(court):
    asking = elementwise(
        "x + y",
        before="compiled = kernel.warmup(x, y, torch.empty_like(x), x.numel(), BLOCK=BLOCK, grid=(1,)); "
        "compiled._init_handles(); assert 65536 // (compiled.n_regs * 32 * compiled.metadata.num_warps) > 0",
    ).replace(
        "kernel[(triton.cdiv(n, BLOCK),)](x, y, z, n, BLOCK=BLOCK)",
        "compiled[(triton.cdiv(n, BLOCK), 1, 1)](x, y, z, n, BLOCK)",
    )
    outcome = await court.verdict(ADD, asking)
    assert outcome.status == "correct"
    assert any("n_regs of the compiled kernel" in each for each in outcome.scope.not_covered)


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


@pytest.mark.parametrize(
    ("head", "line"),
    [
        pytest.param("from torch._C import _cuda_getNothing", "pass", id="a name that is imported"),
        pytest.param("", "torch._C._cuda_getNothing(0)", id="a name that is called"),
        pytest.param("x = torch.cuda._lazy_init()", "pass", id="CUDA itself, at import"),
        pytest.param("", "torch.cuda._lazy_init()", id="CUDA itself"),
    ],
)
async def test_what_is_missing_without_cuda_is_unsupported_and_teaches_nothing(court, head, line):
    outcome = await court.verdict(
        ADD, elementwise("x + y", before=line).replace(IMPORTS, f"{IMPORTS}{head}\n")
    )
    assert (outcome.status, outcome.reason) == ("unsupported", "needs_gpu"), outcome.summary
    assert " is not available without a GPU: " in outcome.summary
    assert observed(outcome) is None


@pytest.mark.parametrize(
    ("head", "line"),
    [
        pytest.param("from torch._C import _cuda_getCurrentRawStream as raw", "raw(0)", id="raw stream"),
        pytest.param("", "with torch.cuda._DeviceGuard(0): torch.cuda.set_device(0)", id="guard"),
        pytest.param("", "torch.cuda._maybe_exchange_device(torch.cuda._exchange_device(0))", id="exchange"),
        pytest.param("", "assert torch.version.cuda and torch.backends.cuda.is_built()", id="build"),
        pytest.param(
            "from torch._dynamo.device_interface import get_interface_for_device as interface",
            "interface('cuda').get_raw_stream(0)",
            id="interface",
        ),
    ],
)
async def test_what_generated_code_asks_of_a_build_with_cuda_is_answered(court, head, line):
    candidate = elementwise("x + y", before=line).replace(IMPORTS, f"{IMPORTS}{head}\n")
    assert (await court.verdict(ADD, candidate)).status == "correct"


async def test_a_backward_pass_may_name_the_device(court):
    task = function(
        "N = 96\ndef op(x):\n    return x + 1, torch.ones_like(x)", "[torch.randn(N, device=device)]"
    )
    candidate = elementwise("x + y").replace("def op(", "def added(") + textwrap.dedent("""
        class Added(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return added(x, torch.ones_like(x))

            @staticmethod
            def backward(ctx, dy):
                assert dy.is_cuda
                zeros = torch.zeros(dy.shape, dtype=dy.dtype, device="cuda")
                return added(dy, zeros.to(dy.device))

        def op(x):
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                y = Added.apply(x)
                (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
            return y.detach(), gradient
    """)
    outcome = await court.verdict(task, candidate)
    assert outcome.status == "correct", outcome.summary


@pytest.mark.parametrize(
    "made", ["torch.cuda.FloatTensor(x.shape)", "x.new(x.shape)", "torch.Tensor(x.shape).cuda()"]
)
async def test_memory_of_a_size_is_made_by_legacy_constructors(court, made):
    assert (await court.verdict(ADD, RIGHT.replace("torch.empty_like(x)", made))).status == "correct"


@pytest.mark.parametrize(
    "registered",
    [
        pytest.param(
            "@torch.library.custom_op('mine::added', mutates_args=(), device_types='cuda')\n"
            "def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n    return right(x, y)\n"
            "added.register_fake(lambda x, y: torch.empty_like(x))\n",
            id="custom_op",
        ),
        pytest.param(
            "library = torch.library.Library('mine', 'DEF')\n"
            "library.define('added(Tensor x, Tensor y) -> Tensor')\n"
            "library.impl('added', right, 'CUDA')\nadded = torch.ops.mine.added\n",
            id="Library.impl",
        ),
    ],
)
async def test_a_candidates_own_operator_may_be_for_cuda_only(court, registered):
    named = RIGHT.replace("torch.empty_like(x)", "torch.empty(n, device='cuda')")
    own = f"{named}\nright = op\n{registered}\ndef op(x, y):\n    return added(x, y)\n"
    outcome = await court.verdict(ADD, own)
    assert outcome.status == "correct", outcome.summary
    wrong = await court.verdict(ADD, own.replace("x + y", "x - y"))
    assert (wrong.status, wrong.check) == ("incorrect", "values")


async def test_a_copy_of_libdevice_is_libdevice(court):
    task = function(
        "N = 96\ndef op(x, y):\n    return x * torch.exp(y)",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    )
    copied = IMPORTS + textwrap.dedent("""
        import importlib.util
        spec = importlib.util.find_spec("triton.language.extra.libdevice")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        exp = module.exp
    """)
    outcome = await court.verdict(task, elementwise("x * exp(y)").replace(IMPORTS, copied))
    assert outcome.status == "correct", outcome.summary


async def test_memory_that_generated_code_allocates_is_looked_at_as_any_other(court):
    allocated = RIGHT.replace(
        "torch.empty_like(x)", "torch._C._dynamo.guards._empty_strided_cuda((n,), (1,), torch.float32)"
    )
    assert (await court.verdict(ADD, allocated)).status == "correct"
    unwritten = allocated.replace("mask=o < n)\n\ndef", "mask=o < n - 1)\n\ndef")
    assert (await court.verdict(ADD, unwritten)).check in {"unwritten", "nonfinite"}


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


@pytest.mark.parametrize("returned", ["out", "out, x", "2 * out", "None"])
async def test_an_input_that_changes_may_have_the_name_of_an_output(court, returned):
    task = function(
        f"N = 96\ndef op(x, out):\n    out.add_(x)\n    return {returned if returned != 'None' else 'x + 1'}",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    )
    candidate = IMPORTS + textwrap.dedent("""
        @triton.jit
        def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
            o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            y = tl.load(x_ptr + o, mask=o < n) + tl.load(out_ptr + o, mask=o < n)
            tl.store(out_ptr + o, y, mask=o < n)

        def op(x, out):
            kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)
            return RETURNED
    """).replace("RETURNED", returned if returned != "None" else "x + 1")
    assert (await court.verdict(task, candidate)).status == "correct"
    wrong = await court.verdict(task, candidate.replace("tl.load(x_ptr + o, mask=o < n) +", ""))
    assert wrong.status == "incorrect"


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


SHARES = """
    N = 40
    def op(scores, lse):
        return torch.exp(scores - lse[:, None])
"""


async def test_inputs_that_belong_together_are_altered_together(court):
    task = function(SHARES, "(lambda s: [s, s.logsumexp(1)])(torch.randn(6, N, device=device))")
    relies = IMPORTS + textwrap.dedent("""
        def op(scores, lse):
            return torch.softmax(scores, 1)
    """)
    assert (await court.verdict(task, relies)).status == "correct"
    apart = function(SHARES, "[torch.randn(6, N, device=device), 4 + torch.randn(6, device=device)]")
    assert (await court.verdict(apart, relies)).status == "incorrect"


async def test_wrong_numbers_at_altered_inputs_name_what_the_owner_can_say(court):
    # Of 96 elements drawn normally the squares add up to 192, give or take 27; times 3 to 1,728, give or take 250.
    outcome = await court.verdict(ADD, elementwise("tl.where(tl.sum((x + y) * (x + y)) > 600, 0, x + y)"))
    assert outcome.evidence.trial.startswith("inputs times 3"), outcome.evidence
    assert "`domains`" in outcome.next_step


async def test_inputs_drawn_symmetrically_are_tried_negated_without_being_asked(court):
    first_signs = elementwise(
        "x + y", before="if float(x[0]) * seen.setdefault('sign', float(x[0])) < 0: y = -y"
    )
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


async def test_a_candidate_without_weights_packed_none_of_them(court):
    candidate = IMPORTS + textwrap.dedent("""
        class ModelNew(torch.nn.Module):
            def forward(self, x):
                return torch.nn.functional.layer_norm(x, (16,))
    """)
    outcome = await court.verdict(NORM_TASK, candidate)
    assert outcome.status == "incorrect"
    assert "it holds no weights" in outcome.summary


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


async def test_a_slow_first_call_does_not_save_a_candidate_from_other_weights(court):
    slow = NORM.replace("WEIGHTS", "None").replace(
        "def forward(self, x):",
        "calls = []\n\n    def forward(self, x):\n        import time\n"
        "        self.calls or time.sleep(2.5)\n        self.calls.append(1)",
    )
    outcome = await court.verdict(NORM_TASK, slow, timeout_s=6.0)
    assert outcome.status == "incorrect"


async def test_a_reference_that_loops_until_its_values_are_right_is_a_task(court):
    task = function(
        "def op(x):\n    while bool((x > 1).any()):\n        x = torch.where(x > 1, x / 2, x)\n    return x.clone()",
        "[torch.rand(96, device=device) * 9]",
    )
    candidate = IMPORTS + textwrap.dedent("""
        @triton.jit
        def step(y_ptr, z_ptr, n, BLOCK: tl.constexpr):
            o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            y = tl.load(y_ptr + o, mask=o < n, other=0.0)
            tl.store(z_ptr + o, tl.where(y > 1, y / 2, y), mask=o < n)

        def op(x):
            y = x.clone()
            while (y > 1).any():
                y, x = torch.empty_like(y), y
                step[(triton.cdiv(y.numel(), 64),)](x, y, y.numel(), BLOCK=64)
            return y
    """)
    assert (await court.verdict(task, candidate)).status == "correct"


# --- host code that reads what kernels compute -----------------------------------------------------------

COUNTED = IMPORTS + textwrap.dedent("""
    @triton.jit
    def count(x_ptr, c_ptr, n, BLOCK: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=0.0)
        tl.store(c_ptr + tl.program_id(0), tl.sum((x > 0.5).to(tl.int32)))

    @triton.jit
    def keep(x_ptr, s_ptr, z_ptr, n, BLOCK: tl.constexpr):
        o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=0.0)
        k = (x > 0.5).to(tl.int32)
        tl.store(z_ptr + tl.load(s_ptr + tl.program_id(0)) + tl.cumsum(k, 0) - k, x, mask=x > 0.5)

    def op(x):
        programs = triton.cdiv(x.numel(), 128)
        c = torch.empty(programs, dtype=torch.int32, device=x.device)
        count[(programs,)](x, c, x.numel(), BLOCK=128)
        ends = torch.cumsum(c, 0)
        SIZE
        z = x.new_empty(size)
        if size:
            keep[(programs,)](x, ends - c, z, x.numel(), BLOCK=128)
        return z
""")


@pytest.mark.parametrize(
    "size",
    [
        "size = int(ends[-1].item())",
        "size = ends.tolist()[-1]",
        "size = int(ends.cpu().numpy()[-1])",
        "size = sum(c.tolist()); assert 0 <= size <= x.numel()",
        "size = next(i for i in range(x.numel() + 1) if i == int(ends[-1]))",
        "size = torch.empty(0).new_ones(int(c.max()) * 8).numel() and int(ends[-1])",
    ],
)
async def test_host_code_may_read_what_kernels_compute(court, size):
    task = function("def op(x):\n    return x[x > 0.5]", "[torch.rand(900, device=device)]")
    outcome = await court.verdict(task, COUNTED.replace("SIZE", size))
    assert outcome.status == "correct", outcome.summary
    assert {each.kernel for each in outcome.compiled} == {"count", "keep"}


async def test_a_kernel_that_results_of_another_lead_to_has_to_compile_too(court):
    task = function("def op(x):\n    return x[x > 0.5]", "[torch.rand(900, device=device)]")
    broken = COUNTED.replace("SIZE", "size = ends.tolist()[-1]").replace(
        "    k = (x", "    for _ in range(3):\n        break\n    k = (x"
    )
    assert (await court.verdict(task, broken)).status == "compile_error"


@pytest.mark.parametrize(
    ("after", "large"),
    [
        ("assert not torch.isnan(z).any()", "plausible"),
        ("if z.sum().item() == 0.5: raise ValueError(z.sum().item())", "unsupported"),
        ("z.sum().item()\n    assert x.numel() < 1 << 23", "unsupported"),
        ("assert x.numel() < 1 << 23", "unsupported"),
    ],
)
async def test_a_look_at_results_that_fails_without_them_is_not_held_against_a_kernel(court, after, large):
    candidate = elementwise("x + y", block=256).replace("    return z", f"    {after}\n    return z")
    assert (await court.verdict(ADD, candidate)).status == "correct"
    assert (await court.verdict(LARGE, candidate)).status == large


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("import numpy; numpy.ones(x.numel() * 64)", "MemoryError"),
        ("if x.numel() > 1 << 23: raise SystemExit(3)", "exit"),
        ("if x.numel() > 1 << 23: import os; os.abort()", "SIGABRT"),
        ("while x.numel() > 1 << 23: pass", "not done within"),
    ],
)
async def test_what_happens_at_full_size_alone_where_no_kernel_runs_is_unsupported(court, before, says):
    outcome = await court.verdict(LARGE, elementwise("x + y", block=256, before=before), timeout_s=10.0)
    assert (outcome.status, outcome.reason) == ("unsupported", "compilation_not_possible_here")
    assert says in outcome.summary


# --- tasks too large for this machine --------------------------------------------------------------------


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


ROWS = function(
    "R = 4096\nC = 16384\ndef op(x):\n    return torch.relu(x)", "[torch.randn(R, C, device=device)]"
)


def rows(grid, columns, mask=""):
    """Return a candidate for ROWS: a program per row, and columns as given."""
    return IMPORTS + textwrap.dedent(f"""
        @triton.jit
        def kernel(x_ptr, z_ptr, C, BLOCK: tl.constexpr):
            c = tl.arange(0, BLOCK)
            o = tl.program_id(0) * {"C" if mask else "BLOCK"} + c
            tl.store(z_ptr + o, tl.maximum(tl.load(x_ptr + o{mask}), 0.0){mask})

        def op(x):
            z = torch.empty_like(x)
            kernel[({grid},)](x, z, x.shape[1], BLOCK={columns})
            return z
    """)


@pytest.mark.parametrize(
    ("grid", "columns", "mask"),
    [
        ("4096", "16384", ""),
        ("x.shape[0]", "16384", ""),
        ("4096", "triton.next_power_of_2(x.shape[1])", ", mask=c < C"),
    ],
)
async def test_a_kernel_with_its_full_sizes_written_into_it_is_not_condemned_at_reduced_ones(
    court, grid, columns, mask
):
    outcome = await court.verdict(ROWS, rows(grid, columns, mask))
    assert (outcome.status, outcome.reason) == ("unsupported", "differs_at_reduced_sizes")
    assert (
        "at which 64 of its programs" in outcome.summary or "at which 66 of its programs" in outcome.summary
    )


async def test_an_access_outside_at_full_size_too_is_not_excused_by_sizes_written_into_a_kernel(court):
    outcome = await court.verdict(ROWS, rows("4096 + 1", "16384"))
    assert (outcome.status, outcome.check) == ("incorrect", "out_of_bounds")


async def test_an_access_that_follows_from_loaded_values_is_not_excused(court):
    task = function(
        "R = 4096\nC = 16384\ndef op(x, i):\n    return x[i]",
        "[torch.randn(R, C, device=device), torch.randint(0, R, (R,), device=device)]",
    )
    candidate = IMPORTS + textwrap.dedent("""
        @triton.jit
        def kernel(x_ptr, i_ptr, z_ptr, C, BLOCK: tl.constexpr):
            c = tl.arange(0, BLOCK)
            row = tl.load(i_ptr + tl.program_id(0)) * 2 + 1
            value = tl.load(x_ptr + row * C + c, mask=c < C)
            tl.store(z_ptr + tl.program_id(0) * C + c, value, mask=c < C)

        def op(x, i):
            z = torch.empty_like(x)
            kernel[(x.shape[0],)](x, i, z, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
            return z
    """)
    assert (await court.verdict(task, candidate)).check == "out_of_bounds"
    assert (await court.verdict(task, candidate.replace(" * 2 + 1", ""))).status == "plausible"


@pytest.mark.parametrize(
    ("grid", "columns"),
    [
        ("min(x.shape[0], 1024)", "triton.next_power_of_2(x.shape[1])"),
        ("x.shape[0]", "min(8192, triton.next_power_of_2(x.shape[1]))"),
    ],
)
async def test_what_is_left_out_beyond_some_extent_shows_with_one_size_at_its_own_value(court, grid, columns):
    outcome = await court.verdict(ROWS, rows(grid, columns, ", mask=c < C"), timeout_s=60.0)
    assert (outcome.status, outcome.check) == ("incorrect", "unwritten")
    assert "at reduced sizes" in outcome.summary


async def test_offsets_that_32_bits_do_not_hold_at_full_size_are_told(court):
    task = function(
        "N = 4294967296\ndef op(x, y):\n    return x + y",
        "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    )
    outcome = await court.verdict(task, elementwise("x + y", block=1024))
    assert outcome.status == "plausible"
    assert any("32 bits" in note for note in outcome.facts.notes)
    wide = elementwise("x + y", block=1024).replace("tl.program_id(0)", "tl.program_id(0).to(tl.int64)")
    assert not any("32 bits" in note for note in (await court.verdict(task, wide)).facts.notes)


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


async def test_a_wrong_formula_in_float32_is_not_called_narrow_arithmetic(court):
    outcome = await court.verdict(add(), elementwise("(x + y) * 1.001"))
    assert (outcome.status, outcome.check) == ("incorrect", "values")
    assert "all together 1.001 times what they should be" in outcome.summary
    assert "formula" in outcome.next_step


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
