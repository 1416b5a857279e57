"""The tasks that come with the product: their text, and a right kernel for each as a model."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from adaexplore_mcp.evaluation.definition import Definition

__all__ = ["Builtin", "builtins"]


@dataclass(frozen=True)
class Builtin:
    """A task that needs no registration.

    Args:
        name: Short label.
        description: One or two sentences.
        definition: As a caller would have registered it.
        kernel: Source of a right kernel.
    """

    name: str
    description: str
    definition: Definition
    kernel: bytes


@cache
def builtins() -> tuple[Builtin, ...]:
    """Return the built-in tasks by name."""
    folder = resources.files("adaexplore_mcp") / "builtin"
    found = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not (entry / "task.json").is_file():
            continue
        about = json.loads((entry / "task.json").read_text(encoding="utf-8"))
        definition = Definition(
            format=about["format"],
            files={"task.py": (entry / "reference.py").read_text(encoding="utf-8")},
            entry=about["entry"],
            workloads=about["workloads"],
            domains=about["domains"],
            mutates=about["mutates"],
            policy=about["policy"],
        )
        kernel = (entry / "kernel.py").read_bytes()
        found.append(Builtin(about["name"], about["description"], definition, kernel))
    return tuple(found)
