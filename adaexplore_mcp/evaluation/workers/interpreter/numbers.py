"""Number formats that numpy lacks, and conversions between all of Triton's as the hardware makes them.

bf16 lives in uint16 arrays and the fp8 types in uint8 arrays, as bit patterns, like in Triton's own
interpreter. Every rule marked "measured" was read off an NVIDIA H200 with Triton 3.6; the recording is part
of the tests.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "NARROW_FLOATS",
    "NUMPY_DTYPES",
    "Array",
    "bfloat16_to_float32",
    "convert",
    "float32_to_bfloat16",
    "flush_subnormals",
    "fused_multiply_add",
    "poison_value",
    "to_float",
    "truncate_to_tf32",
]

Array = npt.NDArray[Any]

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "int1": np.dtype(np.bool_),
    **{
        name: np.dtype(name)
        for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    },
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    **{name: np.dtype(np.uint8) for name in ("fp8e5", "fp8e4nv", "fp8e4b15", "fp8e5b16", "fp8e4b8")},
}

NATIVE_FLOATS = frozenset({"fp16", "fp32", "fp64"})
SMALLEST_NORMAL = np.float32(2.0**-126)
NARROW_FLOATS = frozenset({"fp16", "bf16", "fp8e5", "fp8e4nv", "fp8e4b15", "fp8e5b16", "fp8e4b8"})
BFLOAT16_NAN = np.uint16(0x7FFF)  # measured: cvt.rn.bf16.f32 gives this one NaN


# ---- bf16 and tf32 -----------------------------------------------------------------------------------------


def bfloat16_to_float32(bits: Array) -> Array:
    """Widen bf16 bit patterns (uint16) to float32; exact."""
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def float32_to_bfloat16(values: Array, *, toward_zero: bool = False) -> Array:
    """Round float32 to bf16 bit patterns (uint16): to nearest even, or toward zero. NaN stays NaN."""
    bits = values.view(np.uint32)
    if toward_zero:
        rounded = bits >> np.uint32(16)
    else:
        rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        result[nan] = BFLOAT16_NAN
    return result


def truncate_to_tf32(values: Array) -> Array:
    """Cut float32 to the 10 mantissa bits that a tensor core reads in TF32 mode.

    Measured: both mma.sync and wgmma ignore the low 13 bits; neither they nor Triton round.
    """
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def flush_subnormals(values: Array) -> Array:
    """Replace the subnormals of a float32 array by zero of the same sign; return others as they are."""
    if values.dtype != np.float32:
        return values
    tiny = np.abs(values) < SMALLEST_NORMAL
    return np.where(tiny, np.copysign(np.float32(0), values), values) if tiny.any() else values


def _float64_to_float32_odd(values: Array) -> Array:
    """Convert float64 to float32 with round-to-odd, after which one more rounding to 16 bits is a single one.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 57(4), 2008.
    """
    nearest = values.astype(np.float32)
    inexact = (nearest.astype(np.float64) != values) & np.isfinite(nearest)
    even = (nearest.view(np.uint32) & np.uint32(1)) == 0
    toward = np.where(nearest.astype(np.float64) < values, np.float32(np.inf), np.float32(-np.inf))
    return np.where(inexact & even, np.nextafter(nearest, toward), nearest)


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z rounded once; float64 is rounded twice, since numpy has no wider type.

    Source: the product of two float32 is exact in float64; the sum's rounding is made odd, so that the last
    rounding is the only one that counts (Boldo and Melquiond, IEEE TC 57(4), 2008).
    """
    if x.dtype == np.float64:
        return x * y + z
    product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total = product + addend
    shadow = total - product  # Knuth's two-sum: the exact error of the addition
    error = (product - (total - shadow)) + (addend - shadow)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    odd = np.where(
        (error != 0) & even & np.isfinite(total),
        np.nextafter(total, np.where(error > 0, np.inf, -np.inf)),
        total,
    )
    return odd.astype(x.dtype)


# ---- fp8 ---------------------------------------------------------------------------------------------------


def _decode_table(exponent_bits: int, bias: int, *, kind: str) -> Array:
    """Return the float32 value of each of the 256 codes.

    `kind` says what the top codes mean: "ieee" has infinities and NaN, "fn" only NaN at 0x7F and 0xFF, "fnuz"
    only NaN at 0x80, "finite" neither.
    """
    mantissa_bits = 7 - exponent_bits
    magnitude = np.arange(128)
    exponent, fraction = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
    significand = np.where(exponent > 0, (1 << mantissa_bits) + fraction, fraction)
    values = np.ldexp(significand.astype(np.float32), np.maximum(exponent, 1) - bias - mantissa_bits)
    if kind == "ieee":
        top = exponent == (1 << exponent_bits) - 1
        values = np.where(top, np.where(fraction == 0, np.float32(np.inf), np.float32(np.nan)), values)
    elif kind == "fn":
        values[127] = np.nan
    table = np.concatenate([values, -values]).astype(np.float32)
    if kind == "fnuz":
        table[128] = np.nan
    return table


FLOAT8_VALUES: dict[str, Array] = {
    "fp8e5": _decode_table(5, 15, kind="ieee"),
    "fp8e4nv": _decode_table(4, 7, kind="fn"),
    "fp8e4b15": _decode_table(4, 15, kind="finite"),
    "fp8e5b16": _decode_table(5, 16, kind="fnuz"),
    "fp8e4b8": _decode_table(4, 8, kind="fnuz"),
}
# fp8e4b15 stops at 1.75 in both directions: Triton's conversion clamps there (language/extra/cuda/utils.py).
_LARGEST_CODE = {"fp8e5": 0x7B, "fp8e4nv": 0x7E, "fp8e4b15": 0x7E, "fp8e5b16": 0x7F, "fp8e4b8": 0x7F}
_NAN_CODE = {"fp8e5": 0x7F, "fp8e4nv": 0x7F, "fp8e4b15": 0x7F, "fp8e5b16": 0x80, "fp8e4b8": 0x80}


def _float32_to_float8(values: Array, name: str, *, toward_zero: bool) -> Array:
    """Round float32 to fp8 codes (uint8).

    To nearest even, and beyond the largest finite value to that value, infinities included. Measured:
    cvt.rn.satfinite is what Triton emits on sm_89 and later.
    """
    if name == "fp8e4b15":
        return _float32_to_e4m3b15(values)
    largest = _LARGEST_CODE[name]
    finite = FLOAT8_VALUES[name][: largest + 1]
    magnitude = np.abs(values)
    if toward_zero:
        code = np.searchsorted(finite, magnitude, side="right") - 1
    else:
        midpoints = (finite[1:].astype(np.float64) + finite[:-1]) / 2
        code = np.searchsorted(midpoints, magnitude, side="left")
        tie = midpoints[np.minimum(code, largest - 1)] == magnitude
        code = np.where(tie & (code % 2 == 1), code + 1, code)
    code = np.minimum(code, largest).astype(np.uint8)
    negative = np.signbit(values)
    if _NAN_CODE[name] == 0x80:  # these formats have no negative zero: that code is their NaN
        negative &= code != 0
    code |= negative.astype(np.uint8) << np.uint8(7)
    code[np.isnan(values)] = _NAN_CODE[name]
    return code


def _float32_to_e4m3b15(values: Array) -> Array:
    """Convert as Triton's own assembly does: cut to fp16, clamp at 1.75, round half up.

    Source: convert_float16_to_fp8e4b15 in triton/language/extra/cuda/utils.py. There is no NaN.
    """
    bits = _from_float(values, "fp16", toward_zero=True).view(np.uint16)
    magnitude = np.minimum(bits & np.uint16(0x7FFF), np.uint16(0x3F00))
    rounded = (magnitude * np.uint16(2) + np.uint16(0x80)) >> np.uint16(8)
    code: Array = (rounded | ((bits >> np.uint16(8)) & np.uint16(0x80))).astype(np.uint8)
    return code


# ---- conversions -------------------------------------------------------------------------------------------


def to_float(data: Array, name: str) -> Array:
    """Return a numpy float array of the same values: bf16 and fp8 as float32, the others as they are."""
    if name == "bf16":
        return bfloat16_to_float32(data)
    if name in FLOAT8_VALUES:
        return FLOAT8_VALUES[name][data]
    return data


def _from_float(values: Array, name: str, *, toward_zero: bool) -> Array:
    """Round a numpy float array to a floating format; NaN stays NaN."""
    if name == "bf16":
        if values.dtype == np.float64:
            values = _float64_to_float32_odd(values)
        return float32_to_bfloat16(values.astype(np.float32, copy=False), toward_zero=toward_zero)
    if name in FLOAT8_VALUES:
        if values.dtype == np.float64:
            values = _float64_to_float32_odd(values)
        return _float32_to_float8(values.astype(np.float32, copy=False), name, toward_zero=toward_zero)
    rounded = values.astype(NUMPY_DTYPES[name], copy=False)
    if toward_zero and rounded.dtype.itemsize < values.dtype.itemsize:
        away = np.abs(rounded.astype(values.dtype)) > np.abs(values)
        rounded = np.where(away, np.nextafter(rounded, rounded.dtype.type(0)), rounded)
    return rounded


def _float_to_integer(values: Array, target: np.dtype[Any]) -> Array:
    """Cut toward zero and saturate, as cvt.rzi does.

    Measured: 8-bit targets saturate at 16 bits and keep the low byte; NaN gives 0, or the lowest bit pattern
    with only the top bit set for 64-bit targets.
    """
    wide = target if target.itemsize > 1 else np.dtype(np.uint16 if target.kind == "u" else np.int16)
    info = np.iinfo(wide)
    limit = float(1 << (info.bits - 1))
    if bool((np.abs(values) < limit).all()) and (wide.kind == "i" or not np.signbit(values).any()):
        return values.astype(wide).astype(target)  # nothing out of range: the C cast is defined
    exact = np.trunc(values.astype(np.float64))
    above, below = (
        exact > float(info.max),
        exact < float(info.min),
    )  # float(max) of 64 bits is one too high: see >=
    if info.bits == 64:
        above = exact >= float(info.max)
    nan = np.isnan(exact)
    inside = np.where(above | below | nan, 0.0, exact)
    result = inside.astype(wide)
    result[above], result[below] = info.max, info.min
    if info.bits == 64:
        result[nan] = np.array([1 << 63], dtype=np.uint64).view(wide)[0]
    return result.astype(target)


def convert(data: Array, source: str, target: str, *, toward_zero: bool = False) -> Array:
    """Convert between any two of Triton's scalar types, given by name.

    Args:
        data: An array of the dtype that NUMPY_DTYPES names for `source`.
        source: The name of a Triton type, such as `bf16`.
        target: Likewise.
        toward_zero: Round toward zero where a float becomes a narrower float; otherwise to nearest even.

    Returns:
        A new array of NUMPY_DTYPES[target], of the same shape.
    """
    if source == target:
        return data
    if source in NATIVE_FLOATS or source == "bf16" or source in FLOAT8_VALUES:
        values = to_float(data, source)
        if target == "int1":
            return np.not_equal(values, 0)
        if target in NATIVE_FLOATS or target == "bf16" or target in FLOAT8_VALUES:
            return _from_float(values, target, toward_zero=toward_zero)
        return _float_to_integer(values, NUMPY_DTYPES[target])
    if target == "int1":
        return np.not_equal(data, 0)
    if target in NATIVE_FLOATS:
        return _integer_to_float(data, NUMPY_DTYPES[target])
    if target == "bf16" or target in FLOAT8_VALUES:
        return _from_float(data.astype(np.float64), target, toward_zero=toward_zero)
    return data.astype(NUMPY_DTYPES[target])


def _integer_to_float(data: Array, target: np.dtype[Any]) -> Array:
    """Round integers to a float format, once, to nearest even."""
    if target == np.float16:  # numpy goes through float32, which would round large integers twice
        return data.astype(np.float64).astype(np.float16)
    return data.astype(target)


# ---- undefined values --------------------------------------------------------------------------------------


def poison_value(name: str, mode: str) -> Any:  # noqa: ANN401 - a numpy scalar of the type's own dtype
    """Return what a lane that nothing defined holds: NaN or the largest integer, or zero in mode "zero"."""
    dtype = NUMPY_DTYPES[name]
    if mode == "zero":
        return dtype.type(0)
    if name in NATIVE_FLOATS:
        return dtype.type(np.nan)
    if name == "bf16":
        return BFLOAT16_NAN
    if name in _NAN_CODE:
        return dtype.type(_NAN_CODE[name])
    return dtype.type(True) if name == "int1" else dtype.type(np.iinfo(dtype).max)
