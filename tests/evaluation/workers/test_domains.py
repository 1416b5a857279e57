import pytest
import torch
from torch import nn

from adaexplore_mcp.evaluation.workers.content import TaskFault
from adaexplore_mcp.evaluation.workers.domains import apply_domain, looks_symmetric, randomise_state


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn]


# --- domains ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("domain", "low", "high", "mean"),
    [("normal", -8, 8, 0.0), ("nonnegative", 0, 8, 0.8), ("probability", 0, 1, 0.5)],
)
def test_floats_are_drawn_from_their_domain(dtype, domain, low, high, mean):
    drawn = apply_domain("x", torch.zeros(4096, dtype=dtype), domain, generator())
    assert drawn.dtype == dtype
    values = drawn.double()
    assert values.min() >= low
    assert values.max() <= high
    assert values.mean() == pytest.approx(mean, abs=0.05)
    assert values.std() > 0.2


def test_keep_gives_the_tensor_itself():
    x = torch.randn(3)
    assert apply_domain("x", x, "keep", generator()) is x


def test_an_index_stays_below_its_bound_and_below_what_was_there():
    x = torch.full((1000,), 40, dtype=torch.int32)
    assert set(apply_domain("x", x, "index(5)", generator()).tolist()) == set(range(5))
    assert apply_domain("x", x, "index(99)", generator()).max() == 40


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.uint16])
def test_integers_of_any_width_can_be_indices(dtype):
    drawn = apply_domain("x", torch.full((50,), 7, dtype=dtype), "index(8)", generator())
    assert drawn.dtype == dtype
    assert set(drawn.tolist()) <= set(range(8))


def test_booleans_and_counts():
    mask = apply_domain("mask", torch.zeros(1000, dtype=torch.bool), "probability", generator())
    assert 400 < mask.sum() < 600
    counts = apply_domain("n", torch.tensor([3, 0, 1] * 100), "nonnegative", generator())
    assert set(counts.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("tensor", "domain"),
    [
        (torch.ones(3, dtype=torch.int32), "normal"),
        (torch.ones(3), "index(4)"),
        (torch.ones(3, dtype=torch.complex64), "nonnegative"),
        (torch.ones(3), "uniform"),
        (torch.ones(3), "index(0)"),
    ],
)
def test_a_domain_that_means_nothing_for_the_dtype_is_a_fault(tensor, domain):
    with pytest.raises(TaskFault, match=r"of batch\['x'\] does not fit") as caught:
        apply_domain("batch['x']", tensor, domain, generator())
    assert caught.value.reason == "domain"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(6, 4).t(),
        torch.zeros(6, 9)[1:4, ::2],
        torch.zeros(1, 4).expand(5, 4),
        torch.zeros(10).unfold(0, 4, 1),
        torch.zeros(()),
        torch.zeros(0, 3),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
)
def test_shape_and_strides_are_kept(tensor):
    drawn = apply_domain("x", tensor, "normal", generator())
    assert (drawn.shape, drawn.stride(), drawn.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert not tensor.any(), "the given tensor is not changed"


def test_one_seed_gives_the_same_values_in_every_dtype():
    half = apply_domain("x", torch.zeros(9, dtype=torch.float16), "normal", generator(3))
    single = apply_domain("x", torch.zeros(9), "normal", generator(3))
    assert torch.equal(half, single.half())


# --- symmetry --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize("count", [16, 100, 10_000, 200_000])
def test_normal_and_uniform_inputs_look_symmetric(dtype, count):
    draws = [torch.randn(count, generator=generator(seed)).to(dtype) for seed in range(5)]
    draws += [(torch.rand(count, generator=generator(seed)) * 2 - 1).to(dtype) for seed in range(5)]
    assert sum(map(looks_symmetric, draws)) >= 9, "a few small samples may be lopsided by chance"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(1000),
        torch.randn(1000).relu(),
        torch.randn(1000).exp(),
        -torch.rand(1000),
        torch.randn(1000) + 0.5,
        torch.empty(1000).exponential_() - 1,
        torch.randint(-5, 6, (1000,)).float(),
        torch.randint(-5, 6, (1000,)),
        torch.randn(1000).sign(),
        torch.randn(1000).masked_fill(torch.arange(1000) == 3, float("-inf")),
        torch.randn(1000).masked_fill(torch.arange(1000) == 3, float("nan")),
        torch.zeros(1000),
        torch.randn(8),
        torch.randn(0),
        torch.randn(1000).to(torch.complex64),
        torch.triu(torch.full((40, 40), float("-inf")), 1),
        torch.linspace(-1, 1, 256),
        torch.randn(1000).sort(descending=True).values,
        torch.randn(40, 25).sort().values,
    ],
)
def test_other_inputs_do_not(tensor):
    assert not looks_symmetric(tensor)


def test_strides_do_not_matter():
    assert looks_symmetric(torch.randn(40, 50, generator=generator()).t()[::2])


# --- parameters ------------------------------------------------------------------------------------------


def test_constants_are_moved_away_from_their_value():
    model = nn.LayerNorm(256)
    state = randomise_state(model, 0, {})
    assert state["weight"].mean() == pytest.approx(1, abs=0.1)
    assert state["weight"].std() == pytest.approx(0.25, abs=0.05)
    assert state["bias"].std() == pytest.approx(0.25, abs=0.05)
    assert torch.equal(model.weight, state["weight"])


def test_drawn_parameters_keep_their_mean_and_spread():
    model = nn.Linear(64, 64)
    with torch.no_grad():
        model.weight.mul_(0.1).add_(2)
    old = model.weight.detach().clone()
    new = randomise_state(model, 1, {})["weight"]
    assert not torch.equal(old, new)
    assert new.mean() == pytest.approx(float(old.mean()), abs=0.01)
    assert new.std() == pytest.approx(float(old.std()), rel=0.1)


def test_a_single_element_changes_too():
    model = nn.PReLU()
    assert randomise_state(model, 0, {})["weight"].item() != 0.25


def test_buffers_and_integer_parameters_stay_unless_declared():
    model = nn.LayerNorm(64)
    model.register_buffer("table", torch.ones(64))
    model.steps = nn.Parameter(torch.arange(4), requires_grad=False)
    assert randomise_state(model, 0, {}).keys() == {"weight", "bias", "steps"}
    assert torch.equal(model.table, torch.ones(64))
    assert model.steps.tolist() == [0, 1, 2, 3]
    state = randomise_state(model, 0, {"table": "nonnegative", "elsewhere": "normal"})
    assert state.keys() == {"weight", "bias", "steps", "table"}
    assert (model.table >= 0).all()
    assert model.table.std() > 0.1


def test_running_statistics_of_a_normalisation_are_drawn_anew_and_a_variance_stays_positive():
    model = nn.Sequential(nn.BatchNorm1d(64), nn.InstanceNorm1d(64))
    state = randomise_state(model, 0, {})
    assert {"0.running_mean", "0.running_var"} <= state.keys()
    assert "0.num_batches_tracked" not in state
    assert model[0].running_mean.std() > 0.1
    assert 0.5 <= model[0].running_var.min() < model[0].running_var.max() <= 1.5
    same = nn.Sequential(nn.BatchNorm1d(64), nn.InstanceNorm1d(64))
    assert torch.equal(randomise_state(same, 0, {})["0.running_var"], state["0.running_var"])


def test_a_declared_domain_wins():
    model = nn.LayerNorm(256)
    state = randomise_state(model, 0, {"weight": "probability", "bias": "keep"})
    assert 0 <= state["weight"].min() <= state["weight"].max() < 1
    assert torch.equal(state["bias"], torch.zeros(256))


def test_tied_parameters_stay_tied_and_have_every_name():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    state = randomise_state(model, 0, {})
    assert model[1].weight is model[0].weight
    assert torch.equal(state["1.weight"], state["0.weight"])
    assert torch.equal(state["1.weight"], model[1].weight)


def test_parameters_that_view_one_memory_agree_with_what_is_returned():
    model = nn.Module()
    model.a = nn.Parameter(torch.randn(4, 6))
    model.b = nn.Parameter(model.a.data.t())
    state = randomise_state(model, 0, {})
    assert torch.equal(state["b"], state["a"].t())
    assert torch.equal(state["a"], model.a)


def test_memory_never_written_becomes_finite():
    model = nn.Module()
    model.w = nn.Parameter(torch.full((64,), float("nan")))
    assert randomise_state(model, 0, {})["w"].isfinite().all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_dtype_is_randomised(dtype):
    model = nn.Module()
    model.w = nn.Parameter(torch.ones(256).to(dtype), requires_grad=False)
    assert randomise_state(model, 0, {})["w"].double().std() > 0.1


def test_the_global_generator_is_not_touched():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = randomise_state(nn.Linear(3, 3), 7, {})
    torch.set_rng_state(before)
    after = torch.get_rng_state()
    assert torch.equal(before, after)
    torch.manual_seed(5)
    assert torch.equal(randomise_state(nn.Linear(3, 3), 7, {})["weight"], first["weight"])
