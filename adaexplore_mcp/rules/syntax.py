"""What the check of a source sees, and how names stand in its syntax tree."""

import ast
from dataclasses import dataclass

__all__ = ["Function", "Sighting", "dotted", "last"]

Function = ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Sighting:
    """A construct of which a rule may say that it cannot be used.

    Args:
        key: Fingerprint of the failure it would be.
        line: From 1.
        why: What stands there, in a few words of our own.
        name: The name a rule must list for this to be a warning; empty where the construct alone decides.
        kernel: The Triton kernel it stands in, or empty.
        always: It is compiled whenever its kernel is: it stands in no branch.
    """

    key: str
    line: int
    why: str
    name: str = ""
    kernel: str = ""
    always: bool = True


def last(node: ast.expr) -> str:
    """Return the last part of a dotted name, or the empty string."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """Return a dotted name, or the empty string for what is none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
