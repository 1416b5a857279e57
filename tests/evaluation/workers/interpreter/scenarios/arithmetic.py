# ruff: noqa: C901, N803, PLR0912, PLR0917, RUF021  # kernels are written as kernels are: constants in capitals, one branch per operation
"""Numbers: bf16, conversions, integers, NaN, and the types that a launch gives its arguments."""

import numpy as np
import torch
import triton
import triton.language as tl
from support import call, expect, same_bits

N = 256


def _values(dtype, seed=0, n=N):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator) * 10 ** torch.randint(-3, 4, (n,), generator=generator)
    x[:8] = torch.tensor([0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), 3e38, 1e-30])
    return x.to(dtype)


@triton.jit
def binary(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x, y = tl.load(x_ptr + o), tl.load(y_ptr + o)
    if OP == "add":
        r = x + y
    elif OP == "sub":
        r = x - y
    elif OP == "mul":
        r = x * y
    elif OP == "maximum":
        r = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "fmax":
        r = tl.maximum(x, y)
    elif OP == "fmin":
        r = tl.minimum(x, y)
    elif OP == "where":
        r = tl.where(x > y, x, y)
    elif OP == "clamp":
        r = tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "neg":
        r = -x
    elif OP == "abs":
        r = tl.abs(x)
    elif OP == "less":
        r = x < y
    elif OP == "equal":
        r = x == y
    elif OP == "not_equal":
        r = x != y
    elif OP == "div":
        r = x // y
    elif OP == "mod":
        r = x % y
    elif OP == "shl":
        r = x << y
    elif OP == "shr":
        r = x >> y
    elif OP == "umulhi":
        r = tl.umulhi(x, y)
    tl.store(out_ptr + o, r.to(out_ptr.dtype.element_ty))


def _binary(x, y, op, dtype=None):
    out = torch.zeros(x.numel(), dtype=dtype or x.dtype)
    with call():
        binary[(1,)](x, y, out, OP=op, N=x.numel())
    return out


def bf16_and_fp16_arithmetic_rounds_as_torch_does():
    operations = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum,
        "where": lambda x, y: torch.where(x > y, x, y), "clamp": lambda x, _: x.clamp(-1, 1),
        "neg": lambda x, _: -x, "abs": lambda x, _: x.abs(),
    }  # fmt: skip
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x, y = _values(dtype), _values(dtype, seed=1)
        for name, function in operations.items():
            expected = function(x, y)
            if name in (
                "neg",
                "maximum",
            ):  # the sign of a zero: 3.4 to 3.6 compile -x as 0 - x; max(0, -0) may be either
                assert torch.equal(_binary(x, y, name).nan_to_num(7), expected.nan_to_num(7)), (dtype, name)
            else:
                assert same_bits(_binary(x, y, name), expected), (dtype, name)


def bf16_comparisons_are_booleans():
    x, y = _values(torch.bfloat16), _values(torch.bfloat16, seed=1)
    x[20:40] = y[20:40]
    for name, function in (("less", torch.lt), ("equal", torch.eq), ("not_equal", torch.ne)):
        assert torch.equal(_binary(x, y, name, torch.int32), function(x, y).int()), name
        assert torch.equal(_binary(x, y, name, torch.float32), function(x, y).float()), name


def maximum_returns_the_operand_that_is_not_nan():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x, y = _values(dtype), _values(dtype, seed=1)
        x[10], y[11], x[12], y[12] = (float("nan"),) * 4
        assert torch.equal(_binary(x, y, "fmax").nan_to_num(7), torch.fmax(x, y).nan_to_num(7))
        assert torch.equal(_binary(x, y, "fmin").nan_to_num(7), torch.fmin(x, y).nan_to_num(7))


@triton.jit
def fused(x_ptr, y_ptr, z_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out_ptr + o, tl.fma(tl.load(x_ptr + o), tl.load(y_ptr + o), tl.load(z_ptr + o)))


def fma_rounds_once():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x, y, z = (torch.randn(N, generator=torch.Generator().manual_seed(s)).to(dtype) for s in range(3))
        z = -(x * y).to(dtype)  # cancels all but the rounding error of the product
        out = torch.zeros(N, dtype=dtype)
        with call():
            fused[(1,)](x, y, z, out, N=N)
        exact = (x.double() * y.double() + z.double()).to(dtype)
        assert same_bits(out, exact), dtype


@triton.jit
def convert(x_ptr, out_ptr, TO: tl.constexpr, ROUND: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    r = x.to(TO) if ROUND == "" else x.to(TO, fp_downcast_rounding=ROUND)
    tl.store(out_ptr + o, r)


TYPES = {
    torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float64: tl.float64,
    torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32, torch.int64: tl.int64, torch.uint8: tl.uint8,
}  # fmt: skip


def _convert(x, dtype, rounding=""):
    out = torch.zeros(x.numel(), dtype=dtype)
    with call():
        convert[(1,)](x, out, TO=TYPES[dtype], ROUND=rounding, N=x.numel())
    return out


def casts_between_floats_round_to_nearest_even_and_keep_nan():
    floats = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
    for source in floats:
        x = _values(source)
        for target in floats:
            assert same_bits(_convert(x, target), x.to(target)), (source, target)


def ties_go_to_the_even_bf16_and_cutting_goes_toward_zero():
    x = torch.tensor(
        [0x3F808000, 0x3F818000, 0x3F80FFFF, 0xBF80FFFF - 2**32, 0x7F7FFFFF, 0x7F800001], dtype=torch.int32
    )
    x = torch.nn.functional.pad(x.view(torch.float32), (0, 2))
    even = torch.tensor([0x3F80, 0x3F82, 0x3F81, 0xBF81 - 2**16, 0x7F80], dtype=torch.int16)
    assert torch.equal(_convert(x, torch.bfloat16).view(torch.int16)[:5], even)
    assert _convert(x, torch.bfloat16)[5].isnan()
    cut = torch.tensor([0x3F80, 0x3F81, 0x3F80, 0xBF80 - 2**16, 0x7F7F], dtype=torch.int16)
    assert torch.equal(_convert(x, torch.bfloat16, "rtz").view(torch.int16)[:5], cut)
    assert torch.equal(
        _convert(torch.full((8,), 1.9999), torch.float16, "rtz"), torch.full((8,), 1.9990234).half()
    )


def floats_become_integers_toward_zero_and_saturate():
    x = torch.tensor([1.9, -1.9, 127.6, 2e9, 3e9, -3e9, float("nan"), 1e30])
    assert _convert(x, torch.int32).tolist() == [1, -1, 127, 2000000000, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    assert _convert(x, torch.int16).tolist() == [1, -1, 127, 32767, 32767, -32768, 0, 32767]
    assert _convert(x, torch.int8).tolist() == [1, -1, 127, -1, -1, 0, 0, -1]
    assert _convert(x.bfloat16(), torch.int32).tolist()[:3] == [1, -1, 127]
    assert _convert(x, torch.int64).tolist()[-1] == 2**63 - 1


def integers_become_floats_with_one_rounding():
    x = torch.tensor([2**24 + 1, -(2**31), 2**31 - 1, 33554435, 7, 0, 65519, 65521], dtype=torch.int32)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        expected = torch.from_numpy(x.numpy().astype(np.float64)).to(dtype)
        assert same_bits(_convert(x, dtype), expected), dtype


@triton.jit
def eight_bits(x_ptr, out_ptr, back_ptr, TO: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    narrow = tl.load(x_ptr + o).to(TO)
    tl.store(out_ptr + o, narrow.to(tl.uint8, bitcast=True))
    tl.store(back_ptr + o, narrow.to(tl.float32))


def fp8_conversions_equal_torch_in_range_and_saturate_beyond():
    x = torch.cat(
        [torch.linspace(-440, 440, 1008), torch.randn(1024) * 0.01, torch.tensor([500.0, -1e9] * 8)]
    )
    for to, dtype, largest in (
        (tl.float8e4nv, torch.float8_e4m3fn, 448.0),
        (tl.float8e5, torch.float8_e5m2, 57344.0),
    ):
        codes, back = torch.zeros(2048, dtype=torch.uint8), torch.zeros(2048)
        with call():
            eight_bits[(1,)](x, codes, back, TO=to, N=2048)
        expected = x.clamp(-largest, largest).to(dtype)
        assert torch.equal(codes, expected.view(torch.uint8)), to
        assert torch.equal(back, expected.float()), to


def fp8_types_of_other_chips_are_refused_as_the_compiler_refuses_them():
    x, codes = torch.zeros(64), torch.zeros(64, dtype=torch.uint8)
    with call():
        error = expect(Exception, lambda: eight_bits[(1,)](x, codes, x, TO=tl.float8e4b8, N=64))
    assert "fp8e4b8 not supported in this architecture" in str(error)


def fp8e4b15_clamps_and_rounds_half_up():
    x = torch.tensor([0.0, 1.0, -1.0, 1.75, 2.0, -100.0, float("nan"), 1.0625, 1.1875, 2.0**-17] + [0.5] * 6)
    codes, back = torch.zeros(16, dtype=torch.uint8), torch.zeros(16)
    with call():
        eight_bits[(1,)](x, codes, back, TO=tl.float8e4b15, N=16)
    assert back[:7].tolist() == [0.0, 1.0, -1.0, 1.75, 1.75, -1.75, 1.75]
    assert back[7:10].tolist() == [1.125, 1.25, 2.0**-17]


@triton.jit
def eight_bit_sum(x_ptr, out_ptr):
    x = tl.load(x_ptr).to(tl.float8e5)
    tl.store(out_ptr, (x + x).to(tl.float32))


def arithmetic_on_fp8_is_refused():
    with call() as recorder:
        expect(Exception, lambda: eight_bit_sum[(1,)](torch.ones(1), torch.zeros(1)))
    assert recorder.refused
    assert "arithmetic on fp8e5" in recorder.uncovered[0]


@triton.jit
def constants(out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out_ptr + o, tl.full((N,), 0.1, tl.bfloat16))
    tl.store(out_ptr + N + o, tl.zeros((N,), tl.bfloat16) + 1.003)


def bf16_constants_are_rounded():
    out = torch.zeros(32, dtype=torch.bfloat16)
    with call():
        constants[(1,)](out, N=16)
    assert same_bits(out, torch.tensor([0.1] * 16 + [1.003] * 16).bfloat16())


@triton.jit
def reduced(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.sum(x, axis=0).to(tl.float32))
    tl.store(out_ptr + 1, tl.max(x, axis=0).to(tl.float32))
    tl.store(out_ptr + 2, tl.argmin(x, axis=0).to(tl.float32))
    tl.store(out_ptr + 4 + tl.arange(0, N), tl.cumsum(x, axis=0).to(tl.float32))


def bf16_and_fp16_reductions_and_scans_are_right():
    for dtype, eps in ((torch.bfloat16, 2**-7), (torch.float16, 2**-10)):
        x = torch.randn(64, generator=torch.Generator().manual_seed(5)).to(dtype)
        out = torch.zeros(4 + 64)
        with call():
            reduced[(1,)](x, out, N=64)
        assert abs(out[0] - x.double().sum()) < 64 * eps
        assert out[1] == x.max()
        assert out[2] == x.argmin()
        assert (out[4:] - x.double().cumsum(0)).abs().max() < 64 * eps


def reductions_ignore_nan_as_the_hardware_does():
    x = torch.randn(64)
    x[3] = float("nan")
    out = torch.zeros(68)
    with call():
        reduced[(1,)](x, out, N=64)
    assert out[0].isnan()
    assert out[1] == np.nanmax(x.numpy())


def a_fp16_sum_overflows():
    out = torch.zeros(68)
    with call():
        reduced[(1,)](torch.full((64,), 60000.0).half(), out, N=64)
    assert out[0].isinf()


def integer_division_and_remainder_are_those_of_c():
    x = torch.tensor([7, -7, 7, -7, -(2**31), 5, 0, 2**31 - 1], dtype=torch.int32)
    y = torch.tensor([2, 2, -2, -2, 3, 0, 5, -1], dtype=torch.int32)
    assert _binary(x, y, "div").tolist() == [3, -3, -3, 3, -715827882, -1, 0, -(2**31) + 1]
    assert _binary(x, y, "mod").tolist() == [1, -1, 1, -1, -2, -1, 0, 0]
    for dtype in (torch.int8, torch.int16, torch.int64):
        assert _binary(x[:4].to(dtype), y[:4].to(dtype), "div").tolist() == [3, -3, -3, 3]


def integers_wrap_and_shifts_follow_the_type():
    big = torch.tensor([2**31 - 1, -(2**31), 123456789, -5], dtype=torch.int32)
    assert torch.equal(_binary(big, big, "mul"), (big.long() * big.long()).to(torch.int32))
    assert torch.equal(_binary(big, big, "add"), (big.long() * 2).to(torch.int32))
    amounts = torch.tensor([1, 4, 31, 40], dtype=torch.int32)
    assert _binary(big, amounts, "shr").tolist() == [2**30 - 1, -(2**27), 0, -1]
    assert _binary(big, amounts, "shl").tolist() == [-2, 0, -(2**31), 0]
    unsigned = big.view(torch.uint32)
    assert _binary(unsigned, amounts.view(torch.uint32), "shr").tolist() == [2**30 - 1, 2**27, 0, 0]
    assert _binary(unsigned, unsigned, "less", torch.int32).tolist() == [0] * 4
    assert _binary(unsigned, unsigned, "umulhi").tolist() == [(int(v) ** 2) >> 32 for v in unsigned.tolist()]
    small = torch.tensor([200, 100], dtype=torch.uint8)
    assert _binary(small, small, "add").tolist() == [144, 200]
    wide = torch.tensor([2**62 + 3, -(2**63)], dtype=torch.int64)
    assert _binary(wide, wide, "umulhi").tolist() == [((v % 2**64) ** 2) >> 64 for v in wide.tolist()]


@triton.jit
def promoted(x_ptr, out_ptr, scale, wide: tl.float64, big, n, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, (x * scale).to(tl.float64))
    tl.store(out_ptr + N + o, (x * 0.1).to(tl.float64))
    tl.store(out_ptr + 2 * N + o, (x * 0 + wide).to(tl.float64))
    tl.store(out_ptr + 3 * N + o, (x * 0).to(tl.float64) + big)
    total = x * 0
    for i in range(1, n):
        total += (x * (i / 3)).to(total.dtype)
    tl.store(out_ptr + 4 * N + o, total.to(tl.float64))
    product = n * 1000003 * 977
    tl.store(out_ptr + 5 * N + o, (o * 0 + product).to(tl.float64))


def arguments_and_loop_variables_have_the_types_of_a_compiled_launch():
    x = torch.randn(16).half()
    out = torch.zeros(6 * 16, dtype=torch.float64)
    with call():
        promoted[(1,)](x, out, 0.1, 0.1, 2**40, 6, N=16)
    rows = out.reshape(6, 16)
    assert torch.equal(rows[0], (x.float() * np.float32(0.1)).double())  # a float argument is fp32
    assert torch.equal(rows[1], (x * torch.tensor(0.1).half()).double())  # a literal takes the tensor's type
    assert (rows[2] == 0.1).all()  # an annotated argument keeps its type
    assert (rows[3] == 2**40).all()
    expected = torch.zeros_like(x)
    for i in range(1, 6):
        expected += (x.float() * (torch.tensor(i).float() / 3)).half()  # i is an int32, so i / 3 is fp32
    assert torch.equal(rows[4], expected.double())
    assert (rows[5] == float(np.array([6 * 1000003 * 977]).astype(np.int32)[0])).all()


@triton.jit
def logic(out_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out_ptr + o, ((o > 3) and (o < 7) or (o == 12)).to(tl.int32))
    tl.store(out_ptr + N + o, (not (o < 5)).to(tl.int32))
    tl.store(out_ptr + 2 * N + o, max(o - 8, n // 2))
    tl.store(out_ptr + 3 * N + o, min(o, n, 5))
    flag = (o > 3) + (o < 7)  # one bit: adds without a carry
    tl.store(out_ptr + 4 * N + o, flag.to(tl.int32))
    between = 2 < n < 9 and n != 4
    if between:
        tl.store(out_ptr + 5 * N + o, 1)
    if not between:
        tl.store(out_ptr + 5 * N + o, 2)
    tl.store(out_ptr + 6 * N + o, n if n > 100 else -n)


def boolean_syntax_works_lane_by_lane():
    out = torch.zeros(7 * 16, dtype=torch.int32)
    with call():
        logic[(1,)](out, 6, N=16)
    o, rows = torch.arange(16), out.reshape(7, 16)
    assert torch.equal(rows[0], (((o > 3) & (o < 7)) | (o == 12)).int())
    assert torch.equal(rows[1], (o >= 5).int())
    assert torch.equal(rows[2], (o - 8).clamp(min=3).int())
    assert torch.equal(rows[3], o.clamp(max=5).int())
    assert torch.equal(rows[4], ((o > 3) ^ (o < 7)).int())
    assert (rows[5] == 1).all()
    assert (rows[6] == -6).all()


@triton.jit
def branch_on_block(out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    if o > 3:
        tl.store(out_ptr + o, 1)


def a_branch_on_a_block_is_refused():
    with call():
        error = expect(Exception, lambda: branch_on_block[(1,)](torch.zeros(16), N=16))
    assert "more than one value is ambiguous" in str(error)


@triton.jit
def silent(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.exp(x * 1e4) - tl.exp(x * 1e4) + tl.log(x) + tl.sqrt(x) + 1.0 / (x - x) + (x * 1e38) * 1e38
    i = o * 2147483647 * 2147483647 // (o - o)
    tl.store(
        out_ptr + o,
        y
        + i.to(tl.float32)
        + (x * 1e30).to(tl.int32).to(tl.float32)
        + (x * 1e10).to(tl.float16).to(tl.float32),
    )


def numpy_never_warns():
    with call():  # the host turns RuntimeWarning into an error
        silent[(1,)](torch.randn(16), torch.zeros(16), N=16)
