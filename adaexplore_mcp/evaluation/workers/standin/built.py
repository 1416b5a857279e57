"""What a build of torch with CUDA has outside `torch.cuda`'s public names, and one without it lacks.

The code that Inductor and FlagGems generate begins with these: the current stream as a number, guards of a device,
allocation by sizes and strides, the table of devices' interfaces. `torch._C._cuda_getDeviceCount` stays missing: by it
torch's own code tells such a build.
"""

import sys
from typing import Any

import torch

from .devices import CUDA_0
from .ledger import Ledger
from .patches import Patches
from .streams import DEFAULT_STREAM, WORK, DeviceGuard, Stream, StreamContext
from .tags import mark, tag_of

__all__ = ["patch_built"]

CUDA_VERSION = "12.8"
GUARDS: Any = torch._C._dynamo.guards  # noqa: SLF001 - where the code that Inductor generates allocates
INTERFACES = "torch._dynamo.device_interface"
"""Imported by whoever makes a fake tensor, and so by `warm_up`."""
OF_TORCH_CUDA = (
    "device Event Stream current_device set_device device_count stream current_stream set_stream synchronize"
    " get_device_properties is_bf16_supported memory_allocated"
)
"""What the interface for `cuda` took from there when it was imported."""


def patch_built(patches: Patches, ledger: Ledger) -> None:
    """Add what is lacking until `patches` are undone; `torch.cuda` has been patched."""
    patches.replace(torch.version, "cuda", torch.version.cuda or CUDA_VERSION)
    _patch_bindings(patches, ledger)
    _patch_allocation(patches, ledger)
    _patch_interface(patches)


def _patch_bindings(patches: Patches, ledger: Ledger) -> None:
    """Answer for functions of C++ that take the index of a device."""

    def ids_of(stream: Any) -> tuple[int, int, int]:  # noqa: ANN401 - a stream
        return stream.stream_id, stream.device_index, stream.device_type

    def current_stream(device: int = 0) -> tuple[int, int, int]:  # noqa: ARG001 - torch's signature
        return ids_of(StreamContext.current[-1])

    def default_stream(device: int = 0) -> tuple[int, int, int]:  # noqa: ARG001 - torch's signature
        return ids_of(DEFAULT_STREAM)

    def set_stream(stream_id: int, device_index: int = 0, device_type: int = 1) -> None:  # noqa: ARG001 - torch's signature
        StreamContext.current[-1] = Stream(handle=stream_id)

    def raw_stream(device: int = 0) -> int:  # noqa: ARG001 - torch's signature
        ledger.answers["torch._C._cuda_getCurrentRawStream"] += 1
        return int(StreamContext.current[-1].cuda_stream)

    def device_of(device: int = 0) -> int:  # noqa: ARG001 - torch's signature
        return 0

    def nothing(*args: Any) -> None:  # noqa: ANN401, ARG001 - as torch's, whatever they are
        return None

    answers = {
        "_cuda_getCurrentRawStream": raw_stream,
        "_cuda_getCurrentStream": current_stream,
        "_cuda_getDefaultStream": default_stream,
        "_cuda_setStream": set_stream,
        "_cuda_getDevice": device_of,
        "_cuda_exchangeDevice": device_of,
        "_cuda_maybeExchangeDevice": device_of,
        "_cuda_setDevice": nothing,
        "_cuda_init": nothing,
        "_cuda_emptyCache": nothing,
        "_cuda_synchronize": WORK.all_awaited,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_isCurrentStreamCapturing": lambda: False,
    }
    for name, answer in answers.items():
        patches.replace(torch._C, name, answer)  # noqa: SLF001 - the names in question
    patches.replace(torch.cuda, "_exchange_device", device_of)
    patches.replace(torch.cuda, "_maybe_exchange_device", device_of)
    patches.replace(torch.cuda, "_DeviceGuard", DeviceGuard)


def _patch_allocation(patches: Patches, ledger: Ledger) -> None:
    """Let Inductor's allocator give memory of the device, filled as all fresh memory is, and views stay where they are."""
    reinterpret = GUARDS._reinterpret_tensor  # noqa: SLF001 - torch's name

    def empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:  # noqa: ANN401 - as torch's
        ledger.answers["empty_strided_cuda"] += 1
        return torch.empty_strided(size, stride, dtype=dtype, device=CUDA_0)

    def reinterpreted(base: torch.Tensor, *layout: Any) -> torch.Tensor:  # noqa: ANN401 - sizes, strides and an offset
        view: torch.Tensor = reinterpret(base, *layout)
        mark(view, tag_of(base))
        return view

    patches.replace(GUARDS, "_empty_strided_cuda", empty_strided)
    patches.replace(GUARDS, "_reinterpret_tensor", reinterpreted)


def _patch_interface(patches: Patches) -> None:
    """Let the interface that is registered for `cuda` be that of the device."""
    if (module := sys.modules.get(INTERFACES)) is None:
        return
    interface = module.CudaInterface
    for name in OF_TORCH_CUDA.split():
        held = getattr(torch.cuda, name)
        patches.replace_existing(interface, name, held if isinstance(held, type) else staticmethod(held))
    for name in ("current_device", "set_device", "get_device_properties"):
        patches.replace_existing(interface.Worker, name, staticmethod(getattr(torch.cuda, name)))
    for name in ("exchange_device", "maybe_exchange_device"):
        patches.replace_existing(interface, name, staticmethod(getattr(torch.cuda, f"_{name}")))
    raw_stream = torch._C._cuda_getCurrentRawStream  # noqa: SLF001 - ours
    patches.replace(interface, "get_raw_stream", staticmethod(raw_stream))
    patches.replace(interface, "is_available", staticmethod(lambda: True))
