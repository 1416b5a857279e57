"""Put the builder behind triton.language, once per process, and say what the language's statements mean.

Triton's interpreter replaces some 200 attributes before every launch and every call of a helper function, and
puts the old ones back after a launch. Here they are replaced when the interpreter is installed and stay so:
in a process that has TRITON_INTERPRET set, nothing else uses them.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.frontend import speed_up_front_end
from adaexplore_mcp.evaluation.workers.interpreter.handles import Answer, Handle, numpy_dtype
from adaexplore_mcp.evaluation.workers.interpreter.hints import hints
from adaexplore_mcp.evaluation.workers.interpreter.numbers import to_float
from adaexplore_mcp.evaluation.workers.interpreter.reductions import BranchOnBlockError, Reductions
from adaexplore_mcp.evaluation.workers.interpreter.versions import stock, tl, triton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adaexplore_mcp.evaluation.workers.interpreter.builder import Builder

__all__ = ["Statements", "patch_language", "resolved"]

TRITON_FOLDER = f"{Path(triton.__file__).parent}/"
INT32 = range(-(2**31), 2**31)
REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
ATOMIC = "atomic_"
LIBDEVICE = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


class Statements:
    """What the syntax of a kernel means; `rewriting.py` makes kernels call these."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def helpers(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by the names that rewritten code uses."""
        names = (
            "assign",
            "truth",
            "again",
            "conjunction",
            "disjunction",
            "negation",
            "chain",
            "check",
            "constant",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "range": self.loop_range,
            "min": functools.partial(self._extreme, "minimum"),
            "max": functools.partial(self._extreme, "maximum"),
            "print": self._print,
        }

    def assign(self, value: Any) -> Any:  # noqa: ANN401 - any value of a kernel
        """Return an assigned value: numbers become tensors (visit_Assign of Triton's code generator)."""
        kind = type(value)
        if kind is tl.tensor:
            return value
        if kind in (int, float, bool):
            return self._builder.as_tensor(value)
        if isinstance(value, tl.constexpr):
            return self.assign(value.value)
        if kind in (tuple, list):
            return kind(self.assign(item) for item in value)
        return value

    def truth(self, value: Any) -> bool:  # noqa: ANN401 - any value of a kernel
        """Return a condition's value.

        Raises:
            BranchOnBlockError: It is a block of more than one lane.
        """
        if isinstance(value, tl.tensor):
            lanes = value.handle.data
            if lanes.size != 1:
                msg = "Boolean value of Tensor with more than one value is ambiguous"
                raise BranchOnBlockError(msg)
            return bool(to_float(lanes, value.handle.dtype.name).item(0) != 0)
        if isinstance(value, tl.constexpr):
            return bool(value.value)
        return self.truth(value.condition) if hasattr(value, "condition") else bool(value)

    def again(self, value: Any) -> bool:  # noqa: ANN401 - any value of a kernel
        """Return the condition of a while loop, in which a program may wait for another one."""
        self._builder.may_be_ordered = self._builder.loops = True
        goes_on = self.truth(value)
        if goes_on:
            self._builder.loop(sys._getframe(1))  # noqa: SLF001 - the kernel's variables say whether it only waits
        return goes_on

    def conjunction(self, *operands: Callable[[], Any]) -> Any:  # noqa: ANN401 - a constant or a tensor
        """Return `a and b`: constants decide at once, tensors are combined lane by lane."""
        return self._combined("logical_and", operands)

    def disjunction(self, *operands: Callable[[], Any]) -> Any:  # noqa: ANN401 - a constant or a tensor
        """Return `a or b`, likewise."""
        return self._combined("logical_or", operands)

    def _combined(self, method: str, operands: tuple[Callable[[], Any], ...]) -> Any:  # noqa: ANN401 - as above
        tensors: list[Any] = []
        value: Any = None
        for operand in operands:
            value = operand()
            if isinstance(value, tl.tensor):
                tensors.append(value)
            elif self.truth(value) == (method == "logical_or"):
                return value
        if not tensors:
            return value
        result = tensors.pop()
        while tensors:
            result = getattr(tensors.pop(), method)(result)
        return result

    def negation(self, value: Any) -> Any:  # noqa: ANN401 - a constant or a tensor
        """Return `not a`."""
        return value.__not__() if isinstance(value, tl.tensor) else not value

    def chain(self, left: Any, *links: Callable[..., Any]) -> Any:  # noqa: ANN401 - a constant or a tensor
        """Return `a < b < c`: links are a comparison and the deferred operand on its right, in turn."""

        def compared(compare: Callable[..., Any], operand: Callable[[], Any]) -> Any:  # noqa: ANN401 - as above
            nonlocal left
            right = operand()
            result, left = compare(left, right), right
            return result

        pairs = zip(links[::2], links[1::2], strict=True)
        return self.conjunction(*(functools.partial(compared, *pair) for pair in pairs))

    def check(self, condition: Any, message: Any = "") -> None:  # noqa: ANN401 - any value of a kernel
        """Do what an assert statement does: it is device_assert."""
        known = isinstance(condition, (tl.tensor, tl.constexpr, bool, int, float))
        tl.device_assert(condition if known else bool(condition), str(message))

    def constant(self, value: Any) -> Any:  # noqa: ANN401 - any value of a kernel
        """Return `x.value`: constants are plain objects here, and are their own value."""
        if value is None or isinstance(value, (bool, int, float, str, tuple, tl.dtype)):
            return value
        return value.value

    def loop_range(self, start: Any, stop: Any = None, step: Any = 1, **_hints: object) -> Iterator[Any]:  # noqa: ANN401 - integers or tensors
        """Yield the loop variable as the tensor that it is: int32, or the widest type of the bounds."""
        bounds = [_unwrapped(bound) for bound in ((0, start) if stop is None else (start, stop))]
        bounds.append(1 if step is None else _unwrapped(step))
        dtype = tl.int32
        if not all(type(bound) is int and bound in INT32 for bound in bounds):
            tensors = [self._builder.as_tensor(bound) for bound in bounds]
            if not all(bound.dtype.is_int() for bound in tensors):
                kinds = ", ".join(str(bound.dtype) for bound in tensors)
                msg = f"For loop bounds and step must all be ints, are ({kinds})"
                raise TypeError(msg)
            dtype = functools.reduce(self._builder.semantic.integer_promote_impl, [b.dtype for b in tensors])
        array_dtype = numpy_dtype(dtype)
        for number in range(*(int(bound) for bound in bounds)):
            yield tl.tensor(Handle(np.array([number], dtype=array_dtype), dtype), dtype)

    @staticmethod
    def _extreme(name: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the builtins
        if any(isinstance(argument, tl.tensor) for argument in arguments):
            return functools.reduce(getattr(tl, name), arguments)
        return getattr(builtins, name[:3])(*(_unwrapped(argument) for argument in arguments), **options)

    @staticmethod
    def _print(*values: Any, **_options: object) -> None:  # noqa: ANN401 - as the builtin
        prefix, rest = (values[0], values[1:]) if values and isinstance(values[0], str) else ("", values)
        tl.device_print(prefix, *(value for value in rest if not isinstance(value, str)))


def patch_language(builder: Builder, statements: Statements) -> None:
    """Replace what triton.language calls, for good. Call once per process, before candidates are imported."""
    from triton.language.extra import cuda  # noqa: PLC0415 - absent without the CUDA backend

    speed_up_front_end()
    for namespace in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, cuda):
        _bind_builtins(namespace, builder)
    _patch_tensor(statements)
    _patch_constants()
    _patch_types()
    _patch_functions(builder, statements)
    _patch_libdevice(builder, cuda.libdevice)


def _bind_builtins(namespace: Any, builder: Builder) -> None:  # noqa: ANN401 - a module or class
    """Give every builtin of a namespace the semantic that it asks for."""
    for name, member in inspect.getmembers(namespace):
        if tl.core.is_builtin(member) and not hasattr(member, "__bound_builtin__"):
            bound = _bound(member, builder)
            setattr(namespace, name, _answering(bound, builder) if name.startswith(ATOMIC) else bound)


def _bound(member: Callable[..., Any], builder: Builder) -> Callable[..., Any]:
    """Return a builtin that needs no `_semantic`; Triton's own wrapper only checks for it and is skipped."""
    target = getattr(member, "__wrapped__", member)
    try:
        takes_semantic = "_semantic" in inspect.signature(target).parameters
    except ValueError:
        return member
    if not takes_semantic:
        return member
    semantic = builder.semantic

    @functools.wraps(member)
    def bound(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the builtin takes
        kwargs["_semantic"] = semantic
        return target(*args, **kwargs)

    bound.__bound_builtin__ = True  # type: ignore[attr-defined]  # marks it for a namespace that shares it
    return bound


def _answering(operation: Callable[..., Any], builder: Builder) -> Callable[..., Any]:
    """Return an atomic operation of which it is noted that its answer is used, by the kernel and not inside it."""

    @functools.wraps(operation)
    def answering(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the operation's own
        result = operation(*args, **kwargs)
        if type(result.handle) is Handle:  # a store has none, and a method's may be one already
            result.handle = Answer(result.handle, builder.act_on_answer)
        return result

    return answering


def _patch_tensor(statements: Statements) -> None:
    def transposed(self: tl.tensor) -> tl.tensor:
        shape = [int(_unwrapped(size)) for size in self.shape]
        lanes = Handle(np.swapaxes(self.handle.data, -1, -2), self.handle.dtype, self.handle.origin)
        return tl.tensor(lanes, tl.block_type(self.dtype, [*shape[:-2], shape[-1], shape[-2]]))

    def truth(self: tl.tensor) -> bool:
        # Triton's own code asks `if mask` and means `if mask is not None`; a kernel asks through
        # Statements.truth. What is left is a plain Python function that a kernel calls, which the compiler
        # would refuse.
        caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - there is no other way to know who asks
        return caller.startswith(TRITON_FOLDER) or statements.truth(self)

    tl.tensor.__bool__ = truth
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    tl.tensor.T = property(transposed)


def _patch_constants() -> None:
    """Let `constexpr * tensor` be the tensor's operation: constexpr's own would wrap the tensor."""
    for name in (*REFLECTED, *COMPARED):
        method = getattr(tl.constexpr, f"__{name}__", None)
        if method is None:
            continue

        def operation(self: tl.constexpr, other: object, method: Callable[..., object] = method) -> object:
            return NotImplemented if isinstance(other, tl.tensor) else method(self, other)

        setattr(tl.constexpr, f"__{name}__", operation)


def _patch_types() -> None:
    def to_ir(self: tl.dtype, builder: Builder) -> tl.dtype:
        """Return the type itself: there is no other representation here."""
        scalar = self.scalar.name
        if scalar.startswith("fp8") and scalar not in builder.options.supported_fp8_dtypes:
            supported = builder.options.supported_fp8_dtypes
            msg = (
                f"type {scalar} not supported in this architecture. The supported fp8 dtypes are {supported}"
            )
            raise ValueError(msg)
        return self

    for kind in (tl.dtype, tl.pointer_type, tl.block_type):
        kind.to_ir = to_ir


def _patch_functions(builder: Builder, statements: Statements) -> None:
    from triton.compiler.errors import (  # noqa: PLC0415 - heavy: it imports the compiler
        CompileTimeAssertionFailure,
    )

    def static_range(start: Any, stop: Any = None, step: Any = None) -> range:  # noqa: ANN401 - integers or constexpr
        bounds = (0, start) if stop is None else (start, stop)
        return range(*(int(_unwrapped(bound)) for bound in (*bounds, 1 if step is None else step)))

    def static_assert(condition: Any, message: Any = "") -> None:  # noqa: ANN401 - constants
        if not statements.truth(condition):
            place = ast.Constant(None, lineno=sys._getframe(1).f_lineno, col_offset=0)  # noqa: SLF001 - the kernel's line
            raise CompileTimeAssertionFailure(None, place, str(_unwrapped(message)))

    def static_print(*values: object, **options: Any) -> None:  # noqa: ANN401 - as print
        print(*values, **options)  # noqa: T201 - the candidate's own output

    reductions = Reductions(builder)
    replaced: dict[str, Any] = {
        "range": statements.loop_range,
        "static_range": static_range,
        "static_assert": static_assert,
        "static_print": static_print,
        **hints(builder),
        "reduce": reductions.reduce,
        "associative_scan": reductions.associative_scan,
        "map_elementwise": reductions.map_elementwise,
    }
    for name, function in replaced.items():
        for module in (tl, tl.core):
            if hasattr(module, name):
                setattr(module, name, function)
    if not hasattr(stock.InterpreterBuilder, "create_dot_scaled"):
        tl.dot_scaled = tl.core.dot_scaled = _refusal(
            builder, "tl.dot_scaled is not imitated with this version of Triton"
        )
    for name in ("reduce", "associative_scan"):
        setattr(tl.tensor, name, _as_method(replaced[name]))


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: tl.tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
        return function(self, *args, **kwargs)

    return method


def _patch_libdevice(builder: Builder, library: Any) -> None:  # noqa: ANN401 - a module
    """Make both spellings of libdevice callable: the stubs stand for the CUDA functions, as when compiled."""
    import triton.language.extra.libdevice as stubs  # noqa: PLC0415 - with the CUDA backend

    _bind_builtins(library, builder)
    for name, _ in inspect.getmembers(stubs, inspect.isfunction):
        refusal = _refusal(builder, f"libdevice.{name} has no CUDA function behind it")
        setattr(stubs, name, getattr(library, name, refusal))


def resolved(value: Any) -> Any:  # noqa: ANN401 - what a name outside of a kernel holds
    """Return libdevice, or its function, for one of a copy of the module: the compiler goes by the names of both."""
    if isinstance(value, ModuleType):
        name = getattr(value, "__name__", "")
        return sys.modules[name] if name in LIBDEVICE else value
    if isinstance(value, FunctionType) and value.__module__ in LIBDEVICE:
        return getattr(sys.modules[value.__module__], value.__name__, value)
    return value


def _refusal(builder: Builder, sentence: str) -> Callable[..., Any]:
    """Return a function of the language that cannot be interpreted."""

    def refuse(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
        raise builder.recorder.refuse(sentence)

    return refuse


def _unwrapped(value: Any) -> Any:  # noqa: ANN401 - a constexpr or what it holds
    return value.value if isinstance(value, tl.constexpr) else value
