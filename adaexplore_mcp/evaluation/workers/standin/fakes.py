"""Let fake tensors stand in for real ones: pointers without memory, values that are assumed, modules that convert.

A fake tensor has a shape, a dtype and strides, but no values (`torch._subclasses.fake_tensor`). Host code that reads
a value is given an assumed one, counted as `value_assumed`, since most such code only chooses between equals; code that
cannot go on without the true one, or asks again and again, raises `NotFakeable`, and its caller can run it again with
real tensors.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from .devices import CUDA_0
from .errors import NotFakeable
from .frames import Callers
from .ledger import Ledger
from .patches import Patches
from .tags import mark, tag_of
from .versions import apply_to_module, frame_above, own_buffers, own_parameters

__all__ = ["FakeMemory", "FakeValues", "as_not_fakeable", "copy_of_fake", "is_fake"]

# A GPU's allocations are aligned to 512 bytes; Triton specialises on a multiple of 16.
FIRST_ADDRESS = 1 << 44
ALIGNMENT = 512
MAX_ASSUMED_LIST = 1 << 16
MOST_ASSUMED = 1000  # a loop that waits for another answer than the one assumed never ends

_NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


def is_fake(value: Any) -> bool:  # noqa: ANN401 - any value
    """Say whether a value is a fake tensor."""
    return isinstance(value, FakeTensor)


def copy_of_fake(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor, or parameter, of the same shape, dtype, strides and place in a storage of its own."""
    copied = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        copied = torch.nn.Parameter(copied, tensor.requires_grad)
    else:
        copied.requires_grad_(tensor.requires_grad)
    mark(copied, tag_of(tensor))
    return copied


def as_not_fakeable(error: Exception, func: Callable[..., Any]) -> NotFakeable | None:
    """Return what to raise instead, if an error says that fake tensors cannot carry `func`."""
    if not isinstance(error, _NEEDS_VALUES):
        return None
    name = getattr(func, "__name__", str(func))
    return NotFakeable(f"{name} needs the values of its tensors, and these have none: {type(error).__name__}")


class FakeMemory:
    """Addresses for tensors without memory: distinct per storage, aligned, and right for views."""

    def __init__(self) -> None:
        self._addresses: WeakKeyDictionary[torch.UntypedStorage, int] = WeakKeyDictionary()
        self._next = FIRST_ADDRESS

    def address(self, tensor: torch.Tensor) -> int:
        """Return the made-up address in bytes of a fake tensor's first element."""
        storage = tensor.untyped_storage()
        base = self._addresses.get(storage)
        if base is None:
            base = self._addresses[storage] = self._next
            self._next += (storage.nbytes() // ALIGNMENT + 1) * ALIGNMENT
        return base + int(tensor.storage_offset()) * tensor.element_size()


class FakeValues:
    """Values that host code reads from tensors that have none."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._run: Any = None
        self._assumed = 0

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the real tensor behind a fake one that was made from Python numbers, if torch kept it."""
        constant: torch.Tensor | None = getattr(tensor, "constant", None)
        return constant

    def scalar(self, tensor: torch.Tensor) -> bool | int | float | complex:
        """Return the value assumed for one element: True, 1, 0.5 or 0.5 + 0j by dtype.

        Raises:
            NotFakeable: A thousand were assumed in this run.
        """
        self._assume(tensor)
        if tensor.dtype is torch.bool:
            return True
        if tensor.dtype.is_complex:
            return 0.5 + 0j
        return 0.5 if tensor.dtype.is_floating_point else 1

    def nested(self, tensor: torch.Tensor) -> Any:  # noqa: ANN401 - a scalar or nested lists of them
        """Return what `tolist` would, every element assumed.

        Raises:
            NotFakeable: The tensor has more than 65,536 elements, or as for `scalar`.
        """
        if tensor.numel() > MAX_ASSUMED_LIST:
            msg = f"tolist of a tensor of {tensor.numel()} elements, which has no values here"
            raise NotFakeable(msg)
        value = self.scalar(tensor)

        def build(shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - as above
            return [build(shape[1:]) for _ in range(shape[0])] if shape else value

        return build(tuple(tensor.shape))

    def truth(self, tensor: torch.Tensor) -> bool:
        """Return the answer assumed for a comparison of whole tensors: they agree.

        Raises:
            NotFakeable: A thousand were assumed in this run.
        """
        self._assume(tensor)
        return True

    def _assume(self, tensor: torch.Tensor) -> None:
        run = getattr(tensor, "fake_mode", None)  # each run has a mode of its own
        if run is not self._run:
            self._run, self._assumed = run, 0
        self._assumed += 1
        if self._assumed > MOST_ASSUMED:
            msg = f"host code read more than {MOST_ASSUMED:,} values of tensors that have none here"
            raise NotFakeable(msg)
        self._ledger.answers["value_assumed"] += 1
        self._ledger.note("host code read values of fake tensors; values were assumed for them")


def patch_fake_tensors(
    patches: Patches, callers: Callers, place_of: Callable[[torch.Tensor], bool | None], ledger: Ledger
) -> None:
    """Make fake tensors tell the code under test that they are on `cuda`, and let modules of them be converted.

    `FakeTensor.device` is a property of Python's, which no function mode sees. `nn.Module._apply` swaps a fake
    parameter with its converted copy, which fails as soon as anything refers to it weakly; here it is replaced.
    """
    true_device: property = vars(FakeTensor)["device"]

    def device(tensor: FakeTensor) -> torch.device:
        if place_of(tensor) and callers.is_own(frame_above(1)):
            ledger.answers["Tensor.device"] += 1
            return CUDA_0
        answer: torch.device = true_device.__get__(tensor)
        return answer

    patches.replace(FakeTensor, "device", property(device, true_device.fset))

    def apply(
        module: torch.nn.Module,
        fn: Callable[[torch.Tensor], torch.Tensor],
        recurse: bool = True,
    ) -> torch.nn.Module:
        if not any(is_fake(each) for each in (*module.parameters(), *module.buffers())):
            return apply_to_module(module, fn, recurse)  # type: ignore[no-any-return]  # an untyped function of torch
        converted: dict[int, Any] = {}
        for each in module.modules() if recurse else [module]:
            _convert(each, fn, converted)
        return module

    patches.replace(torch.nn.Module, "_apply", apply)


def _convert(
    module: torch.nn.Module,
    fn: Callable[[torch.Tensor], torch.Tensor],
    converted: dict[int, Any],
) -> None:
    """Replace a module's own parameters and buffers; one that modules share stays shared."""
    for name, parameter in own_parameters(module).items():
        if parameter is None:
            continue
        if id(parameter) not in converted:
            with torch.no_grad():
                result = fn(parameter)
            if result is not parameter:
                result = torch.nn.Parameter(result, parameter.requires_grad)
                mark(result, tag_of(parameter))
            converted[id(parameter)] = result
        own_parameters(module)[name] = converted[id(parameter)]
    for name, buffer in own_buffers(module).items():
        if buffer is not None:
            own_buffers(module)[name] = fn(buffer)
