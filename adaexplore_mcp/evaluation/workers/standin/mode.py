"""See every call into torch: rewrite devices, follow tags, and refuse what CUDA would refuse.

A `TorchFunctionMode` is handed each call of torch's Python interface, attribute reads included, with the mode itself
switched off inside. Most calls take the common path `call`; those that mean something else on a GPU machine have a
handler of their own in a table keyed by the function object.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from .devices import CPU, named_place, names_cuda
from .errors import DeviceMismatch
from .fakes import as_not_fakeable
from .frames import Caller, Callers, passes_calls_on
from .ledger import Ledger
from .tags import mark, tag_of
from .versions import frame_above, function_modes

if TYPE_CHECKING:
    from .memory import Poison

__all__ = ["DeviceMode", "Guard", "Handler"]

SEQUENCES = frozenset({list, tuple})

Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Guard(Protocol):
    """Knows whether the candidate's code may work now."""

    working: bool

    def late(self, what: str) -> None:
        """Take note of work while it may not."""
        ...


class DeviceMode(TorchFunctionMode):
    """Answer for the GPU that is not there, call by call.

    Args:
        callers: Tells the task's and the candidate's frames from torch's.
        ledger: Where answers are counted.
    """

    def __init__(self, callers: Callers, ledger: Ledger) -> None:
        super().__init__()
        self.callers = callers
        self.ledger = ledger
        self.handlers: dict[Callable[..., Any], Handler] = {}
        self.guard: Guard | None = None
        self.poison: Poison | None = None
        """What fresh memory is filled with; read at each allocation."""
        self.calls = 0
        """How many calls it was handed so far."""
        self.default_place = False
        """Where factories without a device put their result: `torch.set_default_device("cuda")` makes it True."""
        self.default_changed = False
        self.unknown: bool | None = None
        """Where a tensor of unknown place is: C++ hands such on in a backward pass, and they are where its roots are."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401 - torch's signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever torch returns
        """Take one call of torch's interface."""
        self.calls += 1
        if self.guard is not None and not self.guard.working and self._below_own():
            self.guard.late(getattr(func, "__name__", "an operator"))
        handler = self.handlers.get(func)
        if handler is not None:
            return handler(func, args, kwargs or {})
        return self.call(func, args, kwargs or {})

    @contextmanager
    def seeing(self, *, unknown: bool | None) -> Iterator[None]:
        """See calls inside of one that was passed on, and take tensors of unknown place for those of a place."""
        before, self.unknown = self.unknown, unknown
        try:
            if self in function_modes():
                yield
            else:
                with self:
                    yield
        finally:
            self.unknown = before

    def place_of(self, tensor: torch.Tensor) -> bool | None:
        """Return the tag of a tensor, or what is thought of those that have none."""
        tag = tag_of(tensor)
        return self.unknown if tag is None else tag

    def caller(self) -> FrameType:
        """Return the frame that called torch; for use in a handler, however deep in it."""
        frame = frame_above(1)
        while frame.f_code is not _TORCH_FUNCTION and frame.f_back is not None:
            frame = frame.f_back
        frame = frame.f_back or frame
        # Inside `with torch.device(...)` a mode of torch's own passes each call on.
        return frame.f_back or frame if passes_calls_on(frame) else frame

    def caller_kind(self) -> Caller:
        """Return whose code called torch."""
        return self.callers.kind(self.caller())

    def asked_by_own(self) -> bool:
        """Say whether the task's or the candidate's own line made the call."""
        return self.callers.is_own(self.caller())

    def _below_own(self) -> bool:
        """Say whether any line of the task's or the candidate's is being run."""
        frame: FrameType | None = frame_above(1)
        while frame is not None:
            if self.callers.is_own(frame):
                return True
            frame = frame.f_back
        return False

    def asked_for_own(self) -> bool:
        """Say the same when torch's Python code may stand in between."""
        return self.callers.acts_for_own(self.caller())

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call `func`; its result is on the device if it was sent there or any argument is.

        Raises:
            DeviceMismatch: Tensors of both places among the arguments, other than 0-dimensional ones in host memory.
        """
        place = None
        if kwargs:
            if kwargs.get("device") is not None:
                place, kwargs = self.explicit_place(kwargs)
            on_device, in_host = _places((*args, *kwargs.values()))
        else:
            on_device, in_host = _places(args)
        if torch.device in map(type, args):
            place, args = self._positional_place(args)
        if on_device and in_host is not None and place is None and in_host.dim():
            self.mismatch(func, in_host)
        result = self.run(func, args, kwargs)
        if place is None:
            in_memory = in_host is not None and (in_host.dim() or not self.unknown)
            place = on_device or (False if in_memory else None)
        mark(result, place)
        return result

    def _positional_place(self, args: tuple[Any, ...]) -> tuple[bool | None, tuple[Any, ...]]:
        """Return the place that a device among the arguments names, and arguments that name the CPU."""
        named = [names_cuda(value) if isinstance(value, torch.device) else False for value in args]
        if not any(named):
            return None, args
        self.ledger.answers["device argument"] += 1
        return True, tuple(CPU if cuda else value for value, cuda in zip(args, named, strict=True))

    @staticmethod
    def run(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call `func`, turning what fake tensors cannot do into `NotFakeable`."""
        try:
            return func(*args, **kwargs)
        except Exception as error:
            refusal = as_not_fakeable(error, func)
            if refusal is not None:
                raise refusal from error
            raise

    def explicit_place(self, kwargs: dict[str, Any]) -> tuple[bool | None, dict[str, Any]]:
        """Return the place that `kwargs["device"]` names, and arguments that name the CPU instead.

        When torch's own code names the CPU it repeats what it was told of a tensor, which says nothing.
        """
        device = kwargs["device"]
        place = named_place(device)
        if place:
            self.ledger.answers["device argument"] += 1
            return True, {**kwargs, "device": CPU}
        if place is False and self.caller_kind() is Caller.LIBRARY:
            return None, kwargs
        return place, kwargs

    def mismatch(self, func: Callable[..., Any], in_host: torch.Tensor) -> None:
        """Raise what CUDA raises for tensors of two places, and say which call and which tensor it was.

        Raises:
            DeviceMismatch: Always.
        """
        self.ledger.answers["device mismatch"] += 1
        name = getattr(func, "__name__", str(func))
        msg = (
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"({name}: a tensor of shape {tuple(in_host.shape)} is in host memory)"
        )
        raise DeviceMismatch(msg)


def _places(values: tuple[Any, ...]) -> tuple[bool, torch.Tensor | None]:
    """Return whether any tensor is on the device, and one that is in host memory, with dimensions if there is such.

    Lists and tuples are looked into, since `torch.cat` and its kin take them.
    """
    on_device = False
    in_host: torch.Tensor | None = None
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors: Any = (value,)
        elif type(value) in SEQUENCES:
            tensors = value
        else:
            continue
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                continue
            tag = tag_of(tensor)
            if tag:
                on_device = True
            elif tag is False and (in_host is None or tensor.dim()):
                in_host = tensor
    return on_device, in_host


_TORCH_FUNCTION = DeviceMode.__torch_function__.__code__
