"""Candidates whose numbers are right, or look so, and that deserve less; through the real evaluator."""

import textwrap

import pytest
from court import ADD, IMPORTS, LARGE, RIGHT, add, elementwise, function

pytestmark = pytest.mark.anyio

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


# --- kernels that deserve less than their numbers --------------------------------------------------------


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
        assert not any("wait for each other" in note for note in outcome.facts.notes)


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
