"""See rules in one Triton kernel: what it calls, its syntax, which of its values are blocks for certain."""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from adaexplore_mcp.rules.syntax import Function, Sighting, dotted, last
from adaexplore_mcp.rules.vocabulary import LANGUAGE_FUNCTIONS

__all__ = ["KernelReader", "Surroundings", "language_name"]

DTYPES = frozenset({
    "float16", "float32", "float64", "bfloat16", "int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "float8e5", "float8e4nv",
})  # fmt: skip
BLOCKS = frozenset({"arange", "zeros", "full", "zeros_like", "broadcast_to", "dot"})
"""Functions of triton.language that give a block whatever they are given."""
ELEMENTWISE = frozenset({
    "exp", "log", "sqrt", "rsqrt", "abs", "sigmoid", "maximum", "minimum", "where", "load", "exp2", "log2", "sin", "cos",
    "fma", "clamp", "math",
})  # fmt: skip
"""Functions that give a block where an argument is one."""
UNSUPPORTED = {
    ast.Break: "break", ast.Continue: "continue", ast.Lambda: "lambda", ast.ListComp: "listcomp", ast.DictComp: "dictcomp",
    ast.SetComp: "setcomp", ast.GeneratorExp: "generatorexp", ast.Dict: "dict", ast.Set: "set", ast.Try: "try",
    ast.Raise: "raise", ast.Delete: "delete", ast.Global: "global", ast.Yield: "yield", ast.ClassDef: "classdef",
    ast.Import: "import", ast.ImportFrom: "import", ast.Match: "match",
}  # fmt: skip
FOREIGN = {"torch", "numpy"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a kernel can see of its module.

    Args:
        aliases: What names of the module stand for, such as tl for triton.language.
        globals: Names that hold plain numbers, strings or truth values.
        called: Names that kernels of the module call.
    """

    aliases: Mapping[str, str]
    globals: Collection[str]
    called: Collection[str]


def language_name(
    node: ast.Attribute, aliases: Mapping[str, str], kernel: str = "", *, always: bool = True
) -> Iterator[Sighting]:
    """Yield the use of a name of triton.language; a rule decides whether it exists."""
    path = dotted(node)
    root, _, rest = path.partition(".")
    if aliases.get(root) != "triton.language" or not rest or ".extra" in path:
        return
    first, _, end = rest.rpartition(".")
    if first in {"", "math"}:
        yield Sighting(
            "name_missing:triton.language",
            node.lineno,
            f"tl.{rest}",
            end if not first else rest,
            kernel,
            always,
        )


class KernelReader:
    """Reads one kernel.

    Args:
        kernel: The kernel.
        module: What stands around it.
    """

    def __init__(self, kernel: Function, module: Surroundings) -> None:
        self._module = module
        self.apis: set[str] = set()
        """What it uses, known after `sightings`."""
        self._kernel = kernel
        arguments = kernel.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self._parameters = {each.arg for each in parameters}
        self._constants = {
            each.arg
            for each in parameters
            if each.annotation is not None and "constexpr" in ast.unparse(each.annotation)
        }
        stored = [
            node
            for node in ast.walk(kernel)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self._stored = {node.id for node in stored}
        self._inner = {
            id(node)
            for function in ast.walk(kernel)
            if isinstance(function, ast.FunctionDef | ast.Lambda) and function is not kernel
            for node in ast.walk(function)
            if node is not function
        }
        self._branched = _below(kernel, (ast.If, ast.IfExp))
        self._looped = _below(kernel, (ast.For, ast.While))
        self._inner |= {id(node) for decorator in kernel.decorator_list for node in ast.walk(decorator)}
        self._blocks: set[str] = set()
        self._find_blocks()

    def sightings(self) -> Iterator[Sighting]:
        """Yield what a rule may be about."""
        for node in ast.walk(self._kernel):
            if id(node) in self._inner:
                continue
            self._note(node)
            for key, line, why, name in self._of(node):
                yield Sighting(key, line, why, name, self._kernel.name, id(node) not in self._branched)
            if isinstance(node, ast.Attribute):
                yield from language_name(
                    node, self._module.aliases, self._kernel.name, always=id(node) not in self._branched
                )

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Call() if self._is_language(node.func):
                self.apis.add(last(node.func))
            case ast.For() | ast.While():
                self.apis.add("for")
            case ast.If():
                self.apis.add("if")
            case ast.Subscript():
                self.apis.add("[]")

    def _of(self, node: ast.AST) -> Iterator[tuple[str, int, str, str]]:
        line = getattr(node, "lineno", 0)
        construct = UNSUPPORTED.get(type(node))
        if isinstance(node, ast.FunctionDef) and node is not self._kernel:
            construct = "nested_function"
        elif isinstance(node, ast.Return) and id(node) in self._looped:
            construct = "return_in_loop"
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            construct = "chained_comparison"
        elif isinstance(node, ast.BoolOp) and len(node.values) > 2:
            construct = "chained_boolean"
        if construct:
            yield f"unsupported_node:{construct}", line, construct.replace("_", " "), ""
        match node:
            case ast.Call():
                yield from self._call(node)
            case ast.Subscript(ctx=ast.Store()):
                yield "item_assignment:block", line, f"{ast.unparse(node)[:40]} = …", ""
            case ast.Subscript(ctx=ast.Load(), value=value) if self._is_block(value) and not _adds_axes(node):
                yield "index_block:block", line, ast.unparse(node)[:60], ""
            case ast.Attribute(ctx=ast.Store()):
                yield "attribute_assignment:attribute", line, f"{ast.unparse(node)[:40]} = …", ""
            case ast.Attribute(ctx=ast.Load(), attr=attribute, value=value) if self._is_value(value):
                yield "attribute_missing:block", line, f".{attribute[:40]}", attribute
            case ast.Name(ctx=ast.Load(), id=name) if name in self._module.globals and not self._is_local(
                name
            ):
                yield "plain_global:global", line, f"{name} is a plain global", ""
            case ast.AugAssign(target=ast.Name(id=name), value=value) if id(node) in self._looped:
                if name in self._scalars_before(node) and self._is_block(value):
                    yield "loop_type:loop", line, f"{name} begins as a number and becomes a block", ""

    def _call(self, call: ast.Call) -> Iterator[tuple[str, int, str, str]]:
        name, line = last(call.func), call.lineno
        if not self._is_language(call.func):
            root = dotted(call.func).partition(".")[0]
            if self._module.aliases.get(root) in FOREIGN and not self._is_local(root):
                short = "np" if self._module.aliases[root] == "numpy" else "torch"
                for owner in sorted({short, root} & {"np", "torch", "numpy"}):
                    yield f"foreign_function:functions of {owner}", line, ast.unparse(call.func)[:40], ""
            if (
                name in {"float", "int", "len"}
                and isinstance(call.func, ast.Name)
                and call.args
                and self._is_block(call.args[0])
            ):
                yield f"python_conversion:{name}", line, f"{name}() of a block", ""
            return
        if name in DTYPES:
            yield "not_callable:dtype", line, f"tl.{name}(…)", ""
            return
        if name in LANGUAGE_FUNCTIONS:
            for word in call.keywords:
                if word.arg:
                    yield f"call_keyword:tl.{name}", line, f"tl.{name}({word.arg}=…)", word.arg
        yield from self._language_call(call, name)

    def _language_call(self, call: ast.Call, name: str) -> Iterator[tuple[str, int, str, str]]:
        line = call.lineno
        if name == "arange":
            yield from self._arange(call)
        if name == "static_range" and any(self._is_runtime(each) for each in call.args):
            yield "static_range_constexpr:tl.static_range", line, "bounds known at run time", ""
        words = {word.arg for word in call.keywords}
        if (
            name == "load"
            and "other" in words
            and "mask" not in words
            and None not in words
            and len(call.args) == 1
        ):
            yield "load_other:tl.load", line, "other= without mask=", ""
        if name in {"zeros", "full"} and call.args and isinstance(call.args[0], ast.Tuple | ast.List):
            for each in call.args[0].elts:
                if (
                    isinstance(each, ast.Constant)
                    and type(each.value) is int
                    and each.value & (each.value - 1)
                ):
                    yield "shape_power:block", line, f"an extent of {each.value}", ""

    def _arange(self, call: ast.Call) -> Iterator[tuple[str, int, str, str]]:
        values = [
            each.value for each in call.args if isinstance(each, ast.Constant) and type(each.value) is int
        ]
        if len(call.args) == 2 == len(values):
            extent = values[1] - values[0]
            if extent <= 0 or extent & (extent - 1):
                yield "arange_power:tl.arange", call.lineno, f"a range of {extent}", ""
        if any(self._is_runtime(each) for each in call.args):
            yield "arange_constexpr:tl.arange", call.lineno, "a bound that is known at run time", ""

    # --- what expressions are

    def _is_language(self, node: ast.expr) -> bool:
        root, _, rest = dotted(node).partition(".")
        return bool(rest) and self._module.aliases.get(root) == "triton.language"

    def _is_local(self, name: str) -> bool:
        return name in self._parameters or name in self._stored

    def _is_runtime(self, node: ast.expr) -> bool:
        """Tell a parameter of a kernel of its own that is no constexpr, and never assigned."""
        return (
            isinstance(node, ast.Name)
            and node.id in self._parameters - self._constants - self._stored
            and self._kernel.name not in self._module.called
        )

    def _is_value(self, node: ast.expr) -> bool:
        """Tell an expression whose attributes are those of a block or a scalar of a kernel."""
        if isinstance(node, ast.Name):
            return node.id in self._blocks
        return isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp) and self._is_block(node)

    def _is_block(self, node: ast.expr) -> bool:
        """Tell what is a block for certain."""
        match node:
            case ast.Name(id=name):
                return name in self._blocks
            case ast.BinOp(left=left, right=right):
                return self._is_block(left) or self._is_block(right)
            case ast.UnaryOp(operand=operand):
                return self._is_block(operand)
            case ast.Compare(left=left, comparators=others):
                return self._is_block(left) or any(map(self._is_block, others))
            case ast.Subscript(value=value):
                return self._is_block(value) and _adds_axes(node)
            case ast.Call(func=function, args=arguments) if self._is_language(function):
                name = last(function)
                if name in BLOCKS:
                    return name not in {"zeros", "full"} or not _is_scalar_shape(arguments)
                return name in ELEMENTWISE and any(map(self._is_block, arguments))
            case ast.Call(func=ast.Attribute(attr="to", value=value)):
                return self._is_block(value)
        return False

    def _find_blocks(self) -> None:
        """Find the names that only ever hold blocks."""
        values: dict[str, list[ast.expr]] = {}
        opaque: set[str] = set(self._parameters)
        for node in ast.walk(self._kernel):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values.setdefault(name, []).append(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                    values.setdefault(name, []).append(value)
                case ast.AugAssign(target=ast.Name()):
                    pass  # a block stays one
                case ast.Assign(targets=targets):
                    opaque |= {
                        each.id
                        for target in targets
                        for each in ast.walk(target)
                        if isinstance(each, ast.Name)
                    }
                case ast.For(target=ast.Name(id=name)) | ast.NamedExpr(target=ast.Name(id=name)):
                    opaque.add(name)
        while True:
            more = {
                name
                for name, given in values.items()
                if name not in self._blocks and name not in opaque and all(map(self._is_block, given))
            }
            if not more:
                return
            self._blocks |= more

    def _scalars_before(self, node: ast.AugAssign) -> set[str]:
        """Return the names to which nothing but numbers is assigned."""
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        assigned = [
            each.value
            for each in ast.walk(self._kernel)
            if isinstance(each, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == name for t in each.targets)
        ]
        good = bool(assigned) and all(isinstance(value, ast.Constant) for value in assigned)
        return {name} if good and not self._in_unrolled_loop(node) else set()

    def _in_unrolled_loop(self, node: ast.AST) -> bool:
        """Tell a loop that is unrolled at compile time, in which types may change."""
        return any(
            isinstance(loop, ast.For)
            and "static_range" in ast.unparse(loop.iter)
            and any(each is node for each in ast.walk(loop))
            for loop in ast.walk(self._kernel)
        )


def _adds_axes(node: ast.Subscript) -> bool:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return all(
        (isinstance(part, ast.Constant) and part.value is None)
        or (isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None)
        for part in parts
    )


def _is_scalar_shape(arguments: Collection[ast.expr]) -> bool:
    first = next(iter(arguments), None)
    return not isinstance(first, ast.Tuple | ast.List) or not first.elts


def _below(kernel: Function, kinds: tuple[type[ast.AST], ...]) -> set[int]:
    return {
        id(inner)
        for node in ast.walk(kernel)
        if isinstance(node, kinds)
        for child in ast.iter_child_nodes(node)
        for inner in ast.walk(child)
    }
