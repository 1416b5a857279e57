"""What the builder's methods pass around: an array, its Triton type and, for pointers, their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adaexplore_mcp.evaluation.workers.interpreter.numbers import NUMPY_DTYPES, Array
from adaexplore_mcp.evaluation.workers.interpreter.versions import stock

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from adaexplore_mcp.evaluation.workers.interpreter.regions import Region
    from adaexplore_mcp.evaluation.workers.interpreter.versions import tl

__all__ = ["Answer", "Handle", "numpy_dtype"]


class Handle(stock.TensorHandle):  # type: ignore[misc]  # Triton is untyped
    """A value inside an interpreted kernel.

    Attributes:
        data: The lanes. Scalars have shape (1,), blocks their own shape. The dtype is always
            NUMPY_DTYPES[dtype.name], or uint64 addresses for pointers; Triton's own class allows narrower
            ones.
        dtype: The scalar or pointer type, never a block type.
        origin: For pointers, the storage that the pointer was derived from, or None where that is not known:
            a pointer loaded from memory or made from an integer.
    """

    __slots__ = ("data", "dtype", "origin")

    def __init__(self, data: Array, dtype: tl.dtype, origin: Region | None = None) -> None:
        # The dataclass above validates every construction (1.5 us of a typical operation's 10); the invariant
        # in the docstring is kept by construction instead, so its __init__ is not called.
        self.data = data
        self.dtype = dtype
        self.origin = origin

    @property
    def name(self) -> str:
        """Return the name of the scalar type, such as `bf16`."""
        name: str = self.dtype.name
        return name

    def clone(self) -> Handle:
        """Return a handle with its own copy of the lanes."""
        return Handle(self.data.copy(), self.dtype, self.origin)

    def set_attr(self, key: str, value: object) -> None:
        """Ignore alignment hints: they promise something and change nothing."""


class Answer(Handle):
    """What an atomic operation gave back; whoever looks at its lanes may act on what other programs did.

    Args:
        handle: The value.
        on_use: Called when anything reads the lanes.
    """

    __slots__ = ("_lanes", "_on_use")

    def __init__(self, handle: Handle, on_use: Callable[[], None]) -> None:
        self._lanes, self._on_use = handle.data, on_use
        self.dtype, self.origin = handle.dtype, handle.origin

    @property
    def data(self) -> Array:  # type: ignore[override]  # a slot there
        """Return the lanes, and say that they are used."""
        self._on_use()
        return self._lanes


def numpy_dtype(dtype: tl.dtype) -> np.dtype[Any]:
    """Return the dtype of arrays that hold this Triton scalar or pointer type."""
    return NUMPY_DTYPES["uint64" if dtype.is_ptr() else dtype.name]
