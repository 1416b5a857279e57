"""What Triton's runtime asks its driver, answered by the interpreter; autotuners ask the current call (`workers.tuning`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from adaexplore_mcp.evaluation.workers.interpreter.findings import NotInterpretable
from adaexplore_mcp.evaluation.workers.interpreter.versions import triton
from adaexplore_mcp.evaluation.workers.tuning import Tuning, direct_autotuners

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_DEVICE_PROPERTIES", "install_driver"]

DEFAULT_DEVICE_PROPERTIES: dict[str, int] = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}
"""What Triton's driver says about an H200, in its own units; kernels size persistent grids by it."""


class Device(Protocol):
    """What the driver and the autotuners ask: the interpreter, at the moment of the question."""

    capability: int
    device_properties: Mapping[str, int]
    tuning: Tuning


class _Utilities:
    """What Triton's compiled driver module offers to Python."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return dict(self._device.device_properties)

    def set_printf_fifo_size(self, _size: int) -> None:
        pass

    def load_binary(self, *_: object) -> None:
        msg = "a compiled kernel cannot be loaded into the interpreter"
        raise NotInterpretable(msg)


def install_driver(device: Device) -> None:
    """Make the stand-in the active driver and put the current call in charge of every autotuner."""
    triton.runtime.driver.set_active(_make_driver(device))
    direct_autotuners(device)


def _make_driver(device: Device) -> object:
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - some source builds have no backends
    from triton.backends.driver import DriverBase  # noqa: PLC0415 - as above

    class InterpreterDriver(DriverBase):  # type: ignore[misc]  # Triton is untyped
        """A device that is the interpreter. Versions differ in which methods they require; all are here."""

        utils = _Utilities(device)
        get_device_capability = staticmethod(lambda _device=None: divmod(device.capability, 10))
        is_active = classmethod(lambda _cls: True)
        map_python_to_cpp_type = staticmethod(lambda name: name)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", device.capability, 32))
        get_active_torch_device = staticmethod(lambda: torch.device("cpu"))
        get_device_interface = staticmethod(lambda: torch.cuda)
        get_current_device = staticmethod(lambda: 0)
        set_current_device = staticmethod(lambda _device: None)
        get_current_stream = staticmethod(lambda _device=None: 0)
        get_empty_cache_for_benchmark = staticmethod(lambda: torch.empty(0))
        clear_cache = staticmethod(lambda _cache: None)
        get_benchmarker = staticmethod(
            lambda: lambda kernel_call, **_: device.tuning.measure(None, kernel_call)
        )

        def __init__(self) -> None:
            pass  # the base class of some versions asks a real driver

    return InterpreterDriver()
