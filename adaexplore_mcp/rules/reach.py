"""What of a candidate's host code may not run: under a condition, behind an early return, or in a function called only there.

A kernel that is launched nowhere else may never be compiled, so nothing is said about it.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from adaexplore_mcp.rules.syntax import last

__all__ = ["uncertain"]

ROOTS = frozenset({"forward", "__init__"})
"""Methods that are called whatever a candidate's author decides."""
_GUARD = re.compile(r"is_cuda|\.device\b|\bcuda\.is_available|(?:==|<=) 0$|\bis_contiguous\(\)")
"""Conditions that hold for no task, or for each: an early return behind one is never taken."""
_GPU = re.compile(r"[\w.]+\.is_cuda|[\w.]+\.device\.type == 'cuda'|torch\.cuda\.is_available\(\)")
BRANCHES = (ast.If, ast.Try)


def uncertain(tree: ast.Module) -> set[int]:
    """Return the ids of the nodes of host code that may not run."""
    found = {id(inner) for node in ast.walk(tree) for inner in _branched(node)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        found |= {id(inner) for inner in _behind_returns(function.body)}
    if any(isinstance(each, ast.ClassDef) and each.name == "ModelNew" for each in tree.body):
        for function in _unreached(tree, functions, found):
            found |= {id(inner) for inner in ast.walk(function)}
    return found


def _branched(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs only if a condition holds, or may be caught."""
    match node:
        case ast.If(test=test) if _is_gpu(test):
            parts = node.orelse
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test)) if _is_gpu(test):
            parts = node.body
        case ast.If():
            parts = [*node.body, *node.orelse]
        case ast.Try():
            parts = [*node.body]
        case _:
            return
    for part in parts:
        yield from ast.walk(part)


def _is_gpu(test: ast.expr) -> bool:
    """Tell a condition that holds wherever a kernel is judged: that tensors are on the GPU."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(map(_is_gpu, test.values))
    return _GPU.fullmatch(ast.unparse(test)) is not None


def _behind_returns(block: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what stands in a block behind a statement that may have returned already."""
    for place, statement in enumerate(block):
        if isinstance(statement, ast.If) and _GUARD.search(ast.unparse(statement.test)):
            continue
        if isinstance(statement, BRANCHES) and _returns(statement):
            for later in block[place + 1 :]:
                yield from ast.walk(later)
            return
        if isinstance(statement, ast.With):
            yield from _behind_returns(statement.body)


def _returns(statement: ast.stmt) -> bool:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            return True
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef)
        ]
    return False


def _unreached(
    tree: ast.Module, functions: Sequence[ast.FunctionDef], found: set[int]
) -> list[ast.FunctionDef]:
    """Return the functions that nothing calls for certain."""
    inner = {
        id(node) for each in functions for node in ast.walk(each) if node is not each
    }  # functions within functions go with these
    outer = [each for each in functions if id(each) not in inner]
    within = {id(node) for each in outer for node in ast.walk(each)}
    reached = [each for each in outer if each.name in ROOTS or each.decorator_list]
    called = {
        last(node.func) for node in ast.walk(tree) if id(node) not in within and isinstance(node, ast.Call)
    }
    waiting = [*reached, *(each for each in outer if each.name in called)]
    known = {id(each) for each in waiting}
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Call) and id(node) not in found:
                name = last(node.func)
                more = [each for each in outer if each.name == name and id(each) not in known]
                known |= {id(each) for each in more}
                waiting += more
    return [each for each in outer if id(each) not in known]
