"""Kernels with one known fault each: it is named first. Compiled for real, never run."""

import sys
import textwrap
from pathlib import Path

import pytest

from adaexplore_mcp.evaluation.claims import BuildClaim, CallFacts
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.profiling import Machine, Seen, bound_of, causes
from adaexplore_mcp.models import Workload

pytestmark = pytest.mark.anyio

H200 = Machine("sm_90", 132)
HEAD = "import torch\nfrom torch import nn\nimport triton\nimport triton.language as tl\n"


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def evaluator(tmp_path_factory):
    pool = WorkerPool(Path(sys.executable), tmp_path_factory.mktemp("profiles"), 4 << 30)
    evaluator = Evaluator(pool, "sm_90", 4 << 30)
    yield evaluator
    await evaluator.aclose()


def task(forward, inputs):
    source = (
        f"import torch\nfrom torch import nn\nclass Model(nn.Module):\n    def forward(self, *xs):\n        return {forward}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    return Definition(format="kernelbench", files={"task.py": source}, entry="Model")


def module(kernel, body):
    forward = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"{HEAD}\n{textwrap.dedent(kernel)}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{forward}\n"


COPY = """
@triton.jit
def kernel(x_ptr, y_ptr, n, rows, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {load}
    tl.store(y_ptr + o, x + 1, mask=o < n)
"""
LAUNCH = """
y = torch.empty_like(x)
kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), x.shape[0], BLOCK=2048)
return y
"""
CONTIGUOUS = "x = tl.load(x_ptr + o, mask=o < n)"
SUM = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * n + start + o, mask=start + o < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total))
"""
PRODUCT = """
@triton.jit
def kernel(x_ptr, y_ptr, K, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK)
    n = tl.program_id(1) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(x_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(x_ptr + n[:, None] * K + (start + k)[None, :])
        acc = tl.dot(a, tl.trans(b), acc{options})
    tl.store(y_ptr + m[:, None] * 4096 + n[None, :], acc)
"""
PRODUCT_LAUNCH = """
y = torch.empty(4096, 4096, device=x.device)
kernel[(4096 // {block}, 4096 // {block})](x, y, 4096, BM={block}, BK=32, num_warps={warps})
return y
"""
WIDE = "[torch.randn(1 << 13, 1 << 13)]"
ELEMENTWISE = task("xs[0] + 1", WIDE)
MATRIX = task("xs[0] @ xs[0].T", "[torch.randn(4096, 4096)]")

FAULTS = {
    "narrow_access": (ELEMENTWISE, module(COPY.format(load="x = tl.load(x_ptr + (o % rows) * rows + o // rows, mask=o < n)"), LAUNCH)),
    "spilled_registers": (MATRIX, module(PRODUCT.format(options=""), PRODUCT_LAUNCH.format(block=256, warps=4))),
    "tiny_grid": (
        task("xs[0].sum(1)", "[torch.randn(4, 1 << 22)]"),
        module(SUM, "y = torch.empty(4, device=x.device)\nkernel[(4,)](x, y, x.shape[1], BLOCK=4096)\nreturn y"),
    ),
    "no_tensor_cores": (
        MATRIX,
        module(PRODUCT.format(options=", input_precision='ieee'"), PRODUCT_LAUNCH.format(block=64, warps=8)),
    ),
    "extra_traffic": (
        task("xs[0] + 4", "[torch.randn(1 << 13, 1 << 13).half()]"),
        module(
            COPY.format(load=CONTIGUOUS),
            "x = x.float()\n" + "\n".join("y = torch.empty_like(x); kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), 1, BLOCK=2048); x = y" for _ in range(4)) + "\nreturn x.half()",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_one_fault_of_a_kernel_is_named_first(evaluator, fault):
    definition, candidate = FAULTS[fault]
    (plan,) = await evaluator.examine(definition, lambda _: None)
    report, seen, machine = await evaluator.profile(
        definition, plan, candidate.encode(), target="sm_90", timeout_s=60, report=lambda _: None
    )
    assert report.compiled, report.failure
    found = causes(seen, machine)
    assert found, seen
    assert found[0].name == fault, found
    assert all(len(f"{each.evidence} {each.remedy}") < 500 for each in found)


async def test_a_kernel_without_a_fault_has_none(evaluator):
    (plan,) = await evaluator.examine(ELEMENTWISE, lambda _: None)
    candidate = module(COPY.format(load=CONTIGUOUS), LAUNCH)
    _, seen, machine = await evaluator.profile(
        ELEMENTWISE, plan, candidate.encode(), target="sm_90", timeout_s=60, report=lambda _: None
    )
    assert causes(seen, machine) == []


def seen_of(launch_bytes=100, nbytes=100, **facts):
    plan = Plan(workload=Workload(name="w"), bytes=nbytes)
    return Seen(
        plan,
        [BuildClaim("k", 32, 0, 0, 4, 1, "")],
        CallFacts(launches={"k": 1}, **facts),
        {"k": launch_bytes},
    )


@pytest.mark.parametrize(
    ("bytes_us", "flops_us", "measured_us", "bound"),
    [
        (10.0, 1.0, 12.0, "memory"),
        (1.0, 10.0, 12.0, "arithmetic"),
        (1.0, 2.0, 50.0, "latency"),
        (1.0, 2.0, None, "arithmetic"),
        (0.0, 0.0, 5.0, "unknown"),
    ],
)
def test_what_takes_longest_bounds_it(bytes_us, flops_us, measured_us, bound):
    assert bound_of(seen_of(), bytes_us=bytes_us, flops_us=flops_us, measured_us=measured_us) == bound


def test_what_is_moved_twice_counts_twice():
    found = seen_of(launch_bytes=1_000, nbytes=100)
    assert bound_of(found, bytes_us=1.0, flops_us=5.0, measured_us=12.0) == "memory"


def test_small_tasks_of_many_launches_are_told():
    names = {f"k{number}": 1 for number in range(16)}
    plan = Plan(workload=Workload(name="w"), bytes=1 << 20)
    (cause,) = causes(Seen(plan, [], CallFacts(launches=names), {}), H200)
    assert cause.name == "many_launches"
    assert "16 launches" in cause.evidence
