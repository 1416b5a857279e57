"""The CUDA driver, by ctypes: what torch does not offer."""

import ctypes
import functools
from typing import Any

import torch

__all__ = ["DriverError", "attribute", "call", "context_error", "cuda"]

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class DriverError(RuntimeError):
    """A call of the CUDA driver failed.

    Args:
        call: Its name.
        code: A CUresult.
    """

    def __init__(self, call: str, code: int) -> None:
        self.code = code
        text = ctypes.c_char_p()
        cuda().cuGetErrorString(code, ctypes.byref(text))
        super().__init__(f"{call}: {(text.value or b'unknown error').decode()} ({code})")


@functools.cache
def cuda() -> ctypes.CDLL:
    """Return the driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:  # noqa: ANN401 - any ctypes value
    """Call a function of the driver.

    Raises:
        torch.OutOfMemoryError: The GPU has too little memory.
        DriverError: Anything else that it reports.
    """
    function = getattr(cuda(), name)
    if code := function(*arguments):
        if code == OUT_OF_MEMORY:
            msg = f"{name}: out of GPU memory"
            raise torch.OutOfMemoryError(msg)
        raise DriverError(name, code)


def attribute(number: int) -> int:
    """Return a CUdevice_attribute of the current device; CUDA has been started."""
    value, device = ctypes.c_int(), ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), torch.cuda.current_device())
    call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


def context_error() -> tuple[str, str] | None:
    """Wait for this process's kernels; return name and text of what has broken its CUDA context, or None.

    Asked of the driver itself: an exception's text is a stranger's too.
    """
    if not (code := cuda().cuCtxSynchronize()):
        return None
    texts = []
    for function in (cuda().cuGetErrorName, cuda().cuGetErrorString):
        text = ctypes.c_char_p()
        function(code, ctypes.byref(text))
        texts.append((text.value or b"unknown error").decode())
    return texts[0], texts[1]
