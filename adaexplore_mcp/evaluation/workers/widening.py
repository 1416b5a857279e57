"""Run a reference in float64: the yardstick for everyone's rounding errors, the reference's own included."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from adaexplore_mcp.evaluation.workers.arguments import Arguments

__all__ = ["Call", "NotWidenable", "widened_call"]

Call = Callable[[Callable[..., Any], Arguments], Any]
"""How a task is called: takes (model, arguments), returns checked outputs."""

NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
CASTS = frozenset({Tensor.float, Tensor.half, Tensor.bfloat16})


class NotWidenable(Exception):  # noqa: N818 - it says what the reference is
    """The reference reads the bits of its numbers, so it means something else in another dtype."""


class _Widen(TorchFunctionMode):
    """Inside this mode, whoever asks for a narrower float gets float64."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401 - torch's signature
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever torch returns
        """Replace dtypes among the arguments of one call."""
        if func in CASTS:
            func = Tensor.double
        asked = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.dtype)]
        if func is Tensor.view and asked:
            msg = f"it views a tensor as {asked[0]}"
            raise NotWidenable(msg)
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:  # noqa: ANN401 - any argument
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def widened_call(call: Call, model: Callable[..., Any], arguments: Arguments) -> tuple[Any, Arguments]:
    """Call a reference with everything that is floating in float64.

    Args:
        call: How the task is called.
        model: The reference as it stands for the trial; it is copied, not changed.
        arguments: The inputs; they are copied, not changed.

    Returns:
        The outputs, and the arguments as they are after the call.

    Raises:
        NotWidenable: The reference depends on the bits of its dtype.
        Exception: Whatever the reference raises when its numbers are float64, such as a dtype it refuses.
    """
    wide_model = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
    wide = arguments.map(lambda _, leaf: _widened(leaf))
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widen():
            return call(wide_model, wide), wide
    finally:
        torch.set_default_dtype(default)


def _widened(leaf: Any) -> Any:  # noqa: ANN401 - any leaf
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.double() if leaf.dtype in NARROW else leaf.clone()
