"""Time the search itself: propose and record a step in trees of several sizes and shapes, and rebuild a run from its rows.

    python benchmarks/search_scale.py [--steps 300]

`grown` is a tree as the search grows it, `agents` the same with eight proposals open; `star` has all nodes under the root
and `chain` each under the one before, which no search grows by itself. Times are the thread's own, not those of
others on the machine. Limits: 2 ms for a step at 100 nodes and 3 ms at
10,000, by the 99th percentile; 1 s for a rebuild of 10,000. Exits with 1 if a grown tree or a rebuild is over its limit.
"""

import argparse
import statistics
import sys
import time
from random import Random

from adaexplore_mcp.search import ROOT, Kind, Node, NodeStatus, Proposal, Search, SearchSettings

SIZES = (100, 1000, 10_000)
STEP_LIMIT_MS = {100: 2.0, 1000: 3.0, 10_000: 3.0}
REBUILD_LIMIT_S = 1.0
FAILURES: tuple[NodeStatus, ...] = ("incorrect", "runtime_error", "compile_error", "timeout")


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300, help="steps timed per row")
    steps = parser.parse_args().steps
    good = True
    print("| preset | shape | nodes | depth | step, median ms | step, p99 ms | rebuild s |")
    print("|---|---|---|---|---|---|---|")
    for preset in ("default", "paper"):
        settings = SearchSettings.preset(preset)
        for shape in ("grown", "agents", "star", "chain"):
            for size in SIZES[:2] if shape == "chain" else SIZES:
                search = _tree(settings, shape, size)
                times_ms = _steps(search, steps, agents=8 if shape == "agents" else 1)
                start = time.thread_time()
                again = Search(settings, 1, search.nodes)
                rebuild_s = time.thread_time() - start
                assert again.propose(1) == search.propose(1)
                p99 = statistics.quantiles(times_ms, n=100)[98]
                depth = max(entry.depth for entry in search.entries.values())
                median = statistics.median(times_ms)
                print(
                    f"| {preset} | {shape} | {size} | {depth} | {median:.3f} | {p99:.3f} | {rebuild_s:.3f} |"
                )
                if shape in ("grown", "agents"):
                    good &= p99 <= STEP_LIMIT_MS[size] and rebuild_s <= REBUILD_LIMIT_S
    return 0 if good else 1


def _node(search: Search, parent: int, kind: Kind, step: int, generator: Random) -> Node:
    """Return a node as an agent may make it: right two times in three, slowly getting faster."""
    if generator.random() < 0.35:
        status, speedup = generator.choice(FAILURES), None
    else:
        status, speedup = "correct", 2 ** generator.gauss(0.5 + step**0.25 / 5, 1)
    return Node(id=search.next_id, parent=parent, kind=kind, status=status, step=step, speedup=speedup)


def _tree(settings: SearchSettings, shape: str, size: int) -> Search:
    """Return a search of `size` nodes."""
    generator = Random(size)
    search = Search(settings, 1)
    for step in range(1, size + 1):
        if shape == "star":
            parent, kind = ROOT, "large"
        elif shape == "chain":
            parent, kind = step - 1, "large" if step % 5 == 1 else "small"
        else:
            proposal = search.propose(step)
            parent, kind = proposal.parent, proposal.kind
        search.record(_node(search, parent, kind, step, generator))
    return search


def _steps(search: Search, steps: int, agents: int) -> list[float]:
    """Return the time of each step in ms: one proposal and one record, `agents` - 1 others being open."""
    generator = Random(2)
    times_ms: list[float] = []
    open_proposals: list[Proposal] = []
    first = search.next_id
    for step in range(first, first + steps):
        start = time.thread_time()
        proposal = search.propose(step, open_proposals)
        spent = time.thread_time() - start
        open_proposals.append(proposal)
        if len(open_proposals) < agents:
            continue
        answered = open_proposals.pop(0)
        node = _node(search, answered.parent, answered.kind, step, generator)
        start = time.thread_time()
        search.record(node)
        times_ms.append((spent + time.thread_time() - start) * 1000)
    return times_ms


if __name__ == "__main__":
    sys.exit(main())
