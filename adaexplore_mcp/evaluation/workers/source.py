"""Read what a candidate's source shows before any of it runs: its kernels, and what a reader should look at.

A syntax tree proves little: names can be hidden, and honest code looks alarming. So every sign is a fact with its line, beside
what the calls showed; only where a task forbids library operators do two kinds of them decide.
"""

import ast
import bisect
import re
from collections.abc import Container, Iterator
from typing import Any

__all__ = ["signs_of"]

MAX_SIGNS = 24
LONGEST_BYTES = 1 << 20
"""Sources that are read: Python takes 2 s for the syntax tree of as much data, and kernels are a hundredth of it."""
LAUNCHERS = frozenset({"run", "warmup"})
SHAPES = frozenset(
    {
        "shape",
        "size",
        "numel",
        "ndim",
        "dim",
        "dtype",
        "is_contiguous",
        "stride",
        "training",
    }
)
GLOBAL_FLAGS = frozenset({
    "allow_tf32", "fp32_precision", "benchmark", "deterministic", "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction", "preferred_linalg_library",
})  # fmt: skip
FLAG_SETTERS = frozenset(
    {"set_float32_matmul_precision", "set_default_dtype", "use_deterministic_algorithms"}
)
HALVES = frozenset({"half", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8e4nv", "float8e5"})
RUNS_TEXT = frozenset({"exec", "eval", "compile", "__import__", "import_module", "run_path", "run_module"})
LOADS_BINARIES = frozenset({"CDLL", "cdll", "PyDLL", "load_library", "dlopen", "LoadLibrary"})
READS_FILES = frozenset(
    {"open", "read_text", "read_bytes", "listdir", "scandir", "iterdir", "glob", "rglob", "readlink"}
)
BUILDS = frozenset({"load_inline", "RawKernel", "RawModule"})
HIDES_WORK = frozenset(
    {"_disable_current_modes", "_DisableTorchDispatch", "DisableTorchFunction", "_unset_dispatch_mode"}
)
LOOKS_INSIDE = frozenset({
    "get_objects", "get_referrers", "get_referents", "_getframe", "currentframe", "settrace", "setprofile", "__code__",
    "__globals__", "__closure__", "f_locals", "f_back",
})  # fmt: skip

NARROW = frozenset({
    "half_type", "global_flag", "autocast", "torch_compile", "runs_text", "builds_native", "loads_binary", "hides_work",
})  # fmt: skip
"""Signs of arithmetic that may be narrower than float32, or that is hidden."""
NARROW_WORDS = re.compile(r"tf32|f16|fp16|fp8|f8|e4m3|e5m2")
"""In strings: names of types, and instructions of inline assembly."""

Signs = dict[str, Any]


def signs_of(source: bytes) -> Signs:
    """Return what a candidate's source shows, as `claims.SourceClaim` reads it.

    Args:
        source: As it was submitted. What is no Python shows nothing here: importing it says why.

    Returns:
        `kernels`: line by name of each Triton kernel that no other one calls, and that returns nothing; `signs`: `kind`, `line` and `what`; `narrow`:
        whether anything in it may compute in less than float32, or hides what it computes.
    """
    if len(source) > LONGEST_BYTES:
        what = f"longer than {LONGEST_BYTES >> 10} KiB: nothing in it was looked at"
        return {"kernels": {}, "signs": [{"kind": "unread", "line": 1, "what": what}], "narrow": True}
    try:
        reader = _Reader(ast.parse(source))
        signs = list(reader.signs())
        return {
            "kernels": reader.entry_kernels(),
            "signs": signs[:MAX_SIGNS],
            "narrow": any(sign["kind"] in NARROW for sign in signs) or reader.names_narrow(),
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"kernels": {}, "signs": [], "narrow": True}


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
        functions = [node for node in self._nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        self._kernels = {node.name: node for node in functions if any(map(_is_jit, node.decorator_list))}
        self._functions = [node for node in functions if node.name not in self._kernels]
        launching = self._find_launching()
        self._launch_lines = sorted(
            node.lineno
            for node in self._nodes
            if isinstance(node, ast.Call) and self._is_launch(node, launching)
        )

    def entry_kernels(self) -> dict[str, int]:
        """Return the kernels that can be launched only: no other kernel calls them, and they return nothing."""
        called = {
            name
            for kernel in self._kernels.values()
            for name in _names(kernel)
            if name in self._kernels and name != kernel.name
        }
        return {
            name: node.lineno
            for name, node in self._kernels.items()
            if name not in called and not any(map(_returns, ast.walk(node)))
        }

    def signs(self) -> Iterator[dict[str, Any]]:
        """Yield what a reader should look at, in order of lines, one of a kind and line."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for node in self._nodes:
            for kind, what in (*self._fallbacks(node), *_of(node)):
                found.setdefault((kind, node.lineno), {"kind": kind, "line": node.lineno, "what": what})
        for key in sorted(found, key=lambda key: key[1]):
            yield found[key]

    def names_narrow(self) -> bool:
        """Tell whether anything that is no sign may compute in less than float32."""
        return any(map(_narrow, self._nodes))

    # --- launches and the ways round them

    def _find_launching(self) -> set[str]:
        """Return the names of functions and methods that launch a kernel, themselves or through another one."""
        called: dict[str, set[str]] = {}
        launching: set[str] = set()
        for function in self._functions:
            calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
            called[function.name] = {_last_name(call.func) for call in calls}
            if any(self._is_launch(call, ()) for call in calls):
                launching.add(function.name)
        while more := {name for name, names in called.items() if names & launching} - launching:
            launching |= more
        return launching

    def _launches(self, node: ast.stmt) -> bool:
        at = bisect.bisect_left(self._launch_lines, node.lineno)
        return at < len(self._launch_lines) and self._launch_lines[at] <= (node.end_lineno or node.lineno)

    def _is_launch(self, call: ast.Call, launching: Container[str]) -> bool:
        function = call.func
        if isinstance(function, ast.Subscript):  # kernel[grid](…)
            return _last_name(function.value) in self._kernels
        if isinstance(function, ast.Attribute) and function.attr in LAUNCHERS:
            return _last_name(function.value) in self._kernels
        return _last_name(function) in launching

    def _fallbacks(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Try) and any(map(self._launches, node.body)):
            caught = [handler for handler in node.handlers if not _only_raises(handler.body)]
            if caught:
                yield "fallback_try", "a failure of its kernel is caught, and something else is done"
        if isinstance(node, ast.If) and _looks_at_shape(node.test):
            inside = any(map(self._launches, node.body))
            otherwise = any(map(self._launches, node.orelse))
            around = not otherwise and self._launches_after(node)
            if (inside and node.orelse and not otherwise and _computes(node.orelse)) or (
                not inside and (otherwise or around) and _leaves(node.body) and _computes(node.body)
            ):
                yield "fallback_branch", f"a kernel is launched or not by {ast.unparse(node.test)[:80]}"

    def _launches_after(self, branch: ast.If) -> bool:
        """Tell whether the function around a branch launches a kernel behind it."""
        end = branch.end_lineno or branch.lineno
        around = [
            function.end_lineno or function.lineno
            for function in self._functions
            if function.lineno <= branch.lineno <= (function.end_lineno or function.lineno)
        ]
        at = bisect.bisect_right(self._launch_lines, end)
        return bool(around) and at < len(self._launch_lines) and self._launch_lines[at] <= min(around)


def _of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what a single node shows."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if (
                isinstance(target, ast.Attribute)
                and target.attr in GLOBAL_FLAGS
                and "backends" in _dotted(target)
            ):
                yield "global_flag", f"sets {_dotted(target)}"
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield from _of_name(alias.name)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _of_name(node.value)  # as for getattr
    elif isinstance(node, ast.Attribute):
        if node.attr in HALVES and _dotted(node).split(".")[0] in {"torch", "tl", "triton"}:
            yield "half_type", f"uses {_dotted(node)}"
        elif node.attr in HIDES_WORK or node.attr in LOADS_BINARIES:
            yield from _of_name(node.attr)
        elif node.attr in LOOKS_INSIDE:
            yield "looks_inside", f"reads {node.attr}"
        elif _dotted(node) == "sys.modules":
            yield "looks_inside", "reads sys.modules"


def _of_name(name: str) -> Iterator[tuple[str, str]]:
    """Yield what a name alone shows, whatever it is called afterwards."""
    if name in HIDES_WORK:
        yield "hides_work", f"uses {name}: what torch does then is not counted"
    elif name in LOADS_BINARIES:
        yield "loads_binary", f"loads a library by {name}"


def _of_call(call: ast.Call) -> Iterator[tuple[str, str]]:
    name, dotted = _last_name(call.func), _dotted(call.func)
    plain = isinstance(call.func, ast.Name)
    if name in FLAG_SETTERS:
        yield "global_flag", f"calls {name}"
    elif name == "autocast":
        yield "autocast", "runs torch's operators under autocast"
    elif dotted == "torch.compile":
        yield "torch_compile", "uses torch.compile: torch writes the kernels"
    elif name in {"half", "bfloat16"} and not plain and not call.args:
        yield "half_type", f"converts by .{name}()"
    elif name in RUNS_TEXT and (plain or dotted.startswith(("importlib", "runpy", "builtins"))):
        yield "runs_text", f"calls {name}: what it runs does not stand in the source"
    elif name in READS_FILES and (name != "open" or plain or dotted in {"os.open", "io.open"}):
        yield "reads_files", f"looks at files by {name}: nothing of the reference is where it runs"
    elif name in BUILDS:
        yield "builds_native", f"builds native code by {name}"


def _narrow(node: ast.AST) -> bool:
    """Tell whether a node multiplies by tl.dot in less than float32, as it does unless told, or names a narrow type in a string."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and NARROW_WORDS.search(node.value) is not None
    if not isinstance(node, ast.Call) or _last_name(node.func) not in {"dot", "dot_scaled"}:
        return False
    precision = next((each.value for each in node.keywords if each.arg == "input_precision"), None)
    return not (isinstance(precision, ast.Constant) and precision.value == "ieee")


# --- syntax ----------------------------------------------------------------------------------------------


def _returns(node: ast.AST) -> bool:
    """Tell whether a statement returns a value, as only functions do that kernels call."""
    return isinstance(node, ast.Return) and not (
        node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    )


def _is_jit(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    dotted = _dotted(function)
    return dotted.split(".")[-1] == "jit" and not dotted.startswith(("numba", "torch", "jax"))


def _names(node: ast.AST) -> Iterator[str]:
    yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (
        ".".join([node.id if isinstance(node, ast.Name) else "", *reversed(parts)])
        if parts
        else _last_name(node)
    )


def _looks_at_shape(test: ast.expr) -> bool:
    """Tell whether a condition looks at a tensor's form; whether it lies on a GPU is the same in every call."""
    return any(isinstance(each, ast.Attribute) and each.attr in SHAPES for each in ast.walk(test))


def _leaves(body: list[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.Return) for statement in body)


def _only_raises(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise)


def _computes(body: list[ast.stmt]) -> bool:
    """Tell whether statements call something, or calculate, beside raising and making memory."""
    parts = [
        each for statement in body if not isinstance(statement, ast.Raise) for each in ast.walk(statement)
    ]
    return any(
        isinstance(each, ast.BinOp)
        or (isinstance(each, ast.Call) and not _last_name(each.func).startswith(("empty", "new_")))
        for each in parts
    )
