"""Calls that make tensors, on a device or on the default one, and what their memory holds."""

from collections.abc import Callable
from typing import Any

import torch

from .fakes import is_fake
from .functions import Args, Kwargs, existing
from .memory import fill_growth, fill_result
from .mode import DeviceMode, Handler
from .places import moved
from .tags import mark, tag_of
from .tensortypes import gives_sizes

__all__ = ["Factories"]

T = torch.Tensor


class Factories:
    """Calls that make tensors out of nothing, out of other data, or like another tensor.

    Args:
        mode: Where they are seen.
    """

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def table(self) -> dict[Callable[..., Any], Handler]:
        """Return the handlers by function."""
        made = (
            "ones zeros full arange range linspace logspace eye rand randn randint randperm scalar_tensor tril_indices"
            " triu_indices bartlett_window blackman_window hamming_window hann_window kaiser_window"
            " sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor"
            " sparse_compressed_tensor"
        )
        likes = "ones_like zeros_like full_like rand_like randn_like randint_like"
        return {
            **dict.fromkeys(existing(torch, made), self._factory),
            **dict.fromkeys(existing(torch.fft, "fftfreq rfftfreq"), self._factory),
            **dict.fromkeys(existing(torch, "empty empty_strided empty_permuted"), self._fresh_factory),
            **dict.fromkeys(existing(torch, "tensor as_tensor asarray"), self._from_data),
            **dict.fromkeys(existing(torch, likes), self._like),
            **dict.fromkeys(existing(T, "new_ones new_zeros new_full"), self._like),
            T.new_tensor: self._like,
            **dict.fromkeys(existing(torch, "empty_like"), self._fresh_like),
            **dict.fromkeys(existing(T, "new_empty new_empty_strided new"), self._fresh_like),
            T.resize_: self._resize_,
            T.resize_as_: self._resize_,
        }

    def named_place(self, kwargs: Kwargs) -> tuple[bool | None, Kwargs]:
        """Return the place that the arguments name, or None, and arguments that the CPU can serve."""
        if "pin_memory" in kwargs:
            kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
        if kwargs.get("device") is None:
            return None, kwargs
        return self.mode.explicit_place(kwargs)

    def _factory(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        by_default = kwargs.get("device") is None
        place, kwargs = self.named_place(kwargs)
        if by_default:
            place = self.mode.default_place
        self.check_generator(place, kwargs)
        result = self.mode.run(func, args, kwargs)
        mark(result, place)
        return result

    def _fresh_factory(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return self.filled(self._factory(func, args, kwargs))

    def _from_data(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if len(args) > 2:  # as_tensor(data, dtype, device)
            args, kwargs = args[:2], {**kwargs, "device": args[2]}
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        if not isinstance(data, torch.Tensor):
            result = self._factory(func, args, kwargs)
            if tag_of(result) and func is not torch.tensor and not is_fake(result):
                copied = result.clone()  # it may share its memory with an array; on the device it would not
                mark(copied, tag_of(result))
                return copied
            return result
        place, kwargs = self.named_place(kwargs)
        return moved(data, self.mode.run(func, args, kwargs), place)

    def _like(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        place, kwargs = self.named_place(kwargs) if kwargs else (None, kwargs)
        source = args[0] if args else kwargs["input"]
        result = self.mode.run(func, args, kwargs)
        mark(result, tag_of(source) if place is None else place)
        return result

    def _fresh_like(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        result = self._like(func, args, kwargs)
        holds_data = func is T.new and not gives_sizes(args[1:])
        return result if holds_data else self.filled(result)

    def _resize_(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        before = args[0].numel()
        result = func(*args, **kwargs)
        if self.mode.poison is not None and not is_fake(result):
            fill_growth(result, before, self.mode.poison)
        return result

    def filled(self, result: Any) -> Any:  # noqa: ANN401
        """Fill fresh memory."""
        if self.mode.poison is not None and not is_fake(result):
            fill_result(result, self.mode.poison)
        return result

    @staticmethod
    def check_generator(place: bool | None, kwargs: Kwargs) -> None:
        """Raise what CUDA raises for a generator of the other device."""
        generator = kwargs.get("generator")
        if generator is None or place is None:
            return
        kind = generator.device.type
        wanted = "cuda" if place else "cpu"
        if kind != wanted:
            msg = f"Expected a '{wanted}' device type for generator but found '{kind}'"
            raise RuntimeError(msg)
