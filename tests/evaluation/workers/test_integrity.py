"""An audit hook cannot be taken away, so each of these looks in a process of its own, forked from one that is warm."""

import json
import os
import subprocess
import sys

import pytest

HOST = """
import json, os, sys
import torch, triton
from adaexplore_mcp.evaluation.workers.integrity import Watch
for line in sys.stdin:
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        watch = Watch()
        watch.phase = "run"
        exec(json.loads(line))
        seen = [watch.patched(thorough=True), [event["kind"] for event in watch.events], watch.new_threads()]
        os.write(write_end, json.dumps(seen).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        print(pipe.read(), flush=True)
    os.wait()
"""


HOOKING = "import sys\ndef add():\n    sys.addaudithook(lambda *a: None)\nif __name__ != 'hooking_later':\n    add()\n"


@pytest.fixture(scope="module")
def seen_after(tmp_path_factory):
    installed = tmp_path_factory.mktemp("installed")
    for name in ("hooking", "hooking_later"):
        (installed / f"{name}.py").write_text(HOOKING)
    host = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOST],
        env={**os.environ, "PYTHONPATH": str(installed)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )

    def ask(action):
        host.stdin.write(json.dumps(action) + "\n")
        return json.loads(host.stdout.readline())

    with host:
        yield ask


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("torch.allclose = lambda *a, **k: True", "torch.allclose"),
        ("torch.Tensor.equal = lambda *a: True", "torch.Tensor.equal"),
        ("torch.cuda.Event = type('Event', (), {})", "torch.cuda.Event"),
        ("import triton.testing; triton.testing.do_bench = lambda *a: 1.0", "triton.testing.do_bench"),
        ("torch.randn = torch.zeros.__call__", "torch.randn"),
        ("import time; time.perf_counter = lambda: 0.0", "time.perf_counter"),
        (
            "torch.nn.functional.relu.__code__ = (lambda input, inplace=False: input).__code__",
            "functional.relu",
        ),
        ("del torch.isclose", "torch.isclose"),
        ("import statistics; statistics.median = lambda *a: 1e-9", "statistics.median"),
        ("import timeit; timeit.default_timer = lambda: 0.0", "timeit.default_timer"),
        ("torch.linalg.vector_norm = lambda *a, **k: torch.zeros(())", "torch.linalg.vector_norm"),
        ("torch.nn.Linear.forward = lambda self, x: x", "torch.nn.Linear.forward"),
        (
            "torch.nn.Linear.forward.__code__ = (lambda self, input: input).__code__",
            "torch.nn.Linear.forward",
        ),
        ("torch.nn.BatchNorm1d.forward = lambda self, x: x", "torch.nn.BatchNorm1d.forward"),
        (
            "torch.nn.modules.batchnorm._BatchNorm.forward = lambda self, x: x",
            "torch.nn.modules.batchnorm._BatchNorm.forward",
        ),
        ("torch.nn.ReLU.__call__ = lambda self, x: x", "torch.nn.ReLU.__call__"),
        (
            "import triton.runtime.jit as jit; jit.JITFunction.run = lambda *a, **k: None",
            "triton.runtime.JITFunction.run",
        ),
        (
            "from triton.runtime.autotuner import Autotuner; Autotuner.run = lambda *a, **k: None",
            "triton.runtime.Autotuner.run",
        ),
        (
            "import time; time.__class__ = type('Clock', (type(time),), {'perf_counter_ns': lambda: 0})",
            "time (its class)",
        ),
        (
            "import statistics; sys.modules['statistics'] = type(sys)('statistics')",
            "sys.modules.statistics",
        ),
        ("torch.nn.modules.module.register_module_forward_pre_hook(lambda *a: None)", "hook on every module"),
        ("torch.nn.modules.module._global_forward_hooks_always_called[0] = True", "hook on every module"),
        ("torch.Tensor.__sub__ = lambda a, b: a", "torch.Tensor.__sub__"),
        ("torch.nn.functional.relu = torch.nn.functional.silu", "torch.nn.functional.relu"),
        ("torch.nn.init.normal_ = torch.nn.init.zeros_", "torch.nn.init.normal_"),
        (
            """
def always(*a, **k): return True
always.__code__ = always.__code__.replace(co_filename=torch.__file__)
torch.equal = always""",
            "torch.equal",
        ),
        (
            """
from torch.utils._device import DeviceContext
class Bend(DeviceContext):
    def __torch_function__(self, function, types, args=(), kwargs=None): return function(*args, **(kwargs or {}))
Bend(torch.device('cpu')).__enter__()""",
            "a mode was left on: Bend",
        ),
        ("torch.library.Library('aten', 'IMPL')", "kernels of its own for aten"),
        ("torch.library.Library('aten', 'FRAGMENT')", "kernels of its own for aten"),
        (
            "torch.library._scoped_library('aten', 'FRAGMENT').__enter__()",
            "kernels of its own for aten",
        ),
        ("torch.ops.aten.allclose = lambda *a, **k: True", "torch.ops.aten.allclose"),
        ("torch._C._cuda_synchronize = torch._C._broadcast_shapes = lambda *a: None", "torch._C"),
        ("torch._C._CudaEventBase = type('Event', (), {})", "torch._C._CudaEventBase"),
        (
            "import torch.utils._pytree as p; p.tree_map = lambda f, tree: tree",
            "torch.utils._pytree.tree_map",
        ),
        ("import torch.utils.benchmark as b; b.Timer = object", "torch.utils.benchmark.Timer"),
        (
            "import torch.testing._comparison as c; c.TensorLikePair.compare = lambda self: None",
            "TensorLikePair.compare",
        ),
        ("torch.profiler.profile.key_averages = lambda self: []", "key_averages"),
        ("torch.cuda.streams.Event.elapsed_time = lambda self, other: 1e-3", "Event.elapsed_time"),
        ("torch.nn.LayerNorm = torch.nn.Identity", "torch.nn.LayerNorm"),
        ("torch.nn.Linear.reset_parameters = lambda self: None", "torch.nn.Linear.reset_parameters"),
        ("torch.default_generator = torch.Generator()", "torch.default_generator"),
        ("triton.cdiv = lambda a, b: 1", "triton.cdiv"),
        ("triton.Config = dict", "triton.Config"),
        (
            "torch.testing.assert_close.__kwdefaults__['rtol'] = 1e9",
            "torch.testing.assert_close",
        ),
        ("import builtins; builtins.abs = lambda x: 0", "builtins.abs"),
        ("import signal; signal.setitimer = lambda *a: (0.0, 0.0)", "signal.setitimer"),
        ("import threading; threading.Thread.start = lambda self: None", "threading.Thread.start"),
        (
            "import multiprocessing.connection as c; c.Connection.send = lambda self, o: None",
            "multiprocessing.connection.Connection.send",
        ),
        ("import copy; copy.deepcopy = lambda o, *a: o", "copy.deepcopy"),
        ("import pickle; pickle.dumps = lambda o, *a: b''", "pickle.dumps"),
        ("import dataclasses; dataclasses.asdict = lambda o: {}", "dataclasses.asdict"),
        ("import inspect; inspect.getsource = lambda o: ''", "inspect.getsource"),
        ("import hashlib; hashlib.sha256 = lambda *a: None", "hashlib.sha256"),
        ("import numpy as np; np._core.numeric.allclose = lambda *a: True", "numeric.allclose"),
        ("sys.setprofile(lambda *a: None)", "sys.setprofile"),
        ("sys.settrace(lambda *a: None)", "sys.settrace"),
        ("import threading; threading.settrace(lambda *a: None)", "threading.settrace"),
        ("import gc; gc.callbacks.append(lambda *a: None)", "gc.callbacks"),
        ("sys.addaudithook(lambda *a: None)", "sys.addaudithook"),
        (
            """
new = torch.no_grad()(lambda *a, **k: True)
new.__wrapped__ = torch.allclose
torch.allclose = new""",
            "torch.allclose",
        ),
        (
            """
import statistics
kept = statistics.median.__code__
statistics.median.__code__ = (lambda data: 1.0).__code__
statistics.median.__code__ = kept""",
            "statistics.median",
        ),
        (
            """
fake = type(sys)('torch.fake')
fake.__file__ = os.path.join(os.path.dirname(torch.__file__), 'fake.py')
sys.modules['torch.fake'] = fake
exec(compile('def wrap(old):\\n def always(*a, **k): return True or old\\n return always', fake.__file__, 'exec'), vars(fake))
torch.equal = fake.wrap(torch.equal)""",
            "torch.equal",
        ),
        (
            """
import functools, torch.utils._pytree as p
p.tree_map(functools.partial(torch.library.Library, kind='IMPL'), ['aten'])""",
            "kernels of its own for aten",
        ),
    ],
)
def test_a_replaced_function_is_named(seen_after, action, name):
    patched, _, _ = seen_after(action)
    assert patched
    # What another module has it from may be watched, too.
    own = name.rpartition(".")[2]
    assert any(name in each for each in patched)
    assert all(own in each for each in patched)


def test_honest_work_changes_nothing_that_is_watched(seen_after):
    action = (
        "import torch._dynamo\n"
        "torch.set_default_dtype(torch.float64); torch.manual_seed(3); torch.nn.Linear(2, 2)(torch.ones(1, 2))\n"
        "torch.backends.cuda.matmul.allow_tf32 = True"
    )
    assert seen_after(action) == [[], [], []]


def test_modules_that_derive_and_libraries_that_are_imported_change_nothing_that_is_watched(seen_after):
    action = (
        "import math, random, statistics, timeit\n"
        "import torch._inductor.compile_fx, torch.fx, torch.jit, torch.func, torch.ao.quantization\n"
        "import torch.utils.benchmark, torch.nn.utils.parametrizations\n"
        "class Mine(torch.nn.Linear):\n    def forward(self, x): return super().forward(x) * 2\n"
        "mine = torch.nn.utils.parametrizations.weight_norm(Mine(2, 2)); mine(torch.ones(1, 2))\n"
        "torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))\n"
        "torch.nn.Linear(2, 2).forward = lambda x: x\n"
        "torch.linalg.norm(torch.ones(3)); torch.fft.rfft(torch.ones(4)); torch.special.erf(torch.ones(1))\n"
        "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)\n"
        "random.seed(1); statistics.median([1, 2]); timeit.timeit('1', number=1)\n"
        "import triton, triton.language as tl, triton.runtime.driver, triton.compiler"
    )
    assert seen_after(action) == [[], [], []]


def test_a_library_may_have_an_audit_hook_and_nobody_may_pass_for_one(seen_after, tmp_path):
    assert seen_after("import hooking") == [[], [], []]
    (tmp_path / "hooking_too.py").write_text(HOOKING)
    for own in (
        f"sys.path.insert(0, {str(tmp_path)!r}); import hooking_too",
        f"exec(compile({HOOKING!r}, torch.__file__, 'exec'), vars(torch))",
        "import hooking_later as h, types; types.FunctionType(h.add.__code__, {**vars(h)})()",
    ):
        assert seen_after(own)[0], own


def test_what_is_built_compiled_profiled_and_copied_changes_nothing_that_is_watched(seen_after):
    action = (
        "import cProfile, copy, gc, pickle, signal\n"
        "import torch._decomp, torch._refs, torch.package, torch.sparse, torch.utils.benchmark\n"
        "@torch.library.custom_op('twins::one', mutates_args=())\n"
        "def one(x: torch.Tensor) -> torch.Tensor: return x + 1\n"
        "@torch.library.custom_op('twins::two', mutates_args=())\n"
        "def two(x: torch.Tensor) -> torch.Tensor: return one(x)\n"
        "two.register_fake(torch.empty_like)\n"
        "torch.library.Library('others', 'DEF').define('three(Tensor x) -> Tensor')\n"
        "torch.compile(lambda x: torch.relu(two(x)), backend='aot_eager')(torch.ones(2))\n"
        "cProfile.Profile().runcall(two, torch.ones(2)); torch.ops.aten.add.Tensor(torch.ones(1), 1)\n"
        "pickle.dumps(copy.deepcopy(torch.nn.Linear(2, 2)))\n"
        "torch.utils.benchmark.Timer('1 + 1').timeit(2); torch.testing.assert_close(torch.ones(1), torch.ones(1))\n"
        "torch.set_default_device('cpu'); gc.disable(); signal.signal(signal.SIGINT, signal.SIG_DFL)"
    )
    assert seen_after(action) == [[], [], []]


@pytest.mark.parametrize(
    ("action", "kinds"),
    [
        ("import subprocess; subprocess.run(['true'])", ["process"]),
        ("os.system('true')", ["process"]),
        ("os.fork() or os._exit(0)", ["process"]),
        ("import triton.testing, torch.utils._pytree as p; p.tree_map(os.system, ['true'])", ["process"]),
        (
            "exec(compile('import subprocess; subprocess.run([\"true\"])', triton.compiler.compiler.__file__, 'exec'))",
            ["process"],
        ),
        (
            "import torch.utils.cpp_extension as c; c.get_compiler_abi_compatibility_and_version('c++')",
            [],
        ),
        ("os.kill(os.getppid(), 0)", []),
        ("os.kill(os.getpid(), 28)", []),
        (
            "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError: pass",
            ["socket"],
        ),
    ],
)
def test_what_reaches_outside_of_the_process_is_an_event(seen_after, action, kinds):
    _, events, _ = seen_after(action)
    assert sorted(set(events)) == kinds


def test_a_thread_left_running_is_named(seen_after):
    action = "import threading; threading.Thread(target=threading.Event().wait, name='left').start()"
    assert seen_after(action)[2] == ["left"]
