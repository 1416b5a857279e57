"""A search proposes by the paper's rules, records what became of it, and says when to stop."""

import math
from collections import Counter
from pathlib import Path
from random import Random

import made_up_searches as made_up
import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.search import (
    ROOT,
    Node,
    Proposal,
    Search,
    SearchSettings,
    gains,
    makes_node,
    pool_view,
    tree_view,
)
from adaexplore_mcp.search.pool import draw_pool
from adaexplore_mcp.search.rewards import reward

PAPER = SearchSettings.preset("paper")
DEFAULT = SearchSettings.preset("default")
FINER = SearchSettings.preset("default", reward_scale="log", failure_rewards=True)


def node(node_id, parent=ROOT, kind="large", status="correct", **more):
    return Node(id=node_id, parent=parent, kind=kind, status=status, **more)


# -- what a node is worth


@pytest.mark.parametrize(
    ("status", "speedup", "worth"),
    [
        ("compile_error", None, 0.0),
        ("rejected", 50.0, 0.0),
        ("incorrect", None, 0.05),
        ("runtime_error", None, 0.05),
        ("timeout", None, 0.05),
        ("crashed", None, 0.05),
        ("out_of_memory", None, 0.05),
        ("correct", 0.01, 0.4),
        ("correct", 10.0, 1.6),
        ("correct", 99.0, 1.6),
        ("correct", None, 0.4 + 1.2 * 0.9 / 9.9),
        ("plausible", None, 0.4 + 1.2 * 0.9 / 9.9),
    ],
)
def test_the_papers_reward_of_each_outcome(status, speedup, worth):
    assert reward(node(1, status=status, speedup=speedup), PAPER) == pytest.approx(worth, abs=1e-15)


def test_the_logarithm_tells_speedups_above_ten_apart():
    worths = [reward(node(1, speedup=speedup), FINER) for speedup in (1.0, 2.0, 10.0, 20.0, 100.0)]
    assert worths == sorted(set(worths))
    assert worths[1] - worths[0] == pytest.approx(worths[3] - worths[2])


def test_a_failure_that_came_further_is_worth_more_and_never_as_much_as_a_right_kernel():
    order = ["compile_error", "crashed", "runtime_error", "incorrect"]
    worths = [reward(node(1, status=status), FINER) for status in order]
    assert worths == sorted(set(worths))
    assert worths[-1] < reward(node(1, speedup=0.001), FINER)


@pytest.mark.parametrize("status", ["unsupported", "interrupted", "cancelled", "running", ""])
def test_what_was_not_judged_makes_no_node(status):
    assert not makes_node(status)
    with pytest.raises(ValueError, match="makes no node"):
        node(1, status=status)


# -- where it grows


def test_the_first_step_is_a_large_one_from_the_root_with_an_empty_pool():
    assert Search(PAPER, 1).propose(1) == Proposal(step=1, kind="large", parent=ROOT, forced=True)


def test_two_small_steps_from_a_node_force_a_large_one():
    search = Search(PAPER, 1, [node(1), node(2, 1, "small")])
    assert not search.forced_large(1)
    search.record(node(3, 1, "small"))
    assert search.forced_large(1)


def test_working_memory_reaches_back_to_the_large_step_and_holds_five():
    nodes = [node(1), node(2, 1), *(node(n, n - 1, "small") for n in range(3, 10))]
    search = Search(PAPER, 1, nodes)
    assert search.working_memory(4) == (2, 3, 4)
    assert search.working_memory(9) == (5, 6, 7, 8, 9)


def test_the_pool_holds_the_best_of_each_segment_on_the_path():
    search = Search(
        PAPER,
        1,
        [
            node(1, speedup=1.0),
            node(2, 1, "small", speedup=3.0),
            node(3, 1, "large", "incorrect"),
            node(4, 3, "small", speedup=2.0),
            node(5, ROOT, speedup=9.0),
        ],
    )
    assert search.pool_candidates(3) == (2, 4)
    assert search.pool_candidates(ROOT) == ()


def test_the_first_of_equals_in_a_segment_is_the_one_nearest_to_its_head():
    nodes = [node(1, status="incorrect"), node(2, 1, "small", "incorrect"), node(3, 2, "small", speedup=2.0)]
    search = Search(PAPER, 1, nodes)
    search.record(node(4, 1, "small", speedup=2.0))
    assert search.pool_candidates(1) == (4,)


def test_kernels_from_off_the_path_fill_up_a_pool_by_chance():
    nodes = [node(n, speedup=float(n)) for n in range(1, 9)]
    off = SearchSettings.preset("paper", pool_extra_max=3, p_large=1.0)
    drawn = [Search(off, seed, nodes).propose(9).context for seed in range(300)]
    sizes = Counter(len(context) for context in drawn)
    assert set(sizes) == {0, 1, 2, 3} or set(sizes) == {1, 2, 3, 4}
    assert all(len(set(context)) == len(context) for context in drawn)
    low, second = min(sizes), sizes[min(sizes) + 1]
    assert sizes[low] / second == pytest.approx(
        2.5, rel=0.4
    )  # each number is 0.4 times as likely as the one before


def test_more_than_five_on_the_path_are_drawn_from_at_random():
    search = Search(PAPER, 1, [node(n, n - 1, "large", speedup=10.0 - n) for n in range(1, 8)])
    pools = {draw_pool(search.entries[7], search.segments, PAPER, Random(n)) for n in range(200)}
    assert len(pools) == math.comb(7, 5)
    assert all(list(pool) == sorted(pool) for pool in pools)


def test_the_best_kernel_is_edited_in_the_share_of_steps_that_is_set():
    nodes = [node(1, speedup=1.0), node(2, 1, "small", speedup=5.0), node(3, speedup=1.0)]
    always = SearchSettings.preset("paper", p_best=1.0)
    assert {Search(always, seed, nodes).propose(4).parent for seed in range(20)} == {2}


def test_no_more_than_two_agents_edit_the_best_kernel_at_once():
    always = SearchSettings.preset("paper", p_best=1.0)
    search, opened = made_up.grown(always, 3, 60), []
    for step in range(61, 69):
        opened.append(search.propose(step, opened))
    (best,) = search.best()
    assert [proposal.parent for proposal in opened[:2]] == [best.id, best.id]
    assert sum(p.parent == best.id and p.kind == "small" for p in opened) == 2


def test_eight_agents_at_the_start_all_make_new_kernels():
    search, opened = Search(DEFAULT, 1), []
    for step in range(1, 9):
        opened.append(search.propose(step, opened))
    assert {(proposal.kind, proposal.parent) for proposal in opened} == {("large", ROOT)}


def test_agents_at_once_spread_over_the_tree():
    search, opened = made_up.grown(PAPER, 3, 100), []
    for step in range(101, 109):
        opened.append(search.propose(step, opened))
    assert len({proposal.parent for proposal in opened}) >= 4


def test_open_small_steps_count_towards_the_limit():
    search = Search(SearchSettings.preset("paper", p_large=0.0), 1, [node(1), node(2, 1, "small")])
    opened = [Proposal(step=3, kind="small", parent=1, context=(1,))]
    proposals = [search.propose(step, opened) for step in range(4, 40)]
    assert not any(p.kind == "small" and p.parent == 1 for p in proposals)


# -- what holds for every tree


@how(max_examples=40)
@given(made_up.settings, st.integers(0, 2**63), made_up.trees())
def test_a_proposal_is_always_one_that_can_be_followed(settings, seed, nodes):
    search = Search(settings, seed, nodes)
    proposal = search.propose(len(nodes) + 1)
    known = {n.id: n for n in nodes}
    assert proposal.parent == ROOT or proposal.parent in known
    assert len(proposal.context) == len(set(proposal.context)) <= 5
    if proposal.kind == "small":
        assert proposal.context[-1] == proposal.parent
        assert not proposal.forced
    else:
        assert all(known[node_id].right for node_id in proposal.context)


@how(max_examples=40)
@given(made_up.settings, st.integers(0, 2**63), made_up.trees())
def test_the_same_is_proposed_again_and_after_a_rebuild(settings, seed, nodes):
    search = Search(settings, seed, nodes)
    once = [search.propose(step) for step in (1, 7, 999)]
    assert [search.propose(step) for step in (1, 7, 999)] == once
    stored = SearchSettings.from_data(settings.to_data())
    assert [Search(stored, seed, search.nodes).propose(step) for step in (1, 7, 999)] == once


@how(max_examples=40)
@given(made_up.settings, made_up.trees(), st.data())
def test_a_run_cut_anywhere_goes_on_as_if_it_had_not_been(settings, nodes, data):
    cut = data.draw(st.integers(0, len(nodes)))
    whole, half = Search(settings, 1, nodes), Search(settings, 1, nodes[:cut])
    for later in nodes[cut:]:
        half.record(later)
    assert tree_view(half) == tree_view(whole)
    assert (half.best(), half.leader, half.steps_without_gain) == (
        whole.best(),
        whole.leader,
        whole.steps_without_gain,
    )


@how(max_examples=40)
@given(made_up.settings, made_up.trees())
def test_statistics_are_those_of_the_subtree(settings, nodes):
    search = Search(settings, 1, nodes)
    below = {ROOT: []} | {n.id: [] for n in nodes}
    parents = {n.id: n.parent for n in nodes}
    for n in nodes:
        at = n.id
        while True:
            below[at].append(reward(n, settings))
            if at == ROOT:
                break
            at = parents[at]
    for view in tree_view(search):
        assert view.visits == len(below[view.id])
        assert view.max_reward == max(below[view.id], default=0.0)
        assert math.isclose(view.mean_reward * view.visits, sum(below[view.id]), abs_tol=1e-9)


@how(max_examples=40)
@given(made_up.settings, made_up.trees())
def test_best_and_pool_are_what_a_look_at_all_nodes_finds(settings, nodes):
    search = Search(settings, 1, nodes)
    able = [n for n in nodes if n.right and n.eligible]
    assert search.best(len(nodes) + 1) == tuple(sorted(able, key=search.score, reverse=True))
    assert search.best() == search.best(2)[:1]
    heads = {view.id: view.segment for view in tree_view(search)}
    best = {}
    for n in nodes:
        if n.right:
            best[heads[n.id]] = max(best.get(heads[n.id], 0.0), n.value)
    assert {view.head: view.best.value for view in pool_view(search)} == best
    values = [view.best.value for view in pool_view(search)]
    assert values == sorted(values, reverse=True)


@given(st.integers(0, 10_000), st.integers(33, 150), st.integers(0, 8))
def test_many_children_are_chosen_from_as_few_are(seed, width, agents):
    random = Random(seed)
    nodes = [node(n, speedup=random.choice([0.5, 1.0, 2.0, 4.0])) for n in range(1, width + 1)]
    nodes += [node(n, random.randrange(1, width), "small") for n in range(width + 1, 2 * width)]
    search, plain = Search(PAPER, 1, nodes), Search(PAPER, 1, nodes)
    assert search.root.ranking is not None
    for entry in plain.entries.values():
        entry.ranking = None
    opened = []
    for step in range(agents + 1):
        opened.append(search.propose(step, opened))
        assert opened[-1] == plain.propose(step, opened[:-1])


@given(st.integers(0, 1000), st.sampled_from([PAPER, DEFAULT]), st.integers(0, 80))
def test_only_a_strictly_better_kernel_becomes_the_best(seed, settings, steps):
    search = made_up.grown(settings, seed, steps)
    scores = [search.score(gain.node) for gain in gains(search)]
    assert scores == sorted(set(scores))
    assert [gain.node for gain in gains(search)][-1:] == list(search.best())


# -- when it ends


def test_a_run_ends_when_its_charged_steps_are_used():
    settings = SearchSettings.preset("paper", max_steps=2)
    search = Search(settings, 1, [node(1, charged=False), node(2)])
    assert search.stop_reason() is None
    search.record(node(3))
    assert search.stop_reason() == "budget"
    assert search.stop_reason(max_steps=3) is None


def test_a_run_ends_near_the_roofline_and_goes_on_when_told_so():
    search = Search(DEFAULT, 1, [node(1, speedup=2.0, roofline_share=0.89)])
    assert search.stop_reason() is None
    search.record(node(2, speedup=3.0, roofline_share=0.9))
    assert search.stop_reason() == "roofline"
    assert search.stop_reason(resumed_at=2) is None


def test_a_run_ends_after_steps_without_gain_and_counts_anew_when_told_to_go_on():
    settings = SearchSettings.preset("default", patience=3)
    search = Search(settings, 1, [node(1, speedup=2.0), *(node(n, speedup=2.01) for n in (2, 3))])
    assert search.stop_reason() is None
    search.record(node(4, status="incorrect"))
    assert search.steps_without_gain == 3
    assert search.stop_reason() == "no_gain"
    assert search.stop_reason(resumed_at=4) is None
    search.record(node(5, speedup=2.5))
    assert search.steps_without_gain == 0


def test_what_does_none_of_the_work_itself_is_never_the_best():
    search = Search(DEFAULT, 1, [node(1, speedup=50.0, eligible=False), node(2, speedup=1.1)])
    assert [n.id for n in search.best(5)] == [2]
    assert search.leader == 2


def test_a_sure_gain_is_preferred_to_a_doubtful_one():
    nodes = [node(1, speedup=2.0, low=1.9), node(2, speedup=2.2, low=1.2)]
    assert Search(DEFAULT, 1, nodes).best()[0].id == 1
    assert Search(PAPER, 1, nodes).best()[0].id == 2


# -- what is refused


def test_a_node_that_has_no_place_changes_nothing():
    search = Search(PAPER, 1, [node(1)])
    before = tree_view(search)
    with pytest.raises(ValueError, match="7 is no node of this run"):
        search.record(node(2, 7))
    with pytest.raises(ValueError, match="node 1 is recorded already"):
        search.record(node(1))
    assert tree_view(search) == before
    assert search.charged_steps == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": "best"}, "'best'"),
        ({"level": 9}, "level 9"),
        ({"p_large": 2.0}, "p_large"),
        ({"speed": 1}, "speed"),
    ],
)
def test_unknown_settings_are_refused_by_name(changes, named):
    with pytest.raises(RequestError, match=named) as refused:
        SearchSettings.preset(**changes)
    assert refused.value.next_step


def test_a_harder_task_spreads_less():
    assert [SearchSettings.preset("paper", level=level).expand_ratio for level in (2, 3)] == [1.0, 0.5]


def test_every_setting_is_explained():
    page = (Path(__file__).parents[2] / "docs/search.md").read_text(encoding="utf-8")
    for name in SearchSettings.preset("default").to_data():
        assert f"`{name}`" in page, name


def test_the_paper_spreads_out_less_on_whole_networks():
    assert SearchSettings.preset("paper").expand_ratio == 1.0
    assert SearchSettings.preset("paper_level3") == SearchSettings.preset("paper", level=3)
    assert SearchSettings.preset("paper_level3").expand_ratio == 0.5
