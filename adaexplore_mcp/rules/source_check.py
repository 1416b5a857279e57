"""See rules in source: a syntax-tree check that finds, before anything runs, what a rule says cannot be done.

It proves nothing about code that it cannot follow, and says nothing there: a warning must be right. It never blocks.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from adaexplore_mcp.rules.kernel_check import KernelReader, Surroundings, language_name
from adaexplore_mcp.rules.reach import uncertain
from adaexplore_mcp.rules.syntax import Function, Sighting, dotted, last

__all__ = ["VISIBLE", "Sighting", "Source", "read"]

MAX_SIGHTINGS = 60
MAX_SOURCE = 128 << 10
"""Bytes, or characters: five times the longest of the published kernels."""
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

VISIBLE = frozenset({
    "name_missing", "attribute_missing", "not_callable", "index_block", "item_assignment", "attribute_assignment",
    "unsupported_node", "foreign_function", "plain_global", "loop_type", "arange_power", "arange_constexpr", "shape_power",
    "launch_missing", "launch_twice", "launch_keyword", "launch_too_many", "launch_grid", "num_warps_power",
    "autotune_conflict", "autotune_key", "call_keyword", "python_conversion", "static_range_constexpr", "load_other",
    "called_without_grid",
})  # fmt: skip
"""Kinds that can be seen in source."""


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


class _Module:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.kernels = {each.name: each for each in functions if any(map(_is_jit, each.decorator_list))}
        self._names = [each.name for each in functions]
        called = {
            last(call.func)
            for kernel in self.kernels.values()
            for call in ast.walk(kernel)
            if isinstance(call, ast.Call)
        }
        self._around = Surroundings(_aliases(tree), _plain_globals(tree), called)
        self.apis: set[str] = set()
        self.used = _used(tree)
        self.conditional = uncertain(tree)
        launched = [
            (_launched(call), id(call) not in self.conditional) for call in ast.walk(tree) if _launched(call)
        ]
        # A kernel that is launched only under a condition of host code may never be: dropout in evaluation, a fallback.
        self.used -= {name for name, _ in launched} - {name for name, always in launched if always} - called

    def sightings(self) -> Iterator[Sighting]:
        for kernel in self.kernels.values():
            yield from self._tuning(kernel)
            reader = KernelReader(kernel, self._around)
            found = list(reader.sightings())
            self.apis |= reader.apis  # what it uses matters for a ranking, launched for certain or not
            if kernel.name in self.used:
                yield from found
        unused = [
            each
            for each in self.tree.body
            if isinstance(each, ast.FunctionDef) and each.name not in self.used
        ]
        inside = {id(node) for each in (*self.kernels.values(), *unused) for node in ast.walk(each)}
        for node in ast.walk(self.tree):
            if id(node) not in inside and isinstance(node, ast.Attribute):
                yield from language_name(node, self._around.aliases)
            if id(node) not in inside and isinstance(node, ast.Call):
                if id(node) not in self.conditional:
                    yield from self._launch(node)
                yield from self._option(node)

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
            if not (isinstance(decorator, ast.Call) and last(decorator.func) == "autotune"):
                continue
            found: list[set[str]] = []
            configs = next((word.value for word in decorator.keywords if word.arg == "configs"), None)
            configs = configs if configs is not None else next(iter(decorator.args), None)
            for each in ast.walk(self._resolved(configs)) if configs is not None else ():
                if isinstance(each, ast.Call) and last(each.func) == "Config":
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
            if not (isinstance(decorator, ast.Call) and last(decorator.func) == "autotune"):
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


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last(target) == "jit" and not dotted(target).startswith("torch.")


def _launched(node: ast.AST) -> str:
    """Return the name of the kernel that is launched, or the empty string."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
        return last(node.func.value)
    return ""


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
