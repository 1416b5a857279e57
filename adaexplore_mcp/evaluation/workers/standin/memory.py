"""Fill fresh memory with values that cannot be taken for results, so that an output left unwritten is seen.

Two fillings exist because one alone can hide behind the reference: a candidate that leaves a NaN unwritten is right
where the reference has a NaN. No value is special to both.
"""

from typing import Any, Literal

import torch

__all__ = ["Poison", "fill", "fill_growth"]

Poison = Literal["nan", "huge"]

# Large, odd, and neither a power of two nor one less: nothing computes these by accident.
INTEGERS: dict[Poison, dict[torch.dtype, int]] = {
    "nan": {
        torch.uint8: 0xD7,
        torch.int8: 0x57,
        torch.int16: 0x5A57,
        torch.int32: 0x5A5A_5A57,
        torch.int64: 0x5A5A_5A5A_5A5A_5A57,
    },
    "huge": {
        torch.uint8: 0xB3,
        torch.int8: -0x4D,
        torch.int16: -0x4C4D,
        torch.int32: -0x4C4C_4C4D,
        torch.int64: -0x4C4C_4C4C_4C4C_4C4D,
    },
}
# In the 8-bit formats: NaN of e4m3fn and e5m2, the largest of the others; or a large finite value of each.
BYTES: dict[Poison, int] = {"nan": 0x7F, "huge": 0x76}
NAN_BITS = {
    torch.float16: (torch.int16, 0x7EAD),
    torch.bfloat16: (torch.int16, 0x7FEA),
    torch.float32: (torch.int32, 0x7FC0_ADAE),
    torch.float64: (torch.int64, 0x7FF8_0000_0000_ADAE),
}
"""NaNs of our own: what a kernel computes from 0/0 has other bits, so memory never written is told from it."""
HUGE_OF_MAXIMUM = 0.8  # fits every float, and its double overflows


def fill(tensor: torch.Tensor, poison: Poison) -> None:
    """Fill a tensor of any shape and dtype in place, outside autograd."""
    if tensor.numel() == 0:
        return
    memory = tensor.detach()
    dtype = memory.dtype
    if dtype.is_complex:
        memory = torch.view_as_real(memory)
        dtype = memory.dtype
    if dtype is torch.bool:
        memory.fill_(True)
    elif dtype.is_floating_point and dtype.itemsize > 1:
        if poison == "nan" and dtype in NAN_BITS:
            integer, bits = NAN_BITS[dtype]
            memory.view(integer).fill_(bits)
        else:
            memory.fill_(float("nan") if poison == "nan" else torch.finfo(dtype).max * HUGE_OF_MAXIMUM)
    elif dtype in INTEGERS[poison]:
        memory.fill_(INTEGERS[poison][dtype])
    elif dtype.itemsize == 1 and memory.layout is torch.strided and not memory.is_quantized:
        memory.view(torch.uint8).fill_(BYTES[poison])


def fill_growth(tensor: torch.Tensor, numel_before: int, poison: Poison) -> None:
    """Fill the elements that `resize_` added behind the first `numel_before`."""
    if tensor.numel() > numel_before and tensor.is_contiguous():
        fill(tensor.detach().view(-1)[numel_before:], poison)


def fill_result(result: Any, poison: Poison) -> None:  # noqa: ANN401 - any result of torch
    """Fill a result that is a plain dense tensor; leave anything else alone."""
    if isinstance(result, torch.Tensor) and result.layout is torch.strided and result.device.type == "cpu":
        fill(result, poison)
