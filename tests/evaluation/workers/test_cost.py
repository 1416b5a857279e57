import contextlib

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from adaexplore_mcp.evaluation.workers.cost import distinct_bytes, measure


@pytest.fixture(params=["fake", "real"], autouse=True)
def tensors(request):
    mode = FakeTensorMode(allow_non_fake_inputs=True) if request.param == "fake" else contextlib.nullcontext()
    with mode, torch.no_grad():
        yield


def cost_of(function, *inputs, model=None):
    return measure(lambda: function(*inputs), inputs=inputs, model=model, follow=True)[1]


def test_the_value_of_the_call_is_returned():
    x = torch.ones(3)
    value, _ = measure(lambda: {"y": x + 1})
    assert value["y"].shape == (3,)


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        (torch.mm, [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
        (torch.bmm, [(2, 3, 5), (2, 5, 7)], 2 * 2 * 3 * 5 * 7),
        (torch.mv, [(3, 5), (5,)], 2 * 3 * 5),
        (torch.dot, [(5,), (5,)], 2 * 5),
        (F.linear, [(4, 5), (7, 5), (7,)], 2 * 4 * 5 * 7),
        (F.conv2d, [(2, 3, 8, 8), (6, 3, 3, 3)], 2 * 2 * 6 * 3 * 9 * 36),
        (F.scaled_dot_product_attention, [(2, 4, 6, 8)] * 3, 2 * 2 * 2 * 4 * 6 * 6 * 8),
        (torch.add, [(3, 5), (3, 5)], 0),
    ],
)
def test_flops(function, shapes, flops):
    assert cost_of(function, *map(torch.randn, shapes)).flops == flops


def test_flops_of_a_recurrent_layer():
    lstm = nn.LSTM(8, 16, batch_first=True)
    assert cost_of(lstm, torch.randn(2, 5, 8), model=lstm).flops == 2 * 2 * 5 * 4 * 16 * (8 + 16)


def test_flops_of_an_integer_product():
    x = torch.ones(4, 8, dtype=torch.int8)
    assert cost_of(torch._int_mm, x, torch.ones(8, 16, dtype=torch.int8)).flops == 2 * 4 * 8 * 16


@pytest.mark.parametrize(
    ("function", "shapes", "chain"),
    [
        (torch.mm, [(3, 5), (5, 7)], 5),
        (torch.addmm, [(7,), (3, 5), (5, 7)], 5),
        (lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(2, 3, 5), (2, 5, 7)], 5),
        (torch.dot, [(9,), (9,)], 9),
        (F.conv2d, [(1, 3, 8, 8), (6, 3, 3, 5)], 45),
        (lambda x, w: F.conv2d(x, w, groups=3), [(1, 6, 8, 8), (6, 2, 3, 3)], 18),
        (F.conv_transpose2d, [(1, 4, 8, 8), (4, 6, 3, 3)], 36),
        (F.scaled_dot_product_attention, [(1, 2, 40, 8)] * 3, 40),
        (F.scaled_dot_product_attention, [(1, 2, 4, 16)] * 3, 16),
        (torch.sum, [(4, 5)], 20),
        (lambda x: x.mean(dim=1), [(4, 5)], 5),
        (lambda x: x.sum(dim=1).sum(), [(4, 50)], 50),
        (lambda x: x.softmax(dim=0), [(4, 5)], 4),
        (lambda x: x.cumsum(dim=1), [(4, 5)], 5),
        (lambda x: x.var(dim=0), [(4, 5)], 4),
        (lambda x: F.layer_norm(x, (5, 6)), [(4, 5, 6)], 30),
        (lambda x: F.rms_norm(x, (6,)), [(4, 5, 6)], 6),
        (lambda x: F.group_norm(x, 2), [(3, 4, 5)], 10),
        (lambda x: F.batch_norm(x, None, None, training=True), [(3, 4, 5)], 15),
        (lambda x: F.avg_pool2d(x, 3), [(1, 2, 9, 9)], 9),
        (lambda x: F.adaptive_avg_pool2d(x, 1), [(1, 2, 4, 5)], 20),
        (F.mse_loss, [(4, 5), (4, 5)], 20),
        (lambda x: x.new_zeros(3).index_add(0, torch.tensor([0, 0, 1, 2]), x), [(4,)], 4),
        (lambda x: x.amax(dim=1).relu(), [(4, 5)], 1),
        (lambda x: x[:2].clone(), [(4, 5)], 1),
    ],
)
def test_the_longest_chain_of_additions(function, shapes, chain):
    assert cost_of(function, *map(torch.randn, shapes)).accumulation == chain


def test_batch_norm_with_stored_statistics_adds_nothing_up():
    norm = nn.BatchNorm1d(4).eval()
    assert cost_of(norm, torch.randn(8, 4), model=norm).accumulation == 1


def test_operators_without_views_and_allocations():
    def function(x):
        y = torch.empty_like(x)
        y.copy_(x.t().t().view(20).reshape(4, 5))
        return torch.relu(y) + y

    cost = cost_of(function, torch.randn(4, 5))
    assert cost.operators == {"copy_": 1, "relu": 1, "add": 1}
    assert cost.elements == 20 + 60


def test_a_large_input_counts_even_if_little_is_written():
    assert cost_of(lambda x: x.sum(), torch.randn(100, 100)).elements == 10_001


def test_the_largest_tensor_may_be_an_input_or_a_result():
    assert cost_of(torch.sum, torch.randn(50)).largest == 50
    assert cost_of(lambda x: torch.outer(x, x), torch.randn(50)).largest == 2500


def test_bytes_of_inputs_parameters_and_outputs():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
    cost = cost_of(model, torch.randn(2, 4, dtype=torch.float32), model=model)
    assert cost.parameters == 4 * 8 + 8 + 2 * 8 + 2 * 8 + 1
    assert cost.input_bytes == 4 * 2 * 4
    assert cost.parameter_bytes == 4 * (4 * 8 + 8 + 2 * 8 + 2 * 8) + 8
    assert cost.output_bytes == 4 * 2 * 8
    assert cost.bytes == cost.input_bytes + cost.parameter_bytes + cost.output_bytes


def test_tied_parameters_count_once():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    cost = cost_of(model, torch.randn(2, 8), model=model)
    assert cost.parameters == 64
    assert cost.parameter_bytes == 256


def test_an_element_shown_twice_counts_once():
    x = torch.randn(4, 6)
    assert distinct_bytes([x, x]) == 96
    assert distinct_bytes([x[:2], x[1:]]) == 96
    assert distinct_bytes([x, x.t()]) == 96
    assert distinct_bytes([torch.randn(1, 6).expand(100, 6)]) == 24
    assert distinct_bytes([x[:, :1]]) == 16
    assert distinct_bytes([torch.randn(0, 6)]) == 0
    assert distinct_bytes([torch.randn(10).unfold(0, 4, 1)]) == 40


def test_memory_that_is_freed_does_not_count_at_the_peak():
    def chain(x):
        for _ in range(10):
            x = x + 1
        return x

    def hoard(x):
        kept = [x + i for i in range(10)]
        return kept[0] + kept[9]

    x = torch.randn(1000)
    assert cost_of(chain, x).peak_bytes == 3 * 4000
    assert cost_of(hoard, x).peak_bytes == 12 * 4000


def test_outputs_in_containers_are_found():
    assert cost_of(lambda x: {"a": x + 1, "b": [x.sum(), None, 3]}, torch.randn(10)).output_bytes == 44


# --- what no output needs --------------------------------------------------------------------------------


def dead_product(x, w):
    w @ x
    return x + 1


def product_for_its_shape(x, w):
    return x + torch.zeros_like(w @ x)


def written_in_place(x, w):
    y = torch.empty(4, 4)
    torch.mm(w, x, out=y)
    return y.t()


def through_a_view(x, w):
    y = torch.zeros(2, 4, 4)
    y[0].copy_(w @ x)
    return y


def into_an_input(x, w):
    x.copy_(w @ x)
    return w.sum()


@pytest.mark.parametrize(
    ("function", "unneeded"),
    [
        (dead_product, {"mm": 2 * 4 * 4 * 4}),
        (product_for_its_shape, {"mm": 2 * 4 * 4 * 4}),
        (written_in_place, {}),
        (through_a_view, {}),
        (into_an_input, {}),
        (torch.mm, {}),
    ],
)
def test_flops_whose_result_reaches_nothing_are_unneeded(function, unneeded):
    assert cost_of(function, torch.randn(4, 4), torch.randn(4, 4)).unneeded == unneeded
