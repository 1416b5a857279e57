"""Turn what Triton, ptxas or host code raised into one excerpt that points at the author's own line."""

import ast
import linecache
import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import triton.language as tl
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.autotuner import Heuristics
from triton.runtime.errors import OutOfResources, PTXASError

from adaexplore_mcp.evaluation.workers.failures import class_name

from .hints import called_name, hint_for
from .records import ErrorExcerpt
from .versions import Autotuner, JITFunction, definition

__all__ = ["Origin", "attach_origin", "explain", "is_declaration"]

MAX_MESSAGE_CHARACTERS = 2000
# Helper functions of Triton's own, whose inside is not what its caller got wrong.
TRITON_LIBRARY = [str(Path(tl.__file__).parent / name) for name in ("standard.py", "random.py")]
MAX_CAUSES = 50
ORIGIN = "_adaexplore_origin"
# MLIR: `/path/file.py:12:34: error: ...`, or the location as it prints one: `loc("/path/file.py":12:34)`.
DIAGNOSTIC = re.compile(r'(?:loc\(")?(?P<file>/[^"\n:]+)"?:(?P<line>\d+):\d+\)?: error: (?P<message>[^\n]+)')
UNSUPPORTED_FUNCTION = (
    "unsupported function {} referenced in a kernel: only functions of triton.language and helpers decorated with "
    "@triton.jit can be called there"
)
BLOCK_CONDITION = re.compile(r"'scf\.condition' op operand #0 must be 1-bit .*'tensor<")
SCALAR_CONDITION = "the condition of while is a block, and ambiguous: reduce it to one value (tl.max, tl.sum), or load a scalar. Triton's words: {}"
TUNERS = (Autotuner, Heuristics)
MISSING = re.compile(r"missing \d+ required positional argument")
ADDRESS = re.compile(r" at 0x[0-9a-f]+\b")
# What a launch binds its arguments with.
BINDER = "dynamic_func()"


@dataclass(frozen=True, slots=True)
class Origin:
    """The kernel whose compilation raised an exception."""

    kernel: str
    file: str
    line: int
    """1-based line of its `def`."""
    function: Any
    """The JITFunction."""
    diagnostics: str = ""
    """What the compiler wrote to stderr."""


def attach_origin(error: BaseException, origin: Origin) -> None:
    """Let an exception say where it came from, however often it is raised again."""
    setattr(error, ORIGIN, origin)


def explain(exception: BaseException, files: Iterable[str | Path] = ()) -> ErrorExcerpt:
    """Return an exception as its author needs it.

    Args:
        exception: What the candidate's code, or a launch of one of its kernels, raised.
        files: The author's files. The file of a kernel that failed to compile counts as one too.
    """
    author = [str(file) for file in files]
    error = _root(exception)
    origin: Origin | None = getattr(error, ORIGIN, None)
    if origin is not None and origin.file not in author:
        author.append(origin.file)
    if isinstance(error, CompilationError):
        return _of_source(error, origin, author)
    if isinstance(error, (OutOfResources, PTXASError)):
        return _of_target(error, origin, author)
    referenced = _referenced_construct(error.__traceback__)
    if referenced is not None:
        return _of_reference(error, *referenced)
    if origin is not None and DIAGNOSTIC.search(origin.diagnostics):
        return _of_pass(error, origin, author)
    return _of_host(error, origin, author)


def _root(exception: BaseException) -> BaseException:
    """Return the compiler's error among the causes of an exception, or the exception itself."""
    error: BaseException | None = exception
    for _ in range(MAX_CAUSES):
        if error is None:
            break
        if isinstance(error, (CompilationError, OutOfResources, PTXASError)) or hasattr(error, ORIGIN):
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return exception


# --- errors in a kernel's source ---------------------------------------------------------------------------------


def _of_source(error: Any, origin: Origin | None, author: list[str]) -> ErrorExcerpt:  # noqa: ANN401 - a CompilationError
    """Explain the innermost error, at the innermost line that is the author's.

    A kernel that calls helper functions raises one error per level, each the cause of the next one out.
    """
    levels = [error]
    while isinstance(levels[-1].__cause__, CompilationError) and len(levels) < MAX_CAUSES:
        levels.append(levels[-1].__cause__)
    innermost = levels[-1]
    kernel = origin.kernel if origin else _function_name(error.src)
    level, file, line = innermost, "", 0
    for each in reversed(levels):
        found = _find_source(each.src, author)
        if found is not None:
            level, file, line = each, *found
            break
    else:
        if origin is not None:
            level, file, line = error, origin.file, origin.line
    if file:
        line += getattr(level.node, "lineno", 1) - 1
    message = _words(innermost)
    wrong = level if _find_source(innermost.src, TRITON_LIBRARY) else innermost
    called = ast.unparse(level.node.func) if isinstance(level.node, ast.Call) else ""
    if origin is not None and _is_foreign(called, origin.function):
        message = UNSUPPORTED_FUNCTION.format(called)
    if isinstance(innermost, CompileTimeAssertionFailure):
        message = f"static_assert failed: {message}" if message else "static_assert failed"
    return ErrorExcerpt(
        type=class_name(innermost),
        message=_bounded(_with_hint(message, wrong.node, wrong.src or "")),
        kernel=kernel,
        file=file,
        line=line,
        source=_source_line(file, line),
    )


def _words(error: Any) -> str:  # noqa: ANN401 - a CompilationError
    """Return what an error says, in the words of the exception it wraps where it wraps one."""
    text = str(error.error_message or "")
    wrapped = error.__cause__ or error.__context__
    if wrapped is not None and text in {repr(wrapped), str(wrapped), ""}:
        return _own_words(wrapped) or type(wrapped).__name__
    if not text and not isinstance(error.node, ast.AST):  # then its text is no excerpt of the source
        return str(error)
    return text


def _own_words(error: BaseException) -> str:
    try:
        if isinstance(error, KeyError) and error.args:
            return str(error.args[0])  # str() of a KeyError is the repr of its text
        if isinstance(error, PTXASError):
            return str(error.error_message)
        return str(error)
    except Exception as failure:  # noqa: BLE001 - the author's own __str__, which may raise anything
        return f"its text could not be read: {type(failure).__name__}"


def _with_hint(message: str, node: object, source: str) -> str:
    """Return a message that names the construct, with the remedy for it."""
    if not isinstance(node, ast.AST):
        return message
    if isinstance(node, ast.Call) and (name := called_name(node)) and name not in message:
        message = f"{ast.unparse(node.func)}: {message}"
    elif isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Lambda)):
        message = f"{type(node).__name__.lower()}: {message}"
    hint = hint_for(node, source, message)
    if hint is None:
        return message
    if hint.leads:
        return hint.text if hint.alone else f"{hint.text}. Triton's words: {message}"
    return f"{message}\nHint: {hint.text}."


def _function_name(source: str | None) -> str:
    found = re.match(r"def\s+(\w+)", source or "")
    return found[1] if found else ""


def _find_source(source: str | None, files: list[str]) -> tuple[str, int] | None:
    """Return the file and the line of the `def` whose text a kernel's source is."""
    if not source:
        return None
    wanted = [line.strip() for line in source.rstrip().splitlines()]
    for file in files:
        lines = [line.strip() for line in linecache.getlines(file)]
        for start, line in enumerate(lines):
            if line == wanted[0] and lines[start : start + len(wanted)] == wanted:
                return file, start + 1
    return None


# --- errors past the source --------------------------------------------------------------------------------------


def _of_target(error: BaseException, origin: Origin | None, author: list[str]) -> ErrorExcerpt:
    """Explain a limit of the target, or a refusal of ptxas: at the launch, where sizes and options are chosen."""
    file, line = _author_frame(error.__traceback__, author)
    kernel = origin.kernel if origin else _launched_kernel(error)
    if not file and origin is not None:
        file, line = origin.file, origin.line
    return ErrorExcerpt(
        type=class_name(error),
        message=_bounded(_own_words(error)),
        kernel=kernel,
        file=file,
        line=line,
        source=_source_line(file, line),
    )


def _of_pass(error: BaseException, origin: Origin, author: list[str]) -> ErrorExcerpt:
    """Explain a pass of MLIR that failed, by what it wrote to stderr."""
    found = list(DIAGNOSTIC.finditer(origin.diagnostics))
    best = next((each for each in found if each["file"] in author), found[0])
    ours = best["file"] in author
    file, line = (best["file"], int(best["line"])) if ours else (origin.file, origin.line)
    message = f"{best['message']} ({_own_words(error)}, while compiling {origin.kernel})"
    if BLOCK_CONDITION.search(message):
        message = SCALAR_CONDITION.format(message)
    return ErrorExcerpt(
        type=class_name(error),
        message=_bounded(message),
        kernel=origin.kernel,
        file=file,
        line=line,
        source=_source_line(file, line),
    )


def _frames(trace: TracebackType | None) -> Iterator[Any]:
    """Yield the frames of a traceback, innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    yield from reversed(frames)


def _referenced_construct(trace: TracebackType | None) -> tuple[Any, ast.AST] | None:
    """Return the function and the construct at which Triton's search for a kernel's dependencies stopped.

    It raises without a location; its frames hold the node, and the function whose source that is.
    """
    node: ast.AST | None = None
    for frame in _frames(trace):
        if not frame.f_code.co_filename.endswith("/triton/runtime/jit.py"):
            if node is None:
                return None
            continue
        local = frame.f_locals
        if node is None and isinstance(local.get("node"), ast.expr):
            node = local["node"]
        owner = local.get("self")
        if node is not None and isinstance(owner, JITFunction):
            return owner, node
    return None


def _of_reference(error: BaseException, function: Any, node: ast.AST) -> ErrorExcerpt:  # noqa: ANN401 - a JITFunction
    """Explain a name in a kernel that stands for something a kernel cannot use."""
    file, first, _ = definition(function)
    line = first + getattr(node, "lineno", 1) - 1
    name = ast.unparse(node)
    return ErrorExcerpt(
        type=class_name(error),
        message=_bounded(
            UNSUPPORTED_FUNCTION.format(name)
            if _is_foreign(name, function)
            else f"{name}: {_own_words(error)}"
        ),
        kernel=function.__name__,
        file=file,
        line=line,
        source=_source_line(file, line),
    )


def _is_foreign(name: str, function: Any) -> bool:  # noqa: ANN401 - a JITFunction
    """Say whether a dotted name in a kernel stands for a function that is not Triton's."""
    first, *rest = name.split(".")
    value: object = function.fn.__globals__.get(first)
    for attribute in rest:
        value = getattr(value, attribute, None)
    module = getattr(value, "__module__", None) or ""
    return callable(value) and not isinstance(value, JITFunction) and not module.startswith("triton.")


# --- errors in host code -----------------------------------------------------------------------------------------


def _of_host(error: BaseException, origin: Origin | None, author: list[str]) -> ErrorExcerpt:
    """Explain any other exception at the author's innermost line; a launch's also by its kernel."""
    file, line = _author_frame(error.__traceback__, author)
    kernel = origin.kernel if origin else _launched_kernel(error)
    if isinstance(error, SyntaxError) and error.filename in author:
        file, line = error.filename or "", error.lineno or 0
    message = _own_words(error)
    if kernel:
        message = message.replace(BINDER, f"{kernel}()")
        if origin is not None:
            message = f"{message} (while compiling {kernel})"
    if not isinstance(error, SyntaxError) and (told := _told_of_declaration(error, message)):
        message = f"{message}\nHint: {told}." if MISSING.search(message) else told
    if _called_directly(error.__traceback__):
        message = f"{message}: launch it with a grid, {kernel}[grid](...); it is a @triton.jit function"
    return ErrorExcerpt(
        type=class_name(error),
        message=_bounded(message or class_name(error)),
        kernel=kernel,
        file=file,
        line=line,
        source=_source_line(file, line),
    )


def _author_frame(trace: TracebackType | None, author: list[str]) -> tuple[str, int]:
    """Return the file and line of the innermost frame in the author's files, or ("", 0)."""
    for frame, line in reversed(list(traceback.walk_tb(trace))):
        if frame.f_code.co_filename in author:
            return frame.f_code.co_filename, line
    return "", 0


def is_declaration(error: BaseException) -> bool:
    """Tell whether an autotuner refuses how it was declared, or a heuristic asks for what its kernel does not have."""
    innermost = next(_frames(error.__traceback__), None)
    if innermost is None:
        return False
    return isinstance(innermost.f_locals.get("self"), Autotuner) or bool(_asked_by_heuristic(error))


def _told_of_declaration(error: BaseException, message: str) -> str:
    """Return what is wrong with how a kernel was declared, where that is why its launch fails; else the empty string."""
    if asked := _asked_by_heuristic(error):
        return f"a heuristic asks for argument {asked}, which the kernel does not have or is not given"
    if not MISSING.search(message):
        return ""
    function: Any = None
    for frame in _frames(error.__traceback__):
        owner, config = frame.f_locals.get("self"), frame.f_locals.get("config")
        if isinstance(owner, JITFunction):
            function = owner
        elif isinstance(owner, Autotuner) and config is not None:
            unknown = [name for name in config.kwargs if name not in owner.arg_names]
            if unknown:
                return f"the configuration sets {', '.join(unknown)}, which the kernel does not have"
    if function is not None and function.arg_names[:1] == ["self"]:
        return "the kernel is a method, and a launch passes nothing for self: define it outside of the class"
    return ""


def _asked_by_heuristic(error: BaseException) -> str:
    """Return which argument a function of triton.heuristics misses among those that it was given, or the empty string."""
    name = error.args[0] if isinstance(error, KeyError) and error.args else None
    frames = list(_frames(error.__traceback__))[:2]
    if len(frames) < 2 or not isinstance(frames[1].f_locals.get("self"), Heuristics):
        return ""
    return name if isinstance(name, str) and name in frames[0].f_code.co_consts else ""


def _launched_kernel(error: BaseException) -> str:
    """Return the name of the kernel whose launch, or whose declaration, raised; or the empty string."""
    declared = is_declaration(error)
    for frame in _frames(error.__traceback__):
        owner = frame.f_locals.get("self")
        if declared and isinstance(owner, TUNERS):
            owner = getattr(owner, "fn", frame.f_locals.get("fn"))
            while isinstance(owner, TUNERS):
                owner = owner.fn
        if isinstance(owner, JITFunction):
            name: str = owner.__name__
            return name
    return ""


def _called_directly(trace: TracebackType | None) -> bool:
    innermost = next(_frames(trace), None)
    return (
        innermost is not None
        and innermost.f_code.co_name == "__call__"
        and isinstance(innermost.f_locals.get("self"), JITFunction)
    )


def _source_line(file: str, line: int) -> str:
    return linecache.getline(file, line).strip() if file else ""


def _bounded(message: str) -> str:
    """Return a message without addresses of objects, which differ from run to run, and of bounded length."""
    message = ADDRESS.sub("", message)
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else f"{message[:MAX_MESSAGE_CHARACTERS]} …"
