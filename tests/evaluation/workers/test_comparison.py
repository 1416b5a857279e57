"""The judge's arithmetic: honest rounding passes, everything else does not."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.workers.comparison import Rule, as_message, compare
from adaexplore_mcp.evaluation.workers.standin.memory import fill

MATCH = Rule()


def matmul(m=64, k=512, n=64, dtype=torch.float32, seed=0):
    """Return operands, the reference in its dtype, and in float64."""
    torch.manual_seed(seed)
    a, b = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
    return a, b, a @ b, a.double() @ b.double()


def tf32(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def blocked(a, b, block):
    """Return the product as a kernel computes it: block by block of the inner dimension."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], block):
        total += a[:, start : start + block] @ b[start : start + block]
    return total


@pytest.mark.parametrize("block", [1, 16, 64])
@pytest.mark.parametrize("k", [16, 512, 4096])
def test_another_order_of_summation_matches(k, block):
    a, b, reference, wide = matmul(k=k)
    result = compare(blocked(a, b, block), reference, wide, MATCH, accumulation=k)
    assert result.passed
    assert result.precision_class in {"fp32", "exact"}


def test_the_reference_itself_is_exact():
    _, _, reference, wide = matmul()
    assert compare(reference.clone(), reference, wide, MATCH).precision_class == "exact"


@pytest.mark.parametrize("k", [64, 512, 4096])
def test_tf32_operands_fail_a_float32_task_as_a_matter_of_precision(k):
    a, b, reference, wide = matmul(k=k)
    result = compare(tf32(a) @ tf32(b), reference, wide, MATCH, accumulation=k)
    assert not result.passed
    assert (result.check, result.precision_class) == ("precision_class", "tf32")
    assert result.detail.startswith("relative error ")
    assert "times what they should be" not in result.detail  # rounding goes both ways


def test_one_wrong_element_of_many_is_no_matter_of_precision():
    reference = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
    got = reference.clone()
    got[-1] += 0.5
    result = compare(got, reference, reference.double(), MATCH)
    assert (result.check, result.index) == ("values", (len(got) - 1,))
    assert result.detail == "1 of 262144 elements lie outside the bound"


@pytest.mark.parametrize("factor", [0.999, 1.0015])
def test_that_one_factor_explains_the_error_is_told(factor):
    _, _, reference, wide = matmul()
    result = compare(reference * factor, reference, wide, MATCH, accumulation=512)
    assert result.check == "precision_class"
    assert f"all together {factor:g} times what they should be" in result.detail


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_operands_pass_relaxed_and_fail_match(dtype):
    a, b, reference, wide = matmul()
    got = (a.to(dtype).float() @ b.to(dtype).float()).to(torch.float32)
    assert compare(got, reference, wide, Rule("relaxed"), accumulation=512).passed
    assert compare(got, reference, wide, MATCH, accumulation=512).check == "precision_class"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_task_allows_its_own_rounding_and_no_more(dtype):
    a, b, reference, wide = matmul(dtype=dtype)
    better = (a.float() @ b.float()).to(dtype)
    assert compare(better, reference, wide, MATCH, accumulation=512).passed
    eps = torch.finfo(dtype).eps
    worse = (wide + 8 * eps * wide.square().mean().sqrt()).to(dtype)
    assert not compare(worse, reference, wide, MATCH, accumulation=512).passed


@pytest.mark.parametrize("precision", ["match", "relaxed", "kernelbench"])
def test_one_wrong_element_in_a_million_is_found(precision):
    torch.manual_seed(0)
    wide = torch.randn(1000, 1000, dtype=torch.float64)
    reference = wide.float()
    got = reference.clone()
    got[123, 456] += 1.0
    result = compare(got, reference, wide, Rule(precision))
    assert not result.passed
    assert result.index == (123, 456)
    assert result.got == pytest.approx(float(got[123, 456]))
    assert result.expected == pytest.approx(float(wide[123, 456]))


def test_zeros_fail_however_small_the_right_values_are():
    torch.manual_seed(0)
    wide = torch.softmax(torch.randn(8, 4096, dtype=torch.float64), 1)
    reference = torch.softmax(torch.randn(8, 4096), 1) * 0 + wide.float()
    result = compare(torch.zeros(8, 4096), reference, wide, MATCH, accumulation=4096)
    assert not result.passed
    assert compare(torch.zeros(8, 4096), reference, wide, Rule("paper")).passed, (
        "as the published tolerance would"
    )
    assert compare(reference, reference, wide, Rule("paper")).zeros_would_pass
    assert not compare(reference, reference, wide, MATCH).zeros_would_pass


def test_a_row_of_small_values_beside_large_ones_is_not_excused():
    torch.manual_seed(0)
    wide = torch.randn(64, 64, dtype=torch.float64)
    wide[0] *= 1e3
    reference = wide.float()
    got = reference.clone()
    got[1] *= 1.01
    assert not compare(got, reference, wide, MATCH).passed


def test_one_ambiguous_element_does_not_excuse_the_others():
    torch.manual_seed(0)
    wide = torch.randn(4096, dtype=torch.float64)
    reference = wide.float()
    reference[7] = -reference[
        7
    ]  # a branch that rounding decides: the reference is on one side, float64 on the other
    assert compare(reference.clone(), reference, wide, MATCH).passed
    assert compare(wide.float(), reference, wide, MATCH).passed
    got = reference.clone()
    got[100] += 0.01
    assert not compare(got, reference, wide, MATCH).passed


def test_nan_and_infinities_match_by_place_and_sign():
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert compare(reference.clone(), reference, reference.double(), MATCH).passed
    for place, value in ((1, 2.0), (2, math.nan), (3, math.inf), (0, math.nan)):
        got = reference.clone()
        got[place] = value
        result = compare(got, reference, reference.double(), MATCH)
        assert (result.passed, result.check, result.index) == (False, "nonfinite", (place,))


def test_an_overflow_that_only_the_reference_has_is_no_fault():
    reference = torch.tensor([math.inf, 1.0], dtype=torch.float16)
    wide = torch.tensor([60000.0, 1.0], dtype=torch.float64)
    assert compare(torch.tensor([60000.0, 1.0], dtype=torch.float16), reference, wide, MATCH).passed


@pytest.mark.parametrize("fill", [math.nan, 2.7e38])
def test_what_was_never_written_is_called_that(fill):
    torch.manual_seed(0)
    wide = torch.randn(1000, dtype=torch.float64)
    got = wide.float()
    got[896:] = fill
    result = compare(got, wide.float(), wide, MATCH, poison=torch.tensor(fill))
    assert (result.passed, result.check) == (False, "unwritten")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_nan_that_was_computed_is_told_from_memory_that_was_never_written(dtype):
    wide = torch.randn(1000, dtype=torch.float64)
    poison = torch.zeros((), dtype=dtype)
    fill(poison, "nan")
    got = wide.to(dtype, copy=True)
    got[7] = torch.zeros((), dtype=dtype) / 0
    result = compare(got, wide.to(dtype), wide, MATCH, poison=poison)
    assert (result.passed, result.check) == (False, "nonfinite")
    got[7] = poison
    assert compare(got, wide.to(dtype), wide, MATCH, poison=poison).check == "unwritten"


def test_integers_must_be_equal_unless_the_reference_itself_is_on_the_edge():
    wide = torch.tensor([3, -2, 7], dtype=torch.int8)
    reference = torch.tensor([3, -2, 8], dtype=torch.int8)
    assert compare(wide, reference, wide, MATCH).passed
    result = compare(torch.tensor([3, -1, 8], dtype=torch.int8), reference, wide, MATCH)
    assert (result.passed, result.check, result.index, result.got) == (False, "values", (1,), -1.0)


@pytest.mark.parametrize(
    ("got", "check", "says"),
    [
        (torch.ones(4, dtype=torch.float64), "dtype", "dtype is float64, the reference returns float32"),
        (torch.ones(1, 4), "shape", r"shape is (1, 4), the reference returns (4,)"),
    ],
)
def test_dtype_and_shape_are_strict(got, check, says):
    result = compare(got, torch.ones(4), torch.ones(4).double(), MATCH)
    assert (result.passed, result.check, result.detail) == (False, check, says)


def test_empty_outputs_match():
    assert compare(torch.empty(0, 3), torch.empty(0, 3), torch.empty(0, 3).double(), MATCH).passed


def test_complex_outputs_are_compared_by_both_parts():
    wide = torch.randn(64, dtype=torch.complex128)
    reference = wide.to(torch.complex64)
    assert compare(reference.clone(), reference, wide, MATCH).passed
    got = reference.clone()
    got[5] += 0.1j
    assert not compare(got, reference, wide, MATCH).passed


def test_a_custom_rule_allows_what_it_names():
    reference = torch.ones(1000)
    got = reference.clone()
    got[:5] = 9.0
    assert compare(got, reference, None, Rule("custom", atol=0.1, max_outlier_share=0.01)).passed
    assert not compare(got, reference, None, Rule("custom", atol=0.1, max_outlier_share=0.001)).passed


def test_without_float64_the_floor_is_the_yardstick():
    a, b, reference, _ = matmul()
    assert compare(blocked(a, b, 16), reference, None, MATCH, accumulation=512).passed
    assert not compare(tf32(a) @ tf32(b), reference, None, MATCH, accumulation=512).passed


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.sampled_from(["match", "relaxed", "kernelbench", "paper"]),
)
def test_any_two_outputs_give_a_verdict_that_json_can_carry(got, expected, precision):
    size = min(len(got), len(expected))
    reference = torch.tensor(expected[:size])
    result = compare(torch.tensor(got[:size]), reference, reference.double(), Rule(precision))
    for value in as_message(result).values():
        assert not isinstance(value, float) or math.isfinite(value)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(width=32, allow_subnormal=False), min_size=1, max_size=40))
def test_an_output_always_matches_itself(values):
    reference = torch.tensor(values)
    assert compare(reference.clone(), reference, reference.double(), MATCH).passed


def test_outputs_of_inputs_scaled_down_are_held_to_the_rounding_of_their_usual_size():
    x = 0.01 * torch.randn(4096, generator=torch.Generator().manual_seed(0))
    wide = torch.expm1(x.double())
    got, reference = torch.exp(x) - 1, torch.expm1(x)
    assert not compare(got, reference, wide, Rule()).passed
    assert compare(got, reference, wide, Rule(), typical=1.0).passed
    assert not compare(got * 1.001, reference, wide, Rule(), typical=1.0).passed
    assert not compare(torch.zeros_like(x), reference, wide, Rule(), typical=1.0).passed


def test_values_whose_squares_overflow_are_measured_by_nothing():
    huge = torch.full((4,), 1e300, dtype=torch.float64)
    with pytest.raises(ValueError, match="1e154"):
        compare(huge.clone(), huge, None, MATCH)
