"""Kinds 31 to 35: state that is changed, presumed, or shared where it must not be."""

import textwrap

import pytest
from attacks import KERNEL, ON_GPU, adding, attack, honest
from court import IMPORTS, RIGHT, elementwise, function, kernelbench

pytestmark = pytest.mark.anyio

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
IN_PLACE = function(
    "N = 96\ndef op(x, y):\n    x.add_(y)\n    return x * 2",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)
TWO_LAYERS = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Parameter(torch.randn(16, 16))
            self.second = nn.Parameter(torch.randn(16, 16))

        def forward(self, x):
            return x @ self.first @ self.second
    """,
    "[torch.randn(8, 16)]",
)
BATCH_NORM = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(16)
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
            self.eval()

        def forward(self, x):
            return self.norm(x)
    """,
    "[torch.randn(8, 16)]",
)
SUM = function("N = 96\ndef op(x):\n    return x.sum().reshape(1)", "[torch.randn(N, device=device)]")
DOUBLE = function("N = 96\ndef op(x):\n    return x * 2", "[torch.randn(N, device=device)]")
HISTOGRAM = function(
    "N = 200\ndef op(x):\n    return torch.bincount(x, minlength=8).to(torch.int32)",
    "[torch.randint(0, 8, (N,), device=device)]",
)
SUMS = function(
    "N = 96\ndef op(x):\n    return [s.clone() for s in x.sum(1)]", "[torch.randn(100, N, device=device)]"
)
LOG = function("N = 96\ndef op(x):\n    return torch.log(x)", "[torch.randn(N, device=device)]")
POLES = function(
    "N = 96\ndef op(x):\n    return 1 / torch.where(x.abs() < 0.5, torch.zeros_like(x), x)",
    "[torch.randn(N, device=device)]",
)
COUNT = function("N = 96\ndef op(x):\n    return (x > 0).sum(0)", "[torch.randn(N, 4, device=device)]")
PAIR = function("N = 96\ndef op(x):\n    return x * 2, x > 0", "[torch.randn(N, device=device)]")
WINDOW = function(
    "N = 48\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, 2, device=device)[:, 0], torch.randn(2 * N, device=device)[::2]]",
)
EMPTY = function("N = 0\ndef op(x):\n    return x * 2", "[torch.randn(N, 4, device=device)]")


def op(expression, arguments="x"):
    return f"{HEAD}def op({arguments}):\n    return {expression}\n"


def layers(forward, *, init):
    """Return a candidate for TWO_LAYERS."""
    return (
        f"{HEAD}class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{textwrap.indent(init, '        ')}\n\n    def forward(self, x):\n        return {forward}\n"
    )


def total(
    body,
    *,
    out="torch.zeros(1, dtype=x.dtype, device=x.device)",
    launch="kernel[(3,)](x, z, x.numel(), B=32)",
):
    """Return a candidate `op(x)` of three programs that put one result together."""
    return IMPORTS + textwrap.dedent(f"""
        @triton.jit
        def kernel(x, z, n, B: tl.constexpr):
            i = tl.program_id(0)
            o = i * B + tl.arange(0, B)
            part = tl.sum(tl.load(x + o, mask=o < n, other=0.0))
            {textwrap.indent(body, "            ").strip()}

        def op(x):
            z = {out}
            {launch}
            return z
    """)


HISTOGRAM_KERNEL = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x, z, n, B: tl.constexpr):
        o = tl.program_id(0) * B + tl.arange(0, B)
        v = tl.load(x + o, mask=o < n, other=0)
        ADD

    def op(x):
        z = torch.zeros(8, dtype=torch.int32, device=x.device)
        kernel[(triton.cdiv(x.numel(), 64),)](x, z, x.numel(), B=64)
        return z
""")

ARRIVAL = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x, z, count):
        at = tl.atomic_add(count, 1)
        tl.store(z + at, 2 * tl.load(x + tl.program_id(0)))

    def op(x):
        z = torch.empty_like(x)
        kernel[(x.numel(),)](x, z, torch.zeros(1, dtype=torch.int32, device=x.device))
        return z
""")

ONE_AFTER_THE_OTHER = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x, z, m, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        total = tl.zeros((B,), tl.float32)
        for o in range(n):
            total += tl.load(x + i * n + o, mask=i < m, other=0.0)
        tl.store(z + i, total, mask=i < m)

    def op(x):
        z = x.new_empty(x.shape[0])
        kernel[(2,)](x, z, x.shape[0], x.shape[1], B=128)
        return [s.clone() for s in z]
""")

SEGMENTS = function(
    "N = 40\ndef op(x, i):\n    s = x.new_zeros(8).index_add_(0, i, x)\n"
    "    return s / torch.bincount(i, minlength=8).clamp(min=1)",
    "[torch.randn(N, device=device), torch.randint(0, 8, (N,), device=device)]",
)
SEGMENT_MEAN = IMPORTS + textwrap.dedent("""
    @triton.jit
    def kernel(x, i, s, c):
        p = tl.program_id(0)
        i = tl.load(i + p)
        tl.atomic_add(c + i, 1)
        ADD

    def op(x, i):
        s, c = x.new_zeros(8), torch.zeros(8, dtype=torch.int32, device=x.device)
        kernel[(x.numel(),)](x, i, s, c)
        return s / c.clamp(min=1)
""")


def ordered(body):
    """Return a candidate `op(x)` as `total` does, whose programs also have `flags`, and `parts` to themselves."""
    source = total(body, launch="kernel[(3,)](x, z, flags, parts, x.numel(), B=32)")
    return source.replace("def kernel(x, z, n", "def kernel(x, z, flags, parts, n").replace(
        "    kernel[(3,)]",
        "    flags, parts = torch.zeros(4, dtype=torch.int32, device=x.device), torch.zeros(4, device=x.device)\n"
        "    kernel[(3,)]",
    )


ATTACKS = [
    attack("31 adds into its input", op("x.add_(y).clone()", "x, y"), "incorrect/input_mutated"),
    attack(
        "31 adds into its input and takes it off again",
        adding("x.add_(y)\nz = x.clone()\nx.sub_(y)\nreturn z"),
        "incorrect/input_mutated",
    ),
    attack(
        "31 leaves a mark in one element of an input",
        adding("z = right(x, y)\ny[5] = y[5] + 1e-3\nreturn z"),
        "incorrect/input_mutated",
        word="y",
    ),
    attack(
        "31 turns the input into its output",
        KERNEL.replace("z = torch.empty_like(x)", "z = x"),
        "incorrect/input_mutated",
    ),
    attack(
        "31 does not change what the task changes",
        op("(x + y) * 2", "x, y"),
        "incorrect/values",
        task=IN_PLACE,
    ),
    attack(
        "32 weights under other names, drawn in another order",
        layers(
            "x @ self.a @ self.b",
            init="self.b = nn.Parameter(torch.randn(16, 16))\nself.a = nn.Parameter(torch.randn(16, 16))",
        ),
        "incorrect/values",
        task=TWO_LAYERS,
        word="no tensor named",
    ),
    attack(
        "32 weights in exchange",
        layers(
            "x @ self.second @ self.first",
            init="self.first = nn.Parameter(torch.randn(16, 16))\nself.second = nn.Parameter(torch.randn(16, 16))",
        ),
        "incorrect/values",
        task=TWO_LAYERS,
    ),
    attack(
        "32 weights of a seed that it sets itself",
        layers(
            "x @ self.a @ self.b",
            init="torch.manual_seed(0)\nself.a = nn.Parameter(torch.randn(16, 16))\n"
            "self.b = nn.Parameter(torch.randn(16, 16))",
        ),
        "incorrect/values",
        task=TWO_LAYERS,
    ),
    attack(
        "32 buffers left at what they usually are",
        f"{HEAD}class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.BatchNorm1d(16)\n\n"
        "    def forward(self, x):\n        return self.norm.eval()(x)\n",
        "incorrect/values",
        task=BATCH_NORM,
    ),
    attack(
        "33 reads behind the end of an input",
        elementwise("x + y", mask="").replace("z_ptr + o, x + y", "z_ptr + o, x + y, mask=o < n"),
        "incorrect/out_of_bounds",
    ),
    attack(
        "33 writes behind the end of its output", elementwise("x + y", mask=""), "incorrect/out_of_bounds"
    ),
    attack(
        "33 adds into memory that nobody cleared",
        total("tl.atomic_add(z, part)", out="torch.empty(1, device=x.device)"),
        "incorrect/unwritten|values|nonfinite",
        task=SUM,
    ),
    attack(
        "33 lanes beside the mask in a sum",
        total("tl.atomic_add(z, tl.sum(tl.load(x + o, mask=o < n - 7, other=1.0)))"),
        "incorrect/values",
        task=SUM,
    ),
    attack(
        "34 NaN wherever the reference may have one", op("x * float('nan')"), "incorrect/nonfinite", task=LOG
    ),
    attack(
        "34 zero where the reference has NaN",
        op("torch.log(x).nan_to_num()"),
        "incorrect/nonfinite",
        task=LOG,
    ),
    attack(
        "34 infinities of one sign",
        op("1 / torch.where(x.abs() < 0.5, -torch.zeros_like(x), x)"),
        "incorrect/nonfinite",
        task=POLES,
    ),
    attack("34 another dtype of integers", op("(x > 0).sum(0).int()"), "incorrect/dtype", task=COUNT),
    attack("34 a dimension more", op("(x + y)[None]", "x, y"), "incorrect/shape"),
    attack("34 an output less", op("x * 2"), "incorrect/structure", task=PAIR),
    attack("34 an empty result of another shape", op("x.new_empty(0, 5)"), "incorrect/shape", task=EMPTY),
    attack("34 a result in host memory", op("(x + y).cpu()", "x, y"), "incorrect/device"),
    attack(
        "34 strides taken for granted",
        RIGHT,
        "incorrect/values|out_of_bounds|unwritten",
        task=WINDOW,
    ),
    attack(
        "35 an update that is lost",
        total("tl.store(z, tl.load(z) + part)"),
        "incorrect/race",
        task=SUM,
    ),
    attack(
        "35 the last writer wins",
        total("tl.store(z, part)"),
        "incorrect/race",
        task=SUM,
    ),
    attack(
        "35 an update that is lost, beside an atomic of no consequence",
        ordered("tl.atomic_add(flags, 1)\ntl.store(z, tl.load(z) + part)"),
        "incorrect/race",
        task=SUM,
    ),
    attack(
        "35 an update that is lost, beside an atomic whose answer is kept and not looked at",
        ordered("before = tl.atomic_add(flags, 1)\ntl.store(z, tl.load(z) + part)"),
        "incorrect/race",
        task=SUM,
    ),
    attack(
        "35 counts by atomics, and sums without",
        SEGMENT_MEAN.replace("ADD", "tl.store(s + i, tl.load(s + i) + tl.load(x + p))"),
        "incorrect/race",
        task=SEGMENTS,
    ),
    attack(
        "35 results put down in the order of arrival",
        ARRIVAL,
        "incorrect/program_order",
        task=DOUBLE,
    ),
]

ON_A_GPU = [
    attack("31 adds into its input", op("x.add_(y).clone()", "x, y"), "incorrect/input_mutated"),
    attack(
        "33 adds into memory that nobody cleared",
        total("tl.atomic_add(z, part)", out="torch.empty(1, device=x.device)"),
        "incorrect/unwritten|values|nonfinite",
        task=SUM,
    ),
    attack(
        "33 writes behind the end of its input",
        KERNEL.replace(
            "tl.store(z_ptr + o, x + y, mask=o < n)",
            "tl.store(z_ptr + o, x + y, mask=o < n)\n    tl.store(x_ptr + n + o, x)",
        ),
        "incorrect/out_of_bounds",
    ),
]

FLOAT_ATOMICS = honest("35 float atomics", total("tl.atomic_add(z, part)"), task=SUM)
HONEST = [
    honest("31 changes what the task changes", op("x.add_(y) * 2", "x, y"), task=IN_PLACE),
    honest(
        "32 weights by other names, drawn in the same order",
        layers(
            "x @ self.a @ self.b",
            init="self.a = nn.Parameter(torch.randn(16, 16))\nself.b = nn.Parameter(torch.randn(16, 16))",
        ),
        task=TWO_LAYERS,
        word="no tensor named",
    ),
    honest("34 NaN where the reference has one", op("torch.log(x)"), task=LOG),
    honest("34 nothing, of the right shape", op("x * 2"), task=EMPTY),
    honest("34 strides looked at", op("torch.add(x, y)", "x, y"), task=WINDOW),
    honest("34 outputs in a list", op("[x * 2, x > 0]"), task=PAIR),
    FLOAT_ATOMICS,
    honest("35 sums of which some cancel out", ONE_AFTER_THE_OTHER, task=SUMS),
    honest(
        "35 counts and sums by atomics",
        SEGMENT_MEAN.replace("ADD", "tl.atomic_add(s + i, tl.load(x + p))"),
        task=SEGMENTS,
    ),
    honest(
        "35 sums under a lock, which is told",
        ordered(
            "while tl.atomic_cas(flags, 0, 1) == 1:\n    pass\n"
            "tl.store(z, tl.load(z) + part)\ntl.atomic_xchg(flags, 0)"
        ),
        task=SUM,
        word="race in kernel",
    ),
    honest(
        "35 parts, which the program that comes last adds up",
        ordered(
            "tl.store(parts + i, part)\nif tl.atomic_add(flags, 1) == 2:\n"
            "    tl.store(z, tl.load(parts) + tl.load(parts + 1) + tl.load(parts + 2))"
        ),
        task=SUM,
        word="race in kernel",
    ),
    honest(
        "35 each program waits for the one before, by a flag that it loads",
        ordered(
            "if i > 0:\n    while tl.load(flags + i - 1, volatile=True) == 0:\n        pass\n"
            "tl.store(z, tl.load(z) + part)\ntl.atomic_xchg(flags + i, 1)"
        ),
        task=SUM,
        word="race in kernel",
    ),
    honest(
        "35 counts by atomics",
        HISTOGRAM_KERNEL.replace("ADD", "tl.atomic_add(z + v, 1, mask=o < n)"),
        task=HISTOGRAM,
    ),
    honest(
        "35 parts, and a second launch that adds them",
        total(
            "tl.store(z + i, part)",
            out="torch.zeros(32, device=x.device)",
            launch="kernel[(3,)](x, z, x.numel(), B=32)\n            parts, z = z, torch.empty(1, device=x.device)\n"
            "            kernel[(1,)](parts, z, 32, B=32)",
        ),
        task=SUM,
    ),
    honest(
        "34 another layout in memory is told",
        "import torch\ndef op(x):\n    return x.clone().t()\n",
        task=function(
            "N = 16\ndef op(x):\n    return x.t().contiguous()", "[torch.randn(N, N, device=device)]"
        ),
        word="out has strides [1, 16], the reference's [16, 1]",
    ),
]


@pytest.mark.parametrize(("task", "candidate", "found"), ATTACKS)
async def test_state_that_is_misused_is_found(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(("task", "candidate", "found"), HONEST)
async def test_state_that_is_used_as_it_may_be_passes(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(
    ("task", "candidate", "found"),
    [pytest.param(*row.values, id=row.id, marks=ON_GPU) for row in [*ON_A_GPU, FLOAT_ATOMICS]],
)
async def test_state_that_is_misused_on_a_gpu_is_found(gpu_court, task, candidate, found):
    found.check(await gpu_court.verdict(task, candidate))


UNDEFINED = (
    IMPORTS
    + """
@triton.jit
def count(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < n)
    tl.store(z_ptr, tl.sum(tl.where(x == x, 0, 1000)))

def op(x):
    z = torch.empty(1, dtype=torch.int32, device=x.device)
    count[(1,)](x, z, 96, BLOCK=128)
    if int(z): raise ValueError(f"{int(z)} of them")
    return x * 2
"""
)
ONCE = "import torch\nCALLS = []\ndef op(x):\n    CALLS.append(1)\n    if len(CALLS) == 1: raise ValueError('once')\n    return x * 2\n"


async def test_an_error_that_rests_on_undefined_lanes_is_told_from_one_that_does_not(court):
    task = function("N = 96\ndef op(x):\n    return x * 2", "[torch.randn(N, device=device)]")
    outcome = await court.verdict(task, UNDEFINED)
    assert outcome.status == "correct"  # with zeros there, as a GPU leaves them
    assert any("masked load leaves undefined" in note for note in outcome.facts.notes)
    outcome = await court.verdict(task, ONCE)
    assert outcome.status == "runtime_error"
    assert '"once"' in outcome.summary
