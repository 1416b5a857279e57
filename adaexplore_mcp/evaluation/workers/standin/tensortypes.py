"""`torch.cuda.FloatTensor` and its kin: legacy names that are at once constructors, types and dtypes."""

from numbers import Integral
from typing import Any

import torch

from .patches import Patches
from .tags import retag, tag_of

__all__ = ["CUDA_TYPE_PREFIX", "TensorType", "gives_sizes", "patch_tensor_types"]

CUDA_TYPE_PREFIX = "torch.cuda."

DTYPES: dict[str, torch.dtype] = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


def gives_sizes(args: tuple[Any, ...]) -> bool:
    """Say whether a legacy constructor takes its arguments for sizes: integers or a `torch.Size`, not a list of them."""
    return all(isinstance(size, Integral) for size in args) or isinstance(args[0], torch.Size)


def _sizes(args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - any sequence of integers
    if args and isinstance(args[0], torch.Size):
        return args[0]
    return args or (0,)


class TensorType(type):
    """A legacy tensor type: `isinstance` asks for dtype and place, a call makes a tensor there."""

    dtype: torch.dtype
    on_device: bool

    def __instancecheck__(cls, instance: object) -> bool:
        """Say whether a value is a tensor of this dtype in this place."""
        return (
            isinstance(instance, torch.Tensor)
            and instance.dtype is cls.dtype
            and bool(tag_of(instance)) is cls.on_device
        )

    def __call__(cls, *args: Any, size: Any = None, device: Any = None) -> torch.Tensor:  # noqa: ANN401, ARG002 - as torch takes them
        """Make a tensor of the given sizes, or from the given data.

        Raises:
            TypeError: The data is a tensor of another type or place.
        """
        if size is not None or gives_sizes(args):
            made = torch.empty(_sizes(args) if size is None else size, dtype=cls.dtype)
        elif isinstance(args[0], torch.Tensor):
            made = args[0].detach()
            if made.dtype is not cls.dtype or tag_of(made) is (not cls.on_device):
                msg = f"expected a tensor of type {cls.__module__}.{cls.__name__} (got {made.type()})"
                raise TypeError(msg)
        else:
            made = torch.tensor(args[0], dtype=cls.dtype)
        retag(made, cls.on_device)
        return made


def patch_tensor_types(patches: Patches) -> None:
    """Let `torch.cuda.FloatTensor(3)`, `isinstance(x, torch.cuda.FloatTensor)` and `x.type(...)` work."""
    for name, dtype in DTYPES.items():
        namespace = {"dtype": dtype, "on_device": True, "__module__": "torch.cuda"}
        patches.replace(torch.cuda, name, TensorType(name, (), namespace))
