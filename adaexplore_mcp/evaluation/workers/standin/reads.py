"""Values and addresses that host code takes out of tensors."""

from collections.abc import Callable
from typing import Any

import torch

from .errors import NotFakeable
from .fakes import FakeMemory, FakeValues, is_fake
from .functions import Args, Kwargs
from .mode import DeviceMode, Handler
from .tags import tag_of, tensors_in

__all__ = ["Reads"]

T = torch.Tensor


class Reads:
    """Values and addresses that host code takes out of tensors."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode
        self.memory = FakeMemory()
        self.values = FakeValues(mode.ledger)

    def table(self) -> dict[Callable[..., Any], Handler]:
        """Return the handlers by function."""
        return {
            T.data_ptr: self._data_ptr,
            T.item: self._item,
            T.tolist: self._tolist,
            T.__bool__: self._truth,
            T.is_nonzero: self._truth,
            torch.is_nonzero: self._truth,
            T.__int__: self._integer,
            T.__index__: self._integer,
            T.__float__: self._real,
            T.__complex__: self._real,
            T.numpy: self._numpy,
            T.__array__: self._numpy,
            **dict.fromkeys((torch.equal, T.equal, torch.allclose, T.allclose), self._comparison),
        }

    def _data_ptr(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return self.memory.address(args[0]) if is_fake(args[0]) else func(*args, **kwargs)

    def _known(self, func: Callable[..., Any], tensor: torch.Tensor) -> tuple[bool, Any]:
        """Return (True, the answer) where the values are there after all."""
        if tag_of(tensor):
            self.mode.ledger.to_host += tensor.numel()
        if not is_fake(tensor):
            return True, func(tensor)
        constant = self.values.known(tensor)
        return (True, func(constant)) if constant is not None else (False, None)

    def _item(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        known, answer = self._known(func, args[0])
        return answer if known else self.values.scalar(args[0])

    def _tolist(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        known, answer = self._known(func, args[0])
        return answer if known else self.values.nested(args[0])

    def _truth(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        known, answer = self._known(func, args[0])
        return answer if known else self.values.truth(args[0])

    def _integer(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        known, answer = self._known(func, args[0])
        return answer if known else max(1, int(self.values.scalar(args[0]).real))

    def _real(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        known, answer = self._known(func, args[0])
        if known:
            return answer
        value = self.values.scalar(args[0])
        return complex(value) if func is T.__complex__ else float(value.real)

    def _numpy(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        source = args[0]
        if tag_of(source) and not kwargs.get("force") and self.mode.asked_for_own():
            msg = (
                "can't convert cuda:0 device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
            raise TypeError(msg)
        if is_fake(source):
            constant = self.values.known(source)
            if constant is None:
                msg = f"numpy of a tensor of shape {tuple(source.shape)}, which has no values here"
                raise NotFakeable(msg)
            source = constant
        return func(source, *args[1:], **kwargs)

    def _comparison(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        for each in tensors_in((*args, *kwargs.values())):
            if is_fake(each):
                return self.values.truth(each)
        return self.mode.call(func, args, kwargs)
