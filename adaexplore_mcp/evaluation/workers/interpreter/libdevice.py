"""NVIDIA's libdevice functions by their symbol, computed in float64 and rounded once.

libdevice itself is within 0 to 4 units in the last place of float32, so the results here are at least as good
and differ from the hardware's by that much; the Bessel functions and the `fast_` trigonometric ones of large
arguments by more, since there the hardware's are coarse. float32 subnormals are flushed, as Triton asks of
libdevice (enable_reflect_ftz). What has no counterpart raises NotInterpretable.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from adaexplore_mcp.evaluation.workers.interpreter.findings import NotInterpretable
from adaexplore_mcp.evaluation.workers.interpreter.numbers import (
    NUMPY_DTYPES,
    Array,
    convert,
    flush_subnormals,
    fused_multiply_add,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["call_symbol", "erf"]

Function = "Callable[..., Array]"


# ---- functions that numpy lacks ----------------------------------------------------------------------------


def _torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    """Apply a torch function to an array. Launches run outside every torch mode, so nobody counts it."""

    def apply(values: Array) -> Array:
        return function(torch.from_numpy(np.array(values))).numpy()

    return apply


erf = _torch(torch.erf)
_erfinv, _ndtri = _torch(torch.special.erfinv), _torch(torch.special.ndtri)


def _each(function: Callable[..., float]) -> Callable[..., Array]:
    """Apply a function of the math module lane by lane; a lane outside its domain gives NaN."""

    def one(*arguments: float) -> float:
        try:
            return function(*arguments)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(one, otypes=[np.float64])


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return math.gamma(x)


def _round_half_away(x: Array) -> Array:
    floor = np.floor(np.abs(x))
    rounded: Array = np.copysign(floor + (np.abs(x) - floor >= 0.5), x)
    return rounded


def _sin_pi(x: Array) -> Array:
    turn = np.fmod(x, 2.0)
    return np.where(turn == np.trunc(turn), np.copysign(0.0, x), np.sin(np.pi * turn))


def _cos_pi(x: Array) -> Array:
    turn = np.fmod(np.abs(x), 2.0)
    return np.where((turn == 0.5) | (turn == 1.5), 0.0, np.cos(np.pi * turn))


def _exponent(x: Array) -> Array:
    _, exponent = np.frexp(x)
    result = exponent.astype(np.float64) - 1
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), result, np.abs(x)))


def _integer_exponent(x: Array) -> Array:
    """Return ilogb: the lowest int32 for zero and NaN, the highest for infinities (CUDA math API, ilogbf)."""
    exponent = _exponent(x)
    special = np.where(np.isinf(x), 2.0**31 - 1, -(2.0**31))
    return np.where((x == 0) | ~np.isfinite(x), special, exponent)


FLOATS: dict[str, Callable[..., Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": _round_half_away,
    "abs": np.abs,
    "fabs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "frsqrt_rn": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinpi": _sin_pi,
    "cospi": _cos_pi,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "erfc": _torch(torch.special.erfc),
    "erfcx": _torch(torch.special.erfcx),
    "erfinv": _erfinv,
    "erfcinv": lambda x: _ndtri(x / 2) * -math.sqrt(0.5),
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _ndtri,
    "tgamma": _each(_gamma),
    "lgamma": _torch(torch.lgamma),
    "j0": _torch(torch.special.bessel_j0),
    "j1": _torch(torch.special.bessel_j1),
    "y0": _torch(torch.special.bessel_y0),
    "y1": _torch(torch.special.bessel_y1),
    "cyl_bessel_i0": lambda x: np.where(np.isinf(x), np.inf, _torch(torch.special.i0)(x)),
    "cyl_bessel_i1": lambda x: np.where(np.isinf(x), x, _torch(torch.special.i1)(x)),
    "logb": _exponent,
    "ilogb": _integer_exponent,
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "pow": np.power,
    "powi": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "remainder": _each(math.remainder),
    "hypot": np.hypot,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "copysign": np.copysign,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0.0)),
    "ldexp": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "scalbn": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "rnorm3d": lambda x, y, z: 1 / np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w),
    "rnorm4d": lambda x, y, z, w: 1 / np.sqrt(x * x + y * y + z * z + w * w),
    "fast_fdivide": np.divide,
}
"""Functions of float64 arrays by their name without the float32 suffix."""


# ---- bits and integers -------------------------------------------------------------------------------------


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _bit_length(x: Array) -> Array:
    """Return the position of the highest set bit, counted from one; zero for zero."""
    bits, length = _unsigned(x), np.zeros(x.shape, dtype=np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        if step >= x.dtype.itemsize * 8:
            continue
        high = bits >> bits.dtype.type(step)
        length += np.where(high != 0, step, 0)
        bits = np.where(high != 0, high, bits)
    length += bits != 0
    return length


def _reversed_bits(x: Array) -> Array:
    width = x.dtype.itemsize
    bits = np.unpackbits(
        np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, width), axis=-1, bitorder="little"
    )
    return np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(x.dtype).reshape(x.shape)


def _population(x: Array) -> Array:
    width = x.dtype.itemsize
    bits = np.unpackbits(np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, width), axis=-1)
    count: Array = bits.sum(axis=-1)
    return count


def _low_product(x: Array, y: Array) -> Array:
    """Return mul24: the low word of the product of the low 24 bits, sign-extended where they are signed."""
    shift = x.dtype.type(8)
    product: Array = ((x << shift) >> shift) * ((y << shift) >> shift)
    return product


def _select_bytes(x: Array, y: Array, selector: Array) -> Array:
    """Return byte_perm: each nibble of the selector picks one of the eight bytes of y:x."""
    pair = _unsigned(x).astype(np.uint64) | (_unsigned(y).astype(np.uint64) << np.uint64(32))
    result = np.zeros(x.shape, dtype=np.uint64)
    for i in range(4):
        pick = ((_unsigned(selector).astype(np.uint64) >> np.uint64(4 * i)) & np.uint64(7)) * np.uint64(8)
        result |= ((pair >> pick) & np.uint64(0xFF)) << np.uint64(8 * i)
    return result.astype(np.uint32).view(x.dtype)


def _high(x: Array, y: Array) -> Array:
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    if x.dtype.itemsize == 4:
        return (x.astype(wide) * y.astype(wide)) >> wide(32)
    raise NotInterpretable(f"libdevice: the high half of a 64-bit {x.dtype.kind} product is not imitated")


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


INTEGERS: dict[str, Callable[..., Array]] = {
    "clz": lambda x: x.dtype.itemsize * 8 - _bit_length(x),
    "popc": _population,
    "brev": _reversed_bits,
    "ffs": lambda x: _bit_length(x & -x),
    "abs": np.abs,
    "mulhi": _high,
    "umulhi": _high,
    "mul24": _low_product,
    "umul24": _low_product,
    "hadd": lambda x, y: (_wide(x) + _wide(y)) >> 1,
    "uhadd": lambda x, y: (_wide(x) + _wide(y)) >> 1,
    "rhadd": lambda x, y: (_wide(x) + _wide(y) + 1) >> 1,
    "urhadd": lambda x, y: (_wide(x) + _wide(y) + 1) >> 1,
    "sad": lambda x, y, z: np.abs(_wide(x) - _wide(y)) + _wide(z),
    "usad": lambda x, y, z: np.abs(_wide(x) - _wide(y)) + _wide(z),
    "byte_perm": _select_bytes,
}
"""Functions of integer arrays by their name without the suffix `ll`."""

BITCASTS = {
    "float_as_int": np.int32,
    "float_as_uint": np.uint32,
    "int_as_float": np.float32,
    "uint_as_float": np.float32,
    "double_as_longlong": np.int64,
    "longlong_as_double": np.float64,
}


# ---- directed rounding -------------------------------------------------------------------------------------


def _sum_error(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the float64 sum and its exact error (Knuth's two-sum)."""
    total = x + y
    shadow = total - x
    return total, (x - (total - shadow)) + (y - shadow)


def _directed(name: str, mode: str, x: Array, *rest: Array) -> Array:
    """Compute a float32 operation exactly and round toward -inf (rd), +inf (ru), zero (rz) or nearest (rn).

    The operands are float64 copies of float32. The nearest result is corrected by the sign of what it misses,
    which is exact in float64 for every operation here.
    """
    nearest: Array
    missing: Array
    if name in ("add", "sub", "fma"):
        left = x * rest[0] if name == "fma" else x
        exact, error = _sum_error(left, -rest[0] if name == "sub" else rest[-1])
        nearest = exact.astype(np.float32)
        missing = (exact - nearest) + error
    elif name == "mul":
        exact = x * rest[0]
        nearest = exact.astype(np.float32)
        missing = exact - nearest
    elif name in ("div", "rcp"):
        over, under = (x, rest[0]) if name == "div" else (np.ones_like(x), x)
        exact = over / under
        nearest = exact.astype(np.float32)
        missing = (over - nearest * under) * np.sign(under)
    else:  # sqrt
        exact = np.sqrt(x)
        nearest = exact.astype(np.float32)
        missing = x - nearest.astype(np.float64) ** 2
    overflowed = np.isinf(nearest) & np.isfinite(exact)
    return _corrected(nearest, np.where(overflowed, -np.sign(nearest), missing), mode)


def _corrected(nearest: Array, missing: Array, mode: str) -> Array:
    """Move each float32 one step where the exact value lies on the side that `mode` asks for."""
    down = (missing < 0) & ((mode == "rd") | ((mode == "rz") & (nearest > 0)))
    up = (missing > 0) & ((mode == "ru") | ((mode == "rz") & (nearest < 0)))
    result = np.where(down, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    return np.where(up, np.nextafter(result, np.float32(np.inf)), result)


ROUNDERS: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
DIRECTED = {f"f{name}": name for name in ("add", "sub", "mul", "div", "rcp", "sqrt", "maf")} | {"fmaf": "fma"}
FLOAT_TO_INT = {f"{f}2{i}" for f in ("float", "double") for i in ("int", "uint", "ll", "ull")}
INT_TO_FLOAT = {f"{i}2{f}" for f in ("float", "double") for i in ("int", "uint", "ll", "ull")}
DOUBLE_NEAREST: dict[str, Callable[..., Array]] = {
    "dadd": np.add,
    "dsub": np.subtract,
    "dmul": np.multiply,
    "ddiv": np.divide,
    "dsqrt": np.sqrt,
    "drcp": np.reciprocal,
}


def _with_mode(stem: str, mode: str, arguments: list[Array], result: str) -> Array | None:
    """Evaluate a function whose name ends in a rounding mode; None if there is none of that name."""
    if stem in DIRECTED:
        return _directed(DIRECTED[stem], mode, *(a.astype(np.float64) for a in arguments))
    if stem in FLOAT_TO_INT:
        # Triton declares the unsigned ones to return signed types: the bits are the unsigned result's.
        unsigned = "u" if stem.partition("2")[2].startswith("u") else ""
        integer = convert(
            ROUNDERS[mode](arguments[0].astype(np.float64)), "fp64", f"{unsigned}{result.lstrip('u')}"
        )
        return integer.view(NUMPY_DTYPES[result])
    if stem in INT_TO_FLOAT:
        exact = arguments[0]
        nearest = exact.astype(np.float32 if result == "fp32" else np.float64)
        if result == "fp64" or mode == "rn":
            return nearest
        # Python's integers: the difference of an int64 and a float32 fits no numpy type
        missing = np.array(
            [int(e) - int(n) for e, n in zip(exact.ravel(), nearest.ravel(), strict=True)], dtype=object
        )
        return _corrected(nearest, np.sign(missing).astype(np.float64).reshape(exact.shape), mode)
    if stem in DOUBLE_NEAREST and mode == "rn":
        return DOUBLE_NEAREST[stem](*arguments)
    if stem == "double2float":
        exact = arguments[0]
        nearest = exact.astype(np.float32)
        return _corrected(nearest, exact - nearest, mode)
    return None


# ---- dispatch ----------------------------------------------------------------------------------------------


def call_symbol(symbol: str, arguments: list[Array], result: str) -> Array:
    """Evaluate one libdevice function on arrays of one shape.

    Args:
        symbol: The external symbol, such as `__nv_tanhf`.
        arguments: numpy arrays of the declared argument types.
        result: The name of the declared result type, such as `fp32`.

    Raises:
        NotInterpretable: The function is not imitated.
    """
    name = symbol.removeprefix("__nv_")
    if name in BITCASTS:
        return np.ascontiguousarray(arguments[0]).view(BITCASTS[name])
    if not name.startswith("log"):  # measured: the logarithms scale subnormals before they look at them
        arguments = [flush_subnormals(argument) for argument in arguments]
    values = _evaluate(name, arguments, result)
    if values is None:
        raise NotInterpretable(f"libdevice function {symbol} is not imitated by the interpreter")
    if values.dtype == np.float64 and result != "fp64":
        values = convert(values, "fp64", result)
    return flush_subnormals(values.astype(NUMPY_DTYPES[result], copy=False))


def _evaluate(name: str, arguments: list[Array], result: str) -> Array | None:
    if name.startswith("nextafter"):
        return np.nextafter(arguments[0], arguments[1])
    if name in ("fma", "fmaf"):
        return fused_multiply_add(*arguments)
    stem, _, mode = name.rpartition("_")
    if mode in ROUNDERS:
        rounded = _with_mode(stem, mode, arguments, result)
        if rounded is not None:
            return rounded
    if arguments[0].dtype.kind in "iu":
        integer = INTEGERS.get(name.removesuffix("ll") if name != "clzll" else "clz") or INTEGERS.get(name)
        return None if integer is None else integer(*arguments)
    if name.startswith(("llrint", "llround")):
        rounded = np.rint(arguments[0]) if "rint" in name else _round_half_away(arguments[0])
        return convert(rounded.astype(np.float64), "fp64", result)
    for candidate in (name, name.removeprefix("fast_"), name.removesuffix("f"), name.removesuffix("d"),
                      name.removeprefix("fast_").removesuffix("f"), name.removesuffix("ef")):  # fmt: skip
        if candidate in FLOATS:
            return FLOATS[candidate](
                *(a if a.dtype.kind in "iu" else a.astype(np.float64) for a in arguments)
            )
    return None
