"""Go through what a candidate's process does, once, on a kernel of our own.

In a parent it fills every cache on the way, which children inherit: the first interpreted call of a child falls from 140 to
35 ms. In a child that waits for its candidate it touches the memory that a fork shares until it is written.
"""

from pathlib import Path

import torch
import triton
import triton.language as tl

from adaexplore_mcp.evaluation.workers.cost import measure
from adaexplore_mcp.evaluation.workers.standin import StandIn
from adaexplore_mcp.evaluation.workers.targets import DEFAULT_TARGET

__all__ = ["compile_once", "interpret_once"]

ROWS, COLUMNS, BLOCK = 2, 100, 128


@triton.jit  # type: ignore[untyped-decorator] # triton ships no types
def _softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, N803 - a kernel
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=inside)


def _launch(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _softmax[(ROWS,)](x, y, COLUMNS, BLOCK=BLOCK)
    return torch.nn.functional.linear(y, x)


def interpret_once() -> None:
    """Launch the kernel in Triton's interpreter, as the first call of a candidate does."""
    from adaexplore_mcp.evaluation.workers.interpreter import Interpreter  # noqa: PLC0415 - only where it interprets

    with StandIn(DEFAULT_TARGET, [Path(__file__)]) as standin, torch.no_grad():
        x = standin.place(torch.ones(ROWS, COLUMNS))
        with Interpreter.install().call(tune=True):
            measure(lambda: _launch(x))


def compile_once() -> None:
    """Launch the kernel so that it compiles, on fake tensors, as a candidate's call does."""
    from adaexplore_mcp.evaluation.workers.compiler import Compiler  # noqa: PLC0415 - only where it compiles

    with StandIn(DEFAULT_TARGET, [Path(__file__)], fake=True) as standin, torch.no_grad():
        compiler = Compiler.install(DEFAULT_TARGET, device_of=standin.on_device)
        try:
            with compiler.session():
                x = standin.place(torch.ones(ROWS, COLUMNS))
                measure(lambda: _launch(x))
        finally:
            compiler.uninstall()
