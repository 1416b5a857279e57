from dataclasses import dataclass
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.workers.lowering import ALIGNED, SMALL, Budget, lower, stretched
from adaexplore_mcp.evaluation.workers.sizes import SizeError


@dataclass
class Work:
    flops: int = 0
    elements: int = 0
    parameters: int = 0


class Model:
    """Costs computed from sizes by a function that returns None where the run would fail."""

    def __init__(self, sizes, cost):
        self.sizes = sizes
        self.cost = cost
        self.trials = 0

    def values(self, edits):
        return self.sizes | {key: new for key, (_, new) in edits.items()}

    def __call__(self, edits):
        self.trials += 1
        assert all(self.sizes[key] == old for key, (old, _) in edits.items())
        return self.cost(**self.values(edits))

    def lower(self, budget=SMALL, **options):
        result = lower(self.sizes, self, budget=budget, **options)
        return result, self.values(result.edits)


def matmul(m, n, k):
    return Work(flops=2 * m * n * k, elements=m * n, parameters=n * k)


def test_a_matrix_product_is_lowered_until_it_fits():
    result, values = Model({"m": 4096, "n": 4096, "k": 4096}, matmul).lower()
    assert result.within
    assert result.confirmed
    assert result.before.flops == 2 * 4096**3
    assert result.after == matmul(**values)
    assert result.after.flops <= 3e6
    assert max(values.values()) <= 4 * min(values.values()), "the largest go first, so sizes stay balanced"


def test_one_constant_at_a_time_gets_its_own_value_back_where_that_can_be_computed():
    model = Model({"m": 4096, "n": 1 << 24, "k": 8192}, matmul)
    edits = {"m": (4096, 64), "n": (1 << 24, 64), "k": (8192, 64)}
    found = [model.values(each) for each in stretched(edits, model)]
    assert found == [{"m": 64, "n": 64, "k": 8192}, {"m": 4096, "n": 64, "k": 64}]


def test_a_single_lowered_constant_is_not_given_back():
    model = Model({"n": 4096}, lambda n: Work(elements=n))
    assert stretched({"n": (4096, 64)}, model) == []


def test_what_fits_is_left_alone():
    result, _ = Model({"m": 16, "n": 16, "k": 16}, matmul).lower()
    assert result.edits == {}
    assert result.within


def test_small_constants_are_structure():
    _, values = Model({"m": 1 << 20, "kernel": 7}, lambda m, kernel: Work(elements=m * kernel)).lower()
    assert values["kernel"] == 7


def test_a_constant_that_costs_nothing_keeps_its_value():
    result, _ = Model({"m": 1 << 20, "seed": 4242}, lambda m, seed: Work(elements=m)).lower()
    assert "seed" not in result.edits


def test_sizes_that_have_to_divide_still_do():
    def attention(hidden, heads, tokens):
        if hidden % heads:
            return None
        return Work(flops=4 * tokens * tokens * hidden, elements=tokens * hidden, parameters=4 * hidden**2)

    result, values = Model({"hidden": 768, "heads": 12, "tokens": 1024}, attention).lower()
    assert result.within
    assert values["hidden"] % values["heads"] == 0


def test_constants_that_have_to_be_equal_are_lowered_together():
    def residual(a, b):
        return Work(flops=a * b * 1000) if a == b else None

    result, values = Model({"a": 512, "b": 512}, residual).lower()
    assert result.within
    assert values["a"] == values["b"]


def test_constants_in_proportion_are_lowered_together():
    def expansion(inner, outer, other):
        return Work(flops=inner * outer * 100 + other) if outer == 4 * inner else None

    result, values = Model({"inner": 256, "outer": 1024, "other": 9}, expansion).lower()
    assert result.within
    assert values["outer"] == 4 * values["inner"]


def test_a_refused_constant_is_tried_again_once_another_has_moved():
    def causal(tokens, longest):
        return Work(elements=longest**2) if tokens <= longest else None

    # `longest` is the larger one, and first it cannot fall below `tokens`, which costs nothing by itself.
    def priced(tokens, longest):
        work = causal(tokens, longest)
        return work and Work(elements=work.elements + tokens * 1000)

    result, values = Model({"tokens": 1024, "longest": 2048}, priced).lower()
    assert result.within
    assert values["longest"] < 1024


def test_a_size_that_was_no_power_of_two_does_not_become_one():
    _, values = Model(
        {"columns": 1000, "rows": 4096}, lambda columns, rows: Work(elements=columns * rows)
    ).lower()
    assert values["columns"] & (values["columns"] - 1)


def test_the_last_resort_is_dropped_unless_it_leads_within():
    def fixed(batch):
        return Work(flops=batch, parameters=10**9)

    result, values = Model({"batch": 64}, lambda batch: Work(flops=batch * 10**9)).lower()
    assert not result.within
    assert values["batch"] == 4
    result, values = Model({"batch": 8}, lambda batch: Work(flops=batch * 10**6)).lower()
    assert result.within
    assert values["batch"] == 2
    result, values = Model({"batch": 64}, fixed).lower()
    assert values["batch"] == 64, "what does not exceed the budget is no reason to lower anything"


def test_aligned_sizes_stay_multiples_while_they_can():
    result, values = Model({"m": 8192, "n": 768, "k": 5120}, matmul).lower(ALIGNED)
    assert result.within
    assert all(value % 64 == 0 for value in values.values())


def test_aligned_sizes_that_are_equal_stay_so():
    result, values = Model({"m": 1024, "n": 8192, "k": 8192}, matmul).lower(ALIGNED)
    assert result.within
    assert values["n"] == values["k"] < 8192


def test_aligned_sizes_that_cannot_stay_equal_are_lowered_all_the_same():
    def shaped(m, heads):
        return Work(flops=m * 10**6) if heads == 256 else None

    _, values = Model({"m": 256, "heads": 256}, shaped).lower(ALIGNED)
    assert values["heads"] == 256
    assert values["m"] < 256


def test_aligned_keeps_small_constants():
    _, values = Model(
        {"m": 8192, "n": 8192, "heads": 16}, lambda m, n, heads: Work(flops=m * n * heads)
    ).lower(ALIGNED)
    assert values["heads"] == 16


def test_the_time_limit_ends_the_search_with_the_best_so_far():
    ticks = iter(range(1000))
    result, values = Model({"m": 4096, "n": 4096, "k": 4096}, matmul).lower(
        seconds=5, clock=lambda: next(ticks)
    )
    assert not result.within
    assert result.edits
    assert result.after == matmul(**values)
    assert result.trials < 8


def test_a_run_that_fails_at_its_own_sizes_is_an_error():
    with pytest.raises(SizeError, match="own sizes"):
        lower({"n": 64}, lambda edits: None)


def test_a_result_that_fails_on_real_tensors_is_lowered_with_equal_constants_linked():
    # An embedding's size and the largest index are two literals of one meaning; fake tensors do not tell.
    model = Model(
        {"vocabulary": 50000, "highest": 50000, "tokens": 512},
        lambda vocabulary, highest, tokens: Work(elements=vocabulary * 64 + tokens + highest // 1000),
    )

    def confirm(edits):
        values = model.values(edits)
        return values["highest"] <= values["vocabulary"]

    result, values = model.lower(confirm=confirm)
    assert result.confirmed
    assert result.within
    assert values["highest"] == values["vocabulary"] < 50000


def test_the_constant_that_breaks_a_real_run_gets_its_value_back():
    model = Model({"a": 4096, "b": 1 << 15}, lambda a, b: Work(elements=a * b))
    result, values = model.lower(confirm=lambda edits: "a" not in edits)
    assert result.confirmed
    assert values["a"] == 4096
    assert values["b"] < 1 << 15


def test_nothing_is_lowered_where_no_real_run_works():
    result, _ = Model({"a": 4096, "b": 4096}, lambda a, b: Work(elements=a * b)).lower(
        confirm=lambda edits: False
    )
    assert not result.confirmed
    assert result.edits == {}
    assert result.after == result.before


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 1 << 14), min_size=1),
    st.integers(2, 16),
    st.sampled_from([SMALL, ALIGNED, Budget(1e4, 1e4, 1e4, (16,))]),
)
def test_whatever_the_relation_the_result_works_and_costs_no_more(sizes, divisor, budget):
    def cost(**values):
        numbers = list(values.values())
        if numbers[0] % divisor != sizes[next(iter(sizes))] % divisor:
            return None
        return Work(flops=prod(numbers), elements=sum(numbers), parameters=max(numbers))

    model = Model(sizes, cost)
    result, values = model.lower(budget, seconds=1e9)
    assert cost(**values) == result.after
    assert budget.excess(result.after) <= budget.excess(result.before)
    assert result.within == (budget.excess(result.after) == 1)
    assert result.trials == model.trials
    least = min(*budget.floors, budget.last_resort or 8)
    for key, value in values.items():
        assert value == sizes[key] or least <= value < sizes[key]
