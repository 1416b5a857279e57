"""Turn what a stranger's code raised into data: what kind of failure, and the line of its own source.

Classified by the class of the exception and by the phase it came from, not by words in its text: the text is the
stranger's too. Two exceptions to that, which only their text tells apart: torch's CPU allocator raises a plain RuntimeError,
and a build of torch without CUDA says so in whatever class is at hand.
"""

import contextlib
import errno
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar

import torch

__all__ = ["FailureKind", "class_name", "describe", "shorten"]

_E = TypeVar("_E", bound=BaseException)
FailureKind = Literal["syntax", "import", "build", "exception", "memory", "exit", "no_space", "not_here"]

BUILDER = str(Path(torch.__file__).parent / "utils" / "cpp_extension.py")
ALLOCATORS = (
    "DefaultCPUAllocator",
    "Triton Error [CUDA]: out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Torch's CPU allocator, the CUDA driver and cuBLAS raise a plain RuntimeError, which only its text tells apart."""
WITHOUT_CUDA = re.compile(
    r"Torch not compiled with CUDA enabled"
    r"|PyTorch (?:was )?compiled without (?:CUDA support|support for the specified device)"
    r"|Could not find an active GPU backend"
    r"|Cannot access accelerator device when none is available"
    r"|0 active drivers \(\[\]\)"
    r"|Could not run '[^']+' with arguments from the 'C(?:PU|UDA)' backend"
    r"|(?:has no attribute|cannot import name) '(?P<name>_cuda_\w+)'"
)
"""What torch and Triton say where CUDA is asked for, or an operator that it alone has, and there is none."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
MESSAGE_CHARACTERS = 1200
NAME_CHARACTERS = 100
TRACEBACK_CHARACTERS = 16_000
LOADING = (ImportError, NameError, AttributeError)
"""While a module loads, these say that it refers to what does not exist: it cannot be compiled into anything."""


def shorten(text: str, limit: int) -> str:
    """Return head and tail of a long text, and how much was cut."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters cut … {text[-half:]}"


def describe(
    error: BaseException,
    file: str,
    *,
    phase: str,
    not_here: tuple[type[BaseException], ...] = (),
    without_gpu: bool = False,
) -> dict[str, Any]:
    """Describe an exception that a candidate's or task's code raised.

    Args:
        error: As caught.
        file: Path of that code's own file; the innermost frame in it is the line that is reported.
        phase: load, construct or run.
        not_here: Exceptions that say the machine, not the code, is at fault.
        without_gpu: What torch and Triton say where there is no CUDA says so too.

    Returns:
        kind, phase, type, message, line (from 1, 0 if unknown), source, traceback.
    """
    try:
        return _described(error, file, phase, not_here, without_gpu=without_gpu)
    except BaseException as broken:  # noqa: BLE001 - a stranger's exception may raise or exit wherever it is touched
        return {
            "kind": "exception",
            "phase": phase,
            "type": class_name(error),
            "message": f"<it cannot be described: that raises {class_name(broken)}>",
            "line": 0,
            "source": "",
            "traceback": "",
        }


def _described(
    error: BaseException,
    file: str,
    phase: str,
    not_here: tuple[type[BaseException], ...],
    *,
    without_gpu: bool,
) -> dict[str, Any]:
    line, source = _location(error, file)
    kind, message = _kind(error, phase, not_here), _message(error)
    if without_gpu and kind != "not_here" and (asked := _asked_for_cuda(error, source.strip()[:200])):
        kind, message = "not_here", asked
    return {
        "kind": kind,
        "phase": phase,
        "type": class_name(error),
        "message": shorten(message, MESSAGE_CHARACTERS),
        "line": line,
        "source": shorten(source.strip(), 200),
        "traceback": shorten(_traceback(error), TRACEBACK_CHARACTERS),
    }


def class_name(error: BaseException) -> str:
    """Return the name of its class, past whatever a metaclass makes of it, cut."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name[:NAME_CHARACTERS]


def _is(error: BaseException, kinds: type[_E] | tuple[type[_E], ...]) -> TypeGuard[_E]:
    """Tell what it is by its type: `isinstance` asks the object too."""
    return issubclass(type(error), kinds)


def _kind(error: BaseException, phase: str, not_here: tuple[type[BaseException], ...]) -> FailureKind:
    if any(_is(each, not_here) for each in _chain(error)):
        return "not_here"
    if any(_is(each, OSError) and each.errno in NO_SPACE for each in _chain(error)):
        return "no_space"
    if _is(error, (MemoryError, torch.OutOfMemoryError)) or _allocator_refused(error):
        return "memory"
    if _is(error, SystemExit):
        return "exit"
    if _is(error, SyntaxError):
        return "syntax"
    if phase == "load" and _is(error, LOADING):
        return "import"
    if phase == "load" and _from_builder(error):
        return "build"
    return "exception"


def _allocator_refused(error: BaseException) -> bool:
    """Tell whether an allocator raised this, by its text: whoever forges it is called out of memory, no more."""
    return _is(error, RuntimeError) and any(each in _message(error)[:400] for each in ALLOCATORS)


def _asked_for_cuda(error: BaseException, source: str) -> str:
    """Say what needs a GPU, where torch or Triton raised this for want of one: whoever forges it is not judged, no more."""
    for each in _chain(error):
        text = _message(each)
        if (found := WITHOUT_CUDA.search(text[:400])) is not None:
            name = found["name"]
            asked = f"torch._C.{name}" if name else source or "CUDA"
            return f"{asked} is not available without a GPU: {text}"
    return ""


def _from_builder(error: BaseException) -> bool:
    """Tell whether torch's builder of C++ and CUDA extensions raised this."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == BUILDER


def _build_errors(text: str) -> str:
    """Return the compiler's errors out of all it printed; the whole text where none is found."""
    errors = [line for line in text.splitlines() if "error" in line and "Error building" not in line]
    return "\n".join(errors[:12]) or text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001 - a stranger's __str__ may raise anything
        text = f"<its __str__ raised {class_name(broken)}>"
    if _is(error, SystemExit):
        return f"the code called exit({text})"
    if _from_builder(error):
        return _build_errors(text)
    if _is(error, SyntaxError) and error.text and error.offset:
        return f"{error.msg}: {error.text.rstrip()[:200]}"
    return text


def _location(error: BaseException, file: str) -> tuple[int, str]:
    if _is(error, SyntaxError) and error.filename == file:
        return error.lineno or 0, error.text or ""
    for each in _chain(error):
        frames = [frame for frame in traceback.extract_tb(each.__traceback__) if frame.filename == file]
        if frames:
            line = frames[-1].lineno or 0
            return line, frames[-1].line or _line_of(file, line)
    return 0, ""


def _line_of(file: str, line: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[line - 1]
    return ""


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-30))
    except BaseException as broken:  # noqa: BLE001 - formatting calls a stranger's methods
        return f"{class_name(error)} (its traceback cannot be formatted: {class_name(broken)})"
