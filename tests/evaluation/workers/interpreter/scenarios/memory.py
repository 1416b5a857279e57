# ruff: noqa: N803, PLR0917  # kernels are written as kernels are: constants in capitals, one branch per operation
"""Bounds, undefined lanes, races, atomics, pointers from memory."""

from pathlib import Path

import torch
import triton
import triton.language as tl
from support import call


def _source(finding):
    return Path(finding.file).read_text().splitlines()[finding.line - 1].strip()


@triton.jit
def copy(x_ptr, y_ptr, n, shift, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + o + shift, mask=o < n)
    tl.store(y_ptr + o, x, mask=o < n)


def an_access_in_bounds_reports_nothing():
    x, y = torch.randn(100), torch.zeros(100)
    with call() as recorder:
        copy[(4,)](x, y, 100, 0, B=32)
    assert torch.equal(x, y)
    assert not recorder.findings
    assert not recorder.uncovered


def a_load_past_the_end_is_reported_masked_and_poisoned():
    x, y = torch.randn(100), torch.zeros(128)
    with call() as recorder:
        copy[(4,)](x, y, 128, 0, B=32)
    (finding,) = recorder.findings
    assert finding.kind == "out_of_bounds_load"
    assert finding.kernel == "copy"
    assert finding.program == (3, 0, 0)
    assert finding.detail.startswith("28 of 32 active lanes read past the end of x_ptr, the first by 4 bytes")
    assert finding.count == 1
    assert not finding.atomics_used
    assert _source(finding) == "x = tl.load(x_ptr + o + shift, mask=o < n)"
    assert torch.equal(y[:100], x)
    assert y[100:].isnan().all()


def a_load_before_the_start_is_reported():
    x, y = torch.randn(64), torch.zeros(64)
    with call() as recorder:
        copy[(2,)](x, y, 64, -3, B=32)
    (finding,) = recorder.findings
    assert finding.detail.startswith(
        "3 of 32 active lanes read before the start of x_ptr, the first by 12 bytes"
    )
    assert torch.equal(y[3:], x[:-3])


def a_store_past_the_end_is_reported_and_dropped():
    big = torch.zeros(128)
    y = big[:40].clone()
    with call() as recorder:
        copy[(4,)](torch.randn(128), y, 128, 0, B=32)
    (finding,) = recorder.findings
    assert finding.kind == "out_of_bounds_store"
    assert finding.count == 3
    assert finding.program == (1, 0, 0)
    assert finding.detail.startswith(
        "24 of 32 active lanes write past the end of y_ptr, the first by 4 bytes"
    )


def the_storage_counts_not_the_view():
    storage = torch.randn(256)
    y = torch.zeros(64)
    with call() as recorder:
        copy[(2,)](storage[100:110], y, 64, 0, B=32)
    assert torch.equal(y, storage[100:164])
    assert not recorder.findings


def an_access_that_runs_into_another_argument_is_reported():
    both = torch.randn(64)
    x, y = both[:32].clone(), torch.zeros(64)
    distance = (y.data_ptr() - x.data_ptr()) // 4
    with call() as recorder:
        copy[(1,)](x, y, 32, distance, B=32)
    (finding,) = recorder.findings
    assert finding.kind == "out_of_bounds_load"
    assert finding.detail.endswith(", into y_ptr")


@triton.jit
def strided(x_ptr, y_ptr, stride, COLS: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, COLS)
    tl.store(y_ptr + r * COLS + c, tl.load(x_ptr + r * stride + c))


def int32_offsets_wrap_and_a_sparse_storage_is_not_touched():
    rows, columns, stride = 4, 64, 1 << 30
    storage = torch.empty((rows - 1) * stride + columns, dtype=torch.int8)
    x = storage.as_strided((rows, columns), (stride, 1))
    x.copy_(torch.arange(rows * columns).reshape(rows, columns) % 100)
    y = torch.zeros(rows, columns, dtype=torch.int8)
    with call() as recorder:
        strided[(rows,)](x, y, stride, COLS=columns)
    (finding,) = recorder.findings
    assert finding.program == (2, 0, 0)
    assert finding.count == 2
    assert finding.detail.startswith(
        "64 of 64 active lanes read before the start of x_ptr, the first by 2147483648 bytes"
    )
    assert torch.equal(y[:2], x[:2])


@triton.jit
def undefined(x_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o % 2 == 0))


def undefined_lanes_hold_poison_of_either_kind():
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.uint8):
        x, y = torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype)
        with call() as recorder:
            undefined[(1,)](x, y, N=8)
        odd = y[1::2]
        assert odd.isnan().all() if dtype.is_floating_point else (odd == torch.iinfo(dtype).max).all(), dtype
        with call(poison="zero"):
            undefined[(1,)](x, y, N=8)
        assert (y[1::2] == 0).all()
        assert (y[::2] == 1).all()
        assert not recorder.findings


@triton.jit
def scalar_default(x_ptr, y_ptr, flag):
    tl.store(y_ptr, tl.load(x_ptr, mask=flag > 0, other=0.0))


def a_default_of_zero_is_a_default():
    y = torch.ones(1)
    with call():
        scalar_default[(1,)](torch.ones(1), y, 0)
    assert y.item() == 0


@triton.jit
def table(addresses_ptr, out_ptr, B: tl.constexpr):
    p = tl.load(addresses_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    o = tl.arange(0, B)
    tl.store(out_ptr + tl.program_id(0) * B + o, tl.load(p + o))


def pointers_from_memory_may_lead_to_any_live_tensor():
    tensors = [torch.randn(16) for _ in range(3)]
    addresses = torch.tensor([t.data_ptr() for t in tensors])
    out = torch.zeros(3, 16)
    with call() as recorder:
        table[(3,)](addresses, out, B=16)
    assert torch.equal(out, torch.stack(tensors))
    assert not recorder.findings
    with call() as recorder:
        table[(1,)](torch.tensor([64]), out, B=16)
    (finding,) = recorder.findings
    assert finding.detail == "16 of 16 active lanes read where no live tensor is, the first at address 0x40"


@triton.jit
def double_table(addresses_ptr, out_ptr, B: tl.constexpr):
    pointers = addresses_ptr.to(tl.pointer_type(tl.pointer_type(tl.float32)))
    o = tl.arange(0, B)
    tl.store(out_ptr + tl.program_id(0) * B + o, tl.load(tl.load(pointers + tl.program_id(0)) + o))


def pointers_to_pointers_step_by_their_own_size():
    tensors = [torch.randn(16) for _ in range(3)]
    out = torch.zeros(3, 16)
    with call() as recorder:
        double_table[(3,)](torch.tensor([t.data_ptr() for t in tensors]), out, B=16)
    assert torch.equal(out, torch.stack(tensors))
    assert not recorder.findings


@triton.jit
def cast_pointer(x_ptr, out_ptr, shift):
    tl.store(out_ptr, tl.load((x_ptr + shift).to(tl.pointer_type(tl.float32))))


def a_misaligned_access_is_reported():
    x, out = torch.arange(16, dtype=torch.int8), torch.zeros(1)
    with call() as recorder:
        cast_pointer[(1,)](x, out, 4)
        assert not recorder.findings
        assert out.item() == x[4:8].view(torch.float32).item()
        cast_pointer[(1,)](x, out, 3)
    assert [finding.kind for finding in recorder.findings] == ["misaligned_access"]


@triton.jit
def tuple_copy(pair, n, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(pair[1] + o, tl.load(pair[0] + o), mask=o < n)


def arguments_in_tuples_are_checked_by_name():
    with call() as recorder:
        tuple_copy[(1,)]((torch.randn(10), torch.zeros(16)), 16, B=16)
    assert "past the end of pair[0]" in recorder.findings[0].detail


@triton.jit
def described(x_ptr, out_ptr, rows, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, B], [B, 1], [B, B])
    target = tl.make_tensor_descriptor(out_ptr, [rows, B], [B, 1], [B, B])
    target.store([0, 0], source.load([0, 0]))


def descriptors_that_promise_too_much_are_caught():
    with call() as recorder:
        described[(1,)](torch.randn(8, 16), torch.zeros(16, 16), 16, B=16)
    assert [finding.kind for finding in recorder.findings] == ["out_of_bounds_load"]
    assert recorder.findings[0].detail.startswith("128 of 256")


# ---- races


@triton.jit
def accumulate(x_ptr, sum_ptr, ATOMIC: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0))
    if ATOMIC:
        tl.atomic_add(sum_ptr, x)
    else:
        tl.store(sum_ptr, tl.load(sum_ptr) + x)


def a_lost_update_is_a_race_and_an_atomic_is_none():
    x, total = torch.randn(8), torch.zeros(1)
    with call() as recorder:
        accumulate[(8,)](x, total, ATOMIC=False)
    assert {finding.kind for finding in recorder.findings} == {"race"}
    finding = recorder.findings[0]
    assert finding.program == (1, 0, 0)
    assert not finding.atomics_used
    assert (
        finding.detail
        == "1 of 1 active lanes read what program (0, 0, 0) stored at sum_ptr in the same launch"
    )
    with call() as recorder:
        accumulate[(8,)](x, total, ATOMIC=True)
    assert not recorder.findings


@triton.jit
def overwrite(y_ptr, SAME: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, 4), tl.program_id(1) * (0 if SAME else 1))


def two_programs_that_store_different_values_race_and_equal_ones_do_not():
    y = torch.full((4,), -1, dtype=torch.int32)
    with call() as recorder:
        overwrite[(1, 3)](y, SAME=True)
    assert not recorder.findings
    with call() as recorder:
        overwrite[(1, 3)](y, SAME=False)
    (finding,) = recorder.findings
    assert finding.detail == (
        "4 of 4 active lanes store another value over what program (0, 0, 0) stored at y_ptr in the same launch"
    )
    with call() as recorder:
        overwrite[(1, 1)](y, SAME=False)
    assert not recorder.findings


@triton.jit
def shift_in_place(x_ptr, n, STEP: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + o + STEP, mask=(o + STEP < n) & (o + STEP >= 0), other=0.0)
    tl.store(x_ptr + o, x, mask=o < n)


def a_neighbour_read_in_place_is_a_race_in_either_direction():
    for step in (1, -1):
        with call() as recorder:
            shift_in_place[(4,)](torch.randn(64), 64, STEP=step, B=16)
        assert {finding.kind for finding in recorder.findings} == {"race"}, step
    x = torch.randn(64)
    with call() as recorder:
        shift_in_place[(4,)](x, 64, STEP=0, B=16)
    assert not recorder.findings


@triton.jit
def locked(lock_ptr, sum_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


def a_race_under_a_lock_says_that_atomics_were_used():
    total = torch.zeros(1)
    with call() as recorder:
        locked[(5,)](torch.zeros(1, dtype=torch.int32), total)
    assert total.item() == 5
    assert recorder.findings
    assert all(finding.atomics_used for finding in recorder.findings)


@triton.jit
def count_up(count_ptr):
    tl.atomic_add(count_ptr, 1)


@triton.jit
def add_beside_atomics(count_ptr, most_ptr, sum_ptr, HOW: tl.constexpr):
    if HOW == "statement":
        tl.atomic_add(count_ptr, 1)
    elif HOW == "method":
        count_ptr.atomic_add(1)
    elif HOW == "helper":
        count_up(count_ptr)
    elif HOW == "two inside":
        tl.atomic_max(most_ptr, 1.0)
    elif HOW == "variable":
        _before = tl.atomic_add(count_ptr, 1)
    elif HOW == "store":
        tl.store(most_ptr, tl.atomic_add(count_ptr, 0).to(tl.float32))
    elif HOW == "branch":
        if tl.atomic_add(count_ptr, 1) < 0:
            return
    elif HOW == "flag":
        tl.atomic_xchg(count_ptr, 1)
        while tl.load(count_ptr) == 0:
            pass
    elif HOW == "volatile":
        tl.atomic_xchg(count_ptr, 1)
        if tl.load(count_ptr, volatile=True) == 0:
            return
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)


def a_race_beside_atomics_whose_answers_nobody_uses_is_certain():
    for how in ("statement", "method", "helper", "two inside", "variable"):
        with call() as recorder:
            add_beside_atomics[(4,)](
                torch.zeros(1, dtype=torch.int32), torch.zeros(1), torch.zeros(1), HOW=how
            )
        assert {finding.kind for finding in recorder.findings} == {"race"}, how
        assert not any(finding.atomics_used for finding in recorder.findings), how


def a_race_beside_atomics_that_are_acted_on_or_waited_for_is_not_certain():
    for how in ("store", "branch", "flag", "volatile"):
        with call() as recorder:
            add_beside_atomics[(4,)](
                torch.zeros(1, dtype=torch.int32), torch.zeros(1), torch.zeros(1), HOW=how
            )
        assert {finding.kind for finding in recorder.findings} == {"race"}, how
        assert all(finding.atomics_used for finding in recorder.findings), how


@triton.jit
def scatter(index_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y_ptr + tl.load(index_ptr + o), o.to(tl.float32))


def lanes_of_one_store_that_disagree_are_a_race():
    with call() as recorder:
        scatter[(1,)](torch.arange(8).flip(0), torch.zeros(8), N=8)
        assert not recorder.findings
        scatter[(1,)](torch.tensor([0, 1, 2, 2, 4, 5, 6, 7]), torch.zeros(8), N=8)
    (finding,) = recorder.findings
    assert finding.kind == "race"
    assert finding.detail.startswith("1 of 8 active lanes of one store write to an address of y_ptr")


@triton.jit
def scatter_in_turn(count_ptr, index_ptr, y_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    turn = tl.atomic_add(count_ptr, 1)
    tl.store(y_ptr + tl.load(index_ptr + o), (o + turn).to(tl.float32))


def no_atomic_orders_the_lanes_of_one_store():
    with call() as recorder:
        count = torch.zeros(1, dtype=torch.int32)
        scatter_in_turn[(1,)](count, torch.tensor([0, 1, 2, 2, 4, 5, 6, 7]), torch.zeros(8), N=8)
    (finding,) = recorder.findings
    assert not finding.atomics_used


@triton.jit
def fill(y_ptr):
    tl.store(y_ptr + tl.program_id(0), 1)


def races_in_a_storage_too_large_to_shadow_are_uncovered():
    y = torch.zeros(90 << 20, dtype=torch.float32)
    with call() as recorder:
        fill[(2,)](y)
    assert not recorder.findings
    assert recorder.uncovered
    assert "races in y_ptr of fill were not looked for" in recorder.uncovered[0]


# ---- atomics


@triton.jit
def update(p_ptr, x_ptr, old_ptr, OP: tl.constexpr, SPREAD: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    p = p_ptr + o // SPREAD
    if OP == "add":
        old = tl.atomic_add(p, x, mask=o < N - 1)
    elif OP == "max":
        old = tl.atomic_max(p, x)
    elif OP == "min":
        old = tl.atomic_min(p, x)
    elif OP == "xchg":
        old = tl.atomic_xchg(p, x)
    elif OP == "cas":
        old = tl.atomic_cas(p, x, x + 1)
    elif OP == "or":
        old = tl.atomic_or(p, x)
    tl.store(old_ptr + o, old)


def atomics_work_on_every_type():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        x = torch.arange(1, 17).to(dtype)
        for spread in (1, 4):
            p, old = torch.ones(16, dtype=dtype), torch.zeros(16, dtype=dtype)
            with call() as recorder:
                update[(1,)](p, x, old, OP="add", SPREAD=spread, N=16)
            kept = torch.cat([x[:-1], x[:1] * 0]).reshape(-1, spread)
            assert torch.equal(p[: 16 // spread], 1 + kept.sum(1)), (dtype, spread)
            before = 1 + torch.cat([kept[:, :1] * 0, kept.double().cumsum(1)[:, :-1].to(dtype)], 1).ravel()
            assert torch.equal(old[:-1], before[:-1]), (dtype, spread)
            assert not recorder.findings


def float_extremes_and_exchanges_are_exact():
    x = torch.tensor([1.0, -2.0, 3.0, -4.0, -0.5, 0.25, 9.0, -9.0])
    start = torch.tensor([0.0, 0.0, -3.0, -3.0, 5.0, -5.0, 9.5, -9.5])
    for op, function in (("max", torch.maximum), ("min", torch.minimum), ("xchg", lambda _, new: new)):
        p, old = start.clone(), torch.zeros(8)
        with call():
            update[(1,)](p, x, old, OP=op, SPREAD=1, N=8)
        assert torch.equal(p, function(start, x)), op
        assert torch.equal(old, start), op
    p, old = x.clone(), torch.zeros(8)
    p[::2] += 1
    before = p.clone()
    with call():
        update[(1,)](p, x, old, OP="cas", SPREAD=1, N=8)
    assert torch.equal(old, before)
    assert torch.equal(p, torch.where(before == x, x + 1, before))


def an_atomic_out_of_bounds_is_reported_and_dropped():
    p, old = torch.zeros(4), torch.zeros(8)
    with call() as recorder:
        update[(1,)](p, torch.ones(8), old, OP="max", SPREAD=1, N=8)
    assert {finding.kind for finding in recorder.findings} == {"out_of_bounds_atomic"}
    assert recorder.findings[0].detail.startswith("4 of 8 active lanes update past the end of p_ptr")
    assert (p == 1).all()


@triton.jit
def many(x_ptr, bins_ptr, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(bins_ptr + tl.load(x_ptr + o, mask=o < n, other=0), 1, mask=o < n)


def histograms_by_atomics_are_exact():
    x = torch.randint(0, 10, (1000,))
    bins = torch.zeros(10, dtype=torch.int32)
    with call() as recorder:
        many[(8,)](x, bins, 1000, B=128)
    assert torch.equal(bins, torch.bincount(x, minlength=10).int())
    assert not recorder.findings


@triton.jit
def gathered(x_ptr, i_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out_ptr + o, tl.gather(tl.load(x_ptr + o), tl.load(i_ptr + o), 0))


def a_gather_outside_of_the_block_is_reported():
    with call() as recorder:
        gathered[(1,)](torch.randn(8), torch.arange(8, dtype=torch.int32) + 2, torch.zeros(8), N=8)
    assert [finding.kind for finding in recorder.findings] == ["gather_index"]
