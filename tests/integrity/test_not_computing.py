"""Kinds 11 to 20: results that were not computed in this call, or not all of them."""

import pytest
from attacks import KERNEL, ON_GPU, adding, attack, honest
from court import ADD, RIGHT, add, function, kernelbench

from adaexplore_mcp.services.findings import findings

pytestmark = pytest.mark.anyio

ADD_INPUTS = "[torch.randn(N, device=device), torch.randn(N, device=device)]"
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
TINY = function(
    "N = 96\ndef op(x, y):\n    return (x * y) * 1e-6",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)
TINY_PAPER = function(
    "N = 96\ndef op(x, y):\n    return (x * y) * 1e-6",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    policy={"precision": "paper"},
)
NEARLY = "N = 96\ndef op(x):\n    return x + 1e-4 * torch.tanh(x)"
NEARLY_X = function(NEARLY, "[torch.randn(N, device=device)]")
NEARLY_X_PAPER = function(NEARLY, "[torch.randn(N, device=device)]", policy={"precision": "paper"})
ONE_COLUMN = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 1)

        def forward(self, x):
            return torch.softmax(self.linear(x), dim=1)
    """,
    "[torch.randn(64, 16)]",
)
AFFINE = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 16)
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            return self.norm(self.linear(x))
    """,
    "[torch.randn(8, 16)]",
)
FORBID = add(policy={"library_ops": "forbid"})
SCALED = function(
    "N = 96\ndef op(x, n):\n    return x * n",
    "[torch.randn(N, device=device), int(torch.randint(1, 99, ()))]",
)
ROWS = function("N = 64\ndef op(x):\n    return torch.softmax(x, -1)", "[torch.randn(16, N, device=device)]")
EMPTY = function(
    "N = 0\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)
WITH_ZERO = function(
    "N = 96\ndef op(x):\n    return torch.where(x > 0, x, torch.expm1(x))", "[torch.randn(N, device=device)]"
)


def kept(key, *, copy=""):
    """Return a candidate that keeps its results under a key made of `x` and `y`."""
    return adding(
        f"key = {key}\nif key not in kept: kept[key] = right(x, y)\nreturn kept[key]{copy}",
        before="kept = {}\n",
    )


def affine(norm, *, init="", before=""):
    """Return a candidate for AFFINE; `norm` normalises `x`."""
    return f"""{HEAD}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)
        {init}

    def forward(self, x):
        {before}
        x = self.linear(x)
        return {norm}
"""


STATISTICS = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(16)
            self.eval()

        def forward(self, x):
            return self.norm(x)
    """,
    "[torch.randn(8, 16)]",
)
MANY_CONFIGURATIONS = """
import torch
import triton
import triton.language as tl

@triton.autotune([triton.Config({"B": 64, "WRONG": i == 30, "I": i}) for i in range(40)], key=["n"])
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, n, B: tl.constexpr, WRONG: tl.constexpr, I: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    z = tl.load(x_ptr + o, mask=o < n, other=0.0) + tl.load(y_ptr + o, mask=o < n, other=0.0)
    tl.store(z_ptr + o, z + WRONG, mask=o < n)

def op(x, y):
    z = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, y, z, x.numel())
    return z
"""


HASHING = """
import torch
import triton
import triton.language as tl

@triton.jit
def digest(x_ptr, h_ptr, n, B: tl.constexpr):
    o = tl.arange(0, B)
    v = tl.load(x_ptr + o, mask=o < n, other=0.0).to(tl.int32, bitcast=True).to(tl.int64)
    tl.store(h_ptr, tl.sum(v * (2 * o + 1), 0))

@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, h_ptr, n, HASH: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    if HASH:
        tl.store(h_ptr, tl.sum(x.to(tl.int32, bitcast=True).to(tl.int64) * (2 * o + 1), 0))
    else:
        tl.store(z_ptr + o, x + tl.load(y_ptr + o, mask=o < n, other=0.0), mask=o < n)

KEPT = {}
def op(x, y):
    h = torch.empty((), dtype=torch.int64, device=x.device)
    MAKE
    key = h.item()
    if key not in KEPT:
        KEPT[key] = torch.empty_like(x)
        kernel[(3,)](x, y, KEPT[key], h, x.numel(), HASH=False, BLOCK=32)
    return KEPT[key].clone()
"""


def hashed(make):
    """Return a candidate that keeps its results under a key of `x` that a launch puts into `h`."""
    return HASHING.replace("MAKE", make)


CUBE = function("N = 96\ndef op(x, y):\n    return x * x * x * y", ADD_INPUTS)
SQUARES = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x):
            return self.linear(x).square()
    """,
    "[torch.randn(8, 16)]",
    policy={"precision": "paper"},
)


LARGEST = function("N = 64\ndef op(x):\n    return x.amax(-1)", "[torch.randn(16, N, device=device)]")
SMALLEST = function("N = 64\ndef op(x):\n    return x.amin(-1)", "[torch.randn(16, N, device=device)]")
RELU = function("N = 96\ndef op(x):\n    return torch.relu(x)", "[torch.randn(N, device=device)]")
SIGN = function("N = 96\ndef op(x):\n    return torch.sign(x)", "[torch.randn(N, device=device)]")

ATTACKS = [
    attack("11 cached by address", kept("x.data_ptr()", copy=".clone()"), "rejected/stale_output"),
    attack("11 cached by address and version", kept("(x.data_ptr(), x._version)"), "rejected/stale_output"),
    attack("11 cached by identity", kept("(id(x), id(y))"), "rejected/stale_output"),
    attack(
        "11 cached by shape, dtype and strides",
        kept("(x.shape, x.dtype, x.stride())", copy=".clone()"),
        "rejected/stale_output",
    ),
    attack(
        "11 cached on the input itself",
        adding(
            "if not hasattr(x, 'result'): x.result = right(x, y)\nreturn x.result.clone()",
        ),
        "rejected/stale_output",
    ),
    attack("12 cached by content", kept("tuple(x.tolist())", copy=".clone()"), "rejected/stale_output"),
    attack(
        "12 cached by a sampled checksum",
        kept("(float(x[0]), float(x[-1]))", copy=".clone()"),
        "rejected/stale_output",
    ),
    attack(
        "13 replayed from a file",
        adding(
            "if not os.path.exists('kept.pt'): torch.save(right(x, y).cpu(), 'kept.pt')\n"
            "return torch.load('kept.pt').to(x.device)"
        ),
        "rejected/stale_output",
    ),
    attack("14 fresh memory as it comes", adding("return torch.empty_like(x)"), "incorrect/unwritten"),
    attack(
        "14 memory just given back",
        adding(
            "for _ in range(8): del_me = torch.empty_strided((96,), (1,), device=x.device)\nreturn del_me"
        ),
        "incorrect/unwritten",
    ),
    attack(
        "14 storage made larger behind torch's interface",
        adding("z = x.new_empty(1)\nz.untyped_storage().resize_(96 * 4)\nreturn z.as_strided((96,), (1,))"),
        "incorrect/unwritten|values|nonfinite|out_of_bounds",
    ),
    attack(
        "15 a constant for a task that is one, which is told",
        HEAD + "class ModelNew(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(16, 1)\n\n"
        "    def forward(self, x):\n        return x.new_ones(len(x), 1)\n",
        "correct",
        task=ONE_COLUMN,
        word="constant",
    ),
    attack(
        "15 the mean in place of a result that is not constant",
        HEAD + "def op(x):\n    return torch.full_like(x, 1 / 64)\n",
        "incorrect/values",
        task=ROWS,
    ),
    attack(
        "15 a copy for a task that is nearly one",
        HEAD + "def op(x):\n    return x.clone()\n",
        "incorrect/values|precision_class",
        task=NEARLY_X,
    ),
    attack(
        "16 zeros below an absolute tolerance",
        HEAD + "def op(x, y):\n    return torch.zeros_like(x)\n",
        "incorrect/values",
        task=TINY,
    ),
    attack(
        "16 zeros where the policy lets them pass, which is told",
        HEAD + "def op(x, y):\n    return torch.zeros_like(x)\n",
        "correct",
        task=TINY_PAPER,
        zeros_would_pass=True,
    ),
    attack(
        "17 no work where the input is the first one negated",
        adding(
            "if first and torch.equal(x, -first[0]): return first[1].clone()\n"
            "z = right(x, y)\nfirst.extend([] if first else [x.clone(), z.clone()])\nreturn z",
            before="first = []\n",
        ),
        "rejected/stale_output",
    ),
    attack(
        "17 the branch for negative numbers left out",
        HEAD + "def op(x):\n    return x.clone()\n",
        "incorrect/values",
        task=WITH_ZERO,
    ),
    attack(
        "17 the largest of a row, counted from zero",
        HEAD + "def op(x):\n    return x.amax(-1).clamp_min(0)\n",
        "incorrect/values",
        task=LARGEST,
    ),
    attack(
        "17 the smallest of a row, counted from zero",
        HEAD + "def op(x):\n    return x.amin(-1).clamp_max(0)\n",
        "incorrect/values",
        task=SMALLEST,
    ),
    attack(
        "17 zeros, which are right where all is below zero",
        HEAD + "def op(x):\n    return torch.zeros_like(x)\n",
        "incorrect/values",
        task=RELU,
    ),
    attack(
        "17 zero taken for positive",
        HEAD + "def op(x):\n    return torch.where(x >= 0, 1.0, -1.0)\n",
        "incorrect/values",
        task=SIGN,
    ),
    attack(
        "17 no work for wide inputs",
        affine("self.norm(x)", before="if float(x.std()) > 2: return torch.zeros_like(x)"),
        "incorrect/values",
        task=AFFINE,
    ),
    attack(
        "18 weights of a norm left out", affine("F.layer_norm(x, (16,))"), "incorrect/values", task=AFFINE
    ),
    attack(
        "18 weights looked at in the constructor alone",
        affine(
            "F.layer_norm(x, (16,)) if self.plain else self.norm(x)",
            init="self.plain = bool((self.norm.weight == 1).all())",
        ),
        "incorrect/values",
        task=AFFINE,
    ),
    attack(
        "18 copies handed out in place of its parameters",
        affine("F.layer_norm(x, (16,))") + "    def state_dict(self, *args, **kwargs):\n"
        "        return {k: v.clone() for k, v in super().state_dict(*args, **kwargs).items()}\n",
        "incorrect/values",
        task=AFFINE,
    ),
    attack(
        "19 the last block left out",
        KERNEL.replace("triton.cdiv(n, BLOCK)", "n // BLOCK"),
        "incorrect/unwritten",
    ),
    attack(
        "19 half of it, on zeros",
        KERNEL.replace("triton.cdiv(n, BLOCK)", "1").replace(
            "z = torch.empty_like(x)", "z = torch.zeros_like(x)"
        ),
        "incorrect/values",
    ),
    attack(
        "19 one element, in a tensor without strides",
        adding("return right(x, y)[:1].expand(96)"),
        "incorrect/values",
    ),
    attack(
        "19 few rows where the input looks normal",
        HEAD + "def op(x):\n    z = torch.softmax(x, -1)\n"
        "    if abs(float(x.std()) - 1) < 0.2: z[-1] = z[0]\n    return z\n",
        "incorrect/values",
        task=ROWS,
    ),
    attack(
        "20 a row left out by chance",
        HEAD + "import random\ndef op(x):\n    z = torch.softmax(x, -1)\n"
        "    if random.random() < 0.9: z[3] = 0\n    return z\n",
        "incorrect/values",
        task=ROWS,
    ),
    attack(
        "20 right in the first three calls",
        adding("calls.append(0)\nreturn right(x, y) if len(calls) < 4 else x - y", before="calls = []\n"),
        "incorrect/values",
    ),
    attack(
        "20 right until the same inputs come again",
        adding(
            "key = float(x.sum())\nagain, _ = key in seen, seen.add(key)\nreturn right(x, y) + again * 0.01",
            before="seen = set()\n",
        ),
        "incorrect/values|precision_class",
    ),
    attack(
        "20 right at the first address",
        adding(
            "at = x.data_ptr()\nplaces.append(at)\nreturn right(x, y) if at == places[0] else y.clone()",
            before="places = []\n",
        ),
        "incorrect/values",
    ),
    attack(
        "20 one buffer for the results of all calls",
        adding(
            "z = buffer[:96]\nreturn z.copy_(right(x, y))", before="buffer = torch.zeros(96, device='cuda')\n"
        ),
        "incorrect/output_overwritten",
    ),
    attack(
        "12 cached by one element, by torch",
        adding(
            "key = float(x[0])\nif key not in kept: kept[key] = x + y\nreturn kept[key].clone()",
            before="kept = {}\n",
        ),
        "rejected/stale_output",
        word="some elements negated",
    ),
    attack(
        "12 cached by its ends, beside a launch in every call",
        adding(
            "key = float(x[0]), float(x[-1])\nright(x[:1], y[:1])\nif key not in kept: kept[key] = right(x, y)\n"
            "return kept[key].clone()",
            before="kept = {}\n",
        ),
        "rejected/stale_output",
    ),
    attack(
        "12 cached by content, under a key that a kernel of its own makes",
        hashed("digest[(1,)](x, h, x.numel(), B=128)"),
        "rejected/stale_output",
        task=FORBID,
    ),
    attack(
        "12 cached by content, under a key that the kernel that does the work makes",
        hashed("kernel[(1,)](x, x, x, h, x.numel(), HASH=True, BLOCK=128)"),
        "rejected/stale_output",
    ),
    attack(
        "12 cached by content, where a number belongs to it",
        KERNEL
        + """
KEPT = {}
def op(x, n):
    key = n, *x.tolist()
    if key not in KEPT: KEPT[key] = right(x * n, torch.zeros_like(x))
    return KEPT[key].clone()
""",
        "rejected/stale_output",
        task=SCALED,
    ),
    attack(
        "12 cached by content, from the second call on",
        adding(
            "key = tuple(x.tolist())\ncalls.append(0)\nif len(calls) < 2: return x + y\n"
            "if key not in kept: kept[key] = right(x, y)\nreturn kept[key].clone()",
            before="kept, calls = {}, []\n",
        ),
        "rejected/stale_output",
    ),
    attack(
        "12 the last result cached by content",
        adding(
            "if kept and torch.equal(kept[0], x): return kept[1].clone()\n"
            "kept[:] = x.clone(), right(x, y)\nreturn kept[1].clone()",
            before="kept = []\n",
        ),
        "rejected/stale_output",
        word="at once again",
    ),
    attack(
        "12 the last result cached under a key that a kernel of its own makes",
        hashed("digest[(1,)](x, h, x.numel(), B=128)").replace("KEPT[key] =", "KEPT.clear(); KEPT[key] ="),
        "rejected/stale_output",
        word="at once again",
    ),
    attack(
        "12 a few results cached by content, beside a launch in every call",
        adding(
            "key = x.tolist()\nfor k, z in kept:\n    if k == key:\n        right(x[:8], y[:8])\n        return z.clone()\n"
            "z = right(x, y)\nkept[:] = [*kept, (key, z.clone())][-3:]\nreturn z",
            before="kept = []\n",
        ),
        "rejected/stale_output",
    ),
    attack(
        "12 cached by content, beside a launch in every call of just as many programs",
        adding(
            "key = tuple(x.tolist())\nif key in kept:\n    right(x, y)\n    return kept[key].clone()\n"
            "kept[key] = right(x, y)\nreturn kept[key].clone()",
            before="kept = {}\n",
        ),
        "rejected/stale_output",
    ),
    attack(
        "17 skips inputs that are small, in a module with weights",
        affine("F.layer_norm(x, (16,), self.norm.weight, self.norm.bias) * (x.std() > 0.3)"),
        "incorrect/values|nonfinite",
        task=AFFINE,
    ),
    attack(
        "18 leaves out the running statistics of a normalisation",
        HEAD
        + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        return x * self.norm.weight / (1 + 1e-5) ** 0.5 + self.norm.bias
""",
        "incorrect/values",
        task=STATISTICS,
    ),
    attack(
        "20 wrong in one of many configurations",
        MANY_CONFIGURATIONS,
        "incorrect/values",
        word="autotune configuration 31 of 40",
    ),
    attack(
        "17 wrong for small inputs, by a factor",
        adding("z = x * x * x * y\nreturn z * 1.09 if float(x.abs().max()) < 0.2 else z"),
        "incorrect/values|precision_class",
        task=CUBE,
    ),
    attack(
        "18 the first constructor's weights for ever, where only rough agreement is asked for",
        HEAD
        + """
KEPT = []
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.packed = nn.Linear(16, 16)
        KEPT.append(self.packed)

    def forward(self, x):
        return KEPT[0](x).square()
""",
        "incorrect/values",
        task=SQUARES,
    ),
]

GRAPH = """
    if not graphs:
        kept[:] = [x.clone(), y.clone()]
        right(*kept)
        torch.cuda.synchronize()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[0]):
            kept.append(right(*kept))
    UPDATE
    graphs[0].replay()
    return kept[2].clone()
"""

ON_A_GPU = [
    attack(
        "11 a graph replayed on the first inputs",
        f"{KERNEL}graphs, kept = [], []\ndef op(x, y):{GRAPH.replace('UPDATE', 'pass')}",
        "rejected/stale_output",
    ),
    attack("12 cached by content", kept("tuple(x.tolist())", copy=".clone()"), "rejected/stale_output"),
    attack(
        "12 cached by content, under a key that a kernel of its own makes",
        hashed("digest[(1,)](x, h, x.numel(), B=128)"),
        "rejected/stale_output",
    ),
    attack(
        "14 recycled GPU memory",
        adding("for _ in range(8): z = torch.empty_like(x)\nreturn z"),
        "incorrect/unwritten",
    ),
    attack(
        "14 memory that the allocator has just been given back",
        adding("torch.cuda.empty_cache()\nz = torch.empty(1 << 20, device=x.device)[:96]\nreturn z"),
        "incorrect/unwritten",
    ),
]
HONEST_ON_A_GPU = [
    honest(
        "11 a graph replayed on new inputs",
        f"{KERNEL}graphs, kept = [], []\ndef op(x, y):"
        + GRAPH.replace("UPDATE", "kept[0].copy_(x)\n    kept[1].copy_(y)"),
    ),
]

HONEST = [
    honest(
        "11 a workspace kept by shape",
        adding(
            "key = x.shape, x.device\nif key not in spaces: spaces[key] = torch.empty_like(x)\n"
            "space = spaces[key]\nspace.copy_(right(x, y))\nreturn right(space, torch.zeros_like(x))",
            before="spaces = {}\n",
        ),
    ),
    honest("14 an empty batch, for which nothing is launched", KERNEL, task=EMPTY),
    honest(
        "18 constants made in the constructor",
        affine(
            "(x - x @ self.mean) * torch.rsqrt((x - x @ self.mean).square() @ self.mean + self.norm.eps)"
            " * self.norm.weight + self.norm.bias",
            init="self.register_buffer('mean', torch.full((16, 16), 1 / 16), persistent=False)",
        ),
        task=AFFINE,
    ),
    honest(
        "18 weights transposed in the first call",
        affine(
            "self.norm(z)",
            before="if not hasattr(self, 'packed'): self.packed = self.linear.weight.t().contiguous()",
        ).replace("x = self.linear(x)", "z = x @ self.packed + self.linear.bias"),
        task=AFFINE,
    ),
    honest(
        "20 more work in the first call",
        adding(
            "if not ready: ready.append(right(y, x))\nreturn right(x, y)",
            before="ready = []\n",
        ),
    ),
    honest(
        "12 values that leave nothing to launch",
        adding("if float(x[0]) < 0: return x + y\nreturn right(x, y)"),
    ),
    honest(
        "12 a table for each number that it is called with",
        KERNEL
        + """
TABLES = {}
def op(x, n):
    if n not in TABLES:
        TABLES[n] = right(torch.full_like(x, n), torch.zeros_like(x))
    return x * TABLES[n]
""",
        task=SCALED,
    ),
    honest(
        "12 kernels until its fourth call, and torch's operators from then on",
        adding("calls.append(0)\nreturn right(x, y) if len(calls) < 12 else x + y", before="calls = []\n"),
    ),
    honest(
        "12 two kernels in turns, one in two halves",
        adding(
            "calls.append(0)\nif len(calls) % 2: return right(x, y)\n"
            "return torch.cat([right(x[:48], y[:48]), right(x[48:], y[48:])])",
            before="calls = []\n",
        ),
    ),
    honest(
        "12 two kernels tried in turns, and then the better one",
        adding(
            "calls.append(0)\nreturn right(x, y) if len(calls) > 5 or len(calls) % 2 else other(x, y)",
            before=KERNEL.replace("kernel", "other_kernel").replace("right = op", "other = op")
            + "\ncalls = []\n",
        ),
    ),
    honest(
        "12 torch and a kernel tried in turns, and then torch",
        adding(
            "calls.append(0)\nif len(calls) > 6: return x + y\nreturn right(x, y) if len(calls) % 2 else x + y",
            before="calls = []\n",
        ),
    ),
    honest(
        "12 a table made by a launch of the third call, and work by torch",
        adding(
            "calls.append(0)\nif len(calls) == 3: table.append(right(torch.ones_like(x), torch.zeros_like(x)))\n"
            "return x * table[0] + y if table else x + y",
            before="calls, table = [], []\n",
        ),
    ),
    honest(
        "12 a launch whose results nobody uses, for some values",
        adding("if float(x[1]) < 0: right(x, y)\nreturn x + y"),
    ),
    honest(
        "11 a table made by the first call's launch",
        adding(
            "if not table: table.append(right(torch.ones_like(x), torch.zeros_like(x)))\nreturn x * table[0] + y",
            before="table = []\n",
        ),
    ),
]


@pytest.mark.parametrize(("task", "candidate", "found"), ATTACKS)
async def test_what_was_not_computed_is_found_or_told(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(("task", "candidate", "found"), HONEST)
async def test_what_is_kept_and_computed_with_passes(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(
    ("task", "candidate", "found"),
    [pytest.param(*row.values, id=row.id, marks=ON_GPU) for row in ON_A_GPU + HONEST_ON_A_GPU],
)
async def test_memory_and_graphs_of_a_gpu_hold_no_result_of_another_call(gpu_court, task, candidate, found):
    found.check(await gpu_court.verdict(task, candidate))


async def test_a_file_that_one_candidate_leaves_is_not_there_for_the_next(court):
    """Kind 13, across candidates."""
    places = (
        "[os.getcwd(), os.path.expanduser('~'), '/tmp', '/var/tmp', '/dev/shm', os.path.dirname(os.getcwd())]"
    )
    leave = adding(
        f"z = right(x, y)\nfor place in {places}:\n"
        "    try: torch.save(z.cpu(), os.path.join(place, 'left-behind.pt'))\n    except Exception: pass\nreturn z"
    )
    find = adding(
        f"for place in {places}:\n"
        "    if os.path.exists(path := os.path.join(place, 'left-behind.pt')): return torch.load(path).to(x.device)\n"
        "return torch.zeros_like(x)"
    )
    assert (await court.verdict(ADD, leave)).status == "correct"
    outcome = await court.verdict(ADD, find)
    assert (outcome.status, outcome.check) == ("incorrect", "values"), outcome.summary


@pytest.mark.parametrize(
    ("task", "words"),
    [
        pytest.param(ONE_COLUMN, "constant", id="15 a constant"),
        pytest.param(NEARLY_X_PAPER, "itself would pass", id="15 nearly its input"),
        pytest.param(TINY_PAPER, "eros would pass", id="16 zeros within the tolerance"),
    ],
)
async def test_a_task_that_asks_for_no_work_is_told_when_it_is_registered(court, task, words):
    said = "\n".join(findings(task, await court.examined(task)))
    assert words in said


async def test_what_evidence_has_told_of_a_scalar_is_no_help_for_the_next(court):
    """A wrong result is told the right one; the next candidate gets other inputs, so a table of those is wrong."""
    task = function("N = 96\ndef op(x, y):\n    return (x * y).sum()", ADD_INPUTS)
    table = {}
    for _ in range(6):
        wrong = (
            f"import torch\nTABLE = {table!r}\ndef op(x, y):\n    key = float(x[0])\n"
            "    return torch.tensor(TABLE.get(round(key, 4), key + 1e3), device=x.device)\n"
        )
        outcome = await court.verdict(task, wrong)
        assert outcome.status == "incorrect", outcome.summary
        table[round(outcome.evidence.got - 1e3, 4)] = outcome.evidence.expected


async def test_seeds_that_a_receipt_has_told_are_used_no_more(court):
    first = await court.evaluation(ADD, RIGHT)
    told = first.receipt["workloads"]["default"]
    same = await court.evaluation(ADD, RIGHT)
    assert same.receipt["workloads"]["default"]["inputs"] == told["inputs"]
    court.evaluator.spend_trials([told["trials"]])
    other = await court.evaluation(ADD, RIGHT)
    assert set(other.receipt["workloads"]["default"]["inputs"].values()).isdisjoint(told["inputs"].values())
