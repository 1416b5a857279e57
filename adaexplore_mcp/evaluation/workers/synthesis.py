"""A confined process that draws synthetic tasks and examines them as registration would, many one after the other.

All it runs is torch's own operators on texts of our making, so the judge's arithmetic may run beside them.

Requests, by `op`; every reply is `{"ok": {...}}`:

* `operators`: the names of the operators that work, and why each of the others does not.
* `draft`: `seed`, `number`, `coverage`, `operators` (names that work), `target`: one draft: `source` and `operators`, or why it
  came to nothing as `problem`; `tried`, the steps that did not work on the way.
"""

import os
import random
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as tasks name it
from torch import Tensor, nn

from adaexplore_mcp.evaluation.synthesis import Coverage, Seen, Step, draw
from adaexplore_mcp.evaluation.synthesis_arguments import fill
from adaexplore_mcp.evaluation.synthesis_site import Call, Input, Operator, Site, Sizes
from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.content import TaskContent, TaskFault
from adaexplore_mcp.evaluation.workers.domains import randomise_state
from adaexplore_mcp.evaluation.workers.judge import Judge
from adaexplore_mcp.evaluation.workers.operators import documented, left_out
from adaexplore_mcp.evaluation.workers.reference import Reference, StandInMachine
from adaexplore_mcp.evaluation.workers.spaces import HOST
from adaexplore_mcp.evaluation.workers.task import LoadedTask, load
from adaexplore_mcp.evaluation.workers.trees import leaves

__all__ = ["run"]

PROBES = 15
"""Tries after which an operator counts as one that does not work."""
DOMAINS: Sequence[Callable[[Tensor], Tensor]] = (torch.clone, torch.sigmoid, torch.cosh)
"""What a value may have gone through before: any, from 0 to 1, above 1."""
HOPELESS = frozenset({"result of another dtype", "result is no tensor"})
"""What no other arguments mend."""
MOST_PROBED = 1 << 20
MOST_ELEMENTS, MOST_FLOPS = 2e6, 3e8
"""What a CPU interprets in seconds: a task beyond would be judged at reduced sizes."""
LARGEST_VALUE = 1e4
"""Results beyond are on their way out of half precision."""
SEEDS = {"construct_seed": 11, "input_seed": 12, "other_seed": 13, "state_seed": 14}
OTHER_SEEDS = {name: seed + 10 for name, seed in SEEDS.items()}
"""What depends on an input at one draw of values only would be remarked on when it is registered."""
FAILED = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    NotImplementedError,
    AssertionError,
    AttributeError,
    KeyError,
    Warning,
)
"""What torch raises of arguments that do not fit; NameError and SyntaxError would be ours."""


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection."""
    synthesis = _Synthesis(folder)
    while (received := connection.receive()) is not None:
        request, _ = received
        operation = {"operators": synthesis.working, "draft": synthesis.draft}[request["op"]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning says that an operator is not meant to be used so
            connection.send({"ok": operation(request)})


class _Synthesis:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.operators = documented()
        self.judge = Judge(HOST)

    def working(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Try every operator at a few places, and say which can be used at one of them at least."""
        names, reasons = [], dict(left_out())
        for operator in self.operators:
            problem = self._probe(operator)
            if problem:
                reasons[operator.name] = problem
            else:
                names.append(operator.name)
        return {"operators": names, "left_out": reasons}

    @staticmethod
    def _probe(operator: Operator) -> str:
        rng = random.Random(operator.name)  # noqa: S311 - as in synthesis
        problem, hopeless = "", 0
        ranks = [rank for rank in (4, 3, 2, 5, 1) if operator.fits(rank)]
        assert ranks, operator.name
        for attempt in range(PROBES):
            sizes = Sizes()
            site = Site(rng, sizes, (), "float32")
            rank = ranks[attempt % len(ranks)]
            first = site.first_indices(rank) if operator.takes_indices else site.first_input(rank)
            bench = _Bench(seed=attempt)
            bench.begin(first, sizes.values)
            if not operator.takes_indices:
                bench.x = DOMAINS[attempt % len(DOMAINS)](bench.x)
            site = Site(
                rng, sizes, first.shape, "float32", operator=operator.plain, inputs=1, limit=first.limit
            )
            call = fill(operator, site)
            if not isinstance(call, Call):
                problem = problem or call
                continue
            seen = bench.attempt(
                Step(
                    operator.name,
                    call.module,
                    call.text.replace("$module", "self.probe"),
                    "probe",
                    call.inputs,
                    sizes.values,
                ),
                most=MOST_PROBED,
                fewest=1,
            )
            if not seen.problem:
                return ""
            problem = seen.problem
            hopeless += problem in HOPELESS
            if hopeless >= len(DOMAINS):
                break
        return problem

    def draft(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Draw one task and examine it."""
        names = set(request["operators"])
        bench = _Bench(seed=request["number"])
        found = draw(
            [each for each in self.operators if each.name in names],
            Coverage.from_wire(request["coverage"]),
            request["seed"],
            request["number"],
            begin=bench.begin,
            attempt=bench.attempt,
        )
        reply: dict[str, Any] = {"tried": dict(found.tried)}
        if found.task is None:
            return reply | {"problem": found.problem}
        folder = self.folder / f"draft{request['number']}"
        folder.mkdir()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                problem = self._examine(found.task.source, folder, request["target"])
        except TaskFault as fault:
            problem = f"does not register: {fault.reason}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return reply | {
            "problem": problem,
            "source": found.task.source,
            "operators": list(found.task.operators),
        }

    def _examine(self, source: str, folder: Path, target: str) -> str:
        """Do what registration does, and say what it would find; empty for a task that is worth solving."""
        wire = {"format": "kernelbench", "files": {"task.py": source}, "module": "task", "entry": "Model"}
        problem = _other_values(load(TaskContent.from_wire(wire), folder / "plain"))
        if problem:
            return problem
        reference = Reference(folder, StandInMachine())
        reference.load({"task": wire, "domains": {}, "target": target})
        cost = reference.examine({})[0]["cost"]
        if cost["flops"] > MOST_FLOPS or max(cost["elements"], cost["largest"]) > MOST_ELEMENTS:
            return "too large"
        if cost["unneeded"]:
            return "part of the work reaches no output"
        request = {**SEEDS, "state_names": None, "state_seed": None, "transform": "none", "repeat": True}
        reply, files = reference.trial(request)
        try:
            return self._of_trial(reply, files, cost["accumulation"]) or _independent(reference)
        finally:
            for descriptor in files:
                os.close(descriptor)

    def _of_trial(self, reply: Mapping[str, Any], files: Sequence[int], accumulation: int) -> str:
        """Say what is wrong with what a trial gave."""
        if reply["problem"]:
            return "not a function of its inputs"
        if reply["mutated"] or reply["aliases"]:
            return "changes or returns an input"
        if reply["not_wide"]:
            return "does not run in float64"
        audit, _ = self.judge.audit(
            {
                "expected": [entry for entry in reply["expected"] if "plain" not in entry],
                "expected_bytes": reply["expected_bytes"],
                "inputs": reply["inputs"],
                "rule": {},
                "accumulation": accumulation,
            },
            [files[1], files[0]],
        )
        if audit["zeros_pass"] or audit["mean_pass"] or audit["narrow"]:
            return "zeros or a mean would pass"
        return "an input would pass" if audit["input_pass"] else ""


def _independent(reference: Reference) -> str:
    for seeds in (SEEDS, OTHER_SEEDS):
        if reference.dependence({**seeds, "seconds": 30.0})[0]["independent"]:
            return "does not depend on an input or a parameter"
    return ""


def _other_values(task: LoadedTask) -> str:
    """Run a task under other seeds and other weights; say whether results are finite, and differ."""
    results = []
    for number in range(3):
        model, _ = task.construct(number)
        if number == 2 and isinstance(model, nn.Module):
            randomise_state(model, number, {}, None)
        outputs = [leaf for _, leaf in leaves(task.call(model, task.inputs(100 + number)), "out")]
        if not all(isinstance(leaf, Tensor) and bool(leaf.isfinite().all()) for leaf in outputs):
            return "not finite with other values"
        results.append(outputs[0])
    return "constant" if torch.equal(results[0], results[1]) else ""


class _Bench:
    """Holds the value so far of one drawing.

    Args:
        seed: Of the inputs and weights.
    """

    def __init__(self, seed: int) -> None:
        self.x = torch.empty(0)
        self.holder = nn.Module()
        self.seed = seed

    def begin(self, first: Input, sizes: Mapping[str, int]) -> None:
        """Make the first input."""
        torch.manual_seed(self.seed)
        self.x = _made(first, sizes)

    def attempt(self, step: Step, *, most: int, fewest: int) -> Seen:
        """Apply one operator."""
        torch.manual_seed(self.seed + 1)
        names: dict[str, Any] = {
            "torch": torch,
            "nn": nn,
            "F": F,
            "self": self.holder,
            "x": self.x,
            **step.sizes,
        }
        try:
            names |= {given.name: _made(given, step.sizes) for given in step.inputs}
            if step.module:
                setattr(self.holder, step.attribute, eval(step.module, names))  # noqa: S307 - our own text
            with torch.no_grad():
                value = eval(step.call, names)  # noqa: S307 - as above
        except FAILED as error:
            return Seen(problem="a warning" if isinstance(error, Warning) else "arguments do not fit")
        picked = isinstance(value, (tuple, list)) and bool(value)
        result = value[0] if picked else value
        if not isinstance(result, Tensor) or result.layout != torch.strided:
            return Seen(problem="result is no tensor")
        if problem := _problem(result, self.x, most, fewest):
            return Seen(problem=problem)
        self.x = result
        return Seen(tuple(result.shape), str(result.dtype).removeprefix("torch."), "", picked)


def _made(given: Input, sizes: Mapping[str, int]) -> Tensor:
    made: Tensor = eval(given.text, {"torch": torch, **sizes})  # noqa: S307 - our own text
    return made


def _problem(result: Tensor, before: Tensor, most: int, fewest: int) -> str:
    """Say why a result cannot be used, in a few words."""
    if result.dtype != before.dtype and (before.is_floating_point() or not result.is_floating_point()):
        return "result of another dtype"
    if not fewest <= result.numel() <= most:
        return "result too large" if result.numel() > most else "too little left to go on with"
    values = result.detach().double()
    if not bool(values.isfinite().all()):
        return "result is not finite"
    if float(values.abs().max()) > LARGEST_VALUE:
        return "result is very large"
    if result.numel() > 1 and bool((values == values.reshape(-1)[0]).all()):
        return "result is constant"
    if result.shape == before.shape and torch.equal(result, before):
        return "does nothing"
    return ""
