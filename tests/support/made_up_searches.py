"""Searches that hypothesis makes up: any tree that callers may record, and runs as agents go through them."""

from random import Random

from hypothesis import strategies as st

from adaexplore_mcp.search import ROOT, Node, Search, SearchSettings

STATUSES = ("correct", "plausible", "incorrect", "runtime_error", "timeout", "crashed", "out_of_memory")
ALL = (*STATUSES, "compile_error", "rejected")

settings = st.builds(
    SearchSettings.preset,
    st.sampled_from(["default", "paper"]),
    level=st.sampled_from([1, 2, 3]),
    reward_scale=st.sampled_from(["clipped", "log"]),
    failure_rewards=st.booleans(),
    max_weight=st.sampled_from([0.0, 0.5]),
    widening=st.sampled_from([0.0, 0.7]),
)


@st.composite
def trees(draw, max_size=40):
    """Nodes in an order in which they can be recorded, their parents chosen at will."""
    nodes = []
    for node_id in range(1, draw(st.integers(0, max_size)) + 1):
        parent = draw(st.integers(0, node_id - 1))
        right = draw(st.booleans())
        speedup = draw(st.sampled_from([None, 0.05, 0.5, 1.0, 1.5, 2.0, 40.0])) if right else None
        nodes.append(
            Node(
                id=node_id,
                parent=parent,
                kind="large" if parent == ROOT else draw(st.sampled_from(["small", "large"])),
                status=draw(st.sampled_from(ALL[:2] if right else ALL[2:])),
                step=node_id,
                speedup=speedup,
                low=None if speedup is None else speedup * draw(st.sampled_from([0.5, 0.9, 1.0])),
                eligible=draw(st.booleans()),
                charged=draw(st.booleans()),
            )
        )
    return nodes


def grown(chosen, seed, steps):
    """A search that one agent has gone through."""
    search, random = Search(chosen, seed), Random(seed)
    for step in range(1, steps + 1):
        proposal = search.propose(step)
        status = random.choice(ALL)
        search.record(
            Node(
                id=step,
                parent=proposal.parent,
                kind=proposal.kind,
                status=status,
                step=step,
                speedup=2 ** random.gauss(0, 1) if status == "correct" else None,
            )
        )
    return search
