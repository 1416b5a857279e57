"""Draw synthetic tasks: chains of torch's own operators, seeded, towards operators and pairs that were drawn least.

Pure: no torch, no clock. Whoever draws is given the operators that there are and a function that tries one step and says
what it gave; `workers.synthesis` has both. Equal seeds and equal answers give equal tasks.

A task is in KernelBench's form. Each draft has a random generator of its own, so that drafts can be made side by side; what
steers the drawing is the coverage of the tasks kept so far.
"""

import ast
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from adaexplore_mcp.evaluation.synthesis_arguments import fill
from adaexplore_mcp.evaluation.synthesis_site import (
    DTYPES,
    EMBEDDING,
    Call,
    Input,
    Operator,
    Shape,
    Site,
    Sizes,
)

__all__ = ["Coverage", "Draft", "Seen", "Siblings", "Step", "SyntheticTask", "draw", "normalised"]

LENGTHS = (3, 4, 5, 6)
"""Operators in a task."""
MOST_ELEMENTS = 1 << 18
"""Of any tensor on the way: a CPU interprets a kernel for it in seconds."""
RANKS, RANK_WEIGHTS = (1, 2, 3, 4, 5), (1, 6, 6, 7, 4)
TRIES = 24
"""Operators tried for one place in a chain."""
CHOICES = 12
"""Operators of a family among which coverage decides."""
FAMILY_WEIGHTS = {
    "activation": 3.0,
    "elementwise": 2.0,
    "binary": 2.0,
    "normalization": 3.0,
    "pooling": 2.5,
    "convolution": 3.0,
    "linear": 1.2,
    "product": 2.5,
    "reduction": 2.5,
    "scan": 2.0,
    "softmax": 1.2,
    "indexing": 2.0,
    "padding": 1.5,
    "layout": 1.0,
    "resampling": 1.0,
    "loss": 1.0,
    "recurrent": 0.8,
    "attention": 0.8,
    "distance": 1.0,
    "other": 1.0,
}
"""How often a family is drawn from, where all of them fit; within one, coverage decides."""
LOOKED_UP = 0.08
"""Share of drafts that begin with whole numbers and a table to look them up in."""
STEPPED = frozenset(
    (
        "ceil",
        "floor",
        "round",
        "trunc",
        "fix",
        "frac",
        "sign",
        "sgn",
        "remainder",
        "fmod",
        "floordivide",
        "heaviside",
    )
)
"""Jump between neighbouring values: drawn only right behind an input, where every correct kernel sees the same values."""


@dataclass(frozen=True)
class Seen:
    """What a step gave.

    Args:
        shape: Of its result.
        dtype: Of its result, as torch names it.
        problem: Why it cannot be used, in a few words; empty if it can.
        picked: The result is the first of several.
    """

    shape: Shape = ()
    dtype: str = ""
    problem: str = ""
    picked: bool = False


@dataclass(frozen=True)
class Step:
    """One operator applied to the value so far, as text.

    Args:
        operator: Its name, such as nn.Linear, F.gelu or torch.sum.
        module: What the constructor makes; empty for a function.
        call: What `forward` computes; the value so far is `x`, a module `self.<attribute>`.
        attribute: Name of the module.
        inputs: Inputs that it brings.
        sizes: Size constants by name.
    """

    operator: str
    module: str
    call: str
    attribute: str
    inputs: Sequence[Input]
    sizes: Mapping[str, int]


class Try(Protocol):
    """Tries steps on the value so far."""

    def __call__(self, step: Step, *, most: int, fewest: int) -> Seen:
        """Apply one; its result becomes the new value where there is no problem, and the elements are that many."""


Begin = Callable[[Input, Mapping[str, int]], None]
"""Makes the first input, at sizes by name, the value so far."""


@dataclass
class Coverage:
    """How often operators, and pairs of one right behind the other, stand in the tasks kept."""

    operators: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, operators: Sequence[str]) -> None:
        """Count one more task."""
        self.operators.update(operators)
        self.pairs.update(pairwise(operators))

    def weight(self, before: str, operator: str) -> float:
        """Return how much an operator is wanted behind another one."""
        return 1.0 / ((1 + self.operators[operator]) ** 2 * (1 + 2 * self.pairs[before, operator]))

    def to_wire(self) -> dict[str, Any]:
        """Return what `from_wire` reads."""
        return {
            "operators": dict(self.operators),
            "pairs": [[*pair, count] for pair, count in self.pairs.items()],
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Coverage":
        """Read a coverage."""
        return cls(Counter(wire["operators"]), Counter({(a, b): count for a, b, count in wire["pairs"]}))


@dataclass(frozen=True)
class SyntheticTask:
    """A task that was drawn.

    Args:
        number: Of its draft.
        source: Text in KernelBench's form.
        operators: In the order in which they are applied.
    """

    number: int
    source: str
    operators: tuple[str, ...]

    @property
    def name(self) -> str:
        """Short label."""
        return f"synthetic {self.number}: {', '.join(self.operators)}"[:120]


class Siblings:
    """The tasks kept so far: what the next ones must differ from, and what they have covered."""

    def __init__(self, tasks: Iterable[SyntheticTask] = ()) -> None:
        self.coverage = Coverage()
        self._known: set[object] = set()
        for task in tasks:
            self.add(task)

    def add(self, task: SyntheticTask) -> bool:
        """Keep a task; return False, and keep nothing, where one like it was kept before."""
        marks = {normalised(task.source), tuple(map(_plain, task.operators))}
        if marks & self._known:
            return False
        self._known |= marks
        self.coverage.add(task.operators)
        return True


@dataclass(frozen=True)
class Draft:
    """What a drawing came to.

    Args:
        task: The task; None where it came to nothing.
        problem: Why not, in a few words.
        tried: Steps that did not work on the way, by what was wrong.
    """

    task: SyntheticTask | None
    problem: str = ""
    tried: Mapping[str, int] = field(default_factory=dict)


def draw(
    operators: Sequence[Operator], coverage: Coverage, seed: int, number: int, *, begin: Begin, attempt: Try
) -> Draft:
    """Draw one task.

    Args:
        operators: Those that there are, in a fixed order.
        coverage: Of the tasks kept before.
        seed: Of all drafts.
        number: Of this one.
        begin: Makes the first input the value so far.
        attempt: Tries a step.
    """
    return _Drawing(operators, coverage, seed, number).run(begin, attempt)


class _Drawing:
    def __init__(self, operators: Sequence[Operator], coverage: Coverage, seed: int, number: int) -> None:
        self.rng = random.Random(f"{seed}/{number}")  # noqa: S311 - tasks are to be reproduced, not to be secret
        self.coverage = coverage
        self.number = number
        self.families: dict[str, list[Operator]] = {}
        for operator in operators:
            self.families.setdefault(operator.family, []).append(operator)
        self.sizes = Sizes()
        self.steps: list[tuple[Step, Seen]] = []
        self.tried: Counter[str] = Counter()

    def run(self, begin: Begin, attempt: Try) -> Draft:
        rank = self.rng.choices(RANKS, RANK_WEIGHTS)[0]
        dtype = self.rng.choices(DTYPES, (6, 2, 2))[0]
        site = Site(self.rng, self.sizes, (), dtype)
        looked_up = EMBEDDING in self.families and self.rng.random() < LOOKED_UP
        first = site.first_indices(self.rng.choice((1, 2, 2, 3))) if looked_up else site.first_input(rank)
        begin(first, self.sizes.values)
        inputs, seen = [first], Seen(first.shape, dtype)
        for position in range(self.rng.choice(LENGTHS)):
            limit = first.limit if position == 0 else 0
            found = self._step(seen, attempt, len(inputs), raw=position == 0, limit=limit)
            if found is None:
                break
            step, seen = found
            inputs += step.inputs
            self.steps.append(found)
            if math.prod(seen.shape) < 2:
                break
        if len(self.steps) < min(LENGTHS):
            return Draft(None, "too few operators fit one another", self.tried)
        names = tuple(step.operator for step, _ in self.steps)
        return Draft(
            SyntheticTask(self.number, _source(self.sizes, inputs, self.steps), names), "", self.tried
        )

    def _step(
        self, seen: Seen, attempt: Try, inputs: int, *, raw: bool, limit: int
    ) -> tuple[Step, Seen] | None:
        """Return the next operator that works, and what it gave; None after some tries."""
        before = self.steps[-1][0].operator if self.steps else ""
        used = {_plain(step.operator) for step, _ in self.steps}
        may_end = len(self.steps) + 1 >= min(LENGTHS)
        families = [EMBEDDING] if limit else sorted(self.families.keys() - {EMBEDDING})
        for _ in range(TRIES):
            family = self.rng.choices(families, [FAMILY_WEIGHTS.get(each, 1.0) for each in families])[0]
            fitting = [each for each in self.families[family] if each.fits(len(seen.shape))]
            if not fitting:
                continue
            among = self.rng.sample(fitting, min(CHOICES, len(fitting)))
            operator = self.rng.choices(among, [self.coverage.weight(before, each.name) for each in among])[0]
            if _plain(operator.name) in used or (not raw and _plain(operator.name) in STEPPED):
                continue
            kept = dict(self.sizes.values)
            call = fill(
                operator,
                Site(
                    self.rng,
                    self.sizes,
                    seen.shape,
                    seen.dtype,
                    operator=operator.plain,
                    inputs=inputs,
                    limit=limit,
                ),
            )
            if isinstance(call, Call):
                attribute = f"{operator.plain.lower()}{len(self.steps)}" if call.module else ""
                text = call.text.replace("$module", f"self.{attribute}")
                step = Step(operator.name, call.module, text, attribute, call.inputs, dict(self.sizes.values))
                found = attempt(step, most=MOST_ELEMENTS, fewest=1 if may_end else 2)
                if not found.problem:
                    return step, found
                problem = found.problem
            else:
                problem = call
            self.sizes.values = kept
            self.tried[problem] += 1
        return None


def normalised(source: str) -> str:
    """Return what stays of a source without its numbers and constants: equal for tasks that differ in sizes alone."""
    tree = ast.parse(source)
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    tree.body = [node for node in tree.body if not isinstance(node, (ast.Assign, ast.Expr))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            node.value = 0
        elif isinstance(node, ast.Name) and node.id.upper() in constants:
            node.id = "size"
        elif isinstance(node, ast.arg) and node.arg.upper() in constants:
            node.arg = "size"
    return ast.dump(tree)


def _plain(operator: str) -> str:
    """Return a name that is the same for a module and the function that does the same."""
    return operator.rpartition(".")[2].lower().replace("_", "")


def _source(sizes: Sizes, inputs: Sequence[Input], steps: Sequence[tuple[Step, Seen]]) -> str:
    """Write a task's text."""
    modules = [step for step, _ in steps if step.module]
    mentioned = {name for step in modules for name in _names(step.module)}
    used = mentioned | {name for given in inputs for name in _names(given.text)}
    needed = [name for name in sizes.values if name in mentioned]
    arguments = "".join(f", {name.lower()}" for name in needed)
    lines = [
        f'"""Synthetic: {", ".join(step.operator for step, _ in steps)}."""',
        "",
        "import torch",
        "import torch.nn.functional as F",
        "from torch import nn",
        "",
        *(f"{name} = {value}" for name, value in sizes.values.items() if name in used),
        "",
        "",
        "class Model(nn.Module):",
        f"    def __init__(self{arguments}):",
        "        super().__init__()",
        *(f"        self.{step.attribute} = {_lowered(step.module, needed)}" for step in modules),
        "",
        f"    def forward(self, {', '.join(given.name for given in inputs)}):",
        *(f"        x = {step.call}{'[0]' if seen.picked else ''}" for step, seen in steps),
        "        return x",
        "",
        "",
        "def get_inputs():",
        "    return [",
        *(f"        {given.text}," for given in inputs),
        "    ]",
        "",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(needed)}]",
        "",
    ]
    return "\n".join(lines)


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}


def _lowered(text: str, names: Sequence[str]) -> str:
    """Return an expression with constants replaced by the constructor's parameters."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = node.id.lower()
    return ast.unparse(tree)
