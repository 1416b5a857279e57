"""See rules in source: a syntax-tree check that finds, before anything runs, what a rule says cannot be done.

It proves nothing about code that it cannot follow, and says nothing there: a warning must be right. It never blocks.
"""

import ast
import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from adaexplore_mcp.rules.fingerprints import LANGUAGE_FUNCTIONS

__all__ = ["VISIBLE", "Sighting", "Source", "read"]

MAX_SIGHTINGS = 60
MAX_SOURCE = 128 << 10
"""Bytes, or characters: five times the longest of the published kernels."""
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
OPTIONS = frozenset({
    "num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "debug", "stream", "device", "device_type",
    "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl", "waves_per_eu", "matrix_instr_nonkdim", "kpack",
    "allow_flush_denorm", "instrumentation_mode", "extern_libs", "sanitize_overflow", "supported_fp8_dtypes", "ptx_version",
    "ptx_options", "ir_override", "arch", "backend_name", "cluster_dims", "allowed_dot_input_precisions", "default_dot_input_precision",
    "max_num_imprecise_acc_default", "deprecated_fp8_dot_operand_dtypes", "num_buffers_warp_spec", "num_consumer_groups",
    "reg_dec_producer", "reg_inc_consumer", "minRegAutoWS", "maxRegAutoWS", "pre_hook", "enable_warp_specialization",
    "optimize_epilogue", "enable_persistent", "schedule_hint",
})  # fmt: skip
"""Keywords of a launch that are options of some version of Triton."""
UNSUPPORTED = {
    ast.Break: "break", ast.Continue: "continue", ast.Lambda: "lambda", ast.ListComp: "listcomp", ast.DictComp: "dictcomp",
    ast.SetComp: "setcomp", ast.GeneratorExp: "generatorexp", ast.Dict: "dict", ast.Set: "set", ast.Try: "try",
    ast.Raise: "raise", ast.Delete: "delete", ast.Global: "global", ast.Yield: "yield", ast.ClassDef: "classdef",
    ast.Import: "import", ast.ImportFrom: "import", ast.Match: "match",
}  # fmt: skip
FOREIGN = {"torch", "numpy"}

VISIBLE = frozenset({
    "name_missing", "attribute_missing", "not_callable", "index_block", "item_assignment", "attribute_assignment",
    "unsupported_node", "foreign_function", "plain_global", "loop_type", "arange_power", "arange_constexpr", "shape_power",
    "launch_missing", "launch_twice", "launch_keyword", "launch_too_many", "launch_grid", "num_warps_power",
    "autotune_conflict", "autotune_key", "call_keyword", "python_conversion", "static_range_constexpr", "load_other",
    "called_without_grid",
})  # fmt: skip
"""Kinds that can be seen in source."""


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


@dataclass(frozen=True, slots=True)
class Source:
    """What a candidate's source shows.

    Args:
        sightings: In the order of lines.
        apis: Functions of triton.language that its kernels use, and `for`, `if`, `autotune`, `[]`.
        kernels: Names of its Triton kernels.
    """

    sightings: list[Sighting] = field(default_factory=list)
    apis: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=8)
def read(source: bytes | str) -> Source:
    """Return what a source shows; nothing where it is no Python, or so long that reading it would take seconds.

    Asked several times for each candidate: before it is judged, and for what its outcome touches.
    """
    if len(source) > MAX_SOURCE:
        return Source()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Source()
    try:
        reader = _Module(tree)
        found = sorted(set(reader.sightings()), key=lambda each: (each.line, each.key, each.name))
        return Source(found[:MAX_SIGHTINGS], frozenset(reader.apis), frozenset(reader.kernels))
    except RecursionError:
        return Source()


Function = ast.FunctionDef


class _Module:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.aliases = _aliases(tree)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.kernels = {each.name: each for each in functions if any(map(_is_jit, each.decorator_list))}
        self._names = [each.name for each in functions]
        self.globals = _plain_globals(tree)
        self.called = {
            _last(call.func)
            for kernel in self.kernels.values()
            for call in ast.walk(kernel)
            if isinstance(call, ast.Call)
        }
        self.apis: set[str] = set()
        self.used = _used(tree)
        self.conditional = {id(inner) for node in ast.walk(tree) for inner in _conditional(node)}
        launched = [
            (_launched(call), id(call) not in self.conditional) for call in ast.walk(tree) if _launched(call)
        ]
        # A kernel that is launched only under a condition of host code may never be: dropout in evaluation, a fallback.
        self.used -= (
            {name for name, _ in launched} - {name for name, always in launched if always} - self.called
        )

    def sightings(self) -> Iterator[Sighting]:
        for kernel in self.kernels.values():
            yield from self._tuning(kernel)
            if kernel.name in self.used:
                yield from _Kernel(self, kernel).sightings()
        unused = [
            each
            for each in self.tree.body
            if isinstance(each, ast.FunctionDef) and each.name not in self.used
        ]
        inside = {id(node) for each in (*self.kernels.values(), *unused) for node in ast.walk(each)}
        for node in ast.walk(self.tree):
            if id(node) not in inside and isinstance(node, ast.Attribute):
                yield from self.name(node, "")
            if id(node) not in inside and isinstance(node, ast.Call):
                if id(node) not in self.conditional:
                    yield from self._launch(node)
                yield from self._option(node)

    def name(self, node: ast.Attribute, kernel: str, *, always: bool = True) -> Iterator[Sighting]:
        """Yield the use of a name of triton.language; a rule decides whether it exists."""
        dotted = _dotted(node)
        root, _, rest = dotted.partition(".")
        if self.aliases.get(root) != "triton.language" or not rest or ".extra" in dotted:
            return
        first, _, last = rest.rpartition(".")
        if first in {"", "math"}:
            yield Sighting(
                "name_missing:triton.language",
                node.lineno,
                f"tl.{rest}",
                last if not first else rest,
                kernel,
                always,
            )

    # --- launches

    def _launch(self, call: ast.Call) -> Iterator[Sighting]:
        if (
            isinstance(call.func, ast.Name)
            and call.func.id in self.kernels
            and self._names.count(call.func.id) == 1
        ):
            yield Sighting("called_without_grid:launch", call.lineno, f"{call.func.id}(…) without [grid]")
            return
        if not (isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name)):
            return
        name = call.func.value.id
        kernel = self.kernels.get(name)
        if kernel is None or self._names.count(name) != 1 or kernel.args.vararg or kernel.args.kwarg:
            return
        if isinstance(call.func.slice, ast.Constant) and type(call.func.slice.value) is int:
            yield Sighting("launch_grid:grid", call.lineno, f"{name}[{call.func.slice.value}]")
        if any(isinstance(each, ast.Starred) for each in call.args) or any(
            word.arg is None for word in call.keywords
        ):
            return
        parameters = [each.arg for each in (*kernel.args.posonlyargs, *kernel.args.args)]
        given = {word.arg for word in call.keywords if word.arg}
        by_position = parameters[: len(call.args)]
        if len(call.args) > len(parameters):
            yield Sighting("launch_too_many:launch", call.lineno, f"{len(call.args)} arguments for {name}")
        if twice := sorted(set(by_position) & given):
            yield Sighting("launch_twice:launch", call.lineno, f"{twice[0]} by position and by name")
        known = {*parameters, *(each.arg for each in kernel.args.kwonlyargs)}
        for word in sorted(given - known - OPTIONS):
            yield Sighting("launch_keyword:launch", call.lineno, f"{word}= is no parameter of {name}")
        tuned = self._tuned(kernel)
        if tuned is None:
            return
        sure, possible = tuned
        if both := sorted(given & sure) or sorted(set(by_position) & sure):
            yield Sighting(
                "autotune_conflict:triton.autotune", call.lineno, f"{both[0]} is set by the configurations"
            )
        defaults = {
            each.arg for each in kernel.args.args[len(kernel.args.args) - len(kernel.args.defaults) :]
        }
        decorated = any("heuristics" in ast.unparse(each) for each in kernel.decorator_list)
        missing = [each for each in parameters if each not in {*by_position, *given, *possible, *defaults}]
        if missing and not decorated:
            yield Sighting("launch_missing:launch", call.lineno, f"{missing[0]} of {name} is not given")

    def _option(self, call: ast.Call) -> Iterator[Sighting]:
        for word in call.keywords:
            value = word.value
            if word.arg == "num_warps" and isinstance(value, ast.Constant) and type(value.value) is int:
                warps = value.value
                if warps <= 0 or warps & (warps - 1):
                    yield Sighting("num_warps_power:num_warps", call.lineno, f"num_warps={warps}")

    def _tuned(self, kernel: Function) -> tuple[set[str], set[str]] | None:
        """Return the parameters that every configuration sets and those that some may; None where they are not literal."""
        for decorator in kernel.decorator_list:
            if not (isinstance(decorator, ast.Call) and _last(decorator.func) == "autotune"):
                continue
            found: list[set[str]] = []
            configs = next((word.value for word in decorator.keywords if word.arg == "configs"), None)
            configs = configs if configs is not None else next(iter(decorator.args), None)
            for each in ast.walk(self._resolved(configs)) if configs is not None else ():
                if isinstance(each, ast.Call) and _last(each.func) == "Config":
                    first = (
                        each.args[0]
                        if each.args
                        else next((w.value for w in each.keywords if w.arg == "kwargs"), None)
                    )
                    if not isinstance(first, ast.Dict) or not all(
                        isinstance(key, ast.Constant) and isinstance(key.value, str) for key in first.keys
                    ):
                        return None
                    found.append({str(key.value) for key in first.keys if isinstance(key, ast.Constant)})
            if not found:
                return None
            return set.intersection(*found), set.union(*found)
        return set(), set()

    def _resolved(self, node: ast.expr) -> ast.AST:
        """Return what a name of a module, or a call of one of its functions, stands for."""
        if isinstance(node, ast.Name):
            for each in self.tree.body:
                if isinstance(each, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == node.id for t in each.targets
                ):
                    return each.value
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and self._names.count(node.func.id) == 1
        ):
            name = node.func.id
            return next(
                each
                for each in ast.walk(self.tree)
                if isinstance(each, ast.FunctionDef) and each.name == name
            )
        return node

    def _tuning(self, kernel: Function) -> Iterator[Sighting]:
        parameters = {
            each.arg for each in (*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs)
        }
        for decorator in kernel.decorator_list:
            if not (isinstance(decorator, ast.Call) and _last(decorator.func) == "autotune"):
                continue
            self.apis.add("autotune")
            keys = next((word.value for word in decorator.keywords if word.arg == "key"), None)
            for each in keys.elts if isinstance(keys, ast.List | ast.Tuple) else ():
                if (
                    isinstance(each, ast.Constant)
                    and isinstance(each.value, str)
                    and each.value not in parameters
                ):
                    yield Sighting(
                        "autotune_key:triton.autotune", each.lineno, f"key names {each.value[:40]!r}"
                    )


class _Kernel:
    def __init__(self, module: _Module, kernel: Function) -> None:
        self._module = module
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
        for node in ast.walk(self._kernel):
            if id(node) in self._inner:
                continue
            self._note(node)
            for key, line, why, name in self._of(node):
                yield Sighting(key, line, why, name, self._kernel.name, id(node) not in self._branched)
            if isinstance(node, ast.Attribute):
                yield from self._module.name(node, self._kernel.name, always=id(node) not in self._branched)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Call() if self._is_language(node.func):
                self._module.apis.add(_last(node.func))
            case ast.For() | ast.While():
                self._module.apis.add("for")
            case ast.If():
                self._module.apis.add("if")
            case ast.Subscript():
                self._module.apis.add("[]")

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
        name, line = _last(call.func), call.lineno
        if not self._is_language(call.func):
            root = _dotted(call.func).partition(".")[0]
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
        dotted = _dotted(node)
        root, _, rest = dotted.partition(".")
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
                name = _last(function)
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


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _last(target) == "jit" and not _dotted(target).startswith("torch.")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


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


def _launched(node: ast.AST) -> str:
    """Return the name of the kernel that is launched, or the empty string."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
        return _last(node.func.value)
    return ""


def _conditional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs only if a condition holds, or may be caught."""
    match node:
        case ast.If():
            parts = [*node.body, *node.orelse]
        case ast.Try():
            parts = [*node.body]
        case _:
            return
    for part in parts:
        yield from ast.walk(part)


def _used(tree: ast.Module) -> set[str]:
    """Return the functions of a module that its classes and statements lead to; all where it has no class ModelNew."""
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    if not any(isinstance(each, ast.ClassDef) and each.name == "ModelNew" for each in tree.body):
        return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    waiting: list[ast.AST] = [each for each in tree.body if not isinstance(each, ast.FunctionDef)]
    used = {each.name for root in waiting for each in ast.walk(root) if isinstance(each, ast.FunctionDef)}
    while waiting:
        for node in ast.walk(waiting.pop()):
            name = node.id if isinstance(node, ast.Name) else ""
            if name in functions and name not in used:
                used.add(name)
                waiting.append(functions[name])
            if isinstance(node, ast.FunctionDef):
                used.add(node.name)
    return used


def _aliases(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module == "triton":
            found |= {each.asname or each.name: f"triton.{each.name}" for each in node.names}
    return found


def _plain_globals(tree: ast.Module) -> set[str]:
    """Return the names of a module that hold plain numbers, strings or truth values, and nothing else anywhere."""
    found: set[str] = set()
    other: set[str] = set()
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                (found if value is not None and _is_plain(value) else other).add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                other.add(name)
    return found - other


def _is_plain(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float | str)
        case ast.UnaryOp(operand=operand):
            return _is_plain(operand)
        case ast.BinOp(left=left, right=right):
            return _is_plain(left) and _is_plain(right)
        case ast.Call(func=ast.Name(id="float" | "int"), args=[ast.Constant()]):
            return True
    return False


def _below(kernel: Function, kinds: tuple[type[ast.AST], ...]) -> set[int]:
    return {
        id(inner)
        for node in ast.walk(kernel)
        if isinstance(node, kinds)
        for child in ast.iter_child_nodes(node)
        for inner in ast.walk(child)
    }
