"""Import a candidate from bytes: decoded strictly, sizes put in place, written to a file so that Triton can read it back."""

import importlib.machinery
import importlib.util
import io
import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from adaexplore_mcp.evaluation.workers import sizes
from adaexplore_mcp.evaluation.workers.trees import indefinite

__all__ = ["FILE_NAME", "CandidateModule", "load_candidate"]

FILE_NAME = "candidate.py"
MODULE_NAME = "candidate"
LONG_BYTES = 1 << 20
"""A source as long as this may want memory to be compiled; a shorter one that does nests too deeply."""


@dataclass(frozen=True)
class CandidateModule:
    """A candidate that has been imported.

    Args:
        entry: What it had to define.
        changed: Size constants that were changed in its source.
    """

    entry: Callable[..., Any]
    changed: list[str]


def load_candidate(
    folder: Path, source: bytes, changes: Sequence[Mapping[str, sizes.Change]], *, entry: str
) -> CandidateModule:
    """Write a candidate's source to a file and import it as a module of its own.

    Args:
        folder: Where the file goes.
        source: As it was sent or read.
        changes: Changes of size constants, applied one mapping after the other; those that do not fit are left out.
        entry: The class or function it must define.

    Raises:
        SyntaxError: It is not Python, not text in the encoding it declares (UTF-8 by default), or nested too deeply.
        AttributeError: It does not define the entry, or as what cannot be called.
        BaseException: Whatever its code raises.
    """
    path = folder / FILE_NAME
    text, encoding = _decoded(source, str(path))
    changed: list[str] = []
    for mapping in filter(None, changes):
        try:
            text, keys = sizes.replace(text, mapping, strict=False)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            break  # the import below says what is wrong, with the line
        changed += keys
    path.write_bytes(text.encode(encoding))
    if "\0" in text:
        raise SyntaxError(
            "source code cannot contain null bytes", (str(path), *_place(text, text.index("\0")), "")
        )
    loader = importlib.machinery.SourceFileLoader(MODULE_NAME, str(path))
    specification = importlib.util.spec_from_file_location(MODULE_NAME, path, loader=loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[MODULE_NAME] = module
    exec(_compiled(loader, path), vars(module))  # noqa: S102 - a module's own code, as importing runs it
    defined = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    if entry not in vars(module):
        own = [name for name in defined if getattr(vars(module)[name], "__module__", "") == MODULE_NAME]
        msg = f"the candidate defines no {entry}; it defines {', '.join(own[:10]) or 'nothing to call'}"
        raise AttributeError(msg)
    value = vars(module)[entry]
    if not callable(value):
        msg = f"{entry} is {indefinite(type(value).__name__)}, which cannot be called"
        raise AttributeError(msg)  # noqa: TRY004 - like one that is missing: it defines nothing to call
    return CandidateModule(value, list(dict.fromkeys(changed)))


def _compiled(loader: importlib.machinery.SourceFileLoader, path: Path) -> CodeType:
    """Compile a module's file; the parser's own limits are errors of its text."""
    try:
        return loader.source_to_code(path.read_bytes(), str(path))
    except (RecursionError, MemoryError):
        if path.stat().st_size >= LONG_BYTES:
            raise
    msg = "an expression nests too deeply for Python to compile it: give its parts names, or write a loop"
    raise SyntaxError(msg)


def _decoded(source: bytes, path: str) -> tuple[str, str]:
    """Return text and encoding: that of a coding cookie or byte order mark, else UTF-8, and strictly.

    Python reads a file one way when it runs it and another when it quotes it: one rule for all, decided here.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError as error:
        raise SyntaxError(
            f"{error.msg} (a candidate is utf-8 unless it declares otherwise)", (path, 1, 1, "")
        ) from None
    try:
        return source.decode(encoding), encoding
    except UnicodeDecodeError as error:
        line = source[: error.start].count(b"\n") + 1
        msg = f"{encoding} cannot decode byte 0x{source[error.start]:02x}: {error.reason}"
        raise SyntaxError(msg, (path, line, 1, "")) from None


def _place(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
