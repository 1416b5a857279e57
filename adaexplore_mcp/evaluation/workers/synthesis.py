"""A confined process that draws synthetic tasks and examines them as registration would, many one after the other.

All it runs is torch's own operators on texts of our making, so the judge's arithmetic may run beside them.

Requests, by `op`; every reply is `{"ok": {...}}`:

* `operators`: the names of the operators that work, and why each of the others does not.
* `draft`: `seed`, `number`, `coverage`, `operators` (names that work), `target`: one draft: `source` and `operators`, or why it
  came to nothing as `problem`; `tried`, the steps that did not work on the way.
"""

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
from adaexplore_mcp.evaluation.workers.content import TaskFault
from adaexplore_mcp.evaluation.workers.examining import examined
from adaexplore_mcp.evaluation.workers.judge import Judge
from adaexplore_mcp.evaluation.workers.operators import documented, left_out
from adaexplore_mcp.evaluation.workers.spaces import HOST

__all__ = ["run"]

PROBES = 15
"""Tries after which an operator counts as one that does not work."""
DOMAINS: Sequence[Callable[[Tensor], Tensor]] = (torch.clone, torch.sigmoid, torch.cosh)
"""What a value may have gone through before: any, from 0 to 1, above 1."""
HOPELESS = frozenset({"result of another dtype", "result is no tensor"})
"""What no other arguments mend."""
MOST_PROBED = 1 << 20
LARGEST_VALUE = 1e4
"""Results beyond are on their way out of half precision."""
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
                problem = examined(found.task.source, folder, request["target"], self.judge)
        except TaskFault as fault:
            problem = f"does not register: {fault.reason}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return reply | {
            "problem": problem,
            "source": found.task.source,
            "operators": list(found.task.operators),
        }


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
