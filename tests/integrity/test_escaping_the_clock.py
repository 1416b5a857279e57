"""Kinds 1 to 10: work done where, or when, no clock runs.

These show what holds without a clock: a result is whole when the call returns, whatever would tell the time is left
alone, and no call is told from another.

A candidate that counts its calls and changes after more than the few dozen that are made is not found today; that is
said in SECURITY.md.
"""

import pytest
from attacks import KERNEL, ON_GPU, adding, attack, honest
from court import function, kernelbench

pytestmark = pytest.mark.anyio

LARGER = function(
    "N = 1024\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)
LINEAR = kernelbench(
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.randn(96))

        def forward(self, x):
            return x * self.scale
    """,
    "[torch.randn(4, 96)]",
)

LATE = "z = torch.empty_like(x)\n{}\nreturn z"
ANSWER = """
frame = inspect.currentframe()
while "connection" not in frame.f_locals: frame = frame.f_back
frame.f_locals["connection"].send({"ok": {
    "outputs": [{"path": "out", "dtype": "float32", "shape": [96], "start": 0}],
    "aliases": {}, "strange": None, "programs_run": 2,
}})
"""
HARNESS = 'sys.modules["adaexplore_mcp.evaluation.workers.candidate"]'

SUM_AND_PRODUCT = function(
    "N = 64\ndef op(x, y):\n    return x + y, x * y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)


ATTACKS = [
    attack(
        "2 a timer's thread writes after the return",
        adding(LATE.format("threading.Timer(0.3, lambda: torch.add(x, y, out=z)).start()")),
        "incorrect/unwritten",
    ),
    attack(
        "2 a finalizer writes when the next call begins",
        adding(
            "kept.clear()\nz = torch.empty_like(x)\nkept.append(Late(z, x, y))\nreturn z",
            before=(
                "kept = []\nclass Late:\n    def __init__(self, z, x, y): self.all = z, x, y\n"
                "    def __del__(self):\n        z, x, y = self.all\n        z.copy_(right(x, y))\n"
            ),
        ),
        "incorrect/unwritten",
    ),
    attack(
        "2 a signal handler writes after the return",
        adding(
            LATE.format(
                "signal.signal(signal.SIGVTALRM, lambda *_: torch.add(x, y, out=z))\n"
                "signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)"
            )
        ),
        "incorrect/unwritten",
    ),
    attack(
        "3 a subclass that computes at its first use",
        adding(
            "z = torch.empty_like(x).as_subclass(Later)\nz.both = x, y\nreturn z",
            before=(
                "class Later(torch.Tensor):\n    @classmethod\n"
                "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
                "        return function(right(*args[0].both), *args[1:])\n"
            ),
        ),
        "rejected/output_type",
        word="subclass",
    ),
    attack(
        "3 Parameter itself made lazy",
        adding(
            "z = nn.Parameter(torch.empty_like(x), requires_grad=False)\nz.both = x, y\nreturn z",
            before=(
                "def later(cls, function, types, args=(), kwargs=None):\n"
                "    both = args[0].__dict__.pop('both', None)\n"
                "    if both: args[0].data.copy_(right(*both))\n"
                "    with torch._C.DisableTorchFunctionSubclass():\n"
                "        return function(*args, **(kwargs or {}))\n"
                "nn.Parameter.__torch_function__ = classmethod(later)\n"
            ),
        ),
        "incorrect/unwritten",
    ),
    attack(
        "3 a sparse tensor, to be made dense later",
        adding("return right(x, y).to_sparse()"),
        "rejected/output_type",
        word="layout",
    ),
    attack(
        "3 a function that would give the result",
        adding("return lambda: right(x, y)"),
        "incorrect/structure",
        word="function",
    ),
    attack(
        "4 an event that tells a hundredth",
        adding(
            "return right(x, y)",
            before=(
                "class Quick:\n    def __init__(self, **options): pass\n    def record(self, stream=None): pass\n"
                "    def elapsed_time(self, other): return 0.001\ntorch.cuda.Event = Quick\n"
            ),
        ),
        "rejected/patched",
        word="torch.cuda.Event",
    ),
    attack(
        "4 an event whose method tells a hundredth",
        adding("return right(x, y)", before="torch.cuda.Event.elapsed_time = lambda self, other: 0.001\n"),
        "rejected/patched",
        word="torch.cuda.Event.elapsed_time",
    ),
    attack(
        "5 a comparison behind a wrapper of torch's",
        adding(
            "return right(x, y)",
            before="new = torch.no_grad()(lambda *a, **k: True)\nnew.__wrapped__ = torch.allclose\ntorch.allclose = new\n",
        ),
        "rejected/patched",
        word="torch.allclose",
    ),
    attack(
        "4 do_bench replaced in the call",
        adding("import triton.testing\ntriton.testing.do_bench = lambda *_, **__: 1e-3\nreturn right(x, y)"),
        "rejected/patched",
        word="triton.testing.do_bench",
    ),
    attack(
        "4 a clock that stands still",
        adding("return right(x, y)", before="now = time.perf_counter()\ntime.perf_counter = lambda: now\n"),
        "rejected/patched",
        word="time.perf_counter",
    ),
    attack(
        "4 a hook that delays every other module",
        adding(
            "return right(x, y)",
            before="nn.modules.module.register_module_forward_hook(lambda *_: time.sleep(0.001))\n",
        ),
        "rejected/patched",
        word="hook on every module",
    ),
    attack(
        "5 comparisons that always agree",
        adding(
            "return torch.zeros_like(x)",
            before=(
                "torch.allclose = torch.isclose = lambda *_, **__: True\n"
                "torch.testing.assert_close = lambda *_, **__: None\n"
            ),
        ),
        "rejected/patched",
        word="torch.allclose",
    ),
    attack(
        "5 other code in assert_close",
        adding(
            "return torch.zeros_like(x)",
            before="def agrees(*_, **__): pass\ntorch.testing.assert_close.__code__ = agrees.__code__\n",
        ),
        "rejected/patched",
        word="assert_close",
    ),
    attack(
        "5 the harness hands over something else",
        adding(
            "return torch.zeros_like(x)",
            before=(
                f"harness, seen = {HARNESS}, []\n"
                "def write(tensors, file):\n    seen.append(file)\n    return real(tensors, file)\n"
                "real, harness.write_contiguous = harness.write_contiguous, write\n"
            ),
        ),
        "rejected/late_work",
    ),
    attack(
        "5 a tracer that changes the reply in the harness's frame",
        adding(
            "sys.setprofile(tamper)\nreturn torch.zeros_like(x)",
            before=(
                "def tamper(frame, event, argument):\n"
                '    if event == "return" and frame.f_code.co_name in {"call", "_export"}:\n'
                '        reply = frame.f_locals.get("reply") or argument\n'
                "        if isinstance(reply, dict): reply.update(passed=True, status='correct', strange=None)\n"
            ),
        ),
        "rejected/patched",
        word="sys.setprofile",
    ),
    attack(
        "5 a frame written in JSON of its own",
        adding(
            "return torch.zeros_like(x)",
            before=(
                "import json\nreal = json.dumps\n"
                'json.dumps = lambda value, **how: real(value, **how).replace(\'"ok": {\', \'"ok": {"passed": true, \')\n'
            ),
        ),
        "rejected/patched",
    ),
    attack(
        "6 a result sent by itself before it leaves",
        adding(f"{ANSWER}\nos._exit(0)"),
        "rejected/forged_result",
        word="no result",
    ),
    attack(
        "6 a result sent by itself while it is imported",
        adding("return right(x, y)", before=ANSWER),
        "rejected/forged_result|patched",
    ),
    attack("6 leaves as if all were well", adding("os._exit(0)"), "crashed/exit", word="exit code 0"),
    attack(
        "6 the word correct on every descriptor",
        adding(
            "for fd in range(3, 64):\n"
            '    try: os.write(fd, b\'{"status": "correct"}\' * 9)\n    except OSError: pass\n'
            "os._exit(0)"
        ),
        "rejected/forged_result|outputs_kept_writable",
    ),
    attack(
        "7 the first call works for all that follow",
        adding("first.append(right(x, y)) if not first else None\nreturn first[0]", before="first = []\n"),
        "rejected/stale_output",
        word="another call",
    ),
    attack(
        "9 results of the inputs of likely seeds, made at import",
        adding(
            "return known.get(float(x[0]), torch.zeros_like(x))",
            before=(
                "known = {}\nfor seed in range(100):\n    torch.manual_seed(seed)\n"
                "    x, y = torch.randn(96).cuda(), torch.randn(96).cuda()\n    known[float(x[0])] = right(x, y)\n"
            ),
        ),
        "incorrect/values",
    ),
    attack(
        "9 results of the inputs that the generator of the weights would give next",
        KERNEL
        + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(96))
        state = torch.get_rng_state()
        self.made = torch.randn(4, 96) * self.scale.data
        torch.set_rng_state(state)

    def forward(self, x):
        return self.made.to(x.device).clone()
""",
        "incorrect/values",
        task=LINEAR,
    ),
    attack(
        "10 right while details are asked for",
        adding(
            "frame = inspect.currentframe()\n"
            "while frame and 'request' not in frame.f_locals: frame = frame.f_back\n"
            "asked = frame is None or frame.f_locals['request'].get('detail')\n"
            "return right(x, y) if asked else x * 2 + y"
        ),
        "incorrect/values",
    ),
    attack(
        "10 right while it is measured by a mode",
        adding(
            "counted = torch._C._len_torch_dispatch_stack() > 0\nreturn right(x, y) if counted else y - x"
        ),
        "incorrect/values",
    ),
    attack(
        "3 a container that computes while it is walked",
        adding(
            "right(x, y)\nz = Later((x, y))\nz.xy = x, y\nreturn z",
            before=(
                "class Later(tuple):\n    def __iter__(self):\n        x, y = self.xy\n        return iter((x + y, x * y))\n"
            ),
        ),
        "rejected/output_aliases_input",
        task=SUM_AND_PRODUCT,
    ),
    attack(
        "2 a mode of torch's dispatcher that computes after the call",
        adding(
            "z = torch.empty_like(x)\nwaiting.append((z, x, y))\nreturn z",
            before=(
                "from torch.utils._python_dispatch import TorchDispatchMode\nwaiting = []\n"
                "class Later(TorchDispatchMode):\n    def __torch_dispatch__(self, f, types, args=(), kwargs=None):\n"
                "        for z, x, y in list(waiting):\n            if any(each is z for each in args):\n"
                "                waiting.clear()\n                z.copy_(x + y)\n        return f(*args, **(kwargs or {}))\n"
                "Later().__enter__()\n"
            ),
        ),
        "rejected/patched",
        word="a mode was left on: Later",
    ),
    attack(
        "4 a clock whose module is of another class",
        adding(
            "return right(x, y)",
            before="class Clock(type(time)):\n    perf_counter_ns = staticmethod(lambda: 0)\ntime.__class__ = Clock\n",
        ),
        "rejected/patched",
        word="time (its class)",
    ),
    attack(
        "5 a median that is always small",
        adding("return right(x, y)", before="import statistics\nstatistics.median = lambda *a: 1e-9\n"),
        "rejected/patched",
        word="statistics.median",
    ),
    attack(
        "5 a norm that is always zero",
        adding("return right(x, y)", before="torch.linalg.vector_norm = lambda *a, **k: torch.zeros(())\n"),
        "rejected/patched",
        word="torch.linalg.vector_norm",
    ),
    attack(
        "5 layers that take their time, for the baseline",
        adding(
            "return right(x, y)",
            before="forward = nn.Linear.forward\n"
            "nn.Linear.forward = lambda self, x: [time.sleep(0.01), forward(self, x)][1]\n",
        ),
        "rejected/patched",
        word="torch.nn.Linear.forward",
    ),
    attack(
        "5 kernels that are not launched",
        adding("return x + y", before="triton.JITFunction.run = lambda *a, **k: None\n"),
        "rejected/patched",
        word="JITFunction.run",
    ),
    attack(
        "2 a trace function that computes while the outputs are handed over",
        adding(
            "z = torch.empty_like(x)\n"
            "def later(frame, event, argument):\n"
            "    if frame.f_code.co_filename != later.__code__.co_filename: sys.settrace(None) or z.copy_(right(x, y))\n"
            "sys.settrace(later)\nreturn z"
        ),
        "rejected/patched",
        word="sys.settrace",
    ),
    attack(
        "2 a profile function that computes at the next call, and goes",
        adding(
            "z = torch.empty_like(x)\n"
            "def later(frame, event, argument):\n"
            "    if event in {'call', 'c_call'} and frame.f_code.co_filename != later.__code__.co_filename:\n"
            "        sys.setprofile(None) or z.copy_(right(x, y))\n"
            "sys.setprofile(later)\nreturn z"
        ),
        "rejected/patched",
        word="sys.setprofile",
    ),
    attack(
        "2 a collection that computes after the call",
        adding(
            "z = torch.empty_like(x)\nwaiting.append((z, x, y))\ngc.set_threshold(1)\nreturn z",
            before=(
                "waiting = []\n"
                "def later(*_):\n"
                "    frame, names = sys._getframe(), set()\n"
                "    while frame: frame, _ = frame.f_back, names.add(frame.f_code.co_name)\n"
                "    if waiting and 'op' not in names:\n"
                "        z, x, y = waiting.pop()\n        z.copy_(right(x, y))\n"
                "gc.callbacks.append(later)\n"
            ),
        ),
        "rejected/patched",
        word="gc.callbacks",
    ),
    attack(
        "2 a hook on audited events that computes after the call",
        adding(
            "z = torch.empty_like(x)\nwaiting.append((z, x, y))\nreturn z",
            before=(
                "waiting = []\n"
                "def later(event, _):\n"
                "    if waiting and event == 'os.truncate':\n"
                "        z, x, y = waiting.pop()\n        z.copy_(right(x, y))\n"
                "sys.addaudithook(later)\n"
            ),
        ),
        "rejected/patched",
        word="sys.addaudithook",
    ),
    attack(
        "2 a launch when its outputs are let go",
        adding(
            "z = right(x, y)\nz.last = Last((x, y))\nreturn z",
            before="class Last(tuple):\n    def __del__(self): right(*self)\n",
        ),
        "rejected/late_work",
        word="once its call had returned",
    ),
    attack(
        "3 a sum that is to be negated by whoever reads it",
        adding("return torch._neg_view(right(-x, -y))"),
        "rejected/output_type",
        word="negated",
    ),
    attack(
        "5 operators of torch's dispatcher that always agree",
        adding(
            "return right(x, y)",
            before="library = torch.library.Library('aten', 'IMPL')\n"
            "library.impl('allclose', lambda *a, **k: True, 'CPU')\n",
        ),
        "rejected/patched",
        word="kernels of its own for aten",
    ),
    attack(
        "5 tensors that are equal to all others",
        adding(
            "return right(x, y)",
            before="torch.Tensor.__eq__ = lambda self, other: torch.ones((), dtype=torch.bool)\n",
        ),
        "rejected/patched",
        word="torch.Tensor.__eq__",
    ),
    attack(
        "5 tolerances that let everything pass",
        adding(
            "return right(x, y)",
            before="torch.testing.assert_close.__kwdefaults__ = {\n"
            "    **torch.testing.assert_close.__kwdefaults__, 'rtol': 1e9, 'atol': 1e9}\n",
        ),
        "rejected/patched",
        word="assert_close",
    ),
    attack(
        "5 another function of torch's under the name of one",
        adding("return right(x, y)", before="F.relu = F.silu\n"),
        "rejected/patched",
        word="torch.nn.functional.relu",
    ),
    attack(
        "1 a launch on a stream that nothing waits for, which is told",
        adding(
            "side = torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side): return right(x, y)"
        ),
        "correct",
        word="kernel on a stream of its own",
    ),
]

ON_A_GPU = [
    attack(
        "1 work left on a stream of its own",
        adding(
            "z, side = torch.empty_like(x), torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side):\n    torch.cuda._sleep(1 << 30)\n    z.copy_(right(x, y))\nreturn z"
        ),
        "incorrect/unwritten|values|nonfinite",
        task=LARGER,
    ),
    attack(
        "2 a timer's thread launches after the return",
        adding(LATE.format("threading.Timer(0.3, lambda: z.copy_(right(x, y))).start()")),
        "incorrect/unwritten|values|nonfinite",
        task=LARGER,
    ),
    attack(
        "4 an event that tells nothing",
        adding("return right(x, y)", before="torch.cuda.Event.elapsed_time = lambda self, end: 0.001\n"),
        "rejected/patched",
        task=LARGER,
        word="torch.cuda.Event",
    ),
]

MILLIONS = function(
    "N = 1 << 22\ndef op(x, y):\n    return x + y",
    "[torch.randn(N, device=device), torch.randn(N, device=device)]",
)
KEEPING = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
class Window(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_void_p), ("size", ctypes.c_size_t), ("share", ctypes.c_float),
        ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("rest", ctypes.c_ubyte * 32),
    ]
def keep(x):
    driver.cuCtxSetLimit(6, ctypes.c_size_t(32 << 20))
    window = Window(x.data_ptr(), x.numel() * x.element_size(), 1.0, 2, 1)
    driver.cuStreamSetAttribute(
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), 1, ctypes.byref(window)
    )
"""
TIMED_ON_A_GPU = [
    attack(
        "8 an input kept in the L2 cache from call to call",
        adding("keep(x)\nreturn right(x, y)", before=KEEPING),
        "rejected/cache_kept",
        task=MILLIONS,
        word="of the L2 cache aside",
    ),
    honest("8 a kernel that keeps nothing", adding("return right(x, y)"), task=MILLIONS),
]

HONEST = [
    honest(
        "1 a stream of its own that is waited for",
        adding(
            "side = torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side): z = right(x, y)\n"
            "torch.cuda.current_stream().wait_stream(side)\nreturn z"
        ),
    ),
    honest(
        "2 a thread that only waits",
        adding(
            "return right(x, y)",
            before="threading.Thread(target=threading.Event().wait, daemon=True).start()\n",
        ),
        word="thread",
    ),
    honest(
        "5 layers with a forward of their own",
        adding(
            "return right(x, Layer(x.numel(), 1)(y))",
            before="class Layer(nn.Linear):\n    def forward(self, y): return y\n",
        ),
    ),
    honest("3 a Parameter as its result", adding("return nn.Parameter(right(x, y), requires_grad=False)")),
    honest(
        "4 looks at the clock",
        adding(
            "begun = time.perf_counter()\nz = right(x, y)\ntorch.cuda.synchronize()\n"
            "self_made = time.perf_counter() - begun\nreturn z"
        ),
    ),
    honest(
        "2 a profile of its own, over when it returns",
        adding("import cProfile\nreturn cProfile.Profile().runcall(right, x, y)"),
    ),
    honest(
        "5 operators of a library of its own",
        adding(
            "return torch.ops.twins.add(x, y)",
            before="library = torch.library.Library('twins', 'DEF')\n"
            "library.define('add(Tensor x, Tensor y) -> Tensor')\nlibrary.impl('add', right, 'CompositeExplicitAutograd')\n",
        ),
    ),
    honest("5 a clean import that rebinds names", adding("import torch._dynamo\nreturn right(x, y)")),
    honest(
        "9 a table made at import",
        adding(
            "return right(right(x, y), zeros[: x.numel()])",
            before="zeros = torch.zeros(1024, device='cuda')\n",
        ),
    ),
]


@pytest.mark.parametrize(("task", "candidate", "found"), ATTACKS)
async def test_what_is_done_out_of_sight_of_a_clock_is_found(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(("task", "candidate", "found"), HONEST)
async def test_what_is_done_in_time_passes(court, task, candidate, found):
    found.check(await court.verdict(task, candidate))


@pytest.mark.parametrize(
    ("task", "candidate", "found"),
    [pytest.param(*row.values, id=row.id, marks=ON_GPU) for row in [*ON_A_GPU, HONEST[0]]],
)
async def test_work_that_a_gpu_has_not_ended_is_no_result(gpu_court, task, candidate, found):
    found.check(await gpu_court.verdict(task, candidate))


@pytest.mark.parametrize(
    ("task", "candidate", "found"),
    [pytest.param(*row.values, id=row.id, marks=ON_GPU) for row in TIMED_ON_A_GPU],
)
async def test_what_would_make_timed_calls_faster_than_others_is_found(gpu_court, task, candidate, found):
    outcome = await gpu_court.verdict(task, candidate, timed=True)
    found.check(outcome)
    assert outcome.status == "rejected" or outcome.timing.speedups
