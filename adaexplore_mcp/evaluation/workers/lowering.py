"""Lower size constants until a run is cheap enough for Triton's interpreter, by trial and without knowing the source.

Which constants exist is for `sizes` to say, and what a run costs for the caller to measure: this module only decides
what to try next.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .sizes import SizeError

__all__ = ["ALIGNED", "SMALL", "STRETCHED", "Budget", "Edits", "Lowering", "Work", "lower", "stretched"]

Edits = Mapping[str, tuple[int, int]]
"""By key of a constant, the value at the task's own sizes and the lowered one."""

# Literals below this are structure (kernel sizes, strides, numbers of dimensions), not amounts of work.
SMALLEST_LOWERED = 8

# Beyond this excess, dividing by eight comes first: a trial of 74,000 operators takes 25 s.
FAR = 1e4


class Work(Protocol):
    """What a run costs, as far as lowering looks at it."""

    @property
    def flops(self) -> int:
        """Floating-point operations of matrix products and convolutions."""

    @property
    def elements(self) -> int:
        """Elements of the inputs, and those written by all operators."""

    @property
    def parameters(self) -> int:
        """Elements of parameters and buffers."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a lowered run may cost, and how far constants may fall.

    Args:
        flops: Most floating-point operations.
        elements: Most elements of inputs and results.
        parameters: Most elements of parameters and buffers.
        floors: Smallest values, tried one after the other until the run is cheap enough.
        last_resort: One more floor, kept only if it leads within the budget: an expensive run at sizes of 2 would be
            expensive and cover nothing. 0: none.
        aligned: Keep factors of two up to the floor in force, so that multiples of 64 stay multiples of 64 while they can.
        linked: Keep constants of equal value equal, unless that does not lead within the budget.
    """

    flops: float
    elements: float
    parameters: float
    floors: tuple[int, ...]
    last_resort: int = 0
    aligned: bool = False
    linked: bool = False

    def excess(self, work: Work) -> float:
        """Return by what factor the work exceeds the budget, all measures multiplied; 1 within it."""
        product = 1.0
        for amount, limit in (
            (work.flops, self.flops),
            (work.elements, self.elements),
            (work.parameters, self.parameters),
        ):
            product *= max(1.0, amount / limit)
        return product


SMALL = Budget(flops=3e6, elements=1.5e5, parameters=1e5, floors=(8, 4), last_resort=2)
"""A run that Triton's interpreter finishes in a second or two (512 x 512 x 512 takes 2 to 3 s)."""

ALIGNED = Budget(
    flops=1e8, elements=5e6, parameters=3e6, floors=(128, 64, 32, 16, 8), aligned=True, linked=True
)
"""For the second look at a kernel that assumes multiples of its block sizes, or that two sizes are equal as they are."""

STRETCHED = Budget(flops=1e8, elements=1e7, parameters=3e6, floors=())
"""One call with a constant at its own value: 4,096 programs of a row of 256, or 256 of 16,384, take 1 to 2 s."""
MOST_STRETCHED = 2


@dataclass(frozen=True, slots=True)
class Lowering:
    """What lowering came to.

    Args:
        edits: By key, the old and the new value.
        before: Cost at the task's own sizes.
        after: Cost at the lowered sizes.
        within: Whether that fits the budget.
        confirmed: Whether `confirm` accepted the result; True if there was none.
        trials: Number of runs measured.
    """

    edits: dict[str, tuple[int, int]]
    before: Work
    after: Work
    within: bool
    confirmed: bool
    trials: int


def lower(
    sizes: Mapping[str, int],
    measure: Callable[[Edits], Work | None],
    *,
    budget: Budget = SMALL,
    seconds: float = 20.0,
    confirm: Callable[[Edits], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Lowering:
    """Lower size constants, largest first, until a run fits the budget or nothing helps any more.

    Each step halves one constant (far from the budget it divides by eight), and stays if the run still works and costs less
    of what exceeds the budget. Where single constants fail, those of equal value are lowered together, then pairs,
    then all: this finds relations such as "a multiple of the number of heads" without knowing them.

    Args:
        sizes: By key, the constants that may be lowered; those below 8 are left alone.
        measure: Runs with edits applied, given as key to (old, new); None if that fails.
        budget: When to stop.
        seconds: When to stop looking; the best found so far is returned.
        confirm: A run on real tensors, tried with the result: indices may have left their range, which fake tensors
            do not show. If it fails, constants of equal value are lowered only together; if it still fails, single
            constants get their old value back.
        clock: Seconds, monotonic.

    Raises:
        SizeError: The run fails even with no constant lowered.
    """
    counted = _Counted(measure)
    before = counted({})
    if before is None:
        msg = "the run fails at its own sizes"
        raise SizeError(msg)

    def finished(edits: Edits, work: Work, *, confirmed: bool) -> Lowering:
        return Lowering(dict(edits), before, work, budget.excess(work) == 1.0, confirmed, counted.trials)

    deadline = clock() + seconds
    search = _Search(sizes, counted, budget, before, deadline=deadline, clock=clock, linked=budget.linked)
    search.run()
    if budget.linked and budget.excess(search.work) > 1.0:
        loose = _Search(sizes, counted, budget, before, deadline=deadline, clock=clock)
        loose.run()
        if budget.excess(loose.work) == 1.0:
            search = loose
    if confirm is None or not search.edits or confirm(search.edits):
        return finished(search.edits, search.work, confirmed=True)
    linked = _Search(sizes, counted, budget, before, deadline=clock() + seconds, clock=clock, linked=True)
    linked.run()
    if linked.edits and confirm(linked.edits):
        return finished(linked.edits, linked.work, confirmed=True)
    for key in sorted(search.edits, key=lambda key: -search.edits[key][0]):
        edits = {other: edit for other, edit in search.edits.items() if other != key}
        work = counted(edits) if edits else None
        if work is not None and confirm(edits):
            return finished(edits, work, confirmed=True)
    return finished({}, before, confirmed=False)


def stretched(
    edits: Edits,
    measure: Callable[[Edits], Work | None],
    *,
    budget: Budget = STRETCHED,
    seconds: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
) -> list[dict[str, tuple[int, int]]]:
    """Return lowered sizes with one constant at its own value again, those that were lowered most first.

    What a kernel does not cover beyond some extent, it leaves out there and nowhere below.

    Args:
        edits: Lowered sizes at which a run works.
        measure: As for `lower`.
        budget: What one run may cost.
        seconds: When to stop looking.
        clock: Seconds, monotonic.
    """
    deadline = clock() + seconds
    found: list[dict[str, tuple[int, int]]] = []
    for key in sorted(edits, key=lambda key: -edits[key][0] / max(1, edits[key][1])):
        others = {other: edit for other, edit in edits.items() if other != key}
        if len(found) == MOST_STRETCHED or not others or clock() > deadline:
            break
        work = measure(others)
        if work is not None and budget.excess(work) == 1.0:
            found.append(others)
    return found


class _Counted:
    """Counts the runs that are measured."""

    def __init__(self, measure: Callable[[Edits], Work | None]) -> None:
        self.trials = 0
        self._measure = measure

    def __call__(self, edits: Edits) -> Work | None:
        self.trials += 1
        return self._measure(edits)


class _Search:
    """One descent; `edits` and `work` are the best found so far."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        measure: Callable[[Edits], Work | None],
        budget: Budget,
        before: Work,
        *,
        deadline: float,
        clock: Callable[[], float],
        linked: bool = False,
    ) -> None:
        self.edits: dict[str, tuple[int, int]] = {}
        self.work = before
        self._original = {key: value for key, value in sizes.items() if value >= SMALLEST_LOWERED}
        self._measure = measure
        self._budget = budget
        self._deadline = deadline
        self._clock = clock
        self._linked = linked
        self._floor = 0

    def run(self) -> None:
        for floor in self._budget.floors:
            self._descend(floor)
        kept = self.edits, self.work
        if self._budget.last_resort and not self._done():
            self._descend(self._budget.last_resort)
            if self._budget.excess(self.work) > 1.0:
                self.edits, self.work = kept

    def _descend(self, floor: int) -> None:
        """Lower constants until the run fits, or none can be lowered above the floor."""
        self._floor = floor
        # A constant that could not be lowered is tried again only after others have moved.
        refused: set[str] = set()
        moved = False
        while not self._done():
            if self._lower_one(refused):
                moved = True
            elif refused and moved:
                refused.clear()
                moved = False
            elif self._lower_together():
                refused.clear()
            else:
                break

    def _done(self) -> bool:
        return self._budget.excess(self.work) == 1.0 or self._clock() >= self._deadline

    def _value(self, key: str) -> int:
        return self.edits[key][1] if key in self.edits else self._original[key]

    def _by_size(self) -> list[str]:
        return sorted(self._original, key=lambda key: -self._value(key))

    def _lower_one(self, refused: set[str]) -> bool:
        """Take one step with the largest constant that allows one; add those that do not to `refused`."""
        for key in self._by_size():
            if key in refused:
                continue
            group = [other for other in self._original if self._original[other] == self._original[key]]
            keys = group if self._linked else [key]
            for value in self._steps(key):
                if self._done():
                    return False
                if self._try(dict.fromkeys(keys, value), spare=value * 4 < self._value(key)):
                    return True
            refused.add(key)
        return False

    def _lower_together(self) -> bool:
        """Halve several constants at once."""
        halves = {key: steps[-1] for key in self._by_size() if (steps := self._halves(key))}
        for keys in _groups({key: self._value(key) for key in halves}):
            if self._done():
                return False
            if self._try({key: halves[key] for key in keys}):
                return True
        return False

    def _steps(self, key: str) -> list[int]:
        """Return smaller values to try for a constant, the boldest first."""
        value = self._value(key)
        far = self._budget.excess(self.work) > FAR
        bold = self._divided(key, 8) if far and value % 8 == 0 else 0
        return [bold, *self._halves(key)] if bold >= self._least(key) else self._halves(key)

    def _halves(self, key: str) -> list[int]:
        """Return about half the constant's value: rounded down, then up; empty at its floor."""
        # Down first: up ends at powers of two, and a size that was none hides faults at the last block there.
        halves = [self._divided(key, 2), -self._divided(key, -2)]
        return [half for half in dict.fromkeys(halves) if self._least(key) <= half < self._value(key)]

    def _divided(self, key: str, divisor: int) -> int:
        """Divide a constant, rounded down to the alignment that it has to keep."""
        original = self._original[key]
        step = min(self._floor, original & -original) if self._budget.aligned else 1
        return self._value(key) // divisor // step * step

    def _least(self, key: str) -> int:
        return min(self._original[key], self._floor)

    def _try(self, changed: Mapping[str, int], *, spare: bool = False) -> bool:
        """Measure a step and keep it if it helps; with `spare`, only if more than the budget is still in use."""
        edits = self.edits | {key: (self._original[key], value) for key, value in changed.items()}
        work = self._measure(edits)
        if work is None:
            return False
        excess = self._budget.excess(work)
        if excess >= self._budget.excess(self.work) or (spare and excess == 1.0):
            return False
        self.edits, self.work = edits, work
        return True


def _groups(current: Mapping[str, int]) -> Iterable[tuple[str, ...]]:
    """Yield sets of constants to lower together: equal ones, pairs, all."""
    seen: set[tuple[str, ...]] = set()
    equal = (
        tuple(key for key in current if current[key] == value) for value in dict.fromkeys(current.values())
    )
    for keys in itertools.chain(equal, itertools.combinations(current, 2), [tuple(current)]):
        if len(keys) > 1 and keys not in seen:
            seen.add(keys)
            yield keys
