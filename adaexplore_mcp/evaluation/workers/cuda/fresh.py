"""Fill fresh GPU memory with values that cannot be taken for results, so that an output left unwritten is seen.

Python's ways to make an uninitialised tensor are wrapped. Beneath them torch's allocator hands out memory that was freed
before; blocks of the sizes of the outputs are filled and freed ahead, so that what C++ code allocates is filled too.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.jit._builtins import _register_builtin

from adaexplore_mcp.evaluation.workers.standin.memory import Poison, fill

__all__ = ["Fresh"]

MAKERS: Sequence[tuple[Any, str]] = (
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "empty_strided"),
    (torch, "empty_permuted"),
    (Tensor, "new_empty"),
    (Tensor, "new_empty_strided"),
)
BLOCKS = 2


class Fresh:
    """Fills fresh memory of this process with `poison`, from `install` on; with None not at all."""

    def __init__(self) -> None:
        self.poison: Poison | None = "nan"

    def install(self) -> None:
        """Wrap what makes uninitialised tensors."""
        for owner, name in MAKERS:
            if (make := getattr(owner, name, None)) is not None:
                made = self._filling(make)
                setattr(owner, name, made)
                if owner is torch:  # TorchScript knows torch's functions by identity
                    _register_builtin(made, f"aten::{name}")

    def _filling(self, make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(make)
        def made(*arguments: Any, **keywords: Any) -> Tensor:  # noqa: ANN401 - as torch's
            tensor = make(*arguments, **keywords)
            poison = self.poison
            if (
                poison is None or torch.compiler.is_compiling()
            ):  # traced: the fill would become part of the candidate's program
                return tensor
            # Capturing a graph would record the fill, and replay it in every call.
            if tensor.is_cuda and tensor.layout is torch.strided and not _capturing():
                with torch.no_grad():
                    fill(tensor, poison)
            return tensor

        return made

    def prepare(self, size: int) -> None:
        """Fill and free blocks of a size in bytes, that of the outputs; where memory is short, nothing is done."""
        if (poison := self.poison) is None:
            return
        free, _ = torch.cuda.mem_get_info()
        if BLOCKS * size > free // 4:
            return
        with contextlib.suppress(torch.OutOfMemoryError):  # of what this process may take
            blocks = [torch.zeros(-(-size // 4), device="cuda") for _ in range(BLOCKS)]
            for block in blocks:
                fill(block, poison)


def _capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()
