"""An audit hook cannot be taken away, so each of these looks in a process of its own, forked from one that is warm."""

import json
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
        seen = [watch.patched(), [event["kind"] for event in watch.events], watch.new_threads()]
        os.write(write_end, json.dumps(seen).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        print(pipe.read(), flush=True)
    os.wait()
"""


@pytest.fixture(scope="module")
def seen_after():
    host = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOST],
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
            "sys.modules['statistics']",
        ),
        ("torch.nn.modules.module.register_module_forward_pre_hook(lambda *a: None)", "hook on every module"),
    ],
)
def test_a_replaced_function_is_named(seen_after, action, name):
    patched, _, _ = seen_after(action)
    assert len(patched) == 1
    assert name in patched[0]


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
        "random.seed(1); statistics.median([1, 2]); timeit.timeit('1', number=1)\n"
        "import triton, triton.language as tl, triton.runtime.driver, triton.compiler"
    )
    assert seen_after(action) == [[], [], []]


@pytest.mark.parametrize(
    ("action", "kinds"),
    [
        ("import subprocess; subprocess.run(['true'])", ["process"]),
        ("os.system('true')", ["process"]),
        ("os.fork() or os._exit(0)", ["process"]),
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
