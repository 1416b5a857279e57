"""Find the size constants of a source text and replace them in place.

Constants are replaced by position, so every other character and every line number stays as it was. What is found
is what stands literally in the text: nothing is executed here.
"""

import ast
import functools
import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["INPUT_FUNCTIONS", "Change", "Constant", "Scalar", "SizeError", "find", "replace"]

Scalar = int | float | str | bool
DEEPEST = 100
"""Levels of an expression that are looked into: no size is computed deeper, and Python's stack holds some hundreds."""
Change = tuple[Scalar, Scalar]
"""The value that stands in the text, and the one to put there."""

INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs", "make_inputs")
"""Functions whose integer literals are sizes."""


class SizeError(ValueError):
    """A change names no constant of the text, or a value that does not stand there."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that stands in a source text.

    Args:
        key: `NAME`; `NAME[2]` or `NAME['width']` inside a tuple, list or dict; `NAME#0` for the first literal in another
            expression; `get_inputs#0` for the first in an input function. A key's second use is `NAME@2`. Replacing
            values never changes keys.
        kind: literal: a module-level name set to a value or arithmetic on values. derived: the same computed from
            other constants. element: elsewhere in a module-level assignment. function: inside an input function.
        value: What it evaluates to.
        start: Offset of its first character in the text.
        stop: Offset after its last character.
    """

    key: str
    kind: Literal["literal", "derived", "element", "function"]
    value: Scalar
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The module-level name this is assigned to; empty for elements and literals of functions."""
        return self.key.partition("@")[0] if self.kind in {"literal", "derived"} else ""


@functools.lru_cache(maxsize=64)  # each trial of a lowering looks at the same few texts
def find(text: str) -> tuple[Constant, ...]:
    """Return the constants of a module's text in the order in which they stand.

    Raises:
        SyntaxError: The text is not Python.
        ValueError: The text holds a null character.
    """
    return tuple(_Finder(text).run(ast.parse(text)))


def replace(text: str, changes: Mapping[str, Change], *, strict: bool = True) -> tuple[str, list[str]]:
    """Return the text with new values in place of old ones, and the keys that were changed.

    Args:
        text: Source of a module.
        changes: By key of a constant, or by a name (then each assignment of it), the old value and the new one.
        strict: Refuse keys that do not exist and old values that do not stand in the text; otherwise skip them.

    Raises:
        SizeError: Only if strict.
        SyntaxError: The text is not Python.
    """
    edits: dict[tuple[int, int], str] = {}
    changed: list[str] = []
    for constant in find(text):
        key = constant.key if constant.key in changes else constant.name
        if key not in changes:
            continue
        old, new = changes[key]
        if not _same(constant.value, old):
            if strict and key == constant.key:
                msg = f"{key} is {constant.value!r} in the source, not {old!r}"
                raise SizeError(msg)
            continue
        edits[constant.start, constant.stop] = repr(new)
        if key not in changed:
            changed.append(key)
    if strict and (missing := [key for key in changes if key not in changed]):
        msg = f"the source has no constant {', '.join(missing)}"
        raise SizeError(msg)
    return _splice(text, edits), changed


def _same(a: Scalar, b: Scalar) -> bool:
    """Compare values and types: 1, 1.0 and True are three constants."""
    return type(a) is type(b) and a == b


def _splice(text: str, edits: Mapping[tuple[int, int], str]) -> str:
    """Put new expressions in place of old ones; one that spanned lines still does, in parentheses."""
    for (start, stop), new in sorted(edits.items(), reverse=True):
        breaks = "".join(re.findall(r"\r\n|\r|\n", text[start:stop]))
        text = text[:start] + (f"({new}{breaks})" if breaks else new) + text[stop:]
    return text


class _Finder:
    """Walks one syntax tree and knows where its nodes stand in the text."""

    def __init__(self, text: str) -> None:
        # The tokenizer breaks lines here only; str.splitlines also breaks at form feeds and others.
        breaks = [match.end() for match in re.finditer(r"\r\n|\r|\n", text)]
        self._text = text
        self._ascii = text.isascii()
        self._starts = [0, *breaks]
        self._known: dict[str, Scalar] = {}
        self._uses: Counter[str] = Counter()

    def run(self, tree: ast.Module) -> Iterator[Constant]:
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    yield from self._assignment(target, statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                yield from self._assignment(statement.target, statement.value)
            elif isinstance(statement, ast.FunctionDef) and statement.name in INPUT_FUNCTIONS:
                nodes = itertools.chain.from_iterable(_literals(node) for node in statement.body)
                for position, (node, value) in enumerate(nodes):
                    yield self._constant(f"{statement.name}#{position}", "function", node, value)

    def _assignment(self, target: ast.expr, node: ast.expr) -> Iterator[Constant]:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == len(target.elts):
                for part, element in zip(target.elts, node.elts, strict=True):
                    yield from self._assignment(part, element)
        elif isinstance(target, ast.Name):
            self._known.pop(target.id, None)
            if (value := _fold(node, self._known)) is None:
                yield from self._elements(target.id, node)
            else:
                self._known[target.id] = value
                yield self._constant(
                    target.id, "derived" if _fold(node, {}) is None else "literal", node, value
                )

    def _elements(self, path: str, node: ast.expr) -> Iterator[Constant]:
        """Yield the integer literals of an expression that is no scalar, named by where they are in it."""
        if type(value := _fold(node, {})) is int:
            yield self._constant(path, "element", node, value)
        elif isinstance(node, (ast.Tuple, ast.List)):
            for position, element in enumerate(node.elts):
                yield from self._elements(f"{path}[{position}]", element)
        elif isinstance(node, ast.Dict):
            for key, element in zip(node.keys, node.values, strict=True):
                name = repr(key.value) if isinstance(key, ast.Constant) else "..."
                yield from self._elements(f"{path}[{name}]", element)
        else:
            for position, (literal, value) in enumerate(_literals(node)):
                yield self._constant(f"{path}#{position}", "element", literal, value)

    def _constant(
        self,
        key: str,
        kind: Literal["literal", "derived", "element", "function"],
        node: ast.expr,
        value: Scalar,
    ) -> Constant:
        self._uses[key] += 1
        if self._uses[key] > 1:
            key = f"{key}@{self._uses[key]}"
        assert node.end_lineno is not None, "ast.parse sets it"
        assert node.end_col_offset is not None, "ast.parse sets it"
        start = self._offset(node.lineno, node.col_offset)
        return Constant(key, kind, value, start, self._offset(node.end_lineno, node.end_col_offset))

    def _offset(self, line: int, column: int) -> int:
        """Turn a line and a column, which syntax trees count in UTF-8 bytes, into a character offset."""
        start = self._starts[line - 1]
        if self._ascii:
            return start + column
        # A character has at least one byte, so this slice holds all of `column` bytes.
        return start + len(self._text[start : start + column].encode()[:column].decode())


def _literals(node: ast.AST, levels: int = DEEPEST) -> Iterator[tuple[ast.expr, int]]:
    """Yield the integer literals below a node, arithmetic on them as one."""
    if isinstance(node, ast.JoinedStr) or not levels:  # Python 3.11 knows no positions inside an f-string
        return
    if isinstance(node, ast.expr) and type(value := _fold(node, {})) is int:
        yield node, value
        return
    for child in ast.iter_child_nodes(node):
        yield from _literals(child, levels - 1)


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _fold(node: ast.expr, known: Mapping[str, Scalar], levels: int = DEEPEST) -> Scalar | None:
    """Return the value of a literal, a known name, or arithmetic on them; None for anything else, and what is too deep."""
    if not levels:
        return None
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            positive = _fold(operand, known, levels - 1)
            return -positive if isinstance(positive, (int, float)) else None
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            a, b = _fold(left, known, levels - 1), _fold(right, known, levels - 1)
            if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
                return None
            if isinstance(op, ast.Pow) and (abs(a) > 1024 or abs(b) > 64):
                return None  # no size is computed like that, and the number may not fit in memory
            try:
                result = _ARITHMETIC[type(op)](a, b)
            except ArithmeticError:
                return None
            return result if isinstance(result, (int, float)) else None  # (-8) ** 0.5 is complex
        case _:
            return None
