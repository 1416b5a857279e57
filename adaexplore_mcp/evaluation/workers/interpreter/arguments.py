"""Turn the arguments of a launch into what a kernel sees, as Triton's launcher does."""

from __future__ import annotations

import inspect
import itertools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle, numpy_dtype
from adaexplore_mcp.evaluation.workers.interpreter.numbers import convert
from adaexplore_mcp.evaluation.workers.interpreter.versions import jit, named_type, stock, tl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FunctionType

    from adaexplore_mcp.evaluation.workers.interpreter.regions import AddressSpace

__all__ = ["Signature", "as_value", "extents_of", "signature_of", "tensors_in"]

LARGEST_GRID = (2**31 - 1, 65535, 65535)
"""CUDA C++ programming guide, compute capabilities: maximum x, y and z dimension of a grid."""


class Signature:
    """What a kernel's parameters are, by Triton's own reading of the annotations.

    Attributes:
        names: All parameters.
        constants: Those that are constexpr.
        types: Types that an annotation forces on an argument, such as `fp64`.
        variadic: The parameter that takes all further positional arguments as a tuple; empty if there is none.
    """

    def __init__(self, kernel: FunctionType) -> None:
        self._kernel = kernel
        self._signature = inspect.signature(kernel)
        parameters = self._signature.parameters
        self.names = frozenset(parameters)
        self.variadic = next(
            (name for name, each in parameters.items() if each.kind is each.VAR_POSITIONAL), ""
        )
        read = [
            jit.KernelParam(i, parameter, False, False) for i, parameter in enumerate(parameters.values())
        ]
        self.constants = frozenset(parameter.name for parameter in read if parameter.is_constexpr)
        self.types = {
            parameter.name: parameter.annotation_type for parameter in read if parameter.annotation_type
        }

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return every argument by name, constants as plain values.

        Raises:
            TypeError: In the words of a Python call.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            # Five times slower, but its message names the kernel.
            inspect.getcallargs(self._kernel, *args, **kwargs)
            raise
        bound.apply_defaults()
        return {name: _unwrapped(value) for name, value in bound.arguments.items()}

    def passed(self, values: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return values by name, as `bind` has them, the way a call passes them: in order, and by name."""
        if not self.variadic:
            return (), values
        named = dict(values)
        first = list(itertools.takewhile(lambda name: name != self.variadic, self._signature.parameters))
        return [*(named.pop(name) for name in first), *named.pop(self.variadic)], named


_signatures: dict[FunctionType, Signature] = {}


def signature_of(kernel: FunctionType) -> Signature:
    """Return a kernel's signature; it is read once."""
    signature = _signatures.get(kernel)
    if signature is None:
        signature = _signatures[kernel] = Signature(kernel)
    return signature


def extents_of(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:  # noqa: ANN401 - a tuple or a function of the arguments
    """Return the grid as three integers, with the errors that the launcher and the driver give."""
    if callable(grid):
        grid = grid(dict(bound))
    sizes = [operator.index(_unwrapped(size)) for size in (grid[i] for i in range(len(grid)))][:3]
    sizes += [1] * (3 - len(sizes))
    if any(not 0 <= size <= limit for size, limit in zip(sizes, LARGEST_GRID, strict=True)):
        msg = f"Triton Error [CUDA]: invalid argument (grid {tuple(sizes)}, at most {LARGEST_GRID})"
        raise RuntimeError(msg)
    return sizes[0], sizes[1], sizes[2]


def tensors_in(bound: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a launch's arguments, with the argument's name."""
    for name, value in bound.items():
        yield from _tensors_of(name, value)


def _tensors_of(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:  # noqa: ANN401 - an argument of a launch
    """Yield an argument's tensors: itself, those in a tuple, the base of a descriptor or of a wrapper."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for position, item in enumerate(value):
            yield from _tensors_of(f"{name}[{position}]", item)
    elif hasattr(value, "base"):
        yield from _tensors_of(name, value.base)


def as_value(value: Any, space: AddressSpace, forced: str | None) -> Any:  # noqa: ANN401 - an argument and what the kernel sees
    """Return an argument as the kernel sees it: a pointer, a scalar of the launch's type, or itself."""
    if value is None or isinstance(value, tl.dtype):
        return value
    if isinstance(value, tuple):
        items = [as_value(item, space, None) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if hasattr(value, "block_shape"):
        return _descriptor(value, space)
    if hasattr(value, "data_ptr"):
        base = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
        dtype = named_type(jit.mangle_type(value))
        address = np.array([space.address_of(value)], dtype=np.uint64)
        return tl.tensor(Handle(address, dtype, space.region_of(base)), dtype)
    if isinstance(value, (bool, int, float)):
        dtype = named_type(forced or jit.mangle_type(value))
        return tl.tensor(_scalar(value, dtype), dtype)
    if not isinstance(value, stock.InterpretedFunction):
        jit.mangle_type(value)  # raises the launcher's own TypeError for what cannot be an argument
    return value


def _scalar(value: int | float, dtype: tl.dtype) -> Handle:  # noqa: PYI041 - the two are told apart
    """Return a number as a launch passes it: floats are fp32 unless annotated otherwise."""
    if isinstance(value, float) or dtype.is_floating():
        return Handle(convert(np.array([float(value)]), "fp64", dtype.name), dtype)
    wide = np.array([value & (2**64 - 1)], dtype=np.uint64)
    return Handle(wide != 0 if dtype.name == "int1" else wide.astype(numpy_dtype(dtype)), dtype)


def _descriptor(value: Any, space: AddressSpace) -> Any:  # noqa: ANN401 - a host TensorDescriptor and the device's
    semantic = stock.interpreter_semantic
    options = {"padding_option": value.padding} if hasattr(value, "padding") else {}
    strides = [as_value(stride, space, None) for stride in value.strides]
    strides[-1] = tl.constexpr(1)
    descriptor = semantic.make_tensor_descriptor(
        base=as_value(value.base, space, None),
        shape=[as_value(size, space, None) for size in value.shape],
        strides=strides,
        block_shape=[tl.constexpr(size) for size in value.block_shape],
        **options,
    )
    descriptor.handle.round_f32_to_tf32 = getattr(value, "round_f32_to_tf32", False)
    return descriptor


def _unwrapped(value: Any) -> Any:  # noqa: ANN401 - a constexpr or what it holds
    return value.value if isinstance(value, tl.constexpr) else value
