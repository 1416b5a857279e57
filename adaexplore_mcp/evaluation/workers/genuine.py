"""Tell code that an installed file holds from code that only says so: the name of its file can be made up."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, BinaryIO

__all__ = ["is_genuine", "is_of_its_module"]

Found = dict[str, frozenset[CodeType]]


def is_genuine(code: CodeType) -> bool:
    """Tell whether the file that some code names holds it; the caller sees to it that nobody here can write that file."""
    return code in _codes(code.co_filename)


def is_of_its_module(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Tell whether code is genuine, and a namespace that of the module that its file was imported as."""
    module = sys.modules.get(str(names.get("__name__")))
    own = module is not None and vars(module) is names and names.get("__file__") == code.co_filename
    return own and is_genuine(code)


def _codes(
    file: str,
    # Defaults are looked at, names of a module that are no functions are not.
    read: Callable[..., BinaryIO] = open,
    build: Callable[..., CodeType] = compile,
    known: Found = {},  # noqa: B006 - what was found before, in this process and its parent
) -> frozenset[CodeType]:
    """Return all code in a source file: the module's, and that of every function and class within; takes 1 to 100 ms."""
    if file in known:
        return known[file]
    found: set[CodeType] = set()
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        with read(file, "rb") as source:
            left = [build(source.read(), file, "exec", dont_inherit=True)]
        while left:
            code = left.pop()
            found.add(code)
            left += [each for each in code.co_consts if isinstance(each, CodeType)]
    known[file] = frozenset(found)
    return known[file]
