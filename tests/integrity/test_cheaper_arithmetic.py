"""Kinds 28 to 30: arithmetic that is cheaper than what was asked for."""

import textwrap

import pytest
from attacks import ON_GPU, attack, honest
from court import IMPORTS, function, kernelbench

pytestmark = pytest.mark.anyio

HEAD = "import torch\nimport torch.nn.functional as F\n"
MATRICES = "[torch.randn(N, N, device=device), torch.randn(N, N, device=device)]"
PRODUCT = "N = 64\ndef op(x, y):\n    return x @ y"
MATMUL = function(PRODUCT, MATRICES)
MATMUL_RELAXED = function(PRODUCT, MATRICES, policy={"precision": "relaxed"})


def rows(expression, inputs="torch.randn(16, N, device=device)", **fields):
    """Return a task of one input."""
    return function(f"N = 64\ndef op(x):\n    return {expression}", f"[{inputs}]", **fields)


RMS = "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)"
SMALL = "torch.randn(16, N, device=device) * 0.003"
FAR = "torch.randn(16, N, device=device) + 300"
GELU = rows("torch.nn.functional.gelu(x)")
SOFTMAX, SOFTMAX_WIDE = rows("torch.softmax(x, -1)"), rows("torch.softmax(x * 200, -1)")
VARIANCE = rows("x.var(-1)", FAR)
CAUSAL = rows("torch.softmax(x.masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), float('-inf')), -1)")


def op(expression, arguments="x"):
    return f"{HEAD}def op({arguments}):\n    return {expression}\n"


def product(precision, *, cast=""):
    """Return a candidate that multiplies in one program."""
    return IMPORTS + textwrap.dedent(f"""
        @triton.jit
        def kernel(x, y, z, N: tl.constexpr):
            i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
            a, b = tl.load(x + i * N + j){cast}, tl.load(y + i * N + j){cast}
            tl.store(z + i * N + j, tl.dot(a, b, input_precision="{precision}").to(z.dtype.element_ty))

        def op(x, y):
            z = torch.empty_like(x)
            kernel[(1,)](x, y, z, 64)
            return z
    """)


RMS_NORM = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(64))

        def forward(self, x):
            return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    """,
    "[torch.randn(8, 64)]",
)

SELU = function(
    "N = 512\ndef op(x):\n    return 1.0507 * torch.where(x > 0, x, 1.67326 * torch.expm1(x))",
    "[torch.randn(N, device=device)]",
)


ATTACKS = [
    attack(
        "28 half operands",
        op("(x.half() @ y.half()).float()", "x, y"),
        "incorrect/precision_class",
        task=MATMUL,
    ),
    attack("28 TF32 in a kernel", product("tf32"), "incorrect/precision_class", task=MATMUL, word="tf32"),
    attack(
        "28 half in a kernel",
        product("ieee", cast=".to(tl.float16)"),
        "incorrect/precision_class",
        task=MATMUL,
    ),
    attack(
        "28 a result rounded on its way",
        op("(x @ y).half().float()", "x, y"),
        "incorrect/precision_class",
        task=MATMUL,
    ),
    attack(
        "28 half operands where the policy allows them, told",
        product("ieee", cast=".to(tl.float16)"),
        "correct",
        task=MATMUL_RELAXED,
        word="tl.dot multiplied",
    ),
    attack(
        "29 TF32 allowed for everybody",
        HEAD + "torch.backends.cuda.matmul.allow_tf32 = True\ndef op(x, y):\n    return x @ y\n",
        "incorrect/precision_class",
        task=MATMUL,
        word="tf32",
    ),
    attack(
        "29 a lower precision of products, in the call",
        HEAD + "def op(x, y):\n    torch.set_float32_matmul_precision('high')\n    return x @ y\n",
        "incorrect/precision_class",
        task=MATMUL,
    ),
    attack(
        "29 autocast that stays on",
        HEAD
        + "torch.autocast('cuda', torch.bfloat16).__enter__()\ndef op(x, y):\n    return (x @ y).float()\n",
        "incorrect/precision_class",
        task=MATMUL,
    ),
    attack(
        "30 gelu by tanh", op("F.gelu(x, approximate='tanh')"), "incorrect/values|precision_class", task=GELU
    ),
    attack(
        "30 no eps, where it shows",
        op("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))"),
        "incorrect/values",
        task=rows(RMS, SMALL),
    ),
    attack(
        "30 no maximum in softmax",
        op("(200 * x).exp() / (200 * x).exp().sum(-1, keepdim=True)"),
        "incorrect/nonfinite",
        task=SOFTMAX_WIDE,
    ),
    attack(
        "30 a variance that cancels",
        op("(x.square().mean(-1) - x.mean(-1).square()) * 64 / 63"),
        "incorrect/values|precision_class",
        task=VARIANCE,
    ),
    attack("30 no causal mask", op("torch.softmax(x, -1)"), "incorrect/values", task=CAUSAL),
    attack(
        "30 small terms left out",
        op("torch.where(F.softmax(x, -1) < 1e-3, 0.0, F.softmax(x, -1))"),
        "incorrect/values|precision_class",
        task=SOFTMAX,
    ),
    attack(
        "30 eps left out of a module with weights",
        """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))
""",
        "incorrect/values|precision_class",
        task=RMS_NORM,
    ),
]

ON_A_GPU = [
    attack("28 TF32 in a kernel", product("tf32"), "incorrect/precision_class", task=MATMUL, word="tf32"),
    attack(
        "29 TF32 allowed for everybody",
        HEAD + "torch.backends.cuda.matmul.allow_tf32 = True\ndef op(x, y):\n    return x @ y\n",
        "incorrect/precision_class",
        task=MATMUL,
    ),
]

HONEST = [
    honest("28 a product in float32", product("ieee"), task=MATMUL),
    honest(
        "28 a product of three half parts",
        op("sum(a @ b for a in parts(x) for b in parts(y))", "x, y")
        + "def parts(x):\n    top = x.bfloat16().float()\n    low = (x - top).bfloat16().float()\n"
        "    return top, low, x - top - low\n",
        task=MATMUL,
    ),
    honest(
        "30 softmax by powers of two",
        op(
            "torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)"
            " / torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634).sum(-1, keepdim=True)"
        ),
        task=SOFTMAX,
    ),
    honest(
        "30 a variance in two passes",
        op("(x - x.mean(-1, keepdim=True)).square().sum(-1) / 63"),
        task=VARIANCE,
    ),
    honest("30 gelu by erf", op("x * 0.5 * (1 + torch.erf(x * 0.7071067811865476))"), task=GELU),
    honest(
        "28 exp(x) - 1 for expm1, which loses digits of small values",
        IMPORTS
        + """
@triton.jit
def kernel(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    tl.store(z_ptr + o, 1.0507 * tl.where(x > 0, x, 1.67326 * (tl.exp(x) - 1)), mask=o < n)

def op(x):
    z = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, z, x.numel(), BLOCK=64)
    return z
""",
        task=SELU,
    ),
]


@pytest.mark.parametrize(("task", "candidate", "found"), ATTACKS)
async def test_cheaper_arithmetic_is_told_from_what_was_asked_for(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(("task", "candidate", "found"), HONEST)
async def test_other_arithmetic_of_the_same_worth_passes(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(
    ("task", "candidate", "found"),
    [pytest.param(*row.values, id=row.id, marks=ON_GPU) for row in [*ON_A_GPU, HONEST[0]]],
)
async def test_cheaper_arithmetic_of_a_gpu_is_told_too(gpu_court, task, candidate, found):
    found.check(await gpu_court.verdict(task, candidate))
