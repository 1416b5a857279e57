"""What each function of torch means on a GPU machine, where that differs from calling it on the CPU."""

from collections.abc import Callable
from typing import Any

import torch

from .factories import Factories
from .fakes import is_fake
from .functions import Args, Kwargs, existing, getter
from .mode import DeviceMode, Handler
from .places import Indexing, Moves, Queries
from .precision import CONVOLUTION_OPERANDS, MATRIX_OPERANDS, RUNS_IN_FP32, Autocast, Tf32
from .reads import Reads
from .recurrent import recurrent_outputs
from .versions import RECURRENT, SET_GRAD_ENABLED

__all__ = ["install_handlers"]

T = torch.Tensor


def install_handlers(mode: DeviceMode, *, tf32: Tf32, autocast: Autocast) -> None:
    """Fill the mode's table."""
    for group in (
        _Plain(mode),
        Queries(mode),
        Moves(mode),
        Factories(mode),
        Indexing(mode),
        Reads(mode),
        _Arithmetic(mode, tf32, autocast),
        _Recurrent(mode),
    ):
        mode.handlers.update(group.table())


class _Plain:
    """Calls that neither take nor give tensors of a place: passed on at once, for speed."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def table(self) -> dict[Callable[..., Any], Handler]:
        attributes = (
            "shape dtype ndim requires_grad layout is_leaf _version is_quantized is_sparse is_nested itemsize"
        )
        methods = (
            "size stride dim numel nelement ndimension is_contiguous element_size storage_offset is_floating_point"
            " is_complex __len__ untyped_storage storage retain_grad __hash__ __repr__ __format__ register_hook"
        )
        functions: list[Callable[..., Any]] = [
            getter(name) for name in attributes.split() if hasattr(T, name)
        ]
        functions += [getter("grad_fn"), SET_GRAD_ENABLED]
        functions += [
            *existing(T, methods),
            *existing(
                torch, "numel is_floating_point is_complex result_type _has_compatible_shallow_copy_type"
            ),
        ]
        return dict.fromkeys(functions, self.plain)

    @staticmethod
    def plain(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return func(*args, **kwargs)


class _Arithmetic:
    """Products that TF32 would change, and functions that CUDA's autocast runs in fp32."""

    def __init__(self, mode: DeviceMode, tf32: Tf32, autocast: Autocast) -> None:
        self.mode = mode
        self.tf32 = tf32
        self.autocast = autocast

    def table(self) -> dict[Callable[..., Any], Handler]:
        return {
            **dict.fromkeys(MATRIX_OPERANDS, self._matmul),
            **dict.fromkeys(CONVOLUTION_OPERANDS, self._convolution),
            **dict.fromkeys(RUNS_IN_FP32, self._in_fp32),
        }

    def _matmul(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return self.mode.call(func, *self.tf32.matmul_operands(func, args, kwargs))

    def _convolution(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return self.mode.call(func, *self.tf32.convolution_operands(func, args, kwargs))

    def _in_fp32(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return self.mode.call(func, *self.autocast.in_fp32(args, kwargs))


class _Recurrent:
    """Recurrent layers, whose decomposition over fake tensors takes longer than their compilation."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def table(self) -> dict[Callable[..., Any], Handler]:
        return dict.fromkeys(RECURRENT, self._recurrent)

    def _recurrent(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if not is_fake(args[0]) or kwargs:
            return self.mode.call(func, args, kwargs)

        def outputs(*arguments: Any) -> Any:  # noqa: ANN401 - as of the function it replaces
            found = recurrent_outputs(arguments)
            return func(*arguments) if found is None else found

        return self.mode.call(outputs, args, kwargs)
