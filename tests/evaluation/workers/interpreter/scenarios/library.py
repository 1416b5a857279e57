# ruff: noqa: N803  # kernels are written as kernels are: constants in capitals, one branch per operation
"""libdevice, tl.math and what leads out of the language."""

import importlib.util
import math

import numpy as np
import torch
import triton
import triton.language as tl
from support import call, expect
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

from adaexplore_mcp.evaluation.workers.interpreter import NotInterpretable


@triton.jit
def functions(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, libdevice.tanh(x))
    tl.store(out_ptr + N + o, cuda_libdevice.log1p(tl.abs(x)))
    tl.store(out_ptr + 2 * N + o, libdevice.erfinv(x / 8))
    tl.store(out_ptr + 3 * N + o, libdevice.pow(tl.abs(x), 1.5))
    tl.store(out_ptr + 4 * N + o, libdevice.lgamma(tl.abs(x)))
    tl.store(out_ptr + 5 * N + o, libdevice.rint(x))
    tl.store(out_ptr + 6 * N + o, libdevice.isnan(x / (x - x)).to(tl.float32))
    tl.store(out_ptr + 7 * N + o, tl.extra.cuda.libdevice.fast_expf(x))


def libdevice_functions_are_float32():
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(8 * 64)
    with call():
        functions[(1,)](x, out, N=64)
    rows = out.reshape(8, 64)
    expected = [x.tanh(), x.abs().log1p(), torch.erfinv(x / 8), x.abs() ** 1.5, x.abs().lgamma(), x.round()]
    for row, want in zip(rows, expected, strict=False):
        assert torch.allclose(row, want, rtol=1e-6, atol=1e-6)
    assert torch.allclose(rows[7], x.exp(), rtol=1e-6)


def _copy_of(name):
    specification = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


copy = _copy_of("triton.language.extra.libdevice")
cuda_copy = _copy_of("triton.language.extra.cuda.libdevice")
pow = copy.pow  # noqa: A001 - as a kernel that was made for several versions of Triton takes it
rsqrt = cuda_copy.rsqrt


def _with_a_copy_in_its_closure():
    tanh, min = copy.tanh, copy.hypot  # noqa: A001 - named like a builtin

    @triton.jit
    def copied(x_ptr, out_ptr, N: tl.constexpr):
        o = tl.arange(0, N)
        x = tl.load(x_ptr + o)
        tl.store(out_ptr + o, pow(x, 1.5))
        tl.store(out_ptr + N + o, rsqrt(x))
        tl.store(out_ptr + 2 * N + o, copy.log1p(x))
        tl.store(out_ptr + 3 * N + o, tanh(x) if N > 1 else x)
        tl.store(out_ptr + 4 * N + o, min(x, x))

    return copied


def functions_of_a_copy_of_libdevice_are_those_of_libdevice():
    x = torch.rand(64, generator=torch.Generator().manual_seed(0)) + 0.1
    out = torch.zeros(5, 64)
    before = dict(globals())
    with call():
        _with_a_copy_in_its_closure()[(1,)](x, out, N=64)
    assert globals() == before
    for row, want in zip(out, [x**1.5, x.rsqrt(), x.log1p(), x.tanh(), x.hypot(x)], strict=True):
        assert torch.allclose(row, want, rtol=1e-6, atol=1e-6)


@triton.jit
def typed(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    y = libdevice.exp(tl.load(x_ptr + o)) * 1.0000001
    tl.static_assert(y.dtype == tl.float32)
    tl.store(out_ptr + o, y.to(tl.float64))


def no_result_is_silently_float64():
    x = torch.randn(64)
    out = torch.zeros(64, dtype=torch.float64)
    with call():
        typed[(1,)](x, out, N=64)
    assert torch.equal(out, out.float().double())


@triton.jit
def wrong_type(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.tanh(tl.load(x_ptr)))


def libdevice_refuses_types_that_it_has_not():
    with call():
        expect(Exception, lambda: wrong_type[(1,)](torch.zeros(1).half(), torch.zeros(1)))


@triton.jit
def integers(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, libdevice.clz(x))
    tl.store(out_ptr + N + o, libdevice.popc(x))
    tl.store(out_ptr + 2 * N + o, libdevice.brev(x))
    tl.store(out_ptr + 3 * N + o, libdevice.ffs(x))
    tl.store(out_ptr + 4 * N + o, libdevice.mulhi(x, x))


def integer_functions_count_bits():
    values = [0, 1, 2, 3, 255, -1, 2**30, -(2**31)]
    out = torch.zeros(5 * 8, dtype=torch.int32)
    with call():
        integers[(1,)](torch.tensor(values, dtype=torch.int32), out, N=8)
    rows = out.reshape(5, 8).tolist()
    words = [v & 0xFFFFFFFF for v in values]
    assert rows[0] == [32 - w.bit_length() for w in words]
    assert rows[1] == [w.bit_count() for w in words]
    assert [r & 0xFFFFFFFF for r in rows[2]] == [int(f"{w:032b}"[::-1], 2) for w in words]
    assert rows[3] == [(w & -w).bit_length() for w in words]
    assert rows[4] == [(v * v) >> 32 for v in values]


@triton.jit
def rounded(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x, y = tl.load(x_ptr + o), tl.load(y_ptr + o)
    tl.store(out_ptr + o, libdevice.add_rd(x, y))
    tl.store(out_ptr + N + o, libdevice.mul_ru(x, y))
    tl.store(out_ptr + 2 * N + o, libdevice.div_rz(x, y))
    tl.store(out_ptr + 3 * N + o, libdevice.sqrt_ru(tl.abs(x)))


def directed_rounding_brackets_the_exact_value():
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(128, generator=generator), torch.randn(128, generator=generator)
    out = torch.zeros(4 * 128)
    with call():
        rounded[(1,)](x, y, out, N=128)
    rows, a, b = out.reshape(4, 128).numpy(), x.double().numpy(), y.double().numpy()
    up = np.float32(np.inf)
    assert (rows[0] <= a + b).all()
    assert (np.nextafter(rows[0], up) > a + b).all()
    assert (rows[1] >= a * b).all()
    assert (np.nextafter(rows[1], -up) < a * b).all()
    assert (np.abs(rows[2]) <= np.abs(a / b)).all()
    assert (rows[3] >= np.sqrt(np.abs(a))).all()


@triton.jit
def maths(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, tl.math.exp2(x))
    tl.store(out_ptr + N + o, tl.math.erf(x))
    tl.store(out_ptr + 2 * N + o, tl.math.rsqrt(tl.abs(x)))
    tl.store(out_ptr + 3 * N + o, tl.sigmoid(x))
    tl.store(out_ptr + 4 * N + o, tl.softmax(x))
    tl.store(out_ptr + 5 * N + o, tl.math.fdiv(x, 3.0))
    tl.store(out_ptr + 6 * N + o, tl.math.div_rn(x, 3.0))
    tl.store(out_ptr + 7 * N + o, tl.cdiv(o, 7).to(tl.float32))


def the_language_s_own_functions_work():
    x = torch.randn(64, generator=torch.Generator().manual_seed(4))
    out = torch.zeros(8 * 64)
    with call():
        maths[(1,)](x, out, N=64)
    expected = [x.exp2(), x.erf(), x.abs().rsqrt(), x.sigmoid(), x.softmax(0), x / 3, x / 3]
    for row, want in zip(out.reshape(8, 64), expected, strict=False):
        assert torch.allclose(row, want, rtol=1e-6, atol=1e-7)
    assert out[7 * 64 :].tolist() == [math.ceil(i / 7) for i in range(64)]


@triton.jit
def assembly(out_ptr):
    y = tl.inline_asm_elementwise("mov.b32 $0, 7;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out_ptr, y)


def inline_assembly_is_not_interpretable_even_if_the_candidate_catches_it():
    with call() as recorder:
        error = expect(NotInterpretable, lambda: assembly[(1,)](torch.zeros(1, dtype=torch.int32)))
    assert "inline assembly" in str(error)
    assert recorder.refused
    assert recorder.uncovered == [str(error)]


@triton.jit
def unknown(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.jn(2, tl.load(x_ptr)))


def a_libdevice_function_without_imitation_is_named():
    with call() as recorder:
        error = expect(NotInterpretable, lambda: unknown[(1,)](torch.zeros(1), torch.zeros(1)))
    assert "__nv_jnf" in str(error)
    assert recorder.refused


def gluon_kernels_are_not_interpretable():
    from triton.experimental import gluon

    kernel = gluon.jit(assembly.fn)
    with call() as recorder:
        expect(NotInterpretable, lambda: kernel[(1,)](torch.zeros(1, dtype=torch.int32)))
    assert recorder.refused


@triton.jit
def hinted(x_ptr, out_ptr, n, SHIFT: tl.constexpr):
    n = tl.multiple_of(n, 16)
    o = tl.program_id(0) * 16 + tl.arange(0, 16) + SHIFT
    o = tl.max_contiguous(tl.multiple_of(o, 8), 8)
    tl.store(out_ptr + o, tl.load(x_ptr + o, mask=o < n), mask=o < n)


@triton.jit
def hinted_wraps(x_ptr, out_ptr, M: tl.constexpr):
    o = (tl.program_id(0) * 16 + tl.arange(0, 16)) % M
    o = tl.max_contiguous(tl.multiple_of(o, [16]), [16])
    tl.store(out_ptr + o, tl.load(x_ptr + o))


def hints_that_hold_are_not_told():
    x, out = torch.randn(64), torch.zeros(64)
    with call() as recorder:
        hinted[(4,)](x, out, 64, SHIFT=0)
    assert torch.equal(x, out)
    assert not recorder.uncovered


def hints_that_are_false_are_told_and_change_no_number():
    x, out = torch.randn(64), torch.zeros(64)
    with call() as recorder:
        hinted[(4,)](x, out, 50, SHIFT=1)
        hinted_wraps[(1,)](x, out, M=10)
    assert torch.equal(x[1:50], out[1:50])
    told = " ".join(recorder.uncovered)
    assert "a false hint, tl.multiple_of(…, 16), for values from 50" in told
    assert "tl.multiple_of(…, 8), for values from 1:" in told
    assert "tl.max_contiguous(…, 16), for values from 0" in told
    assert "tl.max_contiguous(…, 8)" not in told
