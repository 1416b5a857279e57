"""Name functions of torch as a function mode is handed them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["Args", "Kwargs", "existing", "getter"]

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def existing(owner: Any, names: str) -> Iterator[Callable[..., Any]]:  # noqa: ANN401 - a module or class of torch
    """Yield those of the named functions that this version of torch has."""
    return (getattr(owner, name) for name in names.split() if hasattr(owner, name))


def getter(name: str) -> Callable[..., Any]:
    """Return the function that reading an attribute of a tensor calls."""
    function: Callable[..., Any] = getattr(torch.Tensor, name).__get__
    return function
