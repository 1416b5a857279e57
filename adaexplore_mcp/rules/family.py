"""Families of tasks: two tasks that differ in integer constants only are one family, so that support counts ideas."""

import ast
import hashlib
from collections.abc import Iterable, Mapping

__all__ = ["family_of", "operators_of"]


class _WithoutIntegers(ast.NodeTransformer):
    """Put one number for every whole one; docstrings and comments are no part of a family either."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if type(node.value) is int:
            return ast.Constant(0)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Expr(ast.Constant(""))
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """A negative constant is a constant too."""
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self.visit(node.operand)  # type: ignore[no-any-return]
        return self.generic_visit(node)


def family_of(files: Mapping[str, str], entry: str = "") -> str:
    """Return the family of a task.

    Args:
        files: Its sources by name; what is no Python counts as it is.
        entry: The class or function that is the operation.
    """
    digest = hashlib.sha256(entry.encode())
    for source in files.values():
        try:
            text = ast.dump(_WithoutIntegers().visit(ast.parse(source)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            text = source
        digest.update(b"\0" + text.encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def operators_of(sources: Iterable[str]) -> frozenset[str]:
    """Return the names of torch functions and modules that a reference uses, such as `linear` and `Conv2d`."""
    found: set[str] = set()
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found.add(node.func.attr)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                found.add("matmul")
    return frozenset(found)
