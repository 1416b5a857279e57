"""The whole builder: what Triton's language calls for every operation of an interpreted kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.arithmetic import Arithmetic
from adaexplore_mcp.evaluation.workers.interpreter.atomics import Atomics
from adaexplore_mcp.evaluation.workers.interpreter.dots import Dots
from adaexplore_mcp.evaluation.workers.interpreter.findings import Call, NotInterpretable
from adaexplore_mcp.evaluation.workers.interpreter.frontend import Semantic
from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle
from adaexplore_mcp.evaluation.workers.interpreter.libdevice import call_symbol
from adaexplore_mcp.evaluation.workers.interpreter.numbers import to_float
from adaexplore_mcp.evaluation.workers.interpreter.regions import AddressSpace
from adaexplore_mcp.evaluation.workers.interpreter.versions import cuda_options, tl

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Builder"]

HARMLESS_ASSEMBLY = ("griddepcontrol.wait", "griddepcontrol.launch_dependents")
"""Inline assembly that orders launches and computes nothing."""


class Builder(Arithmetic, Dots, Atomics):
    """Triton's interpreter builder, made true to the hardware.

    Attributes:
        options: What the CUDA backend would compile with; Triton's semantics reads it.
        semantic: Triton's own type rules on top of this builder.
        running: Whether a launch is in progress.
    """

    def __init__(self, capability: int) -> None:
        super().__init__()
        self.imitate(capability)
        self.semantic = Semantic(self)
        self.running = False
        self.grid_dim = self.grid_idx = (1, 1, 1)
        self.codegen_fns["convert_custom_types"] = self._convert_custom_types
        self.begin_launch("", AddressSpace(()), Call(), "nan")

    def imitate(self, capability: int) -> None:
        """Take the options of another compute capability."""
        self.base_options = cuda_options(capability)
        self.options = self.base_options

    def as_tensor(self, value: Any) -> tl.tensor:  # noqa: ANN401 - a tensor, a number or a constexpr
        """Return a value as a tensor, numbers by the rules of the language."""
        return self.semantic.to_tensor(value)

    def choose_options(self, launch_options: dict[str, Any]) -> None:
        """Take num_warps and its kind from a launch: kernels may ask for them."""
        self.options = SimpleNamespace(**{**vars(self.base_options), **launch_options})

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the language asks for
        """Refuse operations that no class defines.

        Raises:
            NotInterpretable: `name` is an operation of Triton's builder.
        """
        if name.startswith(("create_", "get_")):
            sentence = f"Triton's {name.partition('_')[2]} is not imitated by the interpreter"
            raise self.recorder.refuse(sentence)
        raise AttributeError(name)

    # ---- programs

    def create_get_program_id(self, axis: int) -> Handle:
        """Return the running program's position along an axis."""
        return Handle(np.array([self.grid_idx[axis]], dtype=np.int32), tl.int32)

    def create_get_num_programs(self, axis: int) -> Handle:
        """Return the launch's extent along an axis."""
        return Handle(np.array([self.grid_dim[axis]], dtype=np.int32), tl.int32)

    def create_barrier(self, *_: object) -> None:
        """Do nothing: a program's operations happen one after another."""

    create_grid_dependency_wait = create_barrier
    create_grid_dependency_launch_dependents = create_barrier

    # ---- escapes from the language

    def create_extern_elementwise(
        self,
        _library: str,
        _path: str,
        symbol: str,
        arguments: Sequence[Handle],
        result: tl.dtype,
        _pure: object,
    ) -> Handle:
        """Call a libdevice function lane by lane."""
        target = result.scalar
        lanes = np.broadcast_arrays(*(argument.data for argument in arguments))
        try:
            return Handle(call_symbol(symbol, list(lanes), target.name), target)
        except NotInterpretable as error:
            raise self.recorder.refuse(str(error)) from None

    def create_inline_asm(self, assembly: str, *_: object) -> Any:  # noqa: ANN401 - an MLIR operation
        """Refuse assembly, except for what only orders launches.

        Raises:
            NotInterpretable: The assembly computes something.
        """
        if any(harmless in assembly for harmless in HARMLESS_ASSEMBLY):
            zero = Handle(np.zeros(1, dtype=np.int32), tl.int32)
            return SimpleNamespace(get_result=lambda _position: zero)
        sentence = f"inline assembly is not imitated: {' '.join(assembly.split())[:80]}"
        raise self.recorder.refuse(sentence)

    def _convert_custom_types(
        self, value: tl.tensor, dtype: tl.dtype, rounding: object, _semantic: object
    ) -> tl.tensor:
        return tl.tensor(self.create_fp_to_fp(value.handle, dtype, rounding), dtype)

    # ---- debugging

    def create_print(self, prefix: str, hexadecimal: bool, values: Sequence[Handle], *_: object) -> None:
        """Print to stdout what device_print would, a line per value."""
        for value in values:
            lanes = value.data if value.dtype.is_ptr() else to_float(value.data, value.dtype.name)
            text = np.array2string(lanes, formatter=_HEXADECIMAL) if hexadecimal else str(lanes)
            print(f"pid {self.grid_idx}{prefix}{text}")  # noqa: T201 - the candidate's own output
        if not values:
            print(f"pid {self.grid_idx}{prefix}")  # noqa: T201 - as above

    def create_assert(self, condition: Handle, message: str, *_: object) -> None:
        """Report a false device_assert and stop the launch.

        Raises:
            AssertionError: With the kernel's own message.
        """
        if condition.data.all():
            return
        false = int(np.size(condition.data) - np.count_nonzero(condition.data))
        text = f"{false} of {condition.data.size} lanes fail device_assert" + (
            f": {message}" if message else ""
        )
        self.report("device_assert", lambda: text)
        raise AssertionError(text)

    def create_assume(self, condition: Handle) -> None:
        """Report a false tl.assume, after which a compiled kernel may do anything."""
        if not condition.data.all():
            self.report("false_assumption", lambda: "tl.assume was given a condition that is false")

    def create_gather(self, source: Handle, indices: Handle, axis: int) -> Handle:
        """Take lanes by their number along an axis; numbers outside are reported and give lane 0."""
        length, numbers = source.data.shape[axis], indices.data
        outside = (numbers < 0) | (numbers >= length) if numbers.dtype.kind == "i" else numbers >= length
        if outside.any():
            bad = int(np.count_nonzero(outside))
            self.report(
                "gather_index",
                lambda: f"{bad} of {numbers.size} indices of tl.gather lie outside of 0 to {length - 1}",
            )
            numbers = np.where(outside, 0, numbers)
        return Handle(np.take_along_axis(source.data, numbers.astype(np.int64), axis), source.dtype)


def _hexadecimal(lane: np.generic) -> str:
    if isinstance(lane, np.floating):
        return float(lane).hex()
    return f"{int(lane):#0{lane.itemsize * 2 + 2}x}"


_HEXADECIMAL: Any = {"all": _hexadecimal}
