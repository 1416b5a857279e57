"""Examine the text of a synthetic task as registration does, with the same schedule of trials, reference and judge.

Registration draws its values once, so what it remarks on may be a matter of chance: a maximum over a few elements is moved by
new values of an input in one draw and not in another. Here every question is asked under several seeds, and of a task in which
something moves few elements, or by little more than rounding, under many.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adaexplore_mcp.evaluation.trials import MOST_SAME, ONE_SIGN, RANDOMISED, SCHEDULE, applicable
from adaexplore_mcp.evaluation.workers.content import TaskContent
from adaexplore_mcp.evaluation.workers.domains import randomise_state
from adaexplore_mcp.evaluation.workers.judge import Judge
from adaexplore_mcp.evaluation.workers.reference import Reference, StandInMachine
from adaexplore_mcp.evaluation.workers.spaces import HOST
from adaexplore_mcp.evaluation.workers.task import LoadedTask, load
from adaexplore_mcp.evaluation.workers.tensors import read_contiguous
from adaexplore_mcp.evaluation.workers.trees import leaves

__all__ = ["examined"]

MOST_ELEMENTS, MOST_FLOPS = 2e6, 3e8
"""What a CPU interprets in seconds: a task beyond would be judged at reduced sizes."""
ROUNDS, ROUNDS_OF_CHANCE = 5, 32
"""Draws of values under which registration must find nothing. What it would remark on in a share p of its draws passes n of them
with (1 - p)^n, so that of drafts it remarks on p · (1 - p)^n: for 32 at most 1.1 % of those of the worst p."""
DEPENDENCE_S = 30.0
NOT_FINITE = "not finite with other values"


def examined(source: str, folder: Path, target: str, judge: Judge) -> str:
    """Do what registration does with a task, and say what it would find; empty for a task that is worth solving.

    Args:
        source: In KernelBench's form.
        folder: For its files.
        target: What is imitated without a GPU.
        judge: Compares.

    Raises:
        TaskFault: It cannot be registered.
    """
    wire = {"format": "kernelbench", "files": {"task.py": source}, "module": "task", "entry": "Model"}
    if problem := _other_values(load(TaskContent.from_wire(wire), folder / "plain")):
        return problem
    request = {"task": wire, "domains": {}, "target": target}
    reference = Reference(folder, StandInMachine())
    reference.load(request)
    seen = reference.examine({})[0]
    cost = seen["cost"]
    if cost["flops"] > MOST_FLOPS or max(cost["elements"], cost["largest"]) > MOST_ELEMENTS:
        return "too large"
    if cost["unneeded"]:
        return "part of the work reaches no output"
    again = folder / "again"
    again.mkdir()
    plain = Reference(again, _Host())
    plain.load({**request, "device": "cpu"})
    chance = False
    for number in range(ROUNDS_OF_CHANCE):
        if number == ROUNDS and not chance:
            break
        look = _Round(number, plain if number else reference, judge, cost)
        if problem := look.problem():
            return problem
        chance = chance or look.chance
    return ""


class _Host(StandInMachine):
    """The CPU as it is: what ran behind the stand-in once is ours, and need not pay for it again."""

    def start(self, request: Mapping[str, Any], folder: Path) -> None:
        """Do nothing."""

    def active(self) -> AbstractContextManager[object]:
        """Change nothing."""
        return nullcontext()

    def on_device(self, tensor: Tensor) -> bool:  # noqa: ARG002 - each is where it should be
        """Return True."""
        return True


class _Round:
    """What registration looks at under one draw of values."""

    def __init__(self, number: int, reference: Reference, judge: Judge, cost: Mapping[str, Any]) -> None:
        self.number = number
        self.reference = reference
        self.judge = judge
        self.cost = cost
        self.chance = False
        """Whether something hardly moved the output; after `problem`."""
        names = ("construct_seed", "input_seed", "other_seed", "state_seed", "other_construct_seed")
        self.seeds = {name: 10 * (number + 1) + at for at, name in enumerate(names, 1)}

    def problem(self) -> str:
        """Say what registration would find; empty for nothing."""
        if self.number < ROUNDS:
            with self._trial("constructor", "none", repeat=self.number == 0) as (reply, files):
                if problem := self._of_first(reply, files):
                    return problem
        seen = self.reference.dependence({**self.seeds, "seconds": DEPENDENCE_S, "hardly": True})[0]
        self.reference.models.clear()
        self.chance = seen["hardly"]
        if seen["independent"]:
            return "does not depend on an input or a parameter"
        return "" if self.number or self._all_finite() else NOT_FINITE

    @contextmanager
    def _trial(
        self, weights: str, transform: str, names: Sequence[str] | None = None, *, repeat: bool = False
    ) -> Iterator[tuple[Mapping[str, Any], Sequence[int]]]:
        construct = "other_construct_seed" if weights == "other seed" else "construct_seed"
        reply, files = self.reference.trial(
            {
                "construct_seed": self.seeds[construct],
                "input_seed": self.seeds["input_seed"],
                "state_seed": self.seeds["state_seed"] if weights in RANDOMISED else None,
                "state_names": names,
                "transform": transform,
                "repeat": repeat,
            }
        )
        try:
            yield reply, files
        finally:
            for descriptor in files:
                os.close(descriptor)

    def _of_first(self, reply: Mapping[str, Any], files: Sequence[int]) -> str:
        """Say what is wrong with what the first trial gave."""
        if reply["problem"]:
            return "not a function of its inputs"
        if reply["mutated"] or reply["aliases"]:
            return "changes or returns an input"
        if reply["not_wide"]:
            return "does not run in float64"
        if not _finite(reply, files):
            return NOT_FINITE
        audit, _ = self.judge.audit(
            {
                "expected": _tensors_of(reply),
                "expected_bytes": reply["expected_bytes"],
                "inputs": reply["inputs"],
                "rule": {},
                "accumulation": self.cost["accumulation"],
            },
            [files[1], files[0]],
        )
        if audit["zeros_pass"] or audit["mean_pass"] or audit["narrow"]:
            return "zeros or a mean would pass"
        if audit["same_share"] >= MOST_SAME:
            return "nearly all of the output is one value"
        return "an input would pass" if audit["input_pass"] else ""

    def _all_finite(self) -> bool:
        """Tell whether the reference is finite in every trial that a candidate is given."""
        seeds = [self.seeds["construct_seed"], self.seeds["other_construct_seed"]]
        constants = self.reference.constants({"construct_seeds": seeds})[0]["names"]
        due = applicable(
            weighted=self.cost["parameters"] > 0, products=self.cost["flops"] > 0, declared=False
        )
        for _, weights, transform in (SCHEDULE[position] for position in due):
            names = constants if weights == "constants randomised" else None
            if names == [] or (weights, transform) == ("constructor", "none"):  # which other rounds look at
                continue
            if transform in ONE_SIGN:  # which are left out where it is not
                continue
            small = "times 0.01" if transform == "small" else transform
            with self._trial(weights, small, names) as (reply, files):
                if not _finite(reply, files):
                    return False
        return True


def _finite(reply: Mapping[str, Any], files: Sequence[int]) -> bool:
    """Tell whether all that the reference gave in a trial is finite."""
    outputs = read_contiguous(files[1], _tensors_of(reply), reply["expected_bytes"], HOST)
    return all(bool(output.isfinite().all()) for output in outputs)


def _tensors_of(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in reply["expected"] if "plain" not in entry]


def _other_values(task: LoadedTask) -> str:
    """Run a task under other seeds and other weights; say whether results are finite, and how much of them differs."""
    results = []
    for number in range(3):
        model, _ = task.construct(number)
        if number == 2 and isinstance(model, nn.Module):
            randomise_state(model, number, {}, None)
        outputs = [leaf for _, leaf in leaves(task.call(model, task.inputs(100 + number)), "out")]
        if not all(isinstance(leaf, Tensor) and bool(leaf.isfinite().all()) for leaf in outputs):
            return NOT_FINITE
        results.append(outputs[0])
    first, second, third = results
    if torch.equal(first, second):
        return "constant"
    if first.shape == second.shape == third.shape:
        same = (first == second) & (first == third)
        if float(same.double().mean()) >= MOST_SAME:
            return "nearly all of the output is constant"
    return ""
