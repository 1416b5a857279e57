"""`torch.cuda.FloatTensor` and its kin: legacy names that are at once constructors, types and dtypes."""

from typing import Any

import torch

from .patches import Patches
from .tags import retag, tag_of

__all__ = ["CUDA_TYPE_PREFIX", "TensorType", "patch_tensor_types"]

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

    def __call__(cls, *args: Any) -> torch.Tensor:  # noqa: ANN401 - sizes or data, as torch takes them
        """Make a tensor of the given sizes, or from the given data."""
        if args and not all(isinstance(size, int) for size in args):
            made = torch.tensor(args[0], dtype=cls.dtype)
        else:
            made = torch.empty(args or (0,), dtype=cls.dtype)
        retag(made, cls.on_device)
        return made


def patch_tensor_types(patches: Patches) -> None:
    """Let `torch.cuda.FloatTensor(3)`, `isinstance(x, torch.cuda.FloatTensor)` and `x.type(...)` work."""
    for name, dtype in DTYPES.items():
        namespace = {"dtype": dtype, "on_device": True, "__module__": "torch.cuda"}
        patches.replace(torch.cuda, name, TensorType(name, (), namespace))
