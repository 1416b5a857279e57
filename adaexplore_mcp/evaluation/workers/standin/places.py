"""Where tensors are: questions, moves, and the exceptions that indexing makes."""

from collections.abc import Callable
from typing import Any

import torch

from .devices import CPU, CUDA_0, named_place, names_cuda
from .errors import DeviceMismatch
from .fakes import copy_of_fake, is_fake
from .frames import Caller
from .functions import Args, Kwargs, getter
from .mode import DeviceMode, Handler
from .tags import mark, retag, tag_of, tensors_in
from .tensortypes import CUDA_TYPE_PREFIX, TensorType
from .versions import SET_DATA

__all__ = ["Indexing", "Moves", "Queries", "moved"]

T = torch.Tensor


class Queries:
    """`x.device` and its kin: the tag answers the code under test, the truth everyone else."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def table(self) -> dict[Callable[..., Any], Handler]:
        """Return the handlers by function."""
        return {
            getter("is_cuda"): self._is_cuda,
            getter("is_cpu"): self._is_cpu,
            getter("device"): self._device,
            T.get_device: self._get_device,
            torch.get_device: self._get_device,
            torch.device: self._make_device,
            getter("__cuda_array_interface__"): self._array_interface,
            T.is_pinned: self._is_pinned,
        }

    def _is_cuda(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if self.mode.asked_by_own():
            self.mode.ledger.answers["Tensor.is_cuda"] += 1
            return bool(self.mode.place_of(args[0]))
        return func(*args, **kwargs)

    def _is_cpu(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if self.mode.asked_by_own() and self.mode.place_of(args[0]):
            return False
        return func(*args, **kwargs)

    def _device(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if self.mode.place_of(args[0]) and self.mode.asked_by_own():
            self.mode.ledger.answers["Tensor.device"] += 1
            return CUDA_0
        return func(*args, **kwargs)

    def _get_device(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if self.mode.place_of(args[0]) and self.mode.asked_by_own():
            self.mode.ledger.answers["Tensor.get_device"] += 1
            return 0
        return func(*args, **kwargs)

    def _make_device(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if len(args) == 1 and type(args[0]) is int and names_cuda(args[0]):
            return CUDA_0  # a build without CUDA knows no device by its index
        return func(*args, **kwargs)

    def _is_pinned(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if "device" in kwargs or len(args) > 1:  # asks about a kind of device that is not there
            return func(args[0])
        return func(*args, **kwargs)

    def _array_interface(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        if tag_of(args[0]):
            self.mode.ledger.refuse("Tensor.__cuda_array_interface__", "it is an address in a GPU's memory")
        return func(*args, **kwargs)


def moved(source: torch.Tensor, result: torch.Tensor, place: bool | None) -> torch.Tensor:
    """Return the result of a move as a tensor of its own, unless it was there already."""
    if place is None or place == tag_of(source):
        mark(result, tag_of(source))
        return result
    if result is source:
        result = source.clone()
    retag(result, place)
    return result


class Moves:
    """Calls that name where their result is to live. On one machine's memory a move is a copy with another tag."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def table(self) -> dict[Callable[..., Any], Handler]:
        """Return the handlers by function."""
        return {
            T.to: self._to,
            T.cuda: self._cuda,
            T.cpu: self._cpu,
            T.type: self._type,
            T.type_as: self._type_as,
            T.pin_memory: self._pin_memory,
            T.copy_: self._copy_,
            T.set_: self._set_,
            SET_DATA: self._set_data,
            T.__deepcopy__: self._deepcopy,
        }

    def _to(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        source, rest = args[0], args[1:]
        place: bool | None = None
        named = rest[0] if rest else kwargs.get("device", kwargs.get("other"))
        if isinstance(named, torch.Tensor):
            place = tag_of(named)
        elif isinstance(named, (str, torch.device)) or type(named) is int:
            place = named_place(named)
            if place is False and self.mode.caller_kind() is Caller.LIBRARY:
                place = None
            elif place:
                self.mode.ledger.answers["device argument"] += 1
                if rest:
                    rest = (CPU, *rest[1:])
                else:
                    kwargs = {**kwargs, "device": CPU}
        result = self.mode.run(func, (source, *rest), kwargs)
        self._count(source, place)
        return moved(source, result, place)

    def _count(self, source: torch.Tensor, place: bool | None) -> None:
        """Count what leaves the device."""
        if place is False and tag_of(source):
            self.mode.ledger.to_host += source.numel()

    def _cuda(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        device = args[1] if len(args) > 1 else kwargs.get("device")
        if device is not None and not names_cuda(device):
            msg = f"Invalid device, must be cuda device: {device}"
            raise ValueError(msg)
        self.mode.ledger.answers["Tensor.cuda"] += 1
        source = args[0]
        if tag_of(source):
            return source
        return moved(source, source, place=True)

    def _cpu(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        self._count(args[0], place=False)
        return moved(args[0], func(*args, **kwargs), place=False)

    def _type(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        source, wanted = args[0], args[1] if len(args) > 1 else kwargs.get("dtype")
        if wanted is None:
            name: str = func(source)
            own = self.mode.place_of(source) and self.mode.asked_for_own()
            return name.replace("torch.", CUDA_TYPE_PREFIX, 1) if own else name
        if isinstance(wanted, TensorType):
            self._count(source, wanted.on_device)
            return moved(source, source.to(wanted.dtype), wanted.on_device)
        if isinstance(wanted, str):
            place = wanted.startswith(CUDA_TYPE_PREFIX)
            self._count(source, place)
            return moved(source, func(source, wanted.replace(CUDA_TYPE_PREFIX, "torch.", 1)), place)
        return self.mode.call(func, args, kwargs)

    def _type_as(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        other = args[1] if len(args) > 1 else kwargs["other"]
        self._count(args[0], tag_of(other))
        return moved(args[0], func(*args, **kwargs), tag_of(other))

    def _pin_memory(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401, ARG002
        if tag_of(args[0]):
            msg = "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
            raise RuntimeError(msg)
        self.mode.ledger.answers["pin_memory"] += 1
        return moved(args[0], args[0].clone(), place=False)

    def _copy_(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        source = args[1] if len(args) > 1 else kwargs.get("src")
        if isinstance(source, torch.Tensor):
            self._count(source, tag_of(args[0]))
        return self.mode.run(func, args, kwargs)

    def _set_(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        result = func(*args, **kwargs)
        source = args[1] if len(args) > 1 else kwargs.get("source")
        if isinstance(source, torch.Tensor):
            retag(args[0], tag_of(source))
        return result

    def _set_data(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        result = func(*args, **kwargs)
        retag(args[0], tag_of(args[1]))
        return result

    def _deepcopy(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        source, memo = args
        if not is_fake(source) or id(source) in memo:
            return self.mode.call(func, args, kwargs)
        copied = memo[id(source)] = copy_of_fake(source)  # torch's own copies the memory, and there is none
        return copied


class Indexing:
    """Indices may be in host memory while the tensor is on the device, but not the other way round."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def table(self) -> dict[Callable[..., Any], Handler]:
        """Return the handlers by function."""
        return {
            T.__getitem__: self._getitem,
            T.__setitem__: self._setitem,
            **dict.fromkeys((T.index_put_, T.index_put, torch.index_put, torch.index_put_), self._index_put),
        }

    def _getitem(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        source, index = args[0], args[1]
        place = tag_of(source)
        if place is False and any(tag_of(each) and each.dim() for each in tensors_in((index,))):
            msg = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            raise DeviceMismatch(msg)
        result = self.mode.run(func, args, kwargs)
        mark(result, place)
        return result

    def _setitem(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        return self.mode.run(func, args, kwargs)

    def _index_put(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:  # noqa: ANN401
        values = args[2] if len(args) > 2 else kwargs.get("values")
        if (
            isinstance(values, torch.Tensor)
            and values.dim()
            and {tag_of(args[0]), tag_of(values)} == {True, False}
        ):
            self.mode.mismatch(func, values if tag_of(values) is False else args[0])
        result = self.mode.run(func, args, kwargs)
        mark(result, tag_of(args[0]))
        return result
