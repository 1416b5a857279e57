"""Turn a kernel's source into a Python function that means what the compiled kernel means.

Python and Triton's language agree on most of the syntax. Where they do not, the syntax tree is changed:

* an assigned number becomes a tensor (so it takes part in type promotion as a runtime value does);
* `and`, `or`, `not`, chained comparisons and conditions work on tensors as the compiler's do: `and` and `or`
  do not short-circuit on them, a condition on a block of several lanes is refused;
* `assert` is device_assert, and `range`, `min`, `max` and `print` are the language's;
* `.value` of a constexpr works although constants are plain Python objects here.

The new function keeps the file, the line numbers, the globals, the closure cells, the defaults and the name
of the old one; nothing is put into the candidate's module. Outer names that the compiler takes for something else than
they hold, such as functions of a copy of libdevice, are variables of its own.
"""

from __future__ import annotations

import ast
import linecache
import types
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MissingSourceError", "rewrite"]

PREFIX = "__triton_"
"""Of the names that the rewritten code reads from its closure."""

LANGUAGE_BUILTINS = ("range", "min", "max", "print")
CO_FUTURE_ANNOTATIONS = 0x1000000

_trees: dict[str, tuple[int, dict[int, ast.FunctionDef]]] = {}
"""Per file: a hash of its text, and its functions by the line that their code object names."""


class MissingSourceError(ValueError):
    """A kernel whose source cannot be read; the compiler refuses it too."""


def rewrite(
    function: types.FunctionType,
    runtime: Mapping[str, Callable[..., Any]],
    resolve: Callable[[Any], Any],
) -> types.FunctionType:
    """Return the interpretable form of a kernel.

    Args:
        function: The undecorated function.
        runtime: The helpers that the rewritten code calls: `assign`, `truth`, `conjunction`, `disjunction`,
            `negation`, `again`, `chain`, `check`, `constant` and the LANGUAGE_BUILTINS.
        resolve: Returns what the compiler takes the value of an outer name for.

    Raises:
        MissingSourceError: There is no source file with this function in it.
    """
    definition = _find(function)
    shadowed = set(function.__globals__) | set(function.__code__.co_freevars)
    helpers = {f"{PREFIX}{name}": value for name, value in runtime.items() if name not in LANGUAGE_BUILTINS}
    helpers |= {name: runtime[name] for name in LANGUAGE_BUILTINS if name not in shadowed}
    named = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
    helpers |= _replaced(
        {name: function.__globals__[name] for name in named & set(function.__globals__)}, resolve
    )
    # Both kinds of outer names become variables of an enclosing function, so that the compiler makes them
    # free ones.
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    held = {name: cell.cell_contents for name, cell in cells.items() if cell != types.CellType()}
    helpers = {name: value for name, value in helpers.items() if name not in cells} | _replaced(held, resolve)
    outer = list(dict.fromkeys([*cells, *helpers]))
    module = ast.parse(f"def {PREFIX}factory(): pass")
    factory = module.body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [
        *(ast.Assign(targets=[ast.Name(name, ast.Store())], value=ast.Constant(None)) for name in outer),
        _Rewriter().rewritten(definition),
    ]
    ast.fix_missing_locations(module)
    filename = function.__code__.co_filename
    flags = function.__code__.co_flags & CO_FUTURE_ANNOTATIONS
    code = compile(module, filename, "exec", flags=flags, dont_inherit=True)
    code = _inner(_inner(code, f"{PREFIX}factory"), function.__name__)
    cells |= {name: types.CellType(value) for name, value in helpers.items()}
    result = types.FunctionType(
        code.replace(
            co_qualname=function.__qualname__
        ),  # not co_firstlineno: every line number counts from it
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    result.__kwdefaults__ = function.__kwdefaults__
    result.__annotations__ = function.__annotations__
    result.__doc__ = function.__doc__
    result.__module__ = function.__module__
    result.__qualname__ = function.__qualname__
    return result


def _replaced(values: Mapping[str, Any], resolve: Callable[[Any], Any]) -> dict[str, Any]:
    """Return by name those values that stand for others."""
    return {name: meant for name, value in values.items() if (meant := resolve(value)) is not value}


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _find(function: types.FunctionType) -> ast.FunctionDef:
    """Return a function's definition from its file; the file is parsed once."""
    filename, line = function.__code__.co_filename, function.__code__.co_firstlineno
    linecache.checkcache(filename)
    text = "".join(linecache.getlines(filename, function.__globals__))
    fingerprint = hash(text)
    if filename not in _trees or _trees[filename][0] != fingerprint:
        definitions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        _trees[filename] = fingerprint, {_first_line(definition): definition for definition in definitions}
    found = _trees[filename][1].get(line)
    if found is None or found.name != function.__name__:
        msg = f"@jit functions should be defined in a Python file: {function.__name__} is not in {filename}"
        raise MissingSourceError(msg)
    return found


def _first_line(definition: ast.FunctionDef) -> int:
    """Return the line that a function's code object names: that of its first decorator."""
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])


def _call(helper: str, *arguments: ast.expr, at: ast.AST) -> ast.Call:
    call = ast.Call(func=ast.Name(f"{PREFIX}{helper}", ast.Load()), args=list(arguments), keywords=[])
    placed: ast.Call = _placed(call, at)
    return placed


def _placed(node: Any, at: ast.AST) -> Any:  # noqa: ANN401 - the same node
    """Give a new node, and the new nodes below it, the place of an old one."""
    ast.copy_location(node, at)
    for child in ast.iter_child_nodes(node):
        if not hasattr(child, "lineno") and isinstance(child, (ast.expr, ast.stmt, ast.arg)):
            _placed(child, at)
    return node


def _deferred(value: ast.expr, *parameters: str) -> ast.Lambda:
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(name) for name in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    return ast.Lambda(args=arguments, body=value)


def _is_constexpr(annotation: ast.expr) -> bool:
    name = annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", None)
    return name == "constexpr" or (
        isinstance(annotation, ast.Constant) and "constexpr" in str(annotation.value)
    )


class _Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self._constants: set[str] = set()

    def rewritten(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Return a changed copy of a definition, without decorators, annotations and defaults."""
        copy = deepcopy(definition)
        copy.decorator_list, copy.returns = [], None
        arguments = copy.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            argument.annotation = None
        arguments.defaults, arguments.kw_defaults = [], [None] * len(arguments.kwonlyargs)
        copy.body = [self.visit(statement) for statement in copy.body]
        return copy

    # ---- assignments

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        declared = all(isinstance(t, ast.Name) and t.id in self._constants for t in node.targets)
        if not declared:
            node.value = _call("assign", node.value, at=node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        current = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(current, node.op, node.value), node)
        return ast.copy_location(ast.Assign([node.target], _call("assign", value, at=node)), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        constant = _is_constexpr(node.annotation)
        if node.value is None:
            if constant and isinstance(node.target, ast.Name):
                self._constants.add(node.target.id)
            return ast.copy_location(ast.Pass(), node)
        value = self.visit(node.value)
        if not constant:
            value = _call("assign", value, at=node)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        node.value = _call("assign", self.visit(node.value), at=node)
        return node

    # ---- conditions

    def _with_test(self, node: Any) -> Any:  # noqa: ANN401 - If, While or IfExp
        self.generic_visit(node)
        helper = "again" if isinstance(node, ast.While) else "truth"
        node.test = _call(helper, node.test, at=node.test)
        return node

    visit_If = visit_While = visit_IfExp = _with_test  # noqa: N815 - ast's names

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs = [_call("truth", test, at=test) for test in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        helper = "conjunction" if isinstance(node.op, ast.And) else "disjunction"
        return _call(helper, *(_placed(_deferred(value), value) for value in node.values), at=node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("negation", node.operand, at=node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        links: list[ast.expr] = []
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            comparison = ast.Compare(ast.Name("a", ast.Load()), [operator], [ast.Name("b", ast.Load())])
            links += [_placed(_deferred(comparison, "a", "b"), node), _placed(_deferred(operand), operand)]
        return _call("chain", node.left, *links, at=node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        message = node.msg or ast.copy_location(ast.Constant(""), node)
        return ast.copy_location(ast.Expr(_call("check", node.test, message, at=node)), node)

    # ---- the rest

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "value" and isinstance(node.ctx, ast.Load):
            return _call("constant", node.value, at=node)
        return node
