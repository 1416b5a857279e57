"""The confined process of one task on a GPU; answers as `workers.reference` says.

Request `load` has `flops` of one call: where float64 does not fit the GPU, the CPU does it if it can in time.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adaexplore_mcp.evaluation.sandbox import guard_memory
from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.arguments import Arguments, moved
from adaexplore_mcp.evaluation.workers.content import TaskFault
from adaexplore_mcp.evaluation.workers.cuda.start import restore_flags, start_if_room
from adaexplore_mcp.evaluation.workers.reference import serve
from adaexplore_mcp.evaluation.workers.spaces import DeviceSpace
from adaexplore_mcp.evaluation.workers.tensors import contiguous_layout, copy_contiguous
from adaexplore_mcp.evaluation.workers.widening import Call, widened_call

__all__ = ["prepare", "run"]

CPU_FLOPS = 1e11  # one core does 5 to 20 GFLOP/s in float64
NEAR = 1e-4
"""Relative to the root mean square: how far two equal calls may differ where atomics add in any order."""


class _GpuMachine:
    """See `reference.Machine`."""

    space = DeviceSpace()
    place = None

    def __init__(self) -> None:
        self._flops = math.inf

    def start(self, request: Mapping[str, Any], folder: Path) -> None:  # noqa: ARG002 - a GPU needs no folder
        """Take note of what a call costs."""
        self._flops = request["flops"]

    def active(self) -> contextlib.AbstractContextManager[object]:
        """Run as it is: this is a GPU machine."""
        restore_flags()  # whatever the task's code did to them before
        return contextlib.nullcontext()

    def export(self, tensors: Sequence[Tensor]) -> tuple[list[int], int, int]:
        """Copy into GPU memory of its own, and give back what the reference's outputs took."""
        _, size = contiguous_layout(tensors)
        memory, descriptor = self.space.make(max(size, 1))
        starts = copy_contiguous(tensors, memory)
        assert starts is not None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return starts, descriptor, max(size, 1)

    def on_device(self, tensor: Tensor) -> bool:
        """Tell whether a tensor lies on the GPU."""
        return tensor.is_cuda

    def near(self, one: Tensor, other: Tensor) -> bool:
        """Tell whether two results differ by no more than the order of a sum explains."""
        a, b = one.double(), other.double()
        if not torch.equal(a.isfinite(), b.isfinite()):
            return False
        a, b = (t.nan_to_num(0.0, 0.0, 0.0) for t in (a, b))
        eps = max(NEAR, 4 * float(torch.finfo(one.dtype).eps))
        return (
            bool((a - b).abs().max() <= eps * (a.square().mean().sqrt() + a.abs().max()))
            if a.numel()
            else True
        )

    def widened(self, call: Call, model: Callable[..., Any], arguments: Arguments) -> tuple[Any, Arguments]:
        """Call it in float64 here, or on the CPU where that does not fit.

        Raises:
            torch.OutOfMemoryError: It does not fit, and would take too long on the CPU.
        """
        try:
            return widened_call(call, model, arguments)
        except (torch.OutOfMemoryError, TaskFault) as error:
            if isinstance(error, TaskFault) and error.reason != "out_of_memory":
                raise
            torch.cuda.empty_cache()
            if self._flops > CPU_FLOPS or not isinstance(model, nn.Module):
                raise
        model = model.cpu()
        try:
            return widened_call(call, model, moved(arguments, "cpu"))
        finally:
            model.cuda()


def prepare() -> str:
    """Start CUDA; then close this process, which holds what a candidate must not see, to others of the same user."""
    full = start_if_room()
    guard_memory()
    return full


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection."""
    serve(connection, folder, _GpuMachine())
