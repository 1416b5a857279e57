# ruff: noqa: N803, PLR0917  # kernels are written as kernels are: constants in capitals, one branch per operation
"""tl.dot in every precision."""

import torch
import triton
import triton.language as tl
from support import TRITON, Skipped, call, expect
from triton.runtime import interpreter as stock


@triton.jit
def product(a_ptr, b_ptr, c_ptr, PRECISION: tl.constexpr, OUT: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
            K: tl.constexpr):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


def _product(a, b, precision=None, out=tl.float32, dtype=torch.float32):
    c = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    with call() as recorder:
        product[(1,)](a, b, c, PRECISION=precision, OUT=out, M=a.shape[0], N=b.shape[1], K=a.shape[1])
    return c, recorder


def _pair(dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(32, 32, generator=generator) * scale).to(dtype) for _ in range(2)]


def _tf32(x):
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def tf32_drops_thirteen_bits_of_each_operand_and_is_the_default():
    a, b = _pair()
    expected = _tf32(a) @ _tf32(b)
    for precision in ("tf32", None):
        c, recorder = _product(a, b, precision)
        assert torch.allclose(c, expected, atol=1e-5, rtol=1e-5)
        assert recorder.dot_precisions == {"tf32"}
    c, _ = _product(a, torch.eye(32), "tf32")
    assert torch.equal(c, _tf32(a))


def ieee_is_float32():
    a, b = _pair()
    c, recorder = _product(a, b, "ieee")
    assert (c.double() - a.double() @ b.double()).abs().max() < 5e-6
    assert recorder.dot_precisions == {"ieee"}


def split_precisions_are_near_float32():
    a, b = _pair()
    exact = a.double() @ b.double()
    limits = {"tf32x3": 2e-5, "bf16x3": 5e-4, "bf16x6": 2e-5}
    for precision, limit in limits.items():
        if precision.startswith("bf16") and TRITON < (3, 6):
            continue
        c, recorder = _product(a, b, precision)
        assert (c - exact).abs().max() < limit, precision
        assert recorder.dot_precisions == {precision}


def unknown_precisions_are_refused():
    with_error = expect(Exception, lambda: _product(*_pair(), "tf16"))
    assert "input_precision must be one of" in str(with_error)


@triton.jit
def legacy(a_ptr, b_ptr, c_ptr, ALLOW: tl.constexpr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    a, b = tl.load(a_ptr + i * 32 + j), tl.load(b_ptr + i * 32 + j)
    tl.store(c_ptr + i * 32 + j, tl.dot(a, b, allow_tf32=ALLOW))


def allow_tf32_is_honoured():
    a, b = _pair()
    for allow, expected in ((True, {"tf32"}), (False, {"ieee"})):
        with call() as recorder:
            legacy[(1,)](a, b, torch.zeros(32, 32), ALLOW=allow)
        assert recorder.dot_precisions == expected


def half_operands_have_exact_products_and_a_float32_accumulator():
    for dtype in (torch.float16, torch.bfloat16):
        a, b = _pair(dtype)
        c, recorder = _product(a, b)
        assert (c - a.double() @ b.double()).abs().max() < 1e-5
        assert not recorder.dot_precisions
        assert recorder.half_dots == {"fp16" if dtype == torch.float16 else "bf16"}


def a_fp16_accumulator_rounds_and_overflows():
    a, b = _pair(torch.float16)
    c, _ = _product(a, b, out=tl.float16, dtype=torch.float16)
    assert (c - a.double() @ b.double()).abs().max() < 0.03
    big = torch.full((32, 32), 50.0).half()
    c, _ = _product(big, big, out=tl.float16, dtype=torch.float16)
    assert c.isinf().all()  # 32 * 2500 is above 65504
    flipped = torch.cat([big[:16], -big[:16]])  # the sum is zero, but not before 16 products overflowed
    c, _ = _product(big * 2, flipped, out=tl.float16, dtype=torch.float16)
    assert not (c == 0).any()


def int8_accumulates_exactly_in_int32():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-128, 128, (32, 32), generator=generator, dtype=torch.int8) for _ in range(2))
    c, _ = _product(a, b, out=tl.int32, dtype=torch.int32)
    assert torch.equal(c, (a.long() @ b.long()).int())


def float64_is_float64():
    if TRITON < (3, 5):
        message = "3.4 has no float64 dots"
        raise Skipped(message)
    a, b = _pair(torch.float64)
    c, _ = _product(a, b, out=tl.float64, dtype=torch.float64)
    assert torch.allclose(c, a @ b, atol=1e-13)


@triton.jit
def accumulated(a_ptr, b_ptr, c_ptr, B: tl.constexpr):
    p = tl.arange(0, B)[:, None, None]
    i, j = tl.arange(0, 16)[None, :, None], tl.arange(0, 16)[None, None, :]
    o = p * 256 + i * 16 + j
    acc = tl.load(c_ptr + o)
    acc = tl.dot(tl.load(a_ptr + o), tl.load(b_ptr + o), acc, input_precision="ieee")
    tl.store(c_ptr + o, acc)


def batches_and_accumulators_work():
    generator = torch.Generator().manual_seed(2)
    a, b, c = (torch.randn(4, 16, 16, generator=generator) for _ in range(3))
    expected = torch.baddbmm(c, a, b)
    with call():
        accumulated[(1,)](a, b, c, B=4)
    assert torch.allclose(c, expected, atol=1e-5)


@triton.jit
def eight_bits(a_ptr, b_ptr, c_ptr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    a = tl.load(a_ptr + i * 32 + j).to(tl.float8e4nv)
    b = tl.load(b_ptr + i * 32 + j).to(tl.float8e5)
    tl.store(c_ptr + i * 32 + j, tl.dot(a, b))


def fp8_products_are_exact_and_their_accumulator_is_reported():
    a, b = _pair()
    c = torch.zeros(32, 32)
    with call() as recorder:
        eight_bits[(1,)](a, b, c)
    expected = a.to(torch.float8_e4m3fn).double() @ b.to(torch.float8_e5m2).double()
    assert (c - expected).abs().max() < 1e-4
    assert any("fp8" in sentence for sentence in recorder.uncovered)


@triton.jit
def scaled(a_ptr, s_ptr, b_ptr, c_ptr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 64)[None, :]
    a = tl.load(a_ptr + i * 64 + j)
    s = tl.load(s_ptr + i * 2 + tl.arange(0, 2)[None, :])
    b = tl.load(b_ptr + tl.arange(0, 64)[:, None] * 32 + tl.arange(0, 32)[None, :])
    c = tl.dot_scaled(a, s, "e4m3", b, None, "bf16")
    tl.store(c_ptr + i * 32 + tl.arange(0, 32)[None, :], c)


def scaled_dots_work_or_are_refused():
    a = torch.randn(32, 64).to(torch.float8_e4m3fn)
    scale = torch.randint(120, 130, (32, 2), dtype=torch.uint8)
    b = torch.randn(64, 32).bfloat16()
    c = torch.zeros(32, 32)
    with call() as recorder:
        if not hasattr(stock.InterpreterBuilder, "create_dot_scaled"):
            expect(Exception, lambda: scaled[(1,)](a.view(torch.uint8), scale, b, c))
            assert recorder.refused
            assert "dot_scaled" in recorder.uncovered[0]
            message = "Triton's interpreter has dot_scaled since 3.8"
            raise Skipped(message)
        scaled[(1,)](a.view(torch.uint8), scale, b, c)
    factors = 2.0 ** (scale.double() - 127)
    expected = (a.double() * factors.repeat_interleave(32, 1)) @ b.double()
    assert torch.allclose(c.double(), expected, atol=1e-2, rtol=1e-3)
