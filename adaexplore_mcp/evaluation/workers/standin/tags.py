"""Remember for each tensor whether it would live on the device.

Every tensor is a CPU tensor here. The tag says where a GPU machine would have it: `True` on the device, `False` in host
memory, and absent where that is not known, which is the case for tensors that torch's own Python code makes on the
device it was told (it is told the truth). Unknown tensors mix with either kind. The tag is an attribute of the tensor,
so that views of it, pickles and deep copies are treated as the Python object is.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

__all__ = ["mark", "on_device", "retag", "tag_of", "tensors_in"]

TAG = "_adaexplore_on_device"
MAX_DEPTH = 4


def tag_of(tensor: torch.Tensor) -> bool | None:
    """Return True for a device tensor, False for one in host memory, None where it is not known."""
    tag: bool | None = tensor.__dict__.get(TAG)
    return tag


def on_device(tensor: torch.Tensor) -> bool:
    """Say whether a kernel may be given this tensor: not if it is known to live in host memory."""
    return tensor.__dict__.get(TAG) is not False


def mark(value: Any, tag: bool | None, depth: int = MAX_DEPTH) -> None:  # noqa: ANN401 - any result of torch
    """Tag the tensors in a result that have no tag yet; a result that is one of the inputs keeps its own."""
    if tag is None:
        return
    if isinstance(value, torch.Tensor):
        value.__dict__.setdefault(TAG, tag)
    elif isinstance(value, (tuple, list)) and depth:
        for item in value:
            mark(item, tag, depth - 1)


def retag(tensor: torch.Tensor, tag: bool | None) -> None:
    """Give a tensor another tag, or none."""
    if tag is None:
        tensor.__dict__.pop(TAG, None)
    else:
        tensor.__dict__[TAG] = tag


def tensors_in(values: Iterable[Any], depth: int = 2) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments, and those in lists, tuples and dicts among them (`torch.cat` takes a list)."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif depth and isinstance(value, (tuple, list)):
            yield from tensors_in(value, depth - 1)
        elif depth and isinstance(value, dict):
            yield from tensors_in(value.values(), depth - 1)
