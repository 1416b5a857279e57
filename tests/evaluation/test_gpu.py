"""Verdicts on a real GPU: each kind once, and whatever a candidate does, the next verdict is right and soon."""

import math
import sys
import textwrap
import time
from pathlib import Path

import pytest

from adaexplore_mcp.errors import RequestError, TaskError
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import find, usage
from adaexplore_mcp.evaluation.evaluator import Evaluator, Race
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.timing.baselines import baseline
from adaexplore_mcp.models import Policy

GPUS = find(())
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no GPU"),
]

MEMORY_BYTES = 4 << 30
N = 100_000
IMPORTS = "import os, signal, ctypes, time\nimport torch\nfrom torch import nn\nimport triton\nimport triton.language as tl\n"


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


class Court:
    """One evaluator with all GPUs, and the plans of the tasks it has seen."""

    def __init__(self, folder):
        locks = {gpu.uuid: DeviceLock(gpu, folder / "locks") for gpu in GPUS}
        self.pool = WorkerPool(Path(sys.executable), folder / "scratch", MEMORY_BYTES, gpus=GPUS)
        self.evaluator = Evaluator(self.pool, "sm_90", MEMORY_BYTES, Devices(GPUS, locks), jobs=4)
        self.plans = {}

    async def evaluation(self, task, candidate, *, timeout_s=30.0, **options):
        if task.digest not in self.plans:
            self.plans[task.digest] = await self.evaluator.examine(task, str)
        return await self.evaluator.verify(
            task,
            self.plans[task.digest],
            (IMPORTS + textwrap.dedent(candidate)).encode(),
            task_id="task_x",
            timeout_s=timeout_s,
            report=str,
            **options,
        )

    async def verdict(self, candidate, task=None, **options):
        return (await self.evaluation(task or AFFINE, candidate, **options)).outcome

    async def goes_on(self, within_s=3.0):
        """Judge an honest candidate, and see that nothing is left on the GPU but what waits for the next."""
        started = time.monotonic()
        assert (await self.verdict(RIGHT)).status == "correct"
        assert time.monotonic() - started < within_s


@pytest.fixture(scope="module")
async def court(tmp_path_factory):
    court = Court(tmp_path_factory.mktemp("gpu"))
    assert (await court.verdict(RIGHT)).status == "correct"
    yield court
    await court.evaluator.aclose()


def task(model, inputs, **fields):
    source = (
        f"import torch\nfrom torch import nn\n{textwrap.dedent(model)}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    fields["policy"] = Policy(**fields.pop("policy", {}))
    return Definition(format="kernelbench", files={"task.py": source}, entry="Model", **fields)


AFFINE = task(
    "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2 + 1", f"[torch.randn({N})]"
)
MATMUL_MODEL = "class Model(nn.Module):\n    def forward(self, a, b):\n        return a @ b"
MATMUL_INPUTS = "[torch.randn(512, 512), torch.randn(512, 512)]"


def affine(
    body="tl.store(y_ptr + o, x * 2 + 1, mask=m)",
    *,
    load="tl.load(x_ptr + o, mask=m)",
    before="pass",
    after="pass",
):
    return textwrap.dedent(f"""
        @triton.jit
        def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
            o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            m = o < n
            x = {load}
            {body}

        class ModelNew(nn.Module):
            def forward(self, x):
                {before}
                y = torch.empty_like(x)
                kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
                {after}
                return y
    """)


RIGHT = affine()


# --- what it says ----------------------------------------------------------------------------------------


async def test_a_right_kernel_is_correct_on_the_gpu_at_its_own_sizes(court):
    evaluation = await court.evaluation(AFFINE, RIGHT)
    outcome, receipt = evaluation.outcome, evaluation.receipt
    assert outcome.status == "correct"
    assert GPUS[0].name in outcome.summary
    assert GPUS[0].name in outcome.scope.numerics
    assert outcome.scope.workloads == {"default": "own sizes"}
    assert outcome.facts.launches == {"kernel": 1}
    assert outcome.compiled[0].registers > 0
    assert receipt["device"]["uuid"] == GPUS[0].uuid
    assert receipt["device"]["used"]
    assert receipt["device"]["free_bytes"] > 0
    stages = [each["stage"] for each in receipt["timeline"]]
    assert stages[0].startswith("compiling for sm_")
    assert stages.index("waiting for the GPU") < stages.index("importing the candidate")
    ends = [each["at"] + each["seconds"] for each in receipt["timeline"]]
    assert math.isclose(ends[-1], outcome.seconds["total"], abs_tol=0.1)


async def test_what_was_compiled_ahead_is_not_compiled_again_on_the_gpu(court):
    """On the GPU the candidate's cache holds all that a launch needs: kernel, metadata and launcher."""
    count = "sum(len(files) for _, _, files in os.walk(os.environ['TRITON_CACHE_DIR']))"
    outcome = await court.verdict(
        affine(
            before=f"real = 'stand-in' not in torch.cuda.get_device_name(); had = {count}",
            after=f"assert not real or 0 < had == {count}, (had, {count})",
        )
    )
    assert outcome.status == "correct", outcome.summary


async def test_what_does_not_compile_never_reaches_the_gpu(court):
    evaluation = await court.evaluation(AFFINE, affine("tl.store(y_ptr + o, tl.tanh(x), mask=m)"))
    assert evaluation.outcome.status == "compile_error"
    assert evaluation.receipt["device"]["used"] is False


async def test_a_target_or_the_device_cpu_is_judged_without_the_gpu(court):
    for options in ({"device": "cpu"}, {"target": "sm_80"}):
        outcome = await court.verdict(RIGHT, **options)
        assert outcome.status == "correct", outcome.summary
        assert "interpreter" in outcome.scope.numerics


async def test_a_device_that_is_not_there_is_named_with_those_that_are(court):
    with pytest.raises(RequestError, match=r"cuda:77.*cuda:0"):
        await court.verdict(RIGHT, device="cuda:77")


# --- wrong numbers ---------------------------------------------------------------------------------------

TAIL = RIGHT.replace("triton.cdiv(x.numel(), 1024)", "x.numel() // 1024")


@pytest.mark.parametrize(
    ("candidate", "check"),
    [
        (affine("tl.store(y_ptr + o, x * 2, mask=m)"), "values"),
        (TAIL, "unwritten"),
        (affine("tl.store(y_ptr + o, (x * 2 + 1).to(tl.float16), mask=m)", after="y = y.half()"), "dtype"),
        (affine(after="y = x.mul_(2).add_(1)"), "input_mutated"),
        # The lane behind the end reads what lies behind the input: a guard of NaN.
        (affine(load="tl.load(x_ptr + o) + 0 * tl.load(x_ptr + o + 1)"), "nonfinite"),
    ],
    ids=["factor", "tail", "dtype", "in place", "read beyond the end"],
)
async def test_wrong_numbers_are_incorrect_by_the_right_check(court, candidate, check):
    outcome = await court.verdict(candidate)
    assert (outcome.status, outcome.check) == ("incorrect", check), outcome.summary


async def test_a_cached_result_is_rejected(court):
    cached = affine(
        before="kept = self.__dict__.setdefault('kept', {}); at = x.data_ptr()",
        after="y = kept.setdefault(at, y)",
    )
    outcome = await court.verdict(cached)
    assert outcome.status in {"rejected", "incorrect"}, outcome.summary


async def test_an_autotuner_that_adds_up_is_seen_while_it_tunes(court):
    candidate = """
        @triton.autotune([triton.Config({"BLOCK": b}) for b in (256, 512, 1024)], key=["n"])
        @triton.jit
        def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
            o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + o, mask=o < n, other=0.0)))

        class ModelNew(nn.Module):
            def forward(self, x):
                y = torch.zeros(1, device=x.device)
                total[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
                return y
    """
    reference = task(
        "class Model(nn.Module):\n    def forward(self, x):\n        return x.sum().reshape(1)",
        "[torch.rand(5000)]",
    )
    outcome = await court.verdict(candidate, reference)
    assert outcome.status == "incorrect", outcome.summary
    good = candidate.replace('key=["n"]', 'key=["n"], reset_to_zero=["y_ptr"]')
    outcome = await court.verdict(good, reference)
    assert outcome.status == "correct", outcome.summary
    assert outcome.facts.configurations_checked == 2


MATMUL = """
    @triton.jit
    def product(a, b, c, K: tl.constexpr, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        j = tl.program_id(1) * B + tl.arange(0, B)
        total = tl.zeros((B, B), tl.float32)
        for start in range(0, K, B):
            k = start + tl.arange(0, B)
            total += tl.dot(tl.load(a + i[:, None] * K + k), tl.load(b + k[:, None] * K + j), input_precision="PRECISION")
        tl.store(c + i[:, None] * K + j, total)

    class ModelNew(nn.Module):
        def forward(self, a, b):
            c = torch.empty_like(a)
            product[(8, 8)](a, b, c, 512, 64)
            return c
"""


@pytest.mark.parametrize(
    ("precision", "policy", "status"),
    [("ieee", "match", "correct"), ("tf32", "match", "incorrect"), ("tf32", "relaxed", "correct")],
)
async def test_tf32_is_told_from_float32(court, precision, policy, status):
    reference = task(MATMUL_MODEL, MATMUL_INPUTS, policy={"precision": policy})
    outcome = await court.verdict(MATMUL.replace("PRECISION", precision), reference)
    assert outcome.status == status, outcome.summary
    if status == "incorrect":
        assert outcome.check == "precision_class"


LINEAR = task(
    "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(64, 64)\n\n"
    "    def forward(self, x):\n        return self.linear(x)",
    "[torch.randn(32, 64)]",
)


async def test_other_weights_reach_a_candidate_and_what_it_does_to_them_reaches_nobody_else(court):
    right = """
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(64, 64)

            def forward(self, x):
                return self.linear(x)
    """
    spoils = (
        right
        + """
            def state_dict(self, *arguments, **keywords):
                import sys
                state = sys._getframe(1).f_locals.get("state")
                for value in (state or {}).values():
                    value.zero_()
                return super().state_dict(*arguments, **keywords)
    """
    )
    assert (await court.verdict(right, LINEAR)).status == "correct"
    await court.verdict(spoils, LINEAR)
    outcome = await court.verdict(right, LINEAR)
    assert outcome.status == "correct", outcome.summary


BY_TORCH = """
    class ModelNew(nn.Module):
        def forward(self, x):
            return x * 2 + 1
"""
DECOY = affine(after="y = x * 2 + 1")
HALF = affine(body="tl.store(y_ptr + o, x * 2, mask=m)", after="y = y + 1")


@pytest.mark.parametrize(
    ("candidate", "least", "most"),
    [
        pytest.param(RIGHT, 0.99, 1.0, id="its own kernel"),
        pytest.param(HALF, 0.2, 0.8, id="half and half"),
        pytest.param(BY_TORCH, 0.0, 0.0, id="torch"),
    ],
)
async def test_the_device_tells_who_did_the_work(court, candidate, least, most):
    facts = (await court.verdict(candidate)).facts
    assert least <= facts.own_share <= most, facts
    assert ("add" in facts.device_us) == (candidate is not RIGHT)
    assert all(0 <= time_us < 1e5 for time_us in facts.device_us.values())


async def test_a_default_device_is_no_mode_left_on(court):
    outcome = await court.verdict('torch.set_default_device("cuda")\n' + RIGHT)
    assert outcome.status == "correct", outcome.summary


async def test_a_kernel_whose_output_nobody_uses_is_told(court):
    outcome = await court.verdict(DECOY)
    assert outcome.status == "correct"
    assert any(note.startswith("Without the launches of kernel its") for note in outcome.facts.notes)
    assert not any(note.startswith("Without") for note in (await court.verdict(RIGHT)).facts.notes)


async def test_a_result_kept_after_some_calls_is_wrong(court):
    kept = affine(
        before="self.__dict__['calls'] = self.__dict__.get('calls', 0) + 1",
        after="self.__dict__['kept'] = y = y if self.calls <= 5 else self.kept.clone()",
    )
    outcome = await court.verdict(kept)
    assert outcome.status in {"rejected", "incorrect"}, outcome.summary


async def test_torch_may_compile_what_makes_memory(court):
    """Fresh memory is filled where a candidate makes it, but that is no part of the program that torch compiles."""
    candidate = """
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.fast = torch.compile(self.plain)

            def plain(self, x):
                y = torch.empty((2, x.numel()), device=x.device)
                y[0] = x * 2
                y[1].copy_(y[0] + 1)
                return y[1].clone()

            def forward(self, x):
                return self.fast(x)
    """
    outcome = await court.verdict(candidate, timeout_s=120)
    assert outcome.status == "correct", outcome.summary
    assert outcome.facts.own_share in {None, 0.0}


async def test_a_kernel_made_for_one_size_is_told_at_which_other_it_fails(court):
    sized = task(
        "N = 4096\nclass Model(nn.Module):\n    def forward(self, x):\n        return x * 2 + 1",
        "[torch.randn(N, 8)]",
    )
    facts = (await court.verdict(RIGHT, sized)).facts
    assert facts.shape_specialised == ""
    facts = (await court.verdict(affine(before="assert x.shape[0] == 4096"), sized)).facts
    assert facts.shape_specialised.startswith("fails at N=3583: ")


async def test_a_graph_that_is_replayed_on_fresh_inputs_is_right(court):
    candidate = affine() + textwrap.dedent("""
        Plain = ModelNew

        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.plain, self.graph = Plain(), None

            def forward(self, x):
                if self.graph is None:
                    self.x = x.clone()
                    self.plain(self.x)
                    torch.cuda.synchronize()
                    self.graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(self.graph):
                        self.y = self.plain(self.x)
                self.x.copy_(x)
                self.graph.replay()
                return self.y.clone()
    """)
    outcome = await court.verdict(candidate)
    assert outcome.status == "correct", outcome.summary


async def test_a_store_behind_an_input_that_changes_in_place_is_out_of_bounds(court):
    reference = task(
        "class Model(nn.Module):\n    def forward(self, x):\n        x.add_(1)\n        return x * 2",
        "[torch.randn(1000)]",
    )
    candidate = """
        @triton.jit
        def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
            o = tl.arange(0, BLOCK)
            x = tl.load(x_ptr + o, mask=o < n, other=0.0) + 1
            tl.store(x_ptr + o, x, mask=MASK)
            tl.store(y_ptr + o, x * 2, mask=o < n)

        class ModelNew(nn.Module):
            def forward(self, x):
                y = torch.empty_like(x)
                kernel[(1,)](x, y, x.numel(), BLOCK=1024)
                return y
    """
    assert (await court.verdict(candidate.replace("MASK", "o < n"), reference)).status == "correct"
    outcome = await court.verdict(candidate.replace("MASK", "o < BLOCK"), reference)
    assert (outcome.status, outcome.check) == ("incorrect", "out_of_bounds"), outcome.summary


# --- whatever happens to it ------------------------------------------------------------------------------

FAR = "tl.store(y_ptr + o + (x.to(tl.int64) * 0 + (1 << 40)), x, mask=m)"
ODD = "tl.store((y_ptr.to(tl.int64) + 2).to(tl.pointer_type(tl.float32)) + o, x, mask=m)"


@pytest.mark.parametrize(
    ("candidate", "check"),
    [
        (affine(FAR), "illegal_memory_access"),
        (affine(ODD), "misaligned_address"),
        (
            affine("tl.device_assert(x > 1e9)\n            tl.store(y_ptr + o, x, mask=m)").replace(
                "BLOCK=1024)", "BLOCK=1024, debug=True)"
            ),
            "device_assert",
        ),
        (affine(after="x[torch.tensor([10**6], device=x.device)]"), "device_assert"),
        (affine(before="ctypes.string_at(0)"), "signal"),
        (affine(before="os.abort()"), "signal"),
        (affine(before="os._exit(3)"), "exit"),
        (affine(before="os.kill(os.getpid(), signal.SIGKILL)"), "signal"),
    ],
    ids=[
        "illegal access",
        "misaligned",
        "device_assert",
        "torch's assert",
        "segfault",
        "abort",
        "exit",
        "kill",
    ],
)
async def test_a_crash_costs_its_candidate_alone(court, candidate, check):
    outcome = await court.verdict(candidate)
    assert (outcome.status, outcome.check) == ("crashed", check), outcome.summary
    await court.goes_on()


async def test_the_kernel_at_fault_is_named(court):
    outcome = await court.verdict(affine(FAR))
    assert outcome.error.kernel == "kernel"


@pytest.mark.parametrize(
    "candidate",
    [
        affine(
            "while tl.load(x_ptr) < 1e30:\n                x += 1\n            tl.store(y_ptr + o, x, mask=m)"
        ),
        affine(before="time.sleep(10**6)"),
        affine(before="os.kill(os.getpid(), signal.SIGSTOP)"),
    ],
    ids=["endless kernel", "sleep", "stopped"],
)
async def test_what_hangs_is_ended_at_its_deadline(court, candidate):
    started = time.monotonic()
    outcome = await court.verdict(candidate, timeout_s=4)
    took = time.monotonic() - started
    assert outcome.status == "timeout", outcome.summary
    assert took < 4 + 2 + outcome.seconds["compile"]
    await court.goes_on()


async def test_an_endless_kernel_is_named(court):
    candidate = affine(
        "while tl.load(x_ptr) < 1e30:\n                x += 1\n            tl.store(y_ptr + o, x, mask=m)"
    )
    outcome = await court.verdict(candidate, timeout_s=3)
    assert "kernel kernel was the last to be launched" in outcome.summary


async def test_a_flood_from_the_device_is_cut(court):
    outcome = await court.verdict(
        affine('tl.device_print("x", x)\n            tl.store(y_ptr + o, x * 2 + 1, mask=m)')
    )
    assert outcome.status == "correct", outcome.summary
    await court.goes_on()


async def test_a_candidate_that_takes_all_memory_is_out_of_memory_and_gives_it_back(court):
    before = usage(GPUS[0]).free_bytes
    hungry = affine(
        before="kept = []\n                for _ in range(1000): kept.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda'))"
    )
    outcome = await court.verdict(hungry)
    assert (outcome.status, outcome.check) == ("out_of_memory", "memory"), outcome.summary
    assert "GiB" in outcome.summary
    await court.goes_on()
    assert usage(GPUS[0]).free_bytes > before - (2 << 30)


async def test_memory_that_torch_does_not_count_makes_nobody_else_fail(court):
    raw = affine(
        before="cuda = ctypes.CDLL('libcuda.so.1'); at = ctypes.c_uint64(); size = 1 << 36\n"
        "                while size >> 20:\n"
        "                    if cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)): size >>= 1"
    )
    outcome = await court.verdict(raw)
    assert outcome.status in {"correct", "out_of_memory"}, outcome.summary
    await court.goes_on()


async def test_a_reference_that_breaks_the_context_costs_its_task_alone(court):
    broken = task(
        "class Model(nn.Module):\n    def forward(self, x):\n"
        "        return x[torch.full((1,), 10**6, device=x.device, dtype=torch.int64)]\n",
        "[torch.randn(64)]",
    )
    with pytest.raises(TaskError, match="reference"):
        await court.evaluator.examine(broken, str)
    await court.goes_on()


async def test_a_signal_to_the_parent_is_rejected_and_changes_nothing(court):
    outcome = await court.verdict(affine(before="os.kill(os.getppid(), signal.SIGTERM)"))
    assert outcome.status == "rejected", outcome.summary
    await court.goes_on()


async def test_a_candidate_holds_no_memory_but_its_inputs_and_outputs(court):
    """Only the memory it was given is mapped: what is expected was never handed to its process."""
    looked = affine(
        before="found = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "                assert not [each for each in found if 'memfd' in each], found"
    )
    outcome = await court.verdict(looked)
    assert outcome.status == "correct", outcome.summary


@pytest.mark.skipif(len(GPUS) < 2, reason="one GPU only")
async def test_a_candidate_runs_on_the_device_it_is_pinned_to(court):
    for gpu in GPUS:
        evaluation = await court.evaluation(AFFINE, RIGHT, device=gpu.label)
        assert evaluation.receipt["device"]["uuid"] == gpu.uuid


# --- timing ----------------------------------------------------------------------------------------------

WIDE = task(
    "class Model(nn.Module):\n    def forward(self, x):\n        return (x * 2 + 1) * 3 - x",
    "[torch.randn(1 << 24)]",
    policy={"library_ops": "allow"},
)
FUSED = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    {work}
    tl.store(y_ptr + o, (x * 2 + 1) * 3 - x, mask=o < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {launch}
        return y
"""
LAUNCH = "kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)"
EAGER = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return (x * 2 + 1) * 3 - x"


async def timing(court, candidate, *names, effort="quick", of=WIDE):
    race = Race([baseline(name, of) for name in names or ("eager",)], effort)
    return await court.evaluation(of, candidate, race=race)


async def test_a_fused_kernel_is_faster_than_eager_by_as_much_as_it_moves_less(court):
    outcome = (await timing(court, FUSED.format(work="pass", launch=LAUNCH))).outcome
    assert outcome.status == "correct", outcome.summary
    (speedup,) = outcome.timing.speedups
    assert speedup.conclusion == "faster"
    assert 2.0 < speedup.speedup < 6.0  # four passes of eager over memory against one
    (latency,) = outcome.timing.latencies.values()
    assert 0.5 < latency.roofline_share <= 1.0
    for _ in range(2):  # of 30 µs a host that is busy at the wrong moment shows too little
        if latency.clock != "confirmed":
            again = (await timing(court, FUSED.format(work="pass", launch=LAUNCH))).outcome
            (latency,) = again.timing.latencies.values()
    assert latency.clock == "confirmed", outcome.timing
    assert "baseline eager" in outcome.summary
    await court.goes_on()


async def test_the_reference_against_itself_is_no_faster_and_no_slower(court):
    outcome = (await timing(court, EAGER, effort="full")).outcome
    (speedup,) = outcome.timing.speedups
    assert speedup.conclusion in {"same", "inconclusive"}, speedup  # two processes differ by a little
    assert 0.99 < speedup.speedup < 1.01
    assert speedup.high - speedup.low < 0.02


async def test_several_baselines_are_timed_in_the_same_rounds(court):
    outcome = (await timing(court, FUSED.format(work="pass", launch=LAUNCH), "eager", "compile")).outcome
    assert [each.baseline for each in outcome.timing.speedups] == ["eager", "compile"], outcome.timing.notes
    assert outcome.timing.speedups[0].speedup > outcome.timing.speedups[1].speedup


HOPELESS = """
@triton.autotune(
    configs=[triton.Config({"BLOCK": block, "SLOW": block == 512}) for block in (512, 1024, 2048)], key=[]
)""" + FUSED.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, SLOW: tl.constexpr").format(
    work="if SLOW:\n        for i in tl.static_range(100000):\n            x = x * 0.5 + i",
    launch='kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())',
)


@pytest.mark.parametrize("of", ["candidate", "baseline"])
async def test_a_configuration_that_takes_too_long_to_compile_does_not_hold_the_gpu(court, of):
    quick = FUSED.format(work="pass", launch=LAUNCH)
    candidate, other = (HOPELESS, quick) if of == "candidate" else (quick, HOPELESS)
    race = Race([baseline("node:other", WIDE, (IMPORTS + textwrap.dedent(other)).encode())], "quick")
    evaluation = await court.evaluation(WIDE, candidate, race=race, timeout_s=8.0)
    outcome = evaluation.outcome
    assert outcome.status == "correct", outcome.summary
    assert [each.baseline for each in outcome.timing.speedups] == ["node:other"], outcome.timing.notes
    if of == "candidate":
        assert any("1 autotuner configurations took longer than 8 s" in note for note in outcome.facts.notes)
    timeline = evaluation.receipt["timeline"]
    (at,) = [each["at"] for each in timeline if each["stage"].startswith("tuning")]
    assert min(each["at"] for each in timeline if each["stage"] == "warming up") - at < 3


async def test_work_on_another_stream_is_not_faster_but_wrong(court):
    launch = f"with torch.cuda.stream(torch.cuda.Stream()):\n            {LAUNCH}"
    work = "for i in range(2000):\n        x = x + (x * 0.0 == 1.0).to(tl.float32)"
    outcome = (await timing(court, FUSED.format(work=work, launch=launch))).outcome
    assert outcome.status in {"incorrect", "rejected"}


async def test_short_work_on_another_stream_is_not_done_before_the_clock_starts(court):
    launch = f"with torch.cuda.stream(side):\n            {LAUNCH}"
    candidate = FUSED.format(work="pass", launch=launch).replace(
        "class", "side = torch.cuda.Stream()\n\nclass"
    )
    outcome = (await timing(court, candidate)).outcome
    assert outcome.status in {"incorrect", "rejected"}, outcome.timing


async def test_a_thread_of_a_candidate_does_not_make_its_baseline_slow(court):
    honest = (await timing(court, FUSED.format(work="pass", launch=LAUNCH))).outcome.timing
    thread = (
        "import threading, time\n\ndef busy():\n    a = torch.randn(4096, 4096, device='cuda')\n"
        "    while True:\n        a @ a\n        time.sleep(0.001)\n\n"
        "threading.Thread(target=busy, daemon=True).start()\n\nclass"
    )
    attacked = FUSED.format(work="pass", launch=LAUNCH).replace("class", thread, 1)
    outcome = (await timing(court, attacked)).outcome
    if (
        outcome.timing is not None and outcome.timing.speedups
    ):  # its own calls are slow, and may be found to differ
        assert outcome.timing.speedups[0].speedup < 1.1 * honest.speedups[0].speedup, outcome.timing


async def test_a_candidate_that_is_wrong_is_not_timed(court):
    outcome = (await timing(court, FUSED.format(work="x = x + 1", launch=LAUNCH))).outcome
    assert outcome.status == "incorrect"
    assert outcome.timing is None
