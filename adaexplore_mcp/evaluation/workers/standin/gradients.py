"""Backward passes: what is called there is seen too, and is given tensors of the device."""

from collections.abc import Callable
from typing import Any

import torch

from .mode import DeviceMode
from .patches import Patches
from .tags import mark
from .versions import RUN_BACKWARD

__all__ = ["patch_gradients"]


def patch_gradients(patches: Patches, mode: DeviceMode) -> None:
    """See calls of `torch.autograd.Function.backward` and of hooks until `patches` are undone.

    torch calls its engine with the mode switched off, and the engine hands that on to whatever it calls.
    """
    for owner in (torch.autograd, torch.autograd.graph):
        patches.replace_existing(owner, RUN_BACKWARD, _seen(mode, getattr(owner, RUN_BACKWARD)))


def _seen(mode: DeviceMode, run: Callable[..., Any]) -> Callable[..., Any]:
    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - tensors or edges, and options
        on_device = any(isinstance(root, torch.Tensor) and mode.place_of(root) for root in roots)
        with mode.seeing(unknown=True if on_device else None):
            gradients = run(roots, *args, **kwargs)
        mark(gradients, True if on_device else None)
        return gradients

    return run_backward
