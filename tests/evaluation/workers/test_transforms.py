"""Other values for a task's inputs: what belongs together stays together."""

import pytest
import torch

from adaexplore_mcp.evaluation.trials import SCHEDULE
from adaexplore_mcp.evaluation.workers.arguments import Arguments
from adaexplore_mcp.evaluation.workers.draws import Draws
from adaexplore_mcp.evaluation.workers.transforms import transformed_inputs

TRANSFORMS = sorted({transform for _, _, transform in SCHEDULE} - {"none", "redrawn"})


def arguments(**given):
    return Arguments(kwargs=given)


def drawn(make):
    def draw():
        torch.manual_seed(3)
        return arguments(**make())

    return draw


def statistics():
    x = torch.randn(12, 32)
    return {"x": x, "mean": x.mean(1), "weight": torch.randn(32), "rstd": torch.rsqrt(x.var(1) + 1e-5)}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_is_computed_from_another_input_follows_it(transform):
    found, changed = transformed_inputs(drawn(statistics), transform, {}, 5)
    values, usual = found.named(), drawn(statistics)().named()
    assert {"x", "weight"} <= set(changed)
    assert not torch.equal(values["x"], usual["x"])
    torch.testing.assert_close(values["mean"], values["x"].mean(1))
    torch.testing.assert_close(values["rstd"], torch.rsqrt(values["x"].var(1) + 1e-5))


def test_parts_of_one_draw_are_changed_with_it():
    def parts():
        q, k = torch.randn(2, 64).unbind()
        return {"q": q, "k": k.clone()}

    found, changed = transformed_inputs(drawn(parts), "times 3", {}, 5)
    usual = drawn(parts)().named()
    assert changed == ["q", "k"]
    for name, value in found.named().items():
        torch.testing.assert_close(value, 3 * usual[name])


def test_inputs_that_rest_on_draws_of_their_own_are_changed_themselves():
    def apart():
        return {"x": torch.rand(64) * 2 - 1, "y": torch.randn(64)}

    found, changed = transformed_inputs(drawn(apart), "negated", {}, 5)
    usual = drawn(apart)().named()
    assert changed == ["x", "y"]
    assert all(torch.equal(value, -usual[name]) for name, value in found.named().items())


def test_what_its_owner_says_of_an_input_holds_whatever_it_rests_on():
    found, changed = transformed_inputs(drawn(statistics), "negated", {"x": "keep"}, 5)
    usual = drawn(statistics)().named()
    assert changed == ["weight"]
    assert all(torch.equal(found.named()[name], usual[name]) for name in ("x", "mean", "rstd"))


def test_inputs_whose_form_hangs_on_the_values_of_what_they_share_stay_as_they_are():
    def ragged():
        x = torch.randn(64)
        return {"x": x, "above": x[x > 0]}

    _, changed = transformed_inputs(drawn(ragged), "all positive", {}, 5)
    assert changed == []


def test_inputs_as_drawn_are_drawn_once():
    calls = []
    _, changed = transformed_inputs(lambda: (calls.append(1), arguments())[1], "none", {}, 5)
    assert (len(calls), changed) == (1, [])


def test_a_tensor_rests_on_the_draws_under_it_in_place_too():
    with Draws() as draws:
        a, b = torch.randn(8), torch.rand(8)
        c, d = a + b, torch.ones(8)
        d.mul_(b)
        e = torch.ones(8)
    assert draws.under(a) & draws.under(c)
    assert not draws.under(a) & draws.under(b)
    assert draws.under(d) == draws.under(b)
    assert not draws.under(e)
    assert draws.shared(iter({"a": a, "c": c, "e": e, "d": d}.items())) == {"a", "c", "d"}
