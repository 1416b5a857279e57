"""A kernel that keeps every multiprocessor full for a given time.

The host launches what is to be timed behind it. Nothing else finds room on the device meanwhile, also not what was launched on
another stream: it comes into the time that is measured, or into the judge's. It is loaded from PTX by the driver, so that it
owes nothing to torch or Triton, which a candidate can reach.
"""

import ctypes

import torch

from adaexplore_mcp.evaluation.workers.cuda.driver import attribute, call

__all__ = ["Hold"]

PTX = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 length)
{
    .reg .u64 %began, %passed, %length;
    .reg .pred %early;
    ld.param.u64 %length, [length];
    mov.u64 %began, %globaltimer;
again:
    nanosleep.u32 500;
    mov.u64 %passed, %globaltimer;
    sub.u64 %passed, %passed, %began;
    setp.lt.u64 %early, %passed, %length;
    @%early bra again;
    ret;
}
"""
THREADS = 512
"""Of a block: the threads that a multiprocessor holds are a multiple of it on every GPU."""
MULTIPROCESSORS, THREADS_EACH = 16, 39
"""CUdevice_attribute: their count, and how many threads each holds at once."""


class Hold:
    """Holds the current device; CUDA has been started."""

    def __init__(self) -> None:
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), PTX)
        call("cuModuleGetFunction", ctypes.byref(self._function), module, b"hold")
        self._blocks = attribute(MULTIPROCESSORS) * (attribute(THREADS_EACH) // THREADS)

    def begin(self, microseconds: float) -> None:
        """Hold the device for so long, in the order of the current stream."""
        length = ctypes.c_uint64(int(microseconds * 1_000))
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(length), ctypes.c_void_p))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        call(
            "cuLaunchKernel",
            self._function,
            *(self._blocks, 1, 1),
            *(THREADS, 1, 1),
            0,
            stream,
            arguments,
            None,
        )
