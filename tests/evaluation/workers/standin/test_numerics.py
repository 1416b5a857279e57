"""Arithmetic in fewer bits, fresh memory, and fake values. This file plays the candidate."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from adaexplore_mcp.evaluation.workers.standin import NotFakeable, StandIn

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def values(size=64, seed=0):
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed))


def to_tf32(x):
    """Round the mantissa of fp32 numbers to 10 bits, halves away from zero, by numpy."""
    bits = x.numpy().view(np.int32)
    return torch.from_numpy(((bits + 0x1000) & ~0x1FFF).view(np.float32).copy())


def allow_by_flag():
    torch.backends.cuda.matmul.allow_tf32 = True


def allow_by_name():
    torch.set_float32_matmul_precision("medium")


def allow_by_precision():
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has no precision per operator")
    if not hasattr(torch._C, "_get_fp32_precision_getter"):
        pytest.skip("this torch has no precision per operator for cuda")
    torch.backends.cuda.matmul.fp32_precision = "tf32"


@pytest.mark.parametrize("allow", [allow_by_flag, allow_by_name, allow_by_precision])
def test_tf32_that_the_code_allows_is_imitated_in_matrix_products_and_noted(allow):
    a, b = values(seed=1), values(seed=2)
    expected = to_tf32(a) @ to_tf32(b)
    with StandIn(own_paths=[__file__]) as standin:
        x, y, bias = standin.place([a.clone(), b.clone(), torch.zeros(64)])
        exact = x @ y
        allow()
        rounded = [
            x @ y,
            torch.mm(x, y),
            torch.matmul(x, y),
            F.linear(x, y.T),
            torch.addmm(bias, x, y),
            torch.einsum("ik,kj->ij", x, y),
            torch.bmm(x[None], y[None])[0],
        ]
        assert all(each.is_cuda for each in rounded)
        assert allow is allow_by_precision or torch.get_float32_matmul_precision() != "highest"
    assert torch.equal(exact, a @ b)
    for each in rounded:
        torch.testing.assert_close(each, expected, atol=1e-4, rtol=1e-6)
        assert (each - exact).abs().max() > 1e-4
    assert any("TF32 in torch's own matrix products" in note for note in standin.notes)


def test_tf32_leaves_addends_host_tensors_infinities_and_other_dtypes_alone():
    third = torch.full((2, 2), 1 / 3)
    with StandIn(own_paths=[__file__]) as standin:
        torch.backends.cuda.matmul.allow_tf32 = True
        zeros = torch.zeros(2, 2, device="cuda")
        assert torch.equal(torch.addmm(third.cuda(), zeros, zeros), third.cuda())
        host, identity = torch.full((2, 2), 1 / 3), torch.eye(2)
        assert torch.equal(host @ identity, host)
        big = torch.tensor([[float("inf"), float("nan")]])
        product = standin.place(big) * 1 @ torch.ones(2, 1, device="cuda")
        assert product.isnan().all()
        doubles = third.double().cuda()
        assert torch.equal(doubles @ identity.double().cuda(), doubles)


def test_tf32_is_off_until_the_code_allows_it_in_convolutions_too():
    x, w = values(8)[None, None], values(3)[None, None]
    expected = F.conv2d(to_tf32(x), to_tf32(w))
    with StandIn(own_paths=[__file__]) as standin:
        a, b = standin.place([x.clone(), w.clone()])
        assert not torch.backends.cudnn.allow_tf32
        exact = F.conv2d(a, b)
        torch.backends.cudnn.allow_tf32 = True
        rounded = F.conv2d(a, b)
    assert torch.equal(exact, F.conv2d(x, w))
    torch.testing.assert_close(rounded, expected, atol=1e-5, rtol=1e-6)
    assert any("convolutions" in note for note in standin.notes)


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_autocast_for_cuda_computes_in_the_dtype_it_names(dtype):
    with StandIn(own_paths=[__file__]) as standin:
        x = standin.place(values())
        expected = dtype or torch.float16
        assert not torch.is_autocast_enabled()
        with torch.autocast("cuda", dtype=dtype):
            y = x @ x
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") is expected
            assert nn.Linear(64, 64).cuda()(x).dtype is expected
            with torch.autocast("cuda", enabled=False):
                assert (x @ x).dtype is torch.float32
        assert y.dtype is expected
        assert not torch.is_autocast_enabled()
    assert any("autocast" in note for note in standin.notes)


def test_the_older_names_of_autocast_work_too():
    with StandIn(own_paths=[__file__]) as standin:
        x = standin.place(values())
        with pytest.warns(FutureWarning), torch.cuda.amp.autocast():
            assert (x @ x).dtype is torch.float16
        with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
            assert (x @ x).dtype is torch.bfloat16


def test_what_autocast_runs_in_fp32_on_cuda_runs_in_fp32():
    with StandIn(own_paths=[__file__]) as standin:
        x = standin.place(values().half())
        with torch.autocast("cuda"):
            for result in (
                x.softmax(-1),
                F.softmax(x, dim=-1),
                x.exp(),
                torch.log_softmax(x, -1),
                F.layer_norm(x, (64,)),
                x.sum(),
                x.pow(2),
                x**2,
                x.norm(),
                nn.LayerNorm(64).cuda()(x),
            ):
                assert result.dtype is torch.float32
            assert F.gelu(x).dtype is torch.float16
            assert (x + x).dtype is torch.float16
        assert x.softmax(-1).dtype is torch.float16


def fresh(dtype):
    like = torch.zeros(3, dtype=dtype)
    grown = torch.zeros(2, dtype=dtype, device="cuda")
    grown.resize_(5)
    return [
        torch.empty(3, dtype=dtype),
        torch.empty((3,), dtype=dtype, device="cuda"),
        torch.empty_like(like),
        like.new_empty(3),
        torch.empty_strided((3,), (1,), dtype=dtype),
        grown[2:],
    ]


@pytest.mark.parametrize("dtype", FLOATS)
def test_fresh_floats_are_nan_or_huge(dtype):
    with StandIn(own_paths=[__file__], poison="nan"):
        assert all(each.isnan().all() for each in fresh(dtype))
    with StandIn(own_paths=[__file__], poison="huge"):
        for each in fresh(dtype):
            assert each.isfinite().all()
            assert (each.double() > torch.finfo(dtype).max / 2).all()
    with StandIn(own_paths=[__file__], poison=None):
        torch.empty(3, dtype=dtype)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_fresh_integers_are_two_values_that_nothing_computes(dtype):
    seen = []
    for poison in ("nan", "huge"):
        with StandIn(own_paths=[__file__], poison=poison):
            found = {value for each in fresh(dtype) for value in each.tolist()}
            assert len(found) == 1
            seen += found
    if dtype is torch.bool:
        assert seen == [True, True]
    else:
        assert seen[0] != seen[1]
        assert all(abs(value) > torch.iinfo(dtype).max // 2 for value in seen)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64])
def test_rarer_dtypes_are_poisoned_as_well(dtype):
    with StandIn(own_paths=[__file__]):
        assert (
            torch.view_as_real(torch.empty(2, dtype=dtype)).isnan().all()
            if dtype.is_complex
            else (torch.empty(2, dtype=dtype).float().isnan().all())
        )


def test_growing_keeps_what_was_there_and_memory_outside_the_stand_in_is_left_alone():
    with StandIn(own_paths=[__file__]):
        x = torch.ones(2, device="cuda")
        x.resize_(4)
        assert x[:2].tolist() == [1.0, 1.0]
        assert x[2:].isnan().all()
        leaf = nn.Parameter(torch.empty(2, device="cuda"))
        assert leaf.isnan().all()
        assert leaf.requires_grad


def test_fake_tensors_answer_reads_with_assumed_values_that_are_counted():
    with StandIn(own_paths=[__file__], fake=True) as standin:
        x = torch.randn(3, device="cuda")
        index = torch.arange(3, device="cuda")
        assert x.sum().item() == 0.5
        assert float(x[0]) == 0.5
        assert index[0].item() == 1
        assert int(index[0]) == 1
        assert (x > 0).any().item() is True
        assert bool(x.sum() > 0) is True
        assert index.tolist() == [1, 1, 1]
        assert torch.allclose(x, x)
        assert torch.equal(index, index)
        assert [0, 1, 2][index[0]] == 1
        assert standin.answers["value_assumed"] == 12
        assert torch.tensor(7).item() == 7  # known, since torch kept the number
        assert standin.answers["value_assumed"] == 12
    assert standin.notes == ["host code read values of fake tensors; values were assumed for them"]


@pytest.mark.parametrize("read", [bool, lambda y: y.item(), lambda y: torch.equal(y, y)])
def test_a_loop_that_waits_for_another_value_than_the_one_assumed_is_given_up(read):
    with StandIn(own_paths=[__file__], fake=True):
        x = torch.ones(3, device="cuda")
        for _ in range(1000):
            assert read((x > 1).any())
        with pytest.raises(NotFakeable, match="1,000 values"):
            read((x > 1).any())


def test_what_fake_tensors_cannot_carry_is_said_so_that_real_ones_can_be_tried():
    with StandIn(own_paths=[__file__], fake=True):
        x = torch.randn(3, device="cuda")
        for attempt in (
            x.cpu().numpy,
            lambda: torch.nonzero(x),
            lambda: x[x > 0],
            lambda: torch.bincount(x.int()),
        ):
            with pytest.raises(NotFakeable, match="values"):
                attempt()


def test_fake_tensors_have_aligned_addresses_that_views_share():
    with StandIn(own_paths=[__file__], fake=True):
        x = torch.empty(1 << 40, dtype=torch.float32, device="cuda")
        y = torch.empty(8, device="cuda")
        assert x.data_ptr() % 512 == 0
        assert x.data_ptr() == x.data_ptr()
        assert x[3:].data_ptr() == x.data_ptr() + 12
        assert y.data_ptr() >= x.data_ptr() + 4 * (1 << 40) or y.data_ptr() < x.data_ptr()


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "num_layers": 2, "bidirectional": True}])
def test_recurrent_layers_have_the_shapes_and_operations_they_have_with_real_tensors(kind, options):
    def flat(value):
        return [value] if isinstance(value, torch.Tensor) else [leaf for item in value for leaf in flat(item)]

    real = flat(kind(4, 6, **options)(torch.randn(5, 3, 4)))
    with StandIn(own_paths=[__file__], fake=True), torch.no_grad(), FlopCounterMode(display=False) as counter:
        fake = flat(kind(4, 6, **options).cuda()(torch.randn(5, 3, 4, device="cuda")))
        assert all(each.is_cuda for each in fake)
    assert [each.shape for each in fake] == [each.shape for each in real]
    assert [each.stride() for each in fake] == [each.stride() for each in real]
    if not options:
        gates = {nn.GRU: 3, nn.LSTM: 4, nn.RNN: 1}[kind]
        assert counter.get_total_flops() == 2 * 5 * 3 * (4 + 6) * 6 * gates
