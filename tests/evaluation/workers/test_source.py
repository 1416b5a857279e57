"""What a candidate's source shows before any of it runs."""

import textwrap
import time

import pytest

from adaexplore_mcp.evaluation.workers.source import signs_of

KERNELS = """
import torch, triton
import triton.language as tl

@triton.jit
def helper(x):
    return x * 2

@triton.autotune(configs=[], key=[])
@triton.jit
def kernel(x_ptr, n):
    tl.store(x_ptr, helper(tl.load(x_ptr)))

@triton.jit
def spare(x_ptr):
    pass

def launch(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, 1)
    return y
"""


def shown(source, prologue=KERNELS):
    return signs_of((prologue + textwrap.dedent(source)).encode())


def kinds(source, prologue=KERNELS):
    return [sign["kind"] for sign in shown(source, prologue)["signs"]]


def test_kernels_are_those_that_no_other_one_calls():
    assert shown("")["kernels"] == {"kernel": 11, "spare": 15}


def test_what_returns_a_value_is_no_kernel():
    helpers = """
        @triton.jit
        def half(x):
            return x / 2

        @triton.jit
        def nothing(x):
            if x == 0:
                return
            return None
    """
    assert list(shown(helpers)["kernels"]) == ["kernel", "spare", "nothing"]


@pytest.mark.parametrize(
    "source",
    [
        "def op(x):\n    try:\n        return launch(x)\n    except Exception:\n        return torch.relu(x)",
        "def op(x):\n    try:\n        kernel[(1,)](x, 1)\n    except Exception:\n        pass\n    return x",
    ],
)
def test_a_failure_that_is_caught_is_a_fallback(source):
    (sign,) = shown(source)["signs"]
    assert sign["kind"] == "fallback_try"
    assert sign["line"] == KERNELS.count("\n") + 2


@pytest.mark.parametrize(
    "source",
    [
        "def op(x):\n    if x.numel() < 100:\n        return torch.relu(x)\n    return launch(x)",
        "def op(x):\n    if x.dtype == torch.float32:\n        y = launch(x)\n    else:\n        y = x * 2\n    return y",
        (
            "class Model:\n    def forward(self, x):\n        if x.shape[0] > 4:\n            return self.go(x)\n"
            "        else:\n            return torch.relu(x)\n    def go(self, x):\n        return launch(x)"
        ),
    ],
)
def test_a_launch_that_a_shape_decides_is_a_fallback(source):
    assert kinds(source) == ["fallback_branch"]


@pytest.mark.parametrize(
    "source",
    [
        "def op(x):\n    try:\n        return launch(x)\n    except Exception as error:\n        raise RuntimeError from error",
        "def op(x):\n    try:\n        import scipy\n    except ImportError:\n        scipy = None\n    return launch(x)",
        "def op(x):\n    if x.shape[0] == 0:\n        return torch.empty_like(x)\n    return launch(x)",
        "def op(x):\n    if x.numel() > 9:\n        raise ValueError(x)\n    return launch(x)",
        "def op(x):\n    if not x.is_cuda:\n        return torch.relu(x)\n    return launch(x)",
        "def op(x):\n    if not x.is_contiguous():\n        x = x.contiguous()\n    return launch(x)",
        "def op(x):\n    if x.shape[0] > 9:\n        return launch(x)\n    return launch(x + 1)",
    ],
)
def test_what_honest_code_does_around_a_launch_is_none(source):
    assert kinds(source) == []


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("torch.backends.cuda.matmul.allow_tf32 = True", "global_flag"),
        ("torch.backends.cudnn.benchmark = True", "global_flag"),
        ("torch.set_float32_matmul_precision('high')", "global_flag"),
        ("with torch.autocast('cuda'):\n    pass", "autocast"),
        ("f = torch.compile(launch)", "torch_compile"),
        ("def op(x):\n    return launch(x.half())", "half_type"),
        ("W = torch.bfloat16", "half_type"),
        ("exec(text)", "runs_text"),
        ("import importlib\nimportlib.import_module('reference')", "runs_text"),
        ("import ctypes\nctypes.CDLL('libcublas.so')", "loads_binary"),
        ("import ctypes\nC = getattr(ctypes, 'CDLL')", "loads_binary"),
        ("from ctypes import cdll as c\nc['libm.so.6']", "loads_binary"),
        ("from torch._C import _DisableTorchDispatch as D", "hides_work"),
        ("import gc\ngc.get_objects()", "looks_inside"),
        ("import sys\nsys._getframe(1).f_locals", "looks_inside"),
        ("text = open('reference.py').read()", "reads_files"),
        ("import glob\nglob.glob('/proc/self/fd/*')", "reads_files"),
        ("from torch.utils.cpp_extension import load_inline\nload_inline('x', '')", "builds_native"),
    ],
)
def test_what_a_reader_should_look_at_is_named(source, kind):
    assert kind in kinds(source)


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('x')",
        "y = x.float()",
        "model.eval()",
        "deterministic = True",
        "half = n // 2",
        "door.open()",
        '"""exec, allow_tf32 = True, gc.get_objects()"""',
    ],
)
def test_words_that_only_look_alike_are_not(source):
    assert kinds(source) == []


@pytest.mark.parametrize(
    "source", [b"def f(:", b"\xff\xfe", b"x = 1\0", b"(" * 100_000, b"-" * 100_000 + b"1"]
)
def test_what_is_no_python_shows_nothing(source):
    assert signs_of(source) == {"kernels": {}, "signs": [], "narrow": True}


@pytest.mark.parametrize(
    "source",
    [
        "z = tl.dot(a, b)",
        "z = tl.dot(a, b, input_precision=PRECISION)",
        "z = tl.dot(a, b, input_precision='tf32')",
        "z = tl.dot_scaled(a, sa, 'e4m3', b, sb, 'e4m3')",
        "y = x.to(tl.float16)",
        "y = x.half()",
        "y = x.to(getattr(torch, 'bfloat' + '16'), dtype='fp16')",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "with torch.autocast('cuda'):\n    y = x @ w",
        "z = tl.inline_asm_elementwise('mma.sync.tf32', '=r,r', [a], dtype=tl.float32, is_pure=True, pack=1)",
        "exec(text)",
        "module = load_inline('n', cuda_sources=text)",
    ],
)
def test_what_may_compute_in_less_than_float32_is_told(source):
    assert signs_of(source.encode())["narrow"] is True


@pytest.mark.parametrize(
    "source",
    [
        "z = tl.dot(a, b, input_precision='ieee')",
        "y = x.to(tl.float32)",
        "y = x * 0.707\n'Half of it.'",
        "y = torch.rsqrt(x.float())",
    ],
)
def test_what_cannot_is_not(source):
    assert signs_of(source.encode())["narrow"] is False


def test_a_long_source_is_read_in_a_moment():
    chained = (
        "".join(f"def f{i}(x):\n    return f{i + 1}(x)\n" for i in range(600))
        + "def f600(x):\n    return launch(x)\n"
    )
    branches = "def op(x):\n" + "".join(
        f"    if x.shape[0] == {i}:\n        return torch.relu(x)\n" for i in range(1000)
    )
    started = time.perf_counter()
    found = shown(chained + branches + "    return f0(x)\n")
    assert time.perf_counter() - started < 5.0
    assert found["signs"][0]["kind"] == "fallback_branch"


def test_what_is_too_long_to_be_read_says_so():
    found = signs_of(b"X = [" + b"12345," * 400_000 + b"]")
    assert [sign["kind"] for sign in found["signs"]] == ["unread"]
    assert found["narrow"]
