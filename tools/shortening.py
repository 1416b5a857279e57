"""Keep an answer small enough for a context window, leaving out the least important first.

Never left out: status, summary, next step, ids, the check, the line of an error, the numbers of the evidence.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

from adaexplore_mcp.tools.outline import outline

__all__ = ["BUDGET_CHARACTERS", "shorten"]

BUDGET_CHARACTERS = 2100
"""About 600 tokens at 3.6 characters each, for the structured content and for the text."""

WHOLE = frozenset({"instructions", "causes"})
"""Fields of answers that are left as they are."""

Data = dict[str, Any]
Step = Callable[[Data], bool]
"""Makes one thing smaller in place; says whether there was anything to do."""


def shorten(data: Data) -> Data:
    """Return an answer, or the job with that answer as its result, within the budget.

    What was left out is named in the field `omitted`.
    """
    if isinstance(result := data.get("result"), dict):
        return data | {"result": shorten(result)}
    # A task to work on is of use as a whole only, and a profile is bounded by itself.
    if _size(data) <= BUDGET_CHARACTERS or data.keys() & WHOLE:
        return data
    data, omitted = copy.deepcopy(data), []
    for name, step in STEPS:
        if step(data):
            if name not in omitted:
                omitted.append(name)
            data["omitted"] = omitted
            if _size(data) <= BUDGET_CHARACTERS:
                break
    return data


def _size(data: Data) -> int:
    return max(len(json.dumps(data, ensure_ascii=False)), len(outline(data)))


def _group(data: Data, path: str) -> tuple[Any, str]:
    """Return the object that holds the last part of a dotted path, and that part; None where it is absent."""
    *parents, last = path.split(".")
    for name in parents:
        data = data.get(name) or {}
    return (data, last) if last in data else (None, last)


def _without(path: str) -> Step:
    def step(data: Data) -> bool:
        group, last = _group(data, path)
        if group is None:
            return False
        del group[last]
        return True

    return step


def _first(path: str, count: int) -> Step:
    """Keep the first items of a list or an object."""

    def step(data: Data) -> bool:
        group, last = _group(data, path)
        if group is None or len(group[last]) <= count:
            return False
        items = group[last]
        group[last] = dict(list(items.items())[:count]) if isinstance(items, dict) else items[:count]
        return True

    return step


def _cut(path: str, length: int) -> Step:
    """Keep head and tail of a text, or of each text in a list."""

    def cut(text: str) -> str:
        return text if len(text) <= length else f"{text[: length * 2 // 3]} … {text[-(length // 3) :]}"

    def step(data: Data) -> bool:
        group, last = _group(data, path)
        if group is None:
            return False
        before = group[last]
        if isinstance(before, str):
            group[last] = cut(before)
        elif isinstance(before, list):
            group[last] = [cut(item) if isinstance(item, str) else item for item in before]
        return bool(group[last] != before)

    return step


def _only_total(data: Data) -> bool:
    seconds = data.get("seconds", {})
    if len(seconds) < 2 or "total" not in seconds:
        return False
    data["seconds"] = {"total": seconds["total"]}
    return True


def _isolation_in_a_word(data: Data) -> bool:
    """Keep strong, partial or weak, without the layers."""
    scope = data.get("scope", {})
    word = scope.get("isolation", "").partition(" ")[0].rstrip(":,;")
    if scope.get("isolation", "") == word:
        return False
    data["scope"] = scope | {"isolation": word}
    return True


def _worst_compiled(count: int) -> Step:
    """Keep the compiled kernels with failures, spills and most registers."""

    def step(data: Data) -> bool:
        kernels = data.get("compiled", [])
        if len(kernels) <= count:
            return False
        order = ("failed_configurations", "spill_bytes", "registers")
        data["compiled"] = sorted(kernels, key=lambda one: [-one.get(name, 0) for name in order])[:count]
        return True

    return step


def _tensors_once(data: Data) -> bool:
    """Keep inputs and outputs of the first workload only: the others differ in their sizes."""
    found = False
    for workload in data.get("workloads", [])[1:]:
        if isinstance(workload, dict):
            found |= workload.pop("inputs", None) is not None
            found |= workload.pop("outputs", None) is not None
    return found


def _few_tensors(data: Data) -> bool:
    found = False
    for workload in data.get("workloads", [])[:1]:
        for name in ("inputs", "outputs"):
            if isinstance(workload, dict) and len(workload.get(name, [])) > 6:
                workload[name] = workload[name][:6]
                found = True
    return found


STEPS: tuple[tuple[str, Step], ...] = (
    ("versions", _without("versions")),
    ("seconds", _only_total),
    ("facts.operators", _first("facts.operators", 3)),
    ("inputs and outputs of further workloads", _tensors_once),
    ("scope.isolation", _isolation_in_a_word),
    ("facts.notes", _first("facts.notes", 2)),
    ("compiled", _worst_compiled(3)),
    ("error.message", _cut("error.message", 600)),
    ("rules", _first("rules", 3)),
    ("findings", _first("findings", 3)),
    ("description", _cut("description", 300)),
    ("inputs and outputs", _few_tensors),
    ("facts", _without("facts")),
    ("artifacts", _first("artifacts", 2)),
    ("scope.not_covered", _first("scope.not_covered", 2)),
    ("compiled", _worst_compiled(1)),
    ("error.message", _cut("error.message", 250)),
    ("error.source", _cut("error.source", 120)),
    ("jobs", _first("jobs", 6)),
    ("workloads", _first("workloads", 4)),
    ("rules", _first("rules", 1)),
    ("rules", _cut("rules", 160)),
    ("findings", _cut("findings", 160)),
    ("evidence.detail", _cut("evidence.detail", 120)),
    ("scope", _without("scope")),
    ("compiled", _without("compiled")),
    ("artifacts", _first("artifacts", 1)),
    ("error.message", _cut("error.message", 100)),
    ("error.type", _cut("error.type", 60)),
    ("reason", _cut("reason", 200)),
    ("next_step", _cut("next_step", 300)),
    ("summary", _cut("summary", 400)),
)
"""What goes, in this order, until the rest fits."""
