# ruff: noqa: N803  # kernels are written as kernels are: constants in capitals, one branch per operation
"""Launches: books, arguments, grids, errors and where they come from."""

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from support import INTERPRETER, call, expect
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adaexplore_mcp.evaluation.workers.interpreter import (
    Interpreter,
    KernelError,
    NotInterpretable,
    UnsupportedVersionError,
    locate,
)
from adaexplore_mcp.evaluation.workers.interpreter.rewriting import MissingSourceError
from adaexplore_mcp.evaluation.workers.interpreter.versions import check_versions


@triton.jit
def fill(y_ptr, value, n, B: tl.constexpr = 16):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y_ptr + o, value, mask=o < n)


@triton.jit
def place(y_ptr, W: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(y_ptr + (x * tl.num_programs(1) + y) * tl.num_programs(2) + z, x * 100 + y * 10 + z)


@triton.jit
def total(y_ptr, n, *x_ptrs, B: tl.constexpr = 16):
    o = tl.arange(0, B)
    sum_ = tl.zeros((B,), tl.float32)
    for i in tl.static_range(len(x_ptrs)):
        sum_ += tl.load(x_ptrs[i] + o, mask=o < n, other=0.0)
    tl.store(y_ptr + o, sum_, mask=o < n)


def a_kernel_takes_any_number_of_further_arguments():
    for count in (0, 1, 3):
        y = torch.full((10,), 9.0)
        with call() as recorder:
            total[(1,)](y, 10, *[torch.full((10,), float(i)) for i in range(count)])
        assert y.tolist() == [float(sum(range(count)))] * 10
        assert not recorder.findings


def launches_are_recorded_in_order():
    y = torch.zeros(64)
    with call() as recorder:
        fill[(4,)](y, 1.0, 64)
        place[(2, 3, 4)](torch.zeros(24, dtype=torch.int32), W=1)
    assert [(launch.kernel, launch.grid, launch.programs) for launch in recorder.launches] == [
        ("fill", (4, 1, 1), 4),
        ("place", (2, 3, 4), 24),
    ]
    assert all(launch.seconds > 0 and launch.config is None for launch in recorder.launches)


def grids_come_in_every_form():
    out = torch.zeros(24, dtype=torch.int32)
    with call() as recorder:
        place[(2, 3, 4)](out, W=1)
        expected = [x * 100 + y * 10 + z for x in range(2) for y in range(3) for z in range(4)]
        assert out.tolist() == expected
        place[[2, 3, 4]](out, W=1)
        place[lambda meta: (meta["W"] * 2, 3)](out, W=1)
        place[torch.Size([2])](out, W=1)
        place.run(out, W=1, grid=(2,), warmup=False)
        place[(0, 5)](out, W=1)
    assert [launch.programs for launch in recorder.launches] == [24, 24, 6, 2, 2, 0]


def impossible_grids_are_refused_as_by_the_driver():
    out = torch.zeros(24, dtype=torch.int32)
    with call() as recorder:
        error = expect(RuntimeError, lambda: place[(1, 70000)](out, W=1))
        assert "invalid argument" in str(error)
        expect(RuntimeError, lambda: place[(-1,)](out, W=1))
        expect(TypeError, lambda: place[(1.5,)](out, W=1))
        expect(TypeError, lambda: place[4](out, W=1))
    assert recorder.launches == []


def wrong_arguments_are_type_errors_that_name_them():
    y = torch.zeros(16)
    with call():
        assert "n" in str(expect(TypeError, lambda: fill[(1,)](y, 1.0)))
        expect(TypeError, lambda: fill[(1,)](y, 1.0, 16, 16, 16))
        expect(TypeError, lambda: fill[(1,)](y, 1.0, 16, n=3))


def a_kernel_called_without_a_grid_says_so():
    with call():
        error = expect(RuntimeError, lambda: fill(torch.zeros(16), 1.0, 16))
    assert "outside of the scope of a kernel" in str(error)


def unknown_launch_keywords_are_found():
    with call() as recorder:
        fill[(1,)](torch.zeros(16), 1.0, 16, num_warps=2, num_stages=1)
        assert not recorder.findings
        fill[(1,)](torch.zeros(16), 1.0, 16, num_wraps=2)
    (finding,) = recorder.findings
    assert finding.kind == "unknown_launch_keyword"
    assert "'num_wraps'" in finding.detail
    assert finding.file == __file__


@triton.jit
def divide(x):
    return x.no_such_method()


@triton.jit
def broken(x_ptr, B: tl.constexpr):
    o = tl.arange(0, B)
    x = tl.load(x_ptr + o)

    y = divide(
        x + 1,
    )
    tl.store(x_ptr + o, y)


def an_exception_leads_to_the_candidate_s_own_line():
    with call():
        error = expect(KernelError, lambda: broken[(1,)](torch.zeros(16), B=16))
    assert error.kernel == "broken"
    assert "no_such_method" in str(error)
    place_ = locate(error, [__file__])
    assert (place_.kernel, place_.file, place_.source) == ("broken", __file__, "return x.no_such_method()")
    assert Path(__file__).read_text().splitlines()[place_.line - 1].strip() == place_.source
    assert locate(error, ["/nowhere.py"]) is None


def errors_of_the_host_code_are_located_too():
    def forward():
        return torch.zeros(3) + torch.zeros(4)

    place_ = locate(expect(RuntimeError, forward), [Path(__file__)])
    assert place_.kernel is None
    assert place_.source == "return torch.zeros(3) + torch.zeros(4)"


@triton.jit
def exits(x_ptr):
    x = tl.load(x_ptr)
    if x > 0:
        undefined_name  # noqa: B018, F821
    tl.store(x_ptr, 1)


def names_of_the_interpreter_do_not_leak_into_the_candidate():
    before = set(globals())
    with call():
        error = expect(KernelError, lambda: exits[(1,)](torch.ones(1)))
    assert "NameError" in str(error)
    assert set(globals()) == before


class _Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@triton.jit
def gelu(x_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(x_ptr + o, 0.5 * x * (1 + tl.erf(x * 0.70710678)))


def torch_modes_do_not_see_the_interpreter():
    x = torch.randn(16)
    expected = torch.nn.functional.gelu(x)
    with call(), _Counting() as dispatched, _Functions() as functions:
        gelu[(1,)](x, N=16)
    assert torch.allclose(x, expected, atol=1e-6)
    assert dispatched.names == []
    assert functions.names == []


def tensors_that_need_gradients_are_read_and_written():
    x = torch.nn.Parameter(torch.randn(16))
    expected = torch.nn.functional.gelu(x.detach())
    with call():
        gelu[(1,)](x, N=16)
    assert torch.allclose(x, expected, atol=1e-6)


def a_hook_sees_the_arguments_before_each_launch():
    seen = []

    def refuse(kernel, arguments):
        seen.append((kernel, sorted(arguments)))
        if arguments["n"] > 16:
            message = "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)"
            raise ValueError(message)

    with call(before_launch=refuse) as recorder:
        fill[(1,)](torch.zeros(16), 1.0, 16)
        expect(ValueError, lambda: fill[(1,)](torch.zeros(16), 1.0, 17))
    assert seen == [("fill", ["B", "n", "value", "y_ptr"])] * 2
    assert len(recorder.launches) == 1


def questions_about_the_compiled_kernel_are_answered_and_said_to_be():
    y = torch.zeros(32)
    with call() as recorder:
        warmed = fill.warmup(y, 1.0, 32, grid=(1,), num_warps=8) if hasattr(fill, "warmup") else None
        for compiled in filter(None, (warmed, fill[(1,)](y, 1.0, 16, num_warps=8))):
            compiled._init_handles()
            assert compiled.metadata.num_warps == 8
            assert not recorder.uncovered
            assert compiled.metadata.shared > 0
            assert (compiled.n_regs > 0, compiled.n_spills, compiled.name) == (True, 0, "fill")
            assert len(compiled.asm["ptx"]) == 0
            compiled[(2, 1, 1)](y, 3.0, 32, 16)
            assert y.tolist() == [3.0] * 32
            recorder.uncovered.clear()
        assert compiled.n_regs
        assert "n_regs of the compiled fill" in recorder.uncovered[0]
        assert not recorder.refused
        expect(NotInterpretable, lambda: compiled.packed_metadata)
        expect(NotInterpretable, lambda: compiled.metadata.tmem_size)
    assert recorder.refused


@triton.jit
def narrow(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr).to(tl.float8e4nv).to(tl.float32))


def installing_again_gives_the_same_interpreter_for_another_chip():
    assert Interpreter.install() is INTERPRETER
    x, out = torch.tensor([0.3]), torch.zeros(1)
    with call():
        narrow[(1,)](x, out)
        expect(RuntimeError, lambda: Interpreter.install(80))
    assert out.item() == 0.3125
    assert Interpreter.install(80, {"multiprocessor_count": 108}) is INTERPRETER
    active = triton.runtime.driver.active
    assert active.get_current_target().arch == 80
    assert active.utils.get_device_properties(0) == {"multiprocessor_count": 108}
    with call():
        error = expect(KernelError, lambda: narrow[(1,)](x, out))
    assert "fp8e4nv not supported in this architecture" in str(error)


def calls_do_not_nest_and_reset_what_they_changed():
    with call():
        expect(RuntimeError, lambda: call().__enter__())
    expect(ValueError, lambda: call(poison="ones").__enter__())
    with call() as recorder:
        fill[(1,)](torch.zeros(16), 1.0, 16)
    assert len(recorder.launches) == 1


def a_launch_outside_of_a_call_works_and_is_not_recorded():
    y = torch.zeros(16)
    fill[(1,)](y, 2.0, 16)
    assert (y == 2).all()


def versions_that_cannot_be_mended_are_named():
    check_versions()
    for triton_version, numpy_version in (("3.3.1", "2.3.0"), ("3.10.0", "2.3.0"), ("3.6.0", "1.25.0")):
        error = expect(
            UnsupportedVersionError, lambda t=triton_version, n=numpy_version: check_versions(t, n)
        )
        assert triton_version in str(error)
        assert numpy_version in str(error)


def a_kernel_without_source_is_refused():
    namespace = {"triton": triton, "tl": tl}
    exec(compile("@triton.jit\ndef ghost(x_ptr):\n    tl.store(x_ptr, 1)\n", "<ghost>", "exec"), namespace)
    with call():
        error = expect(
            (MissingSourceError, ValueError, OSError), lambda: namespace["ghost"][(1,)](torch.zeros(1))
        )
    assert "file" in str(error) or "source" in str(error)


def two_kernels_of_one_name_are_two_kernels():
    kernels = []
    for value in (1, 2):

        @triton.jit
        def same(x_ptr, V: tl.constexpr = value):
            tl.store(x_ptr, V)

        kernels.append(same)
    x = torch.zeros(1)
    with call():
        for expected, kernel in enumerate(kernels, 1):
            kernel[(1,)](x)
            assert x.item() == expected


def nothing_but_torch_triton_and_numpy_is_imported():
    foreign = [
        name for name in sys.modules if name.partition(".")[0] in ("pydantic", "anyio", "mcp", "sqlite_utils")
    ]
    assert foreign == []
