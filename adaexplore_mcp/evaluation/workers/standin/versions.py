"""Everything here that reaches into torch's inside, or differs between torch 2.8 and 2.13."""
# ruff: noqa: SLF001 - torch has no public names for these

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch

__all__ = [
    "PARSER_OF_TO",
    "PARSE_TO",
    "RECURRENT",
    "RUN_BACKWARD",
    "SCRIPT_CALLABLES",
    "SET_DATA",
    "SET_GRAD_ENABLED",
    "Tf32Switches",
    "apply_to_module",
    "fake_kernel",
    "frame_above",
    "function_modes",
    "own_buffers",
    "own_parameters",
    "tf32_switches",
]

PARSER_OF_TO = torch._C._nn
"""The module that reads the arguments of `nn.Module.to`, by its function `PARSE_TO`."""
PARSE_TO = "_parse_to"
SET_GRAD_ENABLED = torch._C._set_grad_enabled
SET_DATA: Callable[..., Any] = getattr(torch.Tensor.data, "__set__")  # noqa: B009 - a descriptor, though typed as a tensor
"""What `x.data = y` calls."""
RUN_BACKWARD = "_engine_run_backward"
"""The function through which `torch.autograd` calls its engine."""
SCRIPT_CALLABLES: tuple[type, ...] = (torch._C.ScriptFunction, torch._C.ScriptMethod)
RECURRENT: tuple[Callable[..., Any], ...] = tuple(
    getattr(torch._C._VariableFunctions, name) for name in ("gru", "rnn_tanh", "rnn_relu", "lstm")
)

apply_to_module: Callable[..., Any] = torch.nn.Module._apply


def own_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """Return the parameters that a module itself holds, to be changed in place."""
    return module._parameters


def own_buffers(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """Return the buffers that a module itself holds, to be changed in place."""
    return module._buffers


def frame_above(depth: int) -> FrameType:
    """Return the frame `depth` calls above whoever calls this."""
    return sys._getframe(depth + 1)


def fake_kernel(operator: str) -> Any:  # noqa: ANN401 - a holder of torch's
    """Return what was registered to tell shapes of an operator; None where nothing was."""
    return torch._library.simple_registry.singleton.find(operator).fake_impl.kernel


def function_modes() -> list[Any]:
    """Return the function modes that are on, the innermost last."""
    modes: list[Any] = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return modes


class Tf32Switches(Protocol):
    """Whether torch may use TF32 on a GPU."""

    def matmul(self) -> bool:
        """Say so for matrix products."""

    def convolution(self) -> bool:
        """Say so for convolutions."""

    def allow(self, *, matmul: bool, convolution: bool) -> None:
        """Set both."""

    def allow_matmul(self, *, allowed: bool) -> None:
        """Set that for matrix products, by the function that leaves the CPU's own products alone."""


class _Flags:
    """Before torch 2.9: one flag for matrix products, one for cuDNN."""

    def matmul(self) -> bool:
        return bool(torch._C._get_cublas_allow_tf32())

    def convolution(self) -> bool:
        return bool(torch._C._get_cudnn_allow_tf32())

    def allow(self, *, matmul: bool, convolution: bool) -> None:
        torch._C._set_cublas_allow_tf32(matmul)
        torch._C._set_cudnn_allow_tf32(convolution)

    def allow_matmul(self, *, allowed: bool) -> None:
        torch._C._set_cublas_allow_tf32(allowed)


class _Precisions(_Flags):
    """From torch 2.9 on: a precision per operator. The flags' getters raise once code has set a precision."""

    def matmul(self) -> bool:
        return bool(torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32")

    def convolution(self) -> bool:
        return bool(torch._C._get_fp32_precision_getter("cuda", "conv") == "tf32")

    def allow(self, *, matmul: bool, convolution: bool) -> None:
        # First undo what code set by the new functions: the flags refuse to be mixed with it.
        torch._C._set_fp32_precision_setter("generic", "all", "none")
        torch._C._set_fp32_precision_setter("cuda", "all", "none")
        torch._C._set_fp32_precision_setter("cuda", "matmul", "tf32" if matmul else "none")
        super().allow(matmul=matmul, convolution=convolution)


def tf32_switches() -> Tf32Switches:
    """Return this version's switches."""
    return _Precisions() if hasattr(torch._C, "_get_fp32_precision_getter") else _Flags()
