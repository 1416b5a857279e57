"""What a candidate is timed against, as sources that a candidate's process can run."""

import textwrap
from dataclasses import dataclass, field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.definition import Definition

__all__ = ["MODES", "NODE", "OWN", "Contender", "baseline"]

NODE = "node:"
OWN = "own"
MODES = {"compile": "default", "max_autotune": "max-autotune-no-cudagraphs"}
"""Of torch.compile, by baseline. CUDA graphs would write all outputs of a task to the same memory."""
COMPILED = "Compiled"
AUTOTUNES = b"autotune"

COMPILED_MODULE = """
import torch as _torch

class {name}({entry}):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.forward = _torch.compile(super().forward, mode={mode!r})
"""
COMPILED_FUNCTION = """
import torch as _torch

{name} = _torch.compile({entry}, mode={mode!r})
"""


@dataclass(frozen=True)
class Contender:
    """One of those that are timed: the candidate or a baseline.

    Args:
        name: candidate, own, eager, compile, max_autotune or node:<id>.
        candidate: Its source.
        package: Files that its source imports from, by relative path; empty where it stands for itself.
        tunes: Whether its first calls choose something by the clock, so that nobody may disturb them.
    """

    name: str
    candidate: Candidate
    package: dict[str, str] = field(default_factory=dict)
    tunes: bool = False

    @property
    def tunes_triton(self) -> bool:
        """Whether what it chooses from can be compiled before a GPU is taken."""
        return self.tunes and self.name not in MODES


def baseline(name: str, definition: Definition, node: bytes = b"") -> Contender:
    """Return a baseline of a task.

    Args:
        name: own, eager, compile, max_autotune or node:<id>.
        definition: The task.
        node: Source of the candidate that a node holds.

    Raises:
        RequestError: There is no such baseline, or the task has none.
    """

    def of(source: bytes, entry: str) -> Candidate:
        return Candidate(source, definition.format, entry, definition.policy)

    if name == OWN:
        if not definition.baseline:
            raise RequestError(
                "This task has no kernel of its owner's, so there is no baseline 'own'.",
                "Time against eager, compile or max_autotune, or register the task with baseline_path.",
            )
        node = definition.baseline.encode()
    if name == OWN or name.startswith(NODE):
        return Contender(name, of(node, definition.candidate_entry), tunes=AUTOTUNES in node)
    if name != "eager" and name not in MODES:
        known = ", ".join([OWN, "eager", *MODES, f"{NODE}<candidate_id>"])
        raise RequestError(f"There is no baseline {name!r}.", f"Use one of {known}.")
    source, package = _reference(definition)
    if name == "eager":
        return Contender(name, of(source.encode(), definition.entry), package)
    wrapper = COMPILED_MODULE if definition.format == "kernelbench" else COMPILED_FUNCTION
    text = textwrap.dedent(wrapper).format(name=COMPILED, entry=definition.entry, mode=MODES[name])
    candidate = of(f"{source}\n{text}".encode(), COMPILED)
    return Contender(name, candidate, package, tunes=name == "max_autotune")


def _reference(definition: Definition) -> tuple[str, dict[str, str]]:
    """Return a source that defines the reference, and the files it needs."""
    path = definition.module.replace(".", "/") + ".py"
    if len(definition.files) == 1 and path in definition.files:
        return f"{definition.files[path]}\n{definition.extra}\n", {}
    return f"from {definition.module} import {definition.entry}\n{definition.extra}\n", dict(definition.files)
