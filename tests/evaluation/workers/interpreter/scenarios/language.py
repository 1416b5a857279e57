# ruff: noqa: N803, SIM108, T201  # kernels are written as kernels are: constants in capitals, one branch per operation
"""The language: functions, closures, control flow, shapes, sorting, scans, descriptors, debugging."""

import contextlib
import io
from pathlib import Path

import elsewhere
import torch
import triton
import triton.language as tl
from support import TRITON, Skipped, call, expect
from triton.compiler.errors import CompileTimeAssertionFailure

from adaexplore_mcp.evaluation.workers.interpreter import locate

SLOPE = tl.constexpr(0.25)
NEGATIVE = tl.constexpr(-1.0e30)


@triton.jit
def leaky(x):
    return tl.where(x > 0, x, SLOPE * x)


@triton.jit
def twice(x, times: tl.constexpr = 2):
    for _ in tl.static_range(times):
        x = leaky(x)
    return x, x * 2


@triton.jit
def helpers(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    once, doubled = twice(x)
    tl.store(out_ptr + o, once)
    tl.store(out_ptr + N + o, doubled)
    tl.store(out_ptr + 2 * N + o, elsewhere.soft_plus_one(x))
    tl.store(out_ptr + 3 * N + o, tl.maximum(x, NEGATIVE) - NEGATIVE * 0)


def helper_functions_constants_and_other_modules_are_reached():
    x, out = torch.randn(32), torch.zeros(4 * 32)
    with call():
        helpers[(1,)](x, out, N=32)
    rows = out.reshape(4, 32)
    assert torch.allclose(rows[0], torch.where(x > 0, x, x / 16))
    assert torch.allclose(rows[1], rows[0] * 2)
    assert torch.allclose(rows[2], torch.nn.functional.softplus(x) + 3, atol=1e-6)
    assert torch.equal(rows[3], x)


def _make(activation, bias):
    scale = 3.0

    @triton.jit
    def kernel(x_ptr, out_ptr, N: tl.constexpr):
        o = tl.arange(0, N)
        tl.store(out_ptr + o, activation(tl.load(x_ptr + o)) * scale + bias)

    def change(value):
        nonlocal scale
        scale = value

    return kernel, change


def closures_see_their_cells_even_when_they_change():
    x, out = torch.randn(16), torch.zeros(16)
    kernel, change = _make(leaky, 1.0)
    other, _ = _make(elsewhere.shifted, -1.0)
    with call():
        kernel[(1,)](x, out, N=16)
        assert torch.allclose(out, torch.where(x > 0, x, x / 4) * 3 + 1)
        other[(1,)](x, out, N=16)
        assert torch.allclose(out, (x + 3) * 3 - 1)
        change(5.0)
        kernel[(1,)](x, out, N=16)
        assert torch.allclose(out, torch.where(x > 0, x, x / 4) * 5 + 1)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def sized(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(out_ptr + o, tl.load(x_ptr + o, mask=o < n, other=0.0) + BLOCK, mask=o < n)


def heuristics_choose_constants():
    x, out = torch.randn(20), torch.zeros(20)
    with call():
        sized[(1,)](x, out, 20)
    assert torch.allclose(out, x + 32)


@triton.jit
def loops(out_ptr, n, step: tl.constexpr):
    total = 0
    for i in range(n - 1, -1, -2):
        total += i
    tl.store(out_ptr, total)
    total = 0
    for i in tl.range(0, n, step, num_stages=3):
        total = total * 2 + i
    tl.store(out_ptr + 1, total)
    i, count = n, 0
    while i > 1:
        if i % 2 == 0:
            i = i // 2
        else:
            i = 3 * i + 1
        count += 1
    tl.store(out_ptr + 2, count)
    wide = tl.zeros((), tl.int64) + n
    product = wide * 0 + 1
    for k in range(1, wide):
        product *= k
        tl.static_assert(k.dtype == tl.int64)
    tl.store(out_ptr + 3, product)


def loops_run_in_every_form():
    out = torch.zeros(4, dtype=torch.int64)
    with call():
        loops[(1,)](out, 27, step=3)
    expected = 0
    for i in range(0, 27, 3):
        expected = expected * 2 + i
    factorial = 1
    for k in range(1, 27):
        factorial = (factorial * k + 2**63) % 2**64 - 2**63
    assert out.tolist() == [sum(range(0, 27, 2)), expected, 111, factorial]


@triton.jit
def shapes(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    a, b = tl.split(tl.reshape(x, (N // 2, 2)))
    tl.store(out_ptr + o, tl.interleave(b, a))
    tl.store(out_ptr + N + o, tl.ravel(tl.permute(tl.join(a, b), (1, 0))))
    tl.store(out_ptr + 2 * N + o, tl.gather(x, (o * 7) % N, 0))
    tl.store(out_ptr + 3 * N + o, tl.reshape(tl.reshape(x, (4, N // 4)).T, (N,)))
    tl.store(out_ptr + 4 * N + o, tl.cat(a, b, can_reorder=True))
    tl.store(out_ptr + 5 * N + o, tl.flip(x, 0))
    tl.store(out_ptr + 6 * N + o, tl.reshape(tl.broadcast_to(a[:, None], (N // 2, 2)), (N,)))


def shapes_change_as_in_torch():
    x, out = torch.randn(64), torch.zeros(7 * 64)
    with call():
        shapes[(1,)](x, out, N=64)
    rows, a, b = out.reshape(7, 64), x[0::2], x[1::2]
    assert torch.equal(rows[0], torch.stack([b, a], 1).ravel())
    assert torch.equal(rows[1], torch.cat([a, b]))
    assert torch.equal(rows[2], x[(torch.arange(64) * 7) % 64])
    assert torch.equal(rows[3], x.reshape(4, 16).T.ravel())
    assert torch.equal(rows[4].sort().values, x.sort().values)
    assert torch.equal(rows[5], x.flip(0))
    assert torch.equal(rows[6], a.repeat_interleave(2))


@triton.jit
def ordered(x_ptr, out_ptr, N: tl.constexpr, M: tl.constexpr):
    o = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, tl.sort(x, dim=1))
    tl.store(out_ptr + N * M + o, tl.sort(x, dim=1, descending=True))
    row = tl.arange(0, N)
    tl.store(out_ptr + 2 * N * M + row, tl.argmax(x, axis=1).to(tl.float32))
    tl.store(out_ptr + 2 * N * M + N + row, tl.argmin(x, axis=1).to(tl.float32))
    best, where = tl.max(x, axis=1, return_indices=True)
    tl.store(out_ptr + 2 * N * M + 2 * N + row, best + where.to(tl.float32))


def sorting_and_extremes_equal_torch():
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        x = (torch.randn(8, 32, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)
        x[2, 5] = x[2, 9] = x.max() + 1  # a tie: the left one wins
        out = torch.zeros(2 * 256 + 24)
        with call():
            ordered[(1,)](x, out, N=8, M=32)
        assert torch.equal(out[:256].reshape(8, 32), x.sort(1).values.float()), dtype
        assert torch.equal(out[256:512].reshape(8, 32), x.sort(1, descending=True).values.float()), dtype
        wide = x.float()
        first_largest = (wide == wide.max(1, keepdim=True).values).int().argmax(1)
        assert torch.equal(out[512:520], first_largest.float()), dtype
        first_smallest = (wide == wide.min(1, keepdim=True).values).int().argmax(1)
        assert torch.equal(out[520:528], first_smallest.float()), dtype
        assert torch.equal(out[528:], wide.max(1).values + first_largest), dtype


@triton.jit
def selected(x_ptr, out_ptr, K: tl.constexpr, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, K), tl.topk(tl.load(x_ptr + tl.arange(0, N)), K))


def topk_equals_torch():
    if not hasattr(tl, "topk"):
        message = "tl.topk is newer than this Triton"
        raise Skipped(message)
    x, out = torch.randn(64), torch.zeros(8)
    with call():
        selected[(1,)](x, out, K=8, N=64)
    assert torch.equal(out, x.topk(8).values)


@triton.jit
def counted(x_ptr, out_ptr, N: tl.constexpr, BINS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))


def histograms_count_and_drop_what_is_outside():
    x = torch.randint(-3, 20, (128,), dtype=torch.int32)
    out = torch.zeros(16, dtype=torch.int32)
    with call():
        counted[(1,)](x, out, N=128, BINS=16)
    inside = x[(x >= 0) & (x < 16)]
    assert torch.equal(out, torch.bincount(inside, minlength=16).int())


@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def branching(a, b):
    if a > b:
        r = a
    else:
        r = b - 0.0
    return r


@triton.jit
def scanned(a_ptr, b_ptr, out_ptr, N: tl.constexpr, M: tl.constexpr):
    o = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    a, b = tl.load(a_ptr + o), tl.load(b_ptr + o)
    _, state = tl.associative_scan((a, b), 1, affine)
    tl.store(out_ptr + o, state)
    tl.store(out_ptr + N * M + o, tl.cumprod(a, axis=0))
    tl.store(out_ptr + 2 * N * M + o, tl.cumsum(b, axis=1, reverse=True))
    tl.store(out_ptr + 3 * N * M + o, tl.associative_scan(b, 1, branching))
    tl.store(out_ptr + 4 * N * M + tl.arange(0, N), tl.reduce(b, 1, branching))
    total_a, total_b = tl.reduce((a, b), 1, affine)
    tl.store(out_ptr + 4 * N * M + N + tl.arange(0, N), total_a + total_b)
    tl.store(out_ptr + 4 * N * M + 2 * N, tl.sum(b))
    tl.store(out_ptr + 4 * N * M + 2 * N + 1, tl.sum(tl.max(b, axis=0, keep_dims=True)))


def scans_and_reductions_take_any_function_of_the_user():
    generator = torch.Generator().manual_seed(1)
    a, b = torch.rand(8, 32, generator=generator), torch.randn(8, 32, generator=generator)
    out = torch.zeros(4 * 256 + 18)
    with call():
        scanned[(1,)](a, b, out, N=8, M=32)
    state, states = torch.zeros(8), []
    for j in range(32):
        state = state * a[:, j] + b[:, j]
        states.append(state)
    grids = out[:1024].reshape(4, 8, 32)
    assert torch.allclose(grids[0], torch.stack(states, 1), atol=1e-5)
    assert torch.allclose(grids[1], a.cumprod(0), atol=1e-6)
    assert torch.allclose(grids[2], b.flip(1).cumsum(1).flip(1), atol=1e-5)
    assert torch.equal(grids[3], b.cummax(1).values)
    assert torch.equal(out[1024:1032], b.max(1).values)
    assert torch.allclose(out[1032:1040], a.prod(1) + states[-1], atol=1e-5)
    assert torch.allclose(out[1040], b.sum(), atol=1e-4)
    assert torch.allclose(out[1041], b.max(0).values.sum(), atol=1e-5)


@triton.jit
def selu(x, alpha):
    if x > 0:
        r = x
    else:
        r = alpha * (tl.exp(x) - 1)
    return r


@triton.jit
def mapped(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, tl.map_elementwise(selu, x, x * 0 + 1.5))


def map_elementwise_may_branch():
    if not hasattr(tl, "map_elementwise"):
        message = "tl.map_elementwise is newer than this Triton"
        raise Skipped(message)
    x, out = torch.randn(32), torch.zeros(32)
    with call():
        mapped[(1,)](x, out, N=32)
    assert torch.allclose(out, torch.where(x > 0, x, 1.5 * (x.exp() - 1)), atol=1e-6)


@triton.jit
def blocked(x_ptr, out_ptr, rows, columns, B: tl.constexpr):
    source = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0))
    target = tl.make_block_ptr(out_ptr, (rows, columns), (columns, 1), (0, 0), (B, B), (1, 0))
    for _ in range(0, columns, B):
        x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, x + tl.sum(x, axis=1)[:, None] * 0 + 1, boundary_check=(0, 1))
        source = tl.advance(source, (0, B))
        target = tl.advance(target, (0, B))


def block_pointers_advance_and_check_boundaries():
    x, out = torch.randn(13, 37), torch.zeros(13, 37)
    with call() as recorder:
        try:
            blocked[(1,)](x, out, 13, 37, B=16)
        except Exception as error:
            if TRITON >= (3, 7) and "removed" in str(error):
                message = "block pointers were removed"
                raise Skipped(message) from error
            raise
    assert torch.equal(out, x + 1)
    assert not recorder.findings


@triton.jit
def described(x_ptr, out_ptr, rows, columns, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [B, B])
    target = tl.make_tensor_descriptor(out_ptr, [rows, columns], [columns, 1], [B, B])
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    target.store([i, j], source.load([i, j]) * 2)


@triton.jit
def described_by_the_host(source, target, B: tl.constexpr):
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    target.store([i, j], source.load([i, j]) * 3)


def tensor_descriptors_pad_and_drop():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.randn(20, 36), torch.zeros(20, 36)
    with call() as recorder:
        described[(2, 3)](x, out, 20, 36, B=16)
        assert torch.equal(out, x * 2)
        wrapped = [TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, out)]
        described_by_the_host[(2, 3)](*wrapped, B=16)
    assert torch.equal(out, x * 3)
    assert not recorder.findings


@triton.jit
def tupled(pointers, values, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    total = tl.load(pointers[0] + o) * values[0]
    for i in tl.static_range(1, len(pointers)):
        total += tl.load(pointers[i] + o) * values[i]
    tl.store(out_ptr + o, total)


def tuples_of_pointers_and_numbers_are_arguments():
    tensors, out = tuple(torch.randn(16) for _ in range(3)), torch.zeros(16)
    with call() as recorder:
        tupled[(1,)](tensors, (1.0, 2.0, -1.0), out, N=16)
    assert torch.allclose(out, tensors[0] + 2 * tensors[1] - tensors[2])
    assert not recorder.findings


@triton.jit
def random(out_ptr, seed, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out_ptr + o, tl.rand(seed, o))
    tl.store(out_ptr + N + o, tl.randn(seed, o))


def random_numbers_are_plausible_and_repeatable():
    out, again = torch.zeros(2 * 1024), torch.zeros(2 * 1024)
    with call():
        random[(1,)](out, 42, N=1024)
        random[(1,)](again, 42, N=1024)
    assert torch.equal(out, again)
    assert out[:1024].min() >= 0
    assert out[:1024].max() < 1
    assert abs(out[:1024].mean() - 0.5) < 0.05
    assert abs(out[1024:].mean()) < 0.15
    assert abs(out[1024:].std() - 1) < 0.1


@triton.jit
def asserted(x_ptr, limit, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.device_assert(x < limit, "too large")
    assert limit > 0, "limit"


def device_assert_fires_and_is_found():
    x = torch.arange(16.0)
    with call() as recorder:
        asserted[(1,)](x, 100.0, N=16)
        assert not recorder.findings
        error = expect(Exception, lambda: asserted[(1,)](x, 10.0, N=16))
    (finding,) = recorder.findings
    assert "6 of 16 lanes fail device_assert: too large" in str(error)
    assert finding.kind == "device_assert"
    assert finding.detail in str(error)
    assert "tl.device_assert" in Path(finding.file).read_text().splitlines()[finding.line - 1]


def assert_statements_are_device_asserts():
    with call() as recorder:
        expect(Exception, lambda: asserted[(1,)](torch.full((16,), -5.0), -1.0, N=16))
    assert [finding.kind for finding in recorder.findings] == ["device_assert"]
    assert recorder.findings[0].detail.endswith("limit")


@triton.jit
def checked(out_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 16, "BLOCK is too small")
    tl.store(out_ptr, 1)


def static_assert_is_a_compile_time_error():
    with call():
        checked[(1,)](torch.zeros(1), BLOCK=16)
        error = expect(CompileTimeAssertionFailure, lambda: checked[(1,)](torch.zeros(1), BLOCK=8))
    assert "BLOCK is too small" in str(error)
    place = locate(error, [__file__])
    assert place.kernel == "checked"
    assert place.source.startswith("tl.static_assert")


@triton.jit
def printed(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.device_print("x", x)
    tl.device_print("bits", x.to(tl.int32), hex=True)
    print("again", x)
    tl.static_print("static", 3)


def printing_goes_to_stdout():
    text = io.StringIO()
    with call(), contextlib.redirect_stdout(text):
        printed[(1,)](torch.tensor([1.5, 2.0, -1.0, 0.0]).bfloat16())
    assert "1.5" in text.getvalue()
    assert "0x00000002" in text.getvalue()
    assert "static 3" in text.getvalue()
    assert "again" in text.getvalue()


@triton.jit
def assumed(n, out_ptr):
    tl.assume(n > 10)
    tl.store(out_ptr, n)


def a_false_assumption_is_reported():
    with call() as recorder:
        assumed[(1,)](5, torch.zeros(1, dtype=torch.int32))
    assert [finding.kind for finding in recorder.findings] == ["false_assumption"]


@triton.jit
def with_value(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK.value), BLOCK.value // 2)


def value_of_a_constant_is_the_constant():
    x = torch.zeros(16, dtype=torch.int32)
    with call():
        with_value[(1,)](x, BLOCK=16)
    assert (x == 8).all()


@triton.jit
def warps(out_ptr):
    tl.store(out_ptr, tl.extra.cuda.num_warps() * 100 + tl.extra.cuda.num_threads())


def kernels_can_ask_for_their_launch_options():
    out = torch.zeros(1, dtype=torch.int32)
    with call():
        warps[(1,)](out, num_warps=8)
    assert out.item() == 800 + 256
