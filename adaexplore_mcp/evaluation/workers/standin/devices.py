"""Read device arguments: `"cuda"`, `"cuda:0"`, `torch.device("cuda")`, `0`."""

from typing import Any

import torch

__all__ = ["CPU", "CUDA", "CUDA_0", "named_place", "names_cuda"]

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
CUDA_0 = torch.device("cuda", 0)


def names_cuda(device: Any) -> bool:  # noqa: ANN401 - whatever code passes as a device
    """Say whether a device argument means the GPU. An integer does: it is an index.

    Raises:
        RuntimeError: The index is not that of the one device there is; CUDA's own words.
    """
    index: int | None
    if isinstance(device, torch.device):
        found, index = device.type == "cuda", device.index
    elif isinstance(device, str):
        kind, _, digits = device.partition(":")
        found, index = kind == "cuda", int(digits) if digits.isdecimal() else None
    elif isinstance(device, int) and not isinstance(device, bool):
        found, index = True, device
    else:
        return False
    if found and index not in (None, 0):
        msg = f"CUDA error: invalid device ordinal: {device!r} was asked for and there is one device, cuda:0"
        raise RuntimeError(msg)
    return found


def named_place(device: Any) -> bool | None:  # noqa: ANN401 - whatever code passes as a device
    """Return the tag that a device argument stands for: True for the GPU, False for host memory, None for `meta`."""
    if names_cuda(device):
        return True
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    return False if kind == "cpu" else None
