"""Compare searches at equal budget on simulated proposers. A simulation: it does not show that agents get faster kernels.

    python benchmarks/search_quality.py [--seeds 400] [--family fitted nk] [--method default paper …] [--budgets 50 100 200]

Two families of proposers stand in for an agent:

fitted   resamples the recorded runs under tests/search/golden: how often a small or a large step is right, by depth and by
         whether its parent is; and how far the logarithm of its speedup lies from what it started from (the parent, or the
         best of the pool), by depth and by what is left to a ceiling, which is set a quarter above the best of its run.
         A gain is a share of what is left. Only pools on the path were recorded: others are taken to do as well.
nk       a kernel is 24 bits on an NK landscape (Kauffman; each bit's share depends on 5 others); a small step flips one to
         three bits, a large step mixes the kernels of its pool and flips one bit in six, without a pool it is random.
         Three in ten steps fail, and a small step from a failure repairs it the likelier, the further it came.

Measured speedups are noisy, by 1, 3 or 10 % (known as an interval), and a method is judged by the true speedup of what it
calls the best. `greedy` edits the best kernel, and a failed one up to three times; `best_of_n` makes independent large
steps. `paper+…` is the paper's setting with one improvement, `default-…` ours without one, `default+…` with one more. Shown: the geometric mean over seeds with its 95 % interval,
and the ratio to the paper's setting on the same landscapes with the same, paired.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from adaexplore_mcp.search import ROOT, Kind, Node, NodeStatus, Proposal, Search, SearchSettings

GOLDEN = Path(__file__).parents[1] / "tests/search/golden"
BUDGETS = (50, 100, 200)
NOISE = (0.01, 0.03, 0.1)
ABOVE = math.log(1.25)
"""Of a simulated task's ceiling over the best kernel that was recorded for it."""
REPAIRS = 3
"""How often greedy goes on with a failed kernel before it returns to the best."""

PAPER = SearchSettings.preset("paper", max_steps=10_000)
DEFAULT = SearchSettings.preset("default", max_steps=10_000)
CHANGES: dict[str, dict[str, Any]] = {
    "log": {"reward_scale": "log"},
    "failures": {"failure_rewards": True},
    "off_path": {"pool_extra_max": 3},
    "widening": {"widening": 0.7},
    "cautious": {"cautious_best": True},
    "edit_best": {"p_best": 0.8},
}
"""The improvements, each alone."""


def without_or_with() -> dict[str, SearchSettings]:
    """Return our setting without each improvement that it has, and with each that it has not."""
    varied: dict[str, SearchSettings] = {}
    for name, changes in CHANGES.items():
        if DEFAULT.with_changes(**changes) == DEFAULT:
            varied[f"default-{name}"] = DEFAULT.with_changes(
                **{field: getattr(PAPER, field) for field in changes}
            )
        else:
            varied[f"default+{name}"] = DEFAULT.with_changes(**changes)
    return varied


SETTINGS = {
    "default": DEFAULT,
    "paper": PAPER,
    **{f"paper+{name}": PAPER.with_changes(**changes) for name, changes in CHANGES.items()},
    **without_or_with(),
    "greedy": PAPER,
    "greedy+cautious": PAPER.with_changes(cautious_best=True),
    "best_of_n": PAPER,
}
METHODS = tuple(SETTINGS)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A simulated kernel: what a proposer makes, and the truth about it."""

    status: NodeStatus
    log_speedup: float
    """True logarithm of its speedup; of what it would have, if it is wrong."""
    depth: int
    bits: int = 0

    @property
    def right(self) -> bool:
        """Whether it is right."""
        return self.status == "correct"


class Proposer(Protocol):
    """Makes kernels on one landscape."""

    def make(self, kind: Kind, parent: Kernel | None, pool: Sequence[Kernel], random: Random) -> Kernel:
        """Return what comes of a step."""


# -- the family fitted to recorded runs -----------------------------------------------------------------------------------

Key = tuple[str, ...]


@dataclass(frozen=True)
class Recorded:
    """What recorded runs say: rates of success and changes of the logarithm of the speedup, by situation."""

    successes: dict[Key, list[NodeStatus]]
    changes: dict[Key, list[float]]
    ceilings: list[float]
    """Logarithm of what each run's task allows."""
    reached: list[list[float]]
    """Logarithm of the best recorded speedup, run by run, after each step."""

    def status(self, key: Key, random: Random) -> NodeStatus:
        """Draw what becomes of a step; the coarser situation where the finer one was hardly seen."""
        return random.choice(_seen(self.successes, key))

    def change(self, key: Key, random: Random) -> float:
        """Draw the change of a right step: a share of what is left if it is a gain, else the loss itself."""
        return random.choice(_seen(self.changes, key))


def _seen(table: dict[Key, list[Any]], key: Key) -> list[Any]:
    while len(table[key]) < 8 and len(key) > 1:
        key = key[:-1]
    return table[key]


def _left(headroom: float) -> str:
    return "near" if headroom < 0.35 else "middle" if headroom < 1.0 else "far"


def _deep(depth: int) -> str:
    return "shallow" if depth <= 2 else "middle" if depth <= 5 else "deep"


def fit(files: Sequence[Path]) -> Recorded:
    """Read recorded runs."""
    successes: dict[Key, list[NodeStatus]] = defaultdict(list)
    changes: dict[Key, list[float]] = defaultdict(list)
    ceilings: list[float] = []
    reached: list[list[float]] = []
    for file in files:
        steps = json.loads(file.read_text(encoding="utf-8"))["steps"]
        kernels: dict[int, Kernel] = {}
        origin: dict[int, float | None] = {0: None}
        ceiling = math.log(max(step["speedup"] for step in steps)) + ABOVE
        bests = [max(step["speedup"] for step in steps[:end]) for end in range(2, len(steps) + 1)]
        reached.append([math.log(max(best, 1.0)) for best in bests])
        ceilings.append(ceiling)
        for step in steps[1:]:
            kind = "small" if step["action"] == "small_step" else "large"
            parent = kernels.get(step["parent_node_id"])
            depth = 1 if parent is None else parent.depth + 1
            if kind == "small":
                start = origin[step["parent_node_id"]]
            else:
                shown = [kernels[i].log_speedup for i in step["context_node_ids"] if kernels[i].right]
                start = max(shown, default=None)
            status: NodeStatus = (
                "correct" if step["correct"] else "incorrect" if step["compiled"] else "compile_error"
            )
            value = math.log(step["speedup"]) if step["correct"] else 0.0
            kernels[step["node_id"]] = Kernel(status, value, depth)
            origin[step["node_id"]] = value if step["correct"] else start
            _file(successes, (kind, _parent_state(kind, parent), _deep(depth)), status)
            if step["correct"] and start is None:
                _file(changes, (kind + " first",), value - ceiling)
            elif step["correct"] and start is not None:
                change = value - start
                share = change / (ceiling - start) if change > 0 else change
                _file(changes, (kind, _left(ceiling - start), _deep(depth)), share)
    return Recorded(successes, changes, ceilings, reached)


def _file(table: dict[Key, list[Any]], key: Key, value: object) -> None:
    for length in range(1, len(key) + 1):
        table[key[:length]].append(value)


def _parent_state(kind: str, parent: Kernel | None) -> str:
    if kind == "large" or parent is None:
        return "any"
    return "right" if parent.right else "wrong"


class Fitted:
    """A proposer that resamples recorded runs."""

    def __init__(self, recorded: Recorded, random: Random) -> None:
        self.recorded = recorded
        self.ceiling = random.choice(recorded.ceilings)

    def make(self, kind: Kind, parent: Kernel | None, pool: Sequence[Kernel], random: Random) -> Kernel:
        """Return what comes of a step. A wrong kernel carries on what it started from."""
        depth = 1 if parent is None else parent.depth + 1
        status = self.recorded.status((kind, _parent_state(kind, parent), _deep(depth)), random)
        if kind == "small":
            assert parent is not None
            start = parent.log_speedup
        else:
            start = max((kernel.log_speedup for kernel in pool), default=-math.inf)
        if status != "correct":
            return Kernel(status, start, depth)
        if start == -math.inf:
            value = self.ceiling + self.recorded.change((kind + " first",), random)
        else:
            left = self.ceiling - start
            change = self.recorded.change((kind, _left(left), _deep(depth)), random)
            value = start + (change * left if change > 0 else change)
        return Kernel("correct", value, depth)


# -- the NK family --------------------------------------------------------------------------------------------------------

BITS, NEIGHBOURS = 24, 5
FAILING = 0.3
REPAIRED: dict[NodeStatus, float] = {
    "incorrect": 0.6,
    "runtime_error": 0.5,
    "compile_error": 0.45,
    "timeout": 0.3,
    "crashed": 0.3,
}


class Landscape:
    """A proposer on an NK landscape."""

    def __init__(self, random: Random) -> None:
        self.masks = [
            sum(1 << i for i in [bit, *random.sample([i for i in range(BITS) if i != bit], NEIGHBOURS)])
            for bit in range(BITS)
        ]
        self.salt = random.getrandbits(64)
        self.shares: dict[tuple[int, int], float] = {}

    def log_speedup(self, bits: int) -> float:
        """Return 0 (as fast as the baseline) on average; a good kernel is several times faster."""
        total = 0.0
        for bit, mask in enumerate(self.masks):
            key = (bit, bits & mask)
            if key not in self.shares:
                self.shares[key] = Random(hash((self.salt, *key))).random()
            total += self.shares[key]
        return (total / BITS - 0.5) * 7

    def make(self, kind: Kind, parent: Kernel | None, pool: Sequence[Kernel], random: Random) -> Kernel:
        """Return what comes of a step."""
        depth = 1 if parent is None else parent.depth + 1
        failing = FAILING
        if kind == "small":
            assert parent is not None
            bits = parent.bits
            if not parent.right:
                failing = 1 - REPAIRED[parent.status]
            for bit in random.sample(range(BITS), random.randint(1, 3)):
                bits ^= 1 << bit
        elif pool:
            bits = 0
            for bit in range(BITS):
                mixed = random.choice(pool).bits >> bit & 1
                bits |= (mixed ^ (random.random() < 1 / 6)) << bit
        else:
            bits = random.getrandbits(BITS)
        status: NodeStatus = "correct"
        if random.random() < failing:
            status = random.choices(tuple(REPAIRED), (4, 3, 3, 1, 1))[0]
        return Kernel(status, self.log_speedup(bits), depth, bits)


# -- methods --------------------------------------------------------------------------------------------------------------


class Run:
    """One method's run on one landscape: a `Search` for the bookkeeping, whatever chooses the steps."""

    def __init__(self, proposer: Proposer, settings: SearchSettings, seed: int) -> None:
        self.proposer = proposer
        self.random = Random(f"proposer {seed}")
        self.search = Search(settings, seed)
        self.kernels: dict[int, Kernel] = {}

    def step(self, proposal: Proposal) -> Node:
        """Have the proposer make a kernel, measure it, record it."""
        parent = self.kernels.get(proposal.parent)
        pool = [self.kernels[node_id] for node_id in proposal.context] if proposal.kind == "large" else []
        kernel = self.proposer.make(proposal.kind, parent, pool, self.random)
        noise = self.random.choice(NOISE)
        measured = kernel.log_speedup + self.random.gauss(0, noise)
        node = Node(
            id=self.search.next_id,
            parent=proposal.parent,
            kind=proposal.kind,
            status=kernel.status,
            step=proposal.step,
            speedup=math.exp(measured) if kernel.right else None,
            low=math.exp(measured - 1.96 * noise) if kernel.right else None,
        )
        self.kernels[node.id] = kernel
        self.search.record(node)
        return node

    def result(self) -> float:
        """Return the true logarithm of the speedup of what is called the best; 0, the baseline, if nothing is right."""
        best = self.search.best()
        return max(self.kernels[best[0].id].log_speedup, 0.0) if best else 0.0


def greedy(run: Run, step: int, last: Node | None, failed: int) -> Proposal:
    """Edit what failed last, a few times; else the best; a new kernel as long as there is neither."""
    del step
    best = run.search.best()
    if last is not None and not last.right and failed < REPAIRS:
        return Proposal(step=0, kind="small", parent=last.id)
    if best:
        return Proposal(step=0, kind="small", parent=best[0].id)
    return Proposal(step=0, kind="large", parent=ROOT)


def best_of_n(run: Run, step: int, last: Node | None, failed: int) -> Proposal:
    """Make a new kernel without regard to any other."""
    del run, last, failed
    return Proposal(step=step, kind="large", parent=ROOT)


def tree(run: Run, step: int, last: Node | None, failed: int) -> Proposal:
    """Do as the search proposes."""
    del last, failed
    return run.search.propose(step)


CHOOSERS: dict[str, Callable[[Run, int, Node | None, int], Proposal]] = {
    "greedy": greedy,
    "greedy+cautious": greedy,
    "best_of_n": best_of_n,
}


def results(method: str, proposer: Proposer, seed: int, budgets: Sequence[int]) -> list[float]:
    """Return the result of one run at each budget."""
    run = Run(proposer, SETTINGS[method], seed)
    choose = CHOOSERS.get(method, tree)
    found: list[float] = []
    last: Node | None = None
    failed = 0
    for step in range(1, max(budgets) + 1):
        last = run.step(choose(run, step, last, failed))
        failed = 0 if last.right else failed + 1
        if step in budgets:
            found.append(run.result())
    return found


# -- the table ------------------------------------------------------------------------------------------------------------


def interval(logs: Sequence[float]) -> str:
    """Return the geometric mean and its 95 % interval."""
    mean = statistics.fmean(logs)
    half = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.3f} ({math.exp(mean - half):.3f} to {math.exp(mean + half):.3f})"


def main() -> int:
    """Run what the command line asks for and print one table per family."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--family", nargs="+", choices=("fitted", "nk"), default=["fitted", "nk"])
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    options = parser.parse_args()
    budgets = sorted(options.budgets)
    methods = list(dict.fromkeys([*options.method, "paper"]))
    recorded = fit(sorted(GOLDEN.glob("*.json")))
    print("A simulation of proposers: it does not show that agents get faster kernels.")
    for family in options.family:
        start = time.perf_counter()
        table: dict[str, list[list[float]]] = {method: [] for method in methods}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            random = Random(f"{family} {seed}")
            proposer: Proposer = Fitted(recorded, random) if family == "fitted" else Landscape(random)
            for method in methods:
                table[method].append(results(method, proposer, seed, budgets))
        print(f"\n{family}, {options.seeds} seeds, {time.perf_counter() - start:.0f} s\n")
        print("| method |" + "".join(f" {budget} steps | to paper |" for budget in budgets))
        print("|---|" + "---|---|" * len(budgets))
        for method, rows in table.items():
            cells = ""
            for column in range(len(budgets)):
                logs = [row[column] for row in rows]
                ratio = [ours - row[column] for ours, row in zip(logs, table["paper"], strict=True)]
                cells += f" {interval(logs)} | {'' if method == 'paper' else interval(ratio)} |"
            print(f"| {method} |{cells}", flush=True)
        if family == "fitted":
            shown = [[run[min(budget, len(run)) - 1] for run in recorded.reached] for budget in budgets]
            cells = "".join(f" {interval(logs)} | |" for logs in shown)
            print(f"| the recorded runs themselves |{cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
