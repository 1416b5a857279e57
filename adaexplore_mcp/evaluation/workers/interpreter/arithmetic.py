"""The builder's arithmetic, comparisons, conversions and shapes, with the results that hardware gives.

Triton's own interpreter multiplies bf16 bit patterns, marks comparisons with the type of their operands,
divides by zero with a warning and saturates booleans. Everything element-wise is therefore done here.
Undefined results (division by zero, the one signed overflow of division, shifts past the width) are those
measured on an H200 with Triton 3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.handles import Handle, numpy_dtype
from adaexplore_mcp.evaluation.workers.interpreter.libdevice import erf
from adaexplore_mcp.evaluation.workers.interpreter.numbers import (
    NARROW_FLOATS,
    NUMPY_DTYPES,
    Array,
    bfloat16_to_float32,
    convert,
    float32_to_bfloat16,
    flush_subnormals,
    fused_multiply_add,
)
from adaexplore_mcp.evaluation.workers.interpreter.versions import ir, stock, tl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adaexplore_mcp.evaluation.workers.interpreter.findings import Call

__all__ = ["Arithmetic"]

LOG2_E = np.float32(1.4426950408889634)


def _operand(builder: Arithmetic, handle: Handle) -> Array:
    """Return the lanes in a numpy type that computes: bf16 becomes float32.

    Raises:
        NotInterpretable: They are fp8, which the compiler has no arithmetic for either.
    """
    name = handle.dtype.name
    if name == "bf16":
        return bfloat16_to_float32(handle.data)
    if name.startswith("fp8"):
        sentence = f"arithmetic on {name} is not imitated: convert to a wider type first"
        raise builder.recorder.refuse(sentence)
    return handle.data


def _binary(operation: Callable[[Array, Array], Array]) -> Callable[[Any, Handle, Handle], Handle]:
    """Make a builder method from a numpy function; bf16 is computed in float32 and rounded once."""

    def method(self: Arithmetic, lhs: Handle, rhs: Handle) -> Handle:
        result = operation(_operand(self, lhs), _operand(self, rhs))
        return Handle(float32_to_bfloat16(result) if lhs.dtype.name == "bf16" else result, lhs.dtype)

    return method


def _integer(
    operation: Callable[[Array, Array], Array], boolean: Callable[[Array, Array], Array] | None = None
) -> Callable[[Any, Handle, Handle], Handle]:
    """Make a builder method on integers; `boolean` is the same on one bit, where numpy does not wrap."""

    def method(_self: object, lhs: Handle, rhs: Handle) -> Handle:
        left, right = lhs.data, rhs.data
        if left.dtype != np.bool_:
            return Handle(operation(left, right), lhs.dtype)
        if boolean is not None:
            return Handle(boolean(left, right), lhs.dtype)
        wide = operation(left.astype(np.uint8), right.astype(np.uint8))
        return Handle((wide & 1).astype(np.bool_), lhs.dtype)

    return method


def _comparison(
    operation: Callable[[Array, Array], Array], *, unordered: bool = False
) -> Callable[[Any, Handle, Handle], Handle]:
    """Make a comparison; an unordered one is true where an operand is NaN."""

    def method(self: Arithmetic, lhs: Handle, rhs: Handle) -> Handle:
        left, right = _operand(self, lhs), _operand(self, rhs)
        result = operation(left, right)
        if unordered:
            result |= np.isnan(left) | np.isnan(right)
        return Handle(result, tl.int1)

    return method


def _unary(operation: Callable[[Array], Array]) -> Callable[[Any, Handle], Handle]:
    def method(self: Arithmetic, argument: Handle) -> Handle:
        result = operation(_operand(self, argument))
        return Handle(
            float32_to_bfloat16(result) if argument.dtype.name == "bf16" else result, argument.dtype
        )

    return method


def _divide(left: Array, right: Array) -> Array:
    """Divide integers toward zero, as C does; a zero divisor gives what `_by_zero` says."""
    if left.dtype.kind == "u":
        quotient = left // np.where(right == 0, 1, right)
    else:
        divisor = np.where(right == 0, 1, right).astype(left.dtype, copy=False)
        quotient = (left - np.fmod(left, divisor)) // divisor
    return _by_zero(left, right, quotient)


def _remainder(left: Array, right: Array) -> Array:
    """Return the remainder with the sign of the dividend, as C does."""
    return _by_zero(left, right, np.fmod(left, np.where(right == 0, 1, right).astype(left.dtype, copy=False)))


def _by_zero(left: Array, right: Array, result: Array) -> Array:
    """Put in what division by zero gives.

    Measured: all bits set, for the remainder too; a 64-bit dividend that fits in 32 bits takes the 32-bit
    path and gets 32 of them.
    """
    zero = right == 0
    if not zero.any():
        return result
    ones = np.full(result.shape, -1, dtype=np.int64)
    if result.dtype.itemsize == 8:
        ones = np.where(
            np.broadcast_to(left.view(np.uint64) >> np.uint64(32) == 0, result.shape), 0xFFFFFFFF, ones
        )
    return np.where(zero, ones.astype(result.dtype), result)


def _shift_left(left: Array, right: Array) -> Array:
    return np.left_shift(left, _clamped(left, right))


def _shift_right(left: Array, right: Array) -> Array:
    return np.right_shift(left, _clamped(left, right))


def _clamped(left: Array, right: Array) -> Array:
    """Limit a shift, read unsigned, to the width, where numpy gives what PTX does: zero, or the sign."""
    width = left.dtype.itemsize * 8
    unsigned = right.view(np.dtype(f"u{right.dtype.itemsize}"))
    count: Array = np.minimum(unsigned, width).astype(left.dtype, copy=False)
    return count


def _logical_shift_right(left: Array, right: Array) -> Array:
    unsigned = left.view(np.dtype(f"u{left.dtype.itemsize}"))
    return _shift_right(unsigned, right).view(left.dtype)


def _high_product(left: Array, right: Array) -> Array:
    """Return the upper half of the product of the operands' bit patterns."""
    bits = left.dtype.itemsize * 8
    unsigned = np.dtype(f"u{bits // 8}")
    x, y = left.view(unsigned), right.view(unsigned)
    if bits < 64:
        wide = np.dtype(f"u{bits // 4}")
        high: Array = (x.astype(wide) * y.astype(wide) >> wide.type(bits)).astype(unsigned)
        return high.view(left.dtype)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    x_high, x_low, y_high, y_low = x >> half, x & mask, y >> half, y & mask
    low = x_low * y_low
    middle = x_high * y_low + (low >> half)
    other = x_low * y_high + (middle & mask)
    high = x_high * y_high + (middle >> half) + (other >> half)
    return high.view(left.dtype)


def _float_remainder(left: Array, right: Array) -> Array:
    """Return x % y of floats.

    Measured: in float32 it is fma(-trunc(x / y), y, x), so where the quotient needs more than 24 bits the
    result is rounding noise, on the chip and here. An infinite divisor leaves the dividend.
    """
    if left.dtype != np.float32:
        return np.fmod(left, right)
    return np.where(np.isinf(right), left, fused_multiply_add(-np.trunc(left / right), right, left))


def _exponential(values: Array) -> Array:
    """Return e**x. Measured: in float32 it is ex2(x * log2(e)), off by 2e-6 of the result at x = 30."""
    return np.exp2(values * LOG2_E) if values.dtype == np.float32 else np.exp(values)


def _flushed(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Flush float32 subnormals to zero before a function. Measured: its instruction is the ftz one."""
    return lambda values: function(flush_subnormals(values))


class Arithmetic(stock.InterpreterBuilder):  # type: ignore[misc]  # Triton is untyped
    """Element-wise operations, conversions, constants and shapes."""

    recorder: Call

    METHODS: ClassVar[dict[str, Callable[..., Handle]]] = {
        # floating point
        "create_fadd": _binary(np.add),
        "create_fsub": _binary(np.subtract),
        "create_fmul": _binary(np.multiply),
        "create_fdiv": _binary(np.divide),
        "create_precise_divf": _binary(np.divide),
        "create_approx_divf": _binary(np.divide),
        "create_frem": _binary(_float_remainder),
        # PropagateNan.NONE, the default of tl.maximum and so of tl.max, returns the operand that is not NaN:
        # Triton's documentation of tl.maximum says so, it lowers to max.f32, and the H200 did (recording
        # reductions/nan_max).
        "create_maxnumf": _binary(np.fmax),
        "create_minnumf": _binary(np.fmin),
        "create_maximumf": _binary(np.maximum),
        "create_minimumf": _binary(np.minimum),
        # integers
        "create_add": _integer(np.add, np.bitwise_xor),
        "create_sub": _integer(np.subtract, np.bitwise_xor),
        "create_mul": _integer(np.multiply, np.bitwise_and),
        "create_sdiv": _integer(_divide),
        "create_udiv": _integer(_divide),
        "create_idiv": _integer(_divide),
        "create_srem": _integer(_remainder),
        "create_urem": _integer(_remainder),
        "create_and": _integer(np.bitwise_and, np.bitwise_and),
        "create_or": _integer(np.bitwise_or, np.bitwise_or),
        "create_xor": _integer(np.bitwise_xor, np.bitwise_xor),
        "create_shl": _integer(_shift_left),
        "create_lshr": _integer(_logical_shift_right),
        "create_ashr": _integer(_shift_right),
        "create_umulhi": _integer(_high_product),
        "create_maxsi": _integer(np.maximum, np.bitwise_or),
        "create_maxui": _integer(np.maximum, np.bitwise_or),
        "create_minsi": _integer(np.minimum, np.bitwise_and),
        "create_minui": _integer(np.minimum, np.bitwise_and),
        # comparisons: the arrays carry their signedness, so the signed and the unsigned one are the same
        **{
            f"create_{prefix}{suffix}": _comparison(operation, unordered=prefix == "fcmpU" and suffix != "NE")
            for prefix in ("icmpS", "icmpU", "fcmpO", "fcmpU")
            for suffix, operation in (
                ("LT", np.less),
                ("LE", np.less_equal),
                ("GT", np.greater),
                ("GE", np.greater_equal),
                ("EQ", np.equal),
                ("NE", np.not_equal),
            )
        },
        "create_fcmpONE": _comparison(lambda x, y: (x < y) | (x > y)),
        "create_icmpEQ": _comparison(np.equal),
        "create_icmpNE": _comparison(np.not_equal),
        # functions of one argument, in the argument's own precision
        "create_fneg": _unary(np.negative),
        "create_fabs": _unary(np.abs),
        "create_iabs": _unary(np.abs),
        "create_exp": _unary(_exponential),
        "create_exp2": _unary(np.exp2),
        "create_log": _unary(np.log),
        "create_log2": _unary(np.log2),
        "create_sin": _unary(np.sin),
        "create_cos": _unary(np.cos),
        "create_sqrt": _unary(_flushed(np.sqrt)),
        "create_precise_sqrt": _unary(np.sqrt),
        "create_rsqrt": _unary(_flushed(lambda x: np.reciprocal(np.sqrt(x)))),
        "create_erf": _unary(erf),
        "create_floor": _unary(_flushed(np.floor)),
        "create_ceil": _unary(_flushed(np.ceil)),
    }

    # ---- constants

    def get_bf16(self, value: float) -> Handle:
        """Return a bf16 scalar."""
        return Handle(convert(np.array([value], dtype=np.float64), "fp64", "bf16"), tl.bfloat16)

    def get_null_value(self, dtype: tl.dtype) -> Handle:
        """Return a scalar zero."""
        return Handle(np.zeros(1, dtype=numpy_dtype(dtype.scalar)), dtype.scalar)

    def get_all_ones_value(self, dtype: tl.dtype) -> Handle:
        """Return an integer scalar with every bit set."""
        array = np.zeros(1, dtype=numpy_dtype(dtype.scalar))
        return Handle(np.logical_not(array) if array.dtype == np.bool_ else np.invert(array), dtype.scalar)

    # ---- conversions

    def cast_impl(self, source: Handle, dtype: tl.dtype) -> Handle:
        """Convert between any two scalar types; the source's type decides what its lanes mean."""
        target = dtype.scalar
        if target.name in NARROW_FLOATS:
            self.recorder.narrow_types.add(target.name)
        return Handle(convert(source.data, source.dtype.name, target.name), target)

    def create_fp_to_fp(self, source: Handle, dtype: tl.dtype, rounding: object) -> Handle:
        """Convert between floating formats, rounding to nearest even unless told to cut."""
        target, toward_zero = dtype.scalar, rounding == ir.ROUNDING_MODE.RTZ
        if target.name in NARROW_FLOATS:
            self.recorder.narrow_types.add(target.name)
        return Handle(convert(source.data, source.dtype.name, target.name, toward_zero=toward_zero), target)

    def create_bitcast(self, source: Handle, dtype: tl.dtype) -> Handle:
        """Reinterpret bits. A pointer that stays a pointer keeps its origin."""
        target, origin = dtype.scalar, None
        if target.is_ptr() and source.dtype.is_ptr():
            origin = source.origin
            if origin is not None and (
                numpy_dtype(target.element_ty).itemsize > numpy_dtype(source.dtype.element_ty).itemsize
            ):
                origin.aligned = False
        return Handle(source.data.view(numpy_dtype(target)), target, origin)

    create_int_to_ptr = create_bitcast
    create_ptr_to_int = create_bitcast

    # ---- functions of three arguments

    def create_select(self, condition: Handle, lhs: Handle, rhs: Handle) -> Handle:
        """Choose lane by lane."""
        other = rhs.data
        if other.dtype != lhs.data.dtype:  # 3.4 to 3.6 mislabel one half of a float atomic_min
            other = other.view(lhs.data.dtype)
        return Handle(np.where(condition.data, lhs.data, other), lhs.dtype, _common_origin(lhs, rhs))

    def create_clampf(self, argument: Handle, low: Handle, high: Handle, propagate_nan: object) -> Handle:
        """Limit to [low, high]; NaN becomes `low` unless NaN is to be propagated."""
        names = ("minnumf", "maxnumf") if propagate_nan == ir.PROPAGATE_NAN.NONE else ("minimumf", "maximumf")
        lower, upper = (getattr(self, f"create_{name}") for name in names)
        clamped: Handle = lower(upper(argument, low), high)
        return clamped

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        """Multiply and add with one rounding."""
        if x.dtype.name != "bf16":
            return Handle(fused_multiply_add(x.data, y.data, z.data), x.dtype)
        wide = [bfloat16_to_float32(h.data).astype(np.float64) for h in (x, y, z)]
        return Handle(convert(wide[0] * wide[1] + wide[2], "fp64", "bf16"), x.dtype)

    # ---- shapes

    def create_make_range(self, _type: object, start: int, stop: int) -> Handle:
        """Return start, start + 1, … as int32."""
        return Handle(np.arange(start, stop, dtype=np.int32), tl.int32)

    def create_splat(self, block_type: tl.dtype, value: Handle) -> Handle:
        """Repeat a scalar."""
        lanes = np.empty(block_type.dims, dtype=value.data.dtype)
        lanes.fill(value.data.item(0) if value.data.dtype != np.float16 else value.data.flat[0])
        return Handle(lanes, value.dtype, value.origin)

    def create_unsplat(self, value: Handle) -> Handle:
        """Return the only lane of a block as a scalar."""
        return Handle(value.data.reshape(1), value.dtype, value.origin)

    def create_broadcast(self, value: Handle, shape: Sequence[int]) -> Handle:
        """Stretch dimensions of length one."""
        lanes = np.empty(
            _dims(shape), dtype=value.data.dtype
        )  # a third of np.broadcast_to's time up to 10,000 lanes
        lanes[...] = value.data
        return Handle(lanes, value.dtype, value.origin)

    def create_expand_dims(self, value: Handle, axis: int) -> Handle:
        """Insert a dimension of length one."""
        shape = value.data.shape
        return Handle(value.data.reshape(*shape[:axis], 1, *shape[axis:]), value.dtype, value.origin)

    def create_reshape(self, value: Handle, shape: Sequence[int], _allow_reorder: bool) -> Handle:
        """Give the lanes another shape, in row-major order."""
        return Handle(value.data.reshape(_dims(shape)), value.dtype, value.origin)

    def create_trans(self, value: Handle, order: Sequence[int]) -> Handle:
        """Permute the dimensions."""
        return Handle(np.transpose(value.data, _dims(order)), value.dtype, value.origin)

    def create_cat(self, lhs: Handle, rhs: Handle) -> Handle:
        """Put one block behind the other; the compiler may order the lanes as it likes, and says so only in its name."""
        self.recorder.note("tl.cat may put the lanes in another order on a GPU; here they keep theirs")
        return Handle(np.concatenate([lhs.data, rhs.data]), lhs.dtype, _common_origin(lhs, rhs))

    def create_join(self, lhs: Handle, rhs: Handle) -> Handle:
        """Stack two blocks along a new last dimension."""
        return Handle(np.stack([lhs.data, rhs.data], axis=-1), lhs.dtype, _common_origin(lhs, rhs))

    def create_split(self, value: Handle) -> tuple[Handle, Handle]:
        """Undo `create_join`."""
        return tuple(Handle(value.data[..., i], value.dtype, value.origin) for i in range(2))  # type: ignore[return-value]  # two

    def create_histogram(self, values: Handle, bins: int, mask: Handle | None) -> Handle:
        """Count the values in [0, bins); others are dropped."""
        lanes = values.data
        valid = (lanes >= 0) & (lanes < bins)
        if mask is not None:
            valid &= mask.data
        return Handle(np.bincount(lanes[valid], minlength=bins).astype(np.int32), tl.int32)


def _dims(shape: Sequence[int]) -> tuple[int, ...]:
    """Return plain integers: Triton's shapes hold constexpr objects in some versions."""
    if type(shape) is tuple:
        return shape
    return tuple(int(getattr(size, "value", size)) for size in shape)


def _common_origin(lhs: Handle, rhs: Handle) -> Any:  # noqa: ANN401 - an origin or None; typed in handles.py
    return lhs.origin if lhs.origin is rhs.origin else None


def _constant(name: str, dtype: tl.dtype) -> Callable[[Any, float], Handle]:
    """Make `get_int32` and its kind."""

    def method(_self: object, value: float) -> Handle:
        return Handle(np.array([value], dtype=NUMPY_DTYPES[name]), dtype)

    return method


for _name, _method in Arithmetic.METHODS.items():
    setattr(Arithmetic, _name, _method)
for _name, _label in (
    *((name, name) for name in NUMPY_DTYPES if name.startswith(("int", "uint"))),
    ("fp16", "float16"),
    ("fp32", "float32"),
    ("fp64", "float64"),
):
    setattr(Arithmetic, f"get_{_name}", _constant(_name, getattr(tl, _label)))
for _name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc"):
    setattr(Arithmetic, f"create_{_name}", Arithmetic.cast_impl)
Arithmetic.create_int_cast = lambda self, source, dtype, _signed: self.cast_impl(source, dtype)
