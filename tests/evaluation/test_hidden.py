"""Which sizes nobody announced."""

import random

from hypothesis import given
from hypothesis import strategies as st

from adaexplore_mcp.evaluation.hidden import draw
from adaexplore_mcp.models import SizeRange, Workload


@given(
    st.integers(1, 500), st.integers(0, 500), st.integers(1, 64), st.integers(1, 3), st.integers(0, 1 << 16)
)
def test_sizes_are_within_their_range_and_other_ones_where_there_are_any(least, more, step, number, seed):
    values = [value for value in range(least, least + more + 1) if value % step == 0]
    if not values:
        return
    chance = random.Random(seed)
    announced = Workload(name="default", sizes={"N": chance.choice(values), "M": 7})
    limits = SizeRange(min=least, max=least + more, multiple_of=step)
    sizes = draw({"N": limits}, announced, number, chance).sizes
    assert sizes["M"] == 7
    assert sizes["N"] in values
    assert sizes["N"] != announced.sizes["N"] or len(values) == 1


def test_the_first_shows_what_was_made_for_fewer():
    vary = {"N": SizeRange(min=100, max=900, multiple_of=1)}
    announced = Workload(name="default", sizes={"N": 96})
    drawn = [draw(vary, announced, 1, random.Random(seed)).sizes["N"] for seed in range(300)]
    assert min(drawn) >= 500
    assert max(drawn) > 850
    assert min(draw(vary, announced, 2, random.Random(seed)).sizes["N"] for seed in range(300)) < 150
