"""Remedies for compiler messages that say too little or lead astray.

The key is the construct at which compilation stopped: the class of its syntax-tree node, or that and the name of the
triton function called there. Triton's words only tell apart what several causes have in common; a static_assert, whose text
is its author's, has no remedy here.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from triton.language.extra import libdevice

__all__ = ["Hint", "hint_for"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where compilation stopped."""

    node: ast.AST
    function: str
    """Name of the function that it stands in."""
    in_loop: bool
    """Whether a `for` or `while` of the same function is around it."""
    said: str
    """Triton's words."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One remedy."""

    applies: Callable[[Site], bool]
    text: str
    leads: bool = False
    """Show it before the compiler's words, since these send their reader the wrong way."""
    alone: bool = False
    """Leave the compiler's words out: they say nothing."""


def _calls(*names: str) -> Callable[[Site], bool]:
    return lambda site: isinstance(site.node, ast.Call) and called_name(site.node) in names


def _is(*kinds: type[ast.AST]) -> Callable[[Site], bool]:
    return lambda site: isinstance(site.node, kinds)


def _subscript(context: type[ast.expr_context]) -> Callable[[Site], bool]:
    return lambda site: isinstance(site.node, ast.Subscript) and isinstance(site.node.ctx, context)


def _says(words: str, applies: Callable[[Site], bool]) -> Callable[[Site], bool]:
    return lambda site: re.search(words, site.said) is not None and applies(site)


def _indexes_shape(site: Site) -> bool:
    node = site.node
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "shape"
    )


def _calls_itself(site: Site) -> bool:
    return isinstance(site.node, ast.Call) and called_name(site.node) == site.function


def _names_torch(site: Site) -> bool:
    return isinstance(site.node, ast.expr) and any(
        isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "torch"
        for inner in ast.walk(site.node)
    )


def _wants_libdevice(site: Site) -> bool:
    """Tell whether a function of libdevice's is looked for where it is not."""
    found = re.search(r"module 'triton\.language(?:\.math)?' has no attribute '(\w+)'", site.said)
    if found is None:
        return re.search(r"\blibdevice\W* is not defined", site.said) is not None
    return found[1] == "libdevice" or hasattr(libdevice, found[1])


def _reduces_two(site: Site) -> bool:
    """Tell whether a reduction is given a second value where its axis should be."""
    node = site.node
    if not isinstance(node, ast.Call) or called_name(node) not in {"max", "min"} or len(node.args) < 2:
        return False
    axis = node.args[1]
    return not (isinstance(axis, ast.Constant) and (axis.value is None or type(axis.value) is int))


def _assigns_item(site: Site) -> bool:
    node = site.node
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Subscript)


def _returns_inside_loop(site: Site) -> bool:
    return site.in_loop and any(isinstance(inner, ast.Return) for inner in ast.walk(site.node))


MEMORY = _calls("load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg")
ASSIGN_ITEM = "assigning to an index has no meaning in a kernel: store with tl.store(pointer + offsets, value, mask=...)"

HINTS: tuple[Hint, ...] = (
    Hint(
        _calls_itself,
        "a function in a kernel cannot call itself (recursion): write a loop",
        leads=True,
        alone=True,
    ),
    Hint(
        _names_torch,
        "nothing of torch's can be used in a kernel: write its types as tl.float32, and its functions as those of triton.language",
        leads=True,
    ),
    Hint(
        lambda site: re.search(r"'torch\.\w+' object", site.said) is not None,
        "a tensor or another object of torch's was given for a parameter that is annotated tl.constexpr",
        leads=True,
    ),
    Hint(
        _indexes_shape,
        "a pointer has no shape: pass the sizes of its tensor as arguments",
        leads=True,
    ),
    Hint(
        _says(r"tensor of rank 0", _subscript(ast.Load)),
        "a scalar cannot be indexed, sliced or given axes: it takes part in operations on blocks as it is",
        leads=True,
    ),
    Hint(
        _subscript(ast.Load),
        "a block cannot be indexed or sliced: only None and : are allowed as an index. Load the part you need "
        "from memory, select it with tl.where and a reduction, or use tl.gather",
        leads=True,
    ),
    Hint(_subscript(ast.Store), ASSIGN_ITEM, leads=True),
    Hint(_assigns_item, ASSIGN_ITEM, leads=True),
    Hint(
        _wants_libdevice,
        "functions such as tanh are libdevice's: write `from triton.language.extra import libdevice` beside your imports, and "
        "call libdevice.tanh(x)",
    ),
    Hint(
        _is(ast.Slice),
        "a block cannot be indexed with a slice of bounds: only None and : are allowed as an index. Load the part "
        "you need from memory instead",
        leads=True,
    ),
    Hint(
        _calls("arange"),
        "both bounds of tl.arange must be integers known at compile time (annotate the parameter, BLOCK: tl.constexpr, "
        "and divide with //), a power of two apart, and at most 1048576",
    ),
    Hint(
        _calls("zeros", "full", "zeros_like", "reshape", "view", "broadcast_to"),
        "a shape must be made of integers known at compile time: parameters annotated as tl.constexpr",
    ),
    Hint(
        _calls("static_range"),
        "the bounds of tl.static_range must be tl.constexpr; use range for bounds known at run time only",
    ),
    Hint(
        _calls("dot"),
        "tl.dot multiplies an (M, K) by a (K, N) block of one dtype, with K of at least 16 (32 for 8-bit types); for "
        "some targets and versions of Triton M and N must be at least 16 too",
    ),
    Hint(
        _reduces_two,
        "tl.max and tl.min reduce a block along an axis, which is an integer: the larger and the smaller of two values are "
        "tl.maximum(a, b) and tl.minimum(a, b)",
        leads=True,
    ),
    Hint(
        _says("'NoneType' object", _is(ast.expr)),
        "an argument is None: branch on it with `if argument is not None` before it is used",
    ),
    Hint(
        _says("constexpr", MEMORY),
        "what it is given as a pointer is None or a number: branch on it with `if pointer is not None`, and pass tensors themselves",
    ),
    Hint(
        _says("block type|[Ss]hape|[Bb]roadcast|dimension", MEMORY),
        "pointer, mask and value must have one shape, or shapes that broadcast",
    ),
    Hint(
        _returns_inside_loop,
        "a kernel cannot return from inside a loop: put the condition in the loop's bounds or in a mask",
    ),
    Hint(
        _says("^Mismatched type", _is(ast.If, ast.IfExp)),
        "give the value one shape and dtype on both sides, and before",
    ),
    Hint(
        _is(ast.If, ast.IfExp, ast.While),
        "a condition must be a scalar, not a block: choose per element with tl.where(condition, a, b)",
    ),
    Hint(
        _is(ast.Break, ast.Continue),
        "loops in a kernel cannot be left or skipped early: put the condition in the loop's bounds or in a mask",
    ),
    Hint(
        _is(ast.Lambda),
        "write the function as a helper decorated with @triton.jit",
    ),
    Hint(
        _says("arried", _is(ast.For)),
        "a value carried around a loop keeps its type: give it its final shape and dtype before the loop, "
        "for example tl.zeros((BLOCK,), tl.float32)",
    ),
)


def called_name(call: ast.Call) -> str:
    """Return the last part of the name that is called: `dot` for `tl.dot(...)`, or the empty string."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def hint_for(node: ast.AST, source: str, said: str) -> Hint | None:
    """Return the remedy for a construct in the source of its function, or None; `said` is what Triton says."""
    if isinstance(node, ast.Call) and called_name(node) == "static_assert":
        return None
    if "missing a required argument" in said:
        return None
    function = re.match(r"\s*def\s+(\w+)", source)
    site = Site(node, function[1] if function else "", _in_loop(node, source), said)
    return next((hint for hint in HINTS if hint.applies(site)), None)


def _in_loop(node: ast.AST, source: str) -> bool:
    if not isinstance(node, (ast.stmt, ast.expr)):
        return False
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    return any(
        isinstance(loop, (ast.For, ast.While)) and loop.lineno < node.lineno <= (loop.end_lineno or 0)
        for loop in ast.walk(tree)
    )
