"""Walk the containers that tasks and candidates pass around, and name every leaf by its path.

A value is a leaf, or a tuple, list or dict (with plain keys) of values. `x`, `xs[0]`, `batch['keep']` are paths. Subclasses
are walked as what they hold, by the methods of the plain container: one that computes while it is walked gets no turn.
"""

import gc
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

__all__ = ["CONTAINERS", "holds_tensors", "indefinite", "leaves", "map_leaves", "plain"]

CONTAINERS = (tuple, list, dict)
MAX_DEPTH = 32
MOST_OBJECTS = 100_000


def leaves(value: Any, path: str = "", *, depth: int = 0) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any task's value
    """Yield (path, leaf) in a fixed order: sequences by position, dicts by insertion.

    Raises:
        RecursionError: Containers nest deeper than 32 levels, or contain themselves.
    """
    if depth > MAX_DEPTH:
        msg = f"containers nest deeper than {MAX_DEPTH} levels"
        raise RecursionError(msg)
    if isinstance(value, dict):
        for key, item in dict.items(value):
            yield from leaves(item, f"{path}[{key!r}]", depth=depth + 1)
    elif isinstance(value, (tuple, list)):
        for position, item in enumerate(_items(value)):
            yield from leaves(item, f"{path}[{position}]", depth=depth + 1)
    else:
        yield path, value


def map_leaves(function: Callable[[str, Any], Any], value: Any, path: str = "", *, depth: int = 0) -> Any:  # noqa: ANN401
    """Return the same containers with `function(path, leaf)` in place of every leaf.

    Named tuples and other subclasses of the containers become plain ones: classes do not cross processes.
    """
    if depth > MAX_DEPTH:
        msg = f"containers nest deeper than {MAX_DEPTH} levels"
        raise RecursionError(msg)
    if isinstance(value, dict):
        return {
            key: map_leaves(function, item, f"{path}[{key!r}]", depth=depth + 1)
            for key, item in dict.items(value)
        }
    if isinstance(value, (tuple, list)):
        mapped = [
            map_leaves(function, item, f"{path}[{position}]", depth=depth + 1)
            for position, item in enumerate(_items(value))
        ]
        return tuple(mapped) if isinstance(value, tuple) else mapped
    return function(path, value)


def holds_tensors(value: object) -> bool:
    """Tell whether a tensor can be reached from an object by what it and what it holds refer to, classes and modules left out.

    Where that are more than 100,000 objects the answer is yes.
    """
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, torch.Tensor):
            return True
        if id(each) in seen or isinstance(each, (type, ModuleType)):
            continue
        seen.add(id(each))
        if len(seen) > MOST_OBJECTS:
            return True
        if isinstance(each, FunctionType):  # its globals are the module's
            waiting += [each.__closure__, each.__defaults__, each.__kwdefaults__, each.__dict__]
        else:
            waiting += gc.get_referents(each)
    return False


def _items(value: tuple[Any, ...] | list[Any]) -> Iterator[Any]:
    return tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)


def plain(leaf: object) -> str:
    """Return a leaf that is no tensor as text by which two of them are compared; at most 200 characters."""
    if leaf is None or isinstance(leaf, (bool, int, float, complex, str)):
        return repr(leaf)[:200]
    return indefinite(type(leaf).__qualname__)


def indefinite(name: str) -> str:
    """Return the name of a type with its article."""
    return f"{'an' if name.startswith(tuple('aeioAEIO')) else 'a'} {name}"
