# ruff: noqa: C901, N803, PLR0912, PLR0917, RUF021, SIM108  # kernels are written as kernels are: constants in capitals, one branch per operation
"""Small kernels whose results a GPU recorded once; the interpreter must reproduce them.

`python hardware.py OUT.npz` on a machine with a GPU records; `scenarios/hardware_replay.py` makes the same launches in the
interpreter and compares. Inputs are made by numpy from fixed seeds, so that both sides see the same bits. What is stored
in `hardware_h200.npz` was recorded with triton 3.6.0 on an NVIDIA H200; a newer Triton may compile differently.
"""

import runpy
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

N = 256
SPECIAL_F32 = [
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.14159274, 1e-3, 65504.0, 65519.0, 65520.0, 1e5, -1e5, 3e38, -3e38,
    float("inf"), float("-inf"), float("nan"), 1e-40, -1e-40, 6e-8, 5.9e-8, 2.9e-8, 126.5, 127.5, 128.0, -128.5,
    -129.0, 255.5, 256.0, 300.0, -1.0, -0.5, 32767.5, 32768.0, -32769.0, 65535.5, 70000.0, 2147483520.0, 2147483648.0,
    -2147483648.0, -2147483904.0, 4294967040.0, 4294967296.0, 9.2e18, 9.3e18, -9.3e18, 1.8e19, 1.9e19, 448.0, 464.0,
    465.0, 480.0, 57344.0, 61440.0, 61441.0, 0.001953125, 0.0009765625, 0.00097656, 0.0029296875, 7.6e-6, 1.00390625,
    1.01171875, 1.0009765625, 1.00048828125, 1.000244140625, 1.0001220703125, 1.00006103515625,
]  # fmt: skip

EXPERIMENTS: dict[str, Callable[[str], dict[str, torch.Tensor]]] = {}


def experiment(function):
    EXPERIMENTS[function.__name__] = function
    return function


REFUSED: list[str] = []


def launch(kernel, grid, *args, out, **constants):
    """Run one kernel and return `out`, or None if it does not compile: one refusal must not lose the others."""
    try:
        kernel[grid](*args, **constants)
    except Exception as error:  # noqa: BLE001 - any compiler error
        REFUSED.append(f"{kernel.__name__} {constants}: {type(error).__name__}: {str(error)[-300:]}")
        return None
    return out


def f32(seed: int = 0, n: int = N, special: bool = True, scale: float = 4.0) -> torch.Tensor:
    x = np.random.default_rng(seed).standard_normal(n).astype(np.float32) * np.float32(scale)
    if special:
        k = min(n, len(SPECIAL_F32))
        x[:k] = np.roll(np.array(SPECIAL_F32, dtype=np.float32), seed)[:k]
    return torch.from_numpy(x)


def integers(seed: int, dtype: torch.dtype, n: int = N) -> torch.Tensor:
    info = torch.iinfo(dtype)
    rng = np.random.default_rng(seed)
    x = rng.integers(info.min, info.max, n, dtype=np.int64, endpoint=True)
    small = rng.integers(-9, 10, n) if info.min < 0 else rng.integers(0, 19, n)
    x = np.where(rng.random(n) < 0.5, small, x)
    x[:4] = [info.min, info.max, 0, 1]
    return torch.from_numpy(x).to(dtype)


# ---- element-wise -----------------------------------------------------------------------------------------------


@triton.jit
def binary_kernel(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    if OP == "add":
        r = x + y
    elif OP == "sub":
        r = x - y
    elif OP == "mul":
        r = x * y
    elif OP == "div":
        r = x / y
    elif OP == "floordiv":
        r = x // y
    elif OP == "mod":
        r = x % y
    elif OP == "min":
        r = tl.minimum(x, y)
    elif OP == "max":
        r = tl.maximum(x, y)
    elif OP == "min_nan":
        r = tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "max_nan":
        r = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "clamp":
        r = tl.clamp(x, -2.0, 2.0)
    elif OP == "clamp_nan":
        r = tl.clamp(x, -2.0, 2.0, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "fma":
        r = tl.fma(x, y, x)
    elif OP == "lt":
        r = x < y
    elif OP == "ne":
        r = x != y
    elif OP == "eq":
        r = x == y
    elif OP == "and":
        r = x & y
    elif OP == "xor":
        r = x ^ y
    elif OP == "shl":
        r = x << y
    elif OP == "shr":
        r = x >> y
    elif OP == "umulhi":
        r = tl.umulhi(x, y)
    elif OP == "where":
        r = tl.where(x > y, x, y)
    elif OP == "neg":
        r = -x
    elif OP == "abs":
        r = tl.abs(x)
    elif OP == "invert":
        r = ~x
    tl.store(out_ptr + o, r.to(out_ptr.dtype.element_ty))


def binary(device, x, y, op, out_dtype=None):
    out = torch.zeros(x.numel(), dtype=out_dtype or x.dtype, device=device)
    return launch(binary_kernel, (1,), x.to(device), y.to(device), out, out=out, OP=op, N=x.numel())


FLOAT_OPS = ["add", "sub", "mul", "div", "min", "max", "min_nan", "max_nan", "clamp", "clamp_nan", "fma", "lt", "ne",
             "eq", "where", "neg", "abs", "mod"]  # fmt: skip
INT_OPS = ["add", "sub", "mul", "floordiv", "mod", "min", "max", "lt", "eq", "and", "xor", "neg", "abs", "invert",
           "where", "div"]  # fmt: skip


@experiment
def float_binary(device):
    out = {}
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        x, y = f32(1).to(dtype), f32(2).to(dtype)
        for op in FLOAT_OPS:
            result = (
                torch.int8 if op in ("lt", "ne", "eq") else torch.float32 if op in ("div", "mod") else dtype
            )
            out[f"{name}_{op}"] = binary(device, x, y, op, result)
    return out


@experiment
def int_binary(device):
    out = {}
    kinds = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.uint32, torch.int64]
    for dtype in kinds:
        if dtype == torch.uint32:
            x, y = (integers(s, torch.int32).view(torch.uint32) for s in (3, 4))
        else:
            x, y = integers(3, dtype), integers(4, dtype)
        for op in INT_OPS:
            if op in ("floordiv", "mod", "div"):
                signed = y if dtype != torch.uint32 else y.view(torch.int32)
                divisor = torch.where(signed == 0, torch.ones_like(signed), signed)
                if dtype.is_signed:  # the one overflow of signed division is undefined
                    divisor = torch.where(divisor == -1, torch.full_like(divisor, 3), divisor)
                z = divisor if dtype != torch.uint32 else divisor.view(torch.uint32)
            else:
                z = y
            result = torch.float32 if op == "div" else torch.int8 if op in ("lt", "eq") else dtype
            out[f"{str(dtype)[6:]}_{op}"] = binary(device, x, z, op, result)
        amount = torch.arange(N, dtype=torch.int64) % torch.iinfo(dtype).bits
        shift = amount.to(torch.int32).view(torch.uint32) if dtype == torch.uint32 else amount.to(dtype)
        out[f"{str(dtype)[6:]}_shl"] = binary(device, x, shift, "shl")
        out[f"{str(dtype)[6:]}_shr"] = binary(device, x, shift, "shr")
    for dtype in (torch.int32, torch.int64):
        out[f"{str(dtype)[6:]}_umulhi"] = binary(device, integers(3, dtype), integers(4, dtype), "umulhi")
    x, y = (torch.arange(N) % 2 == 0), (torch.arange(N) % 3 == 0)
    for op in ("add", "mul", "and", "xor", "lt", "eq", "invert", "max", "min", "where"):
        out[f"bool_{op}"] = binary(device, x, y, op, torch.int32)
    return out


@triton.jit
def undefined_kernel(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    y = tl.load(y_ptr + o)
    tl.store(out_ptr + o, x // y if OP == 0 else (x % y if OP == 1 else (x << y if OP == 2 else x >> y)))


@experiment
def undefined_int(device):
    """Division by zero and shifts past the width: undefined by the language, but this is what the chip does."""
    out = {}
    for name in ("int32", "uint32", "int64"):
        raw = integers(5, torch.int32 if name != "int64" else torch.int64, 32)
        zero = torch.zeros_like(raw)
        wide = torch.full_like(raw, 70)
        minimum = torch.full_like(raw, torch.iinfo(raw.dtype).min)
        view = (lambda t: t.view(torch.uint32)) if name == "uint32" else (lambda t: t)
        cases = [
            ("div0", raw, zero, 0),
            ("mod0", raw, zero, 1),
            ("shl70", raw, wide, 2),
            ("shr70", raw, wide, 3),
        ]
        if name != "uint32":
            cases += [
                ("min_div", minimum, -torch.ones_like(raw), 0),
                ("min_mod", minimum, -torch.ones_like(raw), 1),
            ]
        for label, a, b, op in cases:
            result = torch.zeros_like(raw, device=device)
            out[f"{name}_{label}"] = launch(undefined_kernel, (1,), view(a).to(device), view(b).to(device), view(result),
                                            out=result, OP=op, N=32)  # fmt: skip
    return out


# ---- conversions ------------------------------------------------------------------------------------------------


@triton.jit
def cast_kernel(x_ptr, out_ptr, ROUND: tl.constexpr, TO: tl.constexpr, BITS: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    if ROUND == "":
        r = x.to(TO)
    else:
        r = x.to(TO, fp_downcast_rounding=ROUND)
    tl.store(out_ptr + o, r.to(BITS, bitcast=True))


@triton.jit
def decode_kernel(x_ptr, out_ptr, FROM: tl.constexpr, TO: tl.constexpr, BITS: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o).to(FROM, bitcast=True)
    tl.store(out_ptr + o, x.to(TO).to(BITS, bitcast=True))


BITS = {
    8: (tl.int8, torch.int8),
    16: (tl.int16, torch.int16),
    32: (tl.int32, torch.int32),
    64: (tl.int64, torch.int64),
}
FLOATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}


def cast(device, x, to, rounding=""):
    bits_tl, bits_torch = BITS[to.primitive_bitwidth]
    out = torch.zeros(x.numel(), dtype=bits_torch, device=device)
    launch(cast_kernel, (1,), x.to(device), out, out=out, ROUND=rounding, TO=to, BITS=bits_tl, N=x.numel())
    return out.view(FLOATS.get(to.name, bits_torch))


@experiment
def float_casts(device):
    out = {}
    sources = {"fp32": f32(6), "fp16": f32(7).to(torch.float16), "bf16": f32(8).to(torch.bfloat16),
               "fp64": f32(9).double() * 1.0000000123}  # fmt: skip
    targets = {"fp32": tl.float32, "fp16": tl.float16, "bf16": tl.bfloat16, "fp64": tl.float64, "fp8e5": tl.float8e5,
               "fp8e4nv": tl.float8e4nv}  # fmt: skip
    for s, x in sources.items():
        for t, to in targets.items():
            if s == t or (s == "fp64" and t.startswith("fp8")):
                continue
            out[f"{s}_to_{t}"] = cast(device, x, to)
    out["fp32_to_fp16_rtz"] = cast(device, f32(6), tl.float16, "rtz")
    out["fp32_to_bf16_rtz"] = cast(device, f32(6), tl.bfloat16, "rtz")
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    for name, dtype in (("fp8e5", tl.float8e5), ("fp8e4nv", tl.float8e4nv)):
        for t, to in (("fp32", tl.float32), ("fp16", tl.float16), ("bf16", tl.bfloat16)):
            bits_tl, bits_torch = BITS[to.primitive_bitwidth]
            result = torch.zeros(256, dtype=bits_torch, device=device)
            launch(
                decode_kernel,
                (1,),
                codes.to(device),
                result,
                out=result,
                FROM=dtype,
                TO=to,
                BITS=bits_tl,
                N=256,
            )
            out[f"{name}_to_{t}"] = result.view(FLOATS[to.name])
    return out


@experiment
def int_casts(device):
    out = {}
    sources = {"fp32": f32(10), "fp16": f32(11).to(torch.float16), "bf16": f32(12).to(torch.bfloat16)}
    targets = {"int8": tl.int8, "uint8": tl.uint8, "int16": tl.int16, "uint16": tl.uint16, "int32": tl.int32,
               "uint32": tl.uint32, "int64": tl.int64, "uint64": tl.uint64}  # fmt: skip
    for s, x in sources.items():
        for t, to in targets.items():
            out[f"{s}_to_{t}"] = cast(device, x, to)
    for s, dtype in (("int8", torch.int8), ("int32", torch.int32), ("int64", torch.int64)):
        for t, to in (("fp32", tl.float32), ("fp16", tl.float16), ("bf16", tl.bfloat16), ("int8", tl.int8),
                      ("uint8", tl.uint8), ("int16", tl.int16), ("uint32", tl.uint32), ("int64", tl.int64)):  # fmt: skip
            if s != t:
                out[f"{s}_to_{t}"] = cast(device, integers(13, dtype), to)
    for t, to in (("fp32", tl.float32), ("int8", tl.int8), ("int32", tl.int32), ("bf16", tl.bfloat16)):
        out[f"bool_to_{t}"] = cast(device, torch.arange(N) % 3 == 0, to)
    return out


# ---- reductions and scans ---------------------------------------------------------------------------------------


@triton.jit
def reduce_kernel(x_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr, M: tl.constexpr):
    o = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + o)
    if OP == "sum":
        r = tl.sum(x, axis=1)
    elif OP == "max":
        r = tl.max(x, axis=1)
    elif OP == "min":
        r = tl.min(x, axis=1)
    elif OP == "argmax":
        r = tl.argmax(x, axis=1)
    elif OP == "argmin":
        r = tl.argmin(x, axis=1)
    elif OP == "xor_sum":
        r = tl.xor_sum(x, axis=1)
    tl.store(out_ptr + tl.arange(0, N), r.to(out_ptr.dtype.element_ty))


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def first_two(a, b, c, d):
    return a * c, a * d + b


@triton.jit
def scan_kernel(x_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr, M: tl.constexpr):
    o = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + o)
    if OP == "cumsum":
        r = tl.cumsum(x, axis=1)
    elif OP == "cumsum_reverse":
        r = tl.cumsum(x, axis=1, reverse=True)
    elif OP == "cumprod":
        r = tl.cumprod(x, axis=0)
    elif OP == "user":
        r = tl.associative_scan(x, 1, product)
    elif OP == "user_pair":
        _, r = tl.associative_scan((x * 0 + 1.01, x), 1, first_two)
    elif OP == "flip":
        r = tl.flip(x, 1)
    elif OP == "sort":
        r = tl.sort(x, dim=1)
    elif OP == "sort_descending":
        r = tl.sort(x, dim=1, descending=True)
    tl.store(out_ptr + o, r.to(out_ptr.dtype.element_ty))


def grid16(seed, special=False):
    return f32(seed, 1024, special, 1.0).reshape(16, 64)


@experiment
def reductions(device):
    out = {}
    sources = {"fp32": grid16(20), "fp16": grid16(21).to(torch.float16), "bf16": grid16(22).to(torch.bfloat16),
               "int32": integers(23, torch.int32, 1024).reshape(16, 64), "int8": integers(24, torch.int8, 1024).reshape(16, 64)}  # fmt: skip
    for name, x in sources.items():
        for op in ("sum", "max", "min", "argmax", "argmin"):
            result = torch.int32 if "arg" in op or name.startswith("int") else torch.float32
            y = torch.zeros(16, dtype=result, device=device)
            out[f"{name}_{op}"] = launch(reduce_kernel, (1,), x.to(device), y, out=y, OP=op, N=16, M=64)
    y = torch.zeros(16, dtype=torch.int32, device=device)
    out["int32_xor_sum"] = launch(
        reduce_kernel, (1,), sources["int32"].to(device), y, out=y, OP="xor_sum", N=16, M=64
    )
    big = (grid16(25) * 2e4).to(torch.float16)
    y = torch.zeros(16, dtype=torch.float32, device=device)
    out["fp16_sum_overflow"] = launch(reduce_kernel, (1,), big.to(device), y, out=y, OP="sum", N=16, M=64)
    with_nan = grid16(26)
    with_nan[0, 5] = with_nan[1, 0] = with_nan[2, 63] = float("nan")
    with_nan[3, :] = float("nan")
    with_nan[4, 7] = with_nan[4, 40] = 9.0  # a tie
    for op in ("sum", "max", "min", "argmax", "argmin"):
        y = torch.zeros(16, dtype=torch.int32 if "arg" in op else torch.float32, device=device)
        out[f"nan_{op}"] = launch(reduce_kernel, (1,), with_nan.to(device), y, out=y, OP=op, N=16, M=64)
    return out


@experiment
def scans(device):
    out = {}
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        x = grid16(27).to(dtype)
        for op in ("cumsum", "cumsum_reverse", "cumprod", "user", "flip", "sort", "sort_descending"):
            y = torch.zeros(16, 64, dtype=torch.float32, device=device)
            out[f"{name}_{op}"] = launch(scan_kernel, (1,), x.to(device), y, out=y, OP=op, N=16, M=64)
    y = torch.zeros(16, 64, dtype=torch.float32, device=device)
    out["fp32_user_pair"] = launch(
        scan_kernel, (1,), grid16(28).to(device), y, out=y, OP="user_pair", N=16, M=64
    )
    for op in ("cumsum", "sort", "flip"):
        y = torch.zeros(16, 64, dtype=torch.int32, device=device)
        out[f"int32_{op}"] = launch(
            scan_kernel, (1,), integers(29, torch.int32, 1024).to(device), y, out=y, OP=op, N=16, M=64
        )
    return out


# ---- dot --------------------------------------------------------------------------------------------------------


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, PRECISION: tl.constexpr, OUT: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
               K: tl.constexpr):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
    tl.store(out_ptr + m[:, None] * N + n[None, :], c.to(out_ptr.dtype.element_ty))


@triton.jit
def dot_fp8_kernel(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :]).to(tl.float8e4nv)
    b = tl.load(b_ptr + k[:, None] * N + n[None, :]).to(tl.float8e4nv)
    tl.store(out_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


def dot(device, a, b, precision=None, out=tl.float32, result=torch.float32):
    c = torch.zeros(a.shape[0], b.shape[1], dtype=result, device=device)
    return launch(dot_kernel, (1,), a.to(device), b.to(device), c, out=c, PRECISION=precision, OUT=out, M=a.shape[0],
                  N=b.shape[1], K=a.shape[1])  # fmt: skip


@experiment
def dots(device):
    out = {}
    for size in (16, 64):  # mma.sync and, from 64 rows, wgmma on sm_90
        a = f32(30, size * size, False, 1.0).reshape(size, size)
        b = f32(31, size * size, False, 1.0).reshape(size, size)
        one = torch.eye(size)
        for precision in ("tf32", "ieee", "tf32x3", None):
            out[f"rounding_{precision}_{size}"] = dot(device, a, one, precision)
            out[f"fp32_{precision}_{size}"] = dot(device, a, b, precision)
        out[f"rounding_rhs_tf32_{size}"] = dot(device, one, b, "tf32")
        for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
            out[f"{name}_{size}"] = dot(device, a.to(dtype), b.to(dtype))
        out[f"fp16_acc16_{size}"] = dot(device, a.half(), b.half(), out=tl.float16)
        out[f"fp16_acc16_overflow_{size}"] = dot(device, a.half() * 200, b.half() * 200, out=tl.float16)
        i8 = [integers(s, torch.int8, size * size).reshape(size, size) for s in (32, 33)]
        if size == 64:
            out[f"int8_{size}"] = dot(device, *i8, out=tl.int32, result=torch.int32)
            c = torch.zeros(size, size, device=device)
            out[f"fp8e4nv_{size}"] = launch(dot_fp8_kernel, (1,), a.to(device), b.to(device), c, out=c, M=size, N=size,
                                            K=size)  # fmt: skip
    # Eight rows say as much as all of them, and keep the recording small.
    return {key: None if value is None else value[:8].contiguous() for key, value in out.items()}


# ---- memory -----------------------------------------------------------------------------------------------------


@triton.jit
def atomic_kernel(p_ptr, x_ptr, old_ptr, OP: tl.constexpr, SPREAD: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    p = p_ptr + o // SPREAD
    if OP == "add":
        old = tl.atomic_add(p, x)
    elif OP == "max":
        old = tl.atomic_max(p, x)
    elif OP == "min":
        old = tl.atomic_min(p, x)
    elif OP == "xchg":
        old = tl.atomic_xchg(p, x)
    elif OP == "and":
        old = tl.atomic_and(p, x)
    elif OP == "cas":
        old = tl.atomic_cas(p, x, x + 1)
    tl.store(old_ptr + o, old)


@experiment
def atomics(device):
    out = {}
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16), ("int32", torch.int32)):  # fmt: skip
        ops = ["add"] + (["max", "min", "xchg", "cas"] if name in ("fp32", "int32") else [])
        for op in ops:
            x = f32(40, 64, False).to(dtype)
            start = f32(41, 64, False).to(dtype)
            start[:8] = x[:8]
            if name == "fp32":
                start[10], x[11] = float("nan"), float("nan")
            p, old = start.to(device), torch.zeros(64, dtype=dtype, device=device)
            out[f"{name}_{op}"] = launch(
                atomic_kernel, (1,), p, x.to(device), old, out=p, OP=op, SPREAD=1, N=64
            )
            out[f"{name}_{op}_old"] = old
    p = torch.zeros(8, dtype=torch.int32, device=device)
    out["int32_add_shared"] = launch(atomic_kernel, (1,), p, integers(42, torch.int32, 64).to(device),
                                     torch.zeros(64, dtype=torch.int32, device=device), out=p, OP="add", SPREAD=8,
                                     N=64)  # fmt: skip
    return out


@triton.jit
def masked_kernel(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o, mask=o % 2 == 0)
    tl.store(out_ptr + o, x)


@experiment
def masked_load(device):
    out = {}
    for dtype in (torch.float32, torch.float16, torch.int32):
        y = torch.full((64,), 7, dtype=dtype, device=device)
        ones = torch.ones(64, dtype=dtype, device=device)
        out[f"undefined_{str(dtype)[6:]}"] = launch(masked_kernel, (1,), ones, y, out=y, N=64)
    return out


# ---- functions --------------------------------------------------------------------------------------------------

MATH = [
    "exp",
    "exp2",
    "log",
    "log2",
    "sin",
    "cos",
    "sqrt",
    "sqrt_rn",
    "rsqrt",
    "erf",
    "floor",
    "ceil",
    "abs",
    "sigmoid",
]
UNARY = ["floor", "ceil", "trunc", "rint", "nearbyint", "round", "sqrt", "rsqrt", "rcbrt", "cbrt", "exp", "exp2", "exp10",
         "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinpi", "cospi", "asin", "acos", "atan", "sinh",
         "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "erfcinv", "erfcx", "normcdf", "normcdfinv",
         "tgamma", "lgamma", "j0", "j1", "y0", "y1", "cyl_bessel_i0", "cyl_bessel_i1", "logb", "saturatef", "fast_sinf",
         "fast_cosf", "fast_tanf", "fast_expf", "fast_exp10f", "fast_logf", "fast_log2f", "fast_log10f", "sqrt_rn",
         "sqrt_rz", "sqrt_ru", "sqrt_rd", "rcp_rn", "rcp_rz", "rcp_ru", "rcp_rd", "rsqrt_rn", "abs"]  # fmt: skip
UNARY_INT = ["isnan", "isinf", "finitef", "signbit", "ilogb", "llrint", "llround", "float2int_rn", "float2int_rz",
             "float2int_ru", "float2int_rd", "float2uint_rz", "float2uint_rn", "float2ll_rz", "float_as_int"]  # fmt: skip
BINARY = ["pow", "atan2", "fmod", "remainder", "hypot", "rhypot", "copysign", "nextafter", "fdim", "div_rn", "div_rz",
          "div_ru", "div_rd", "add_rn", "add_rz", "add_ru", "add_rd", "mul_rn", "mul_rz", "mul_ru", "mul_rd", "sub_rn",
          "sub_rz", "fast_dividef", "fast_powf"]  # fmt: skip
INT_UNARY = ["clz", "popc", "brev", "ffs", "abs", "int2float_rn", "int2float_rz", "int2float_ru", "int2float_rd",
             "int_as_float"]  # fmt: skip
INT_BINARY = ["mulhi", "mul24", "hadd", "rhadd"]


@triton.jit
def math_kernel(x_ptr, out_ptr, F: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    if F == "exp":
        r = tl.exp(x)
    elif F == "exp2":
        r = tl.exp2(x)
    elif F == "log":
        r = tl.log(x)
    elif F == "log2":
        r = tl.log2(x)
    elif F == "sin":
        r = tl.sin(x)
    elif F == "cos":
        r = tl.cos(x)
    elif F == "sqrt":
        r = tl.sqrt(x)
    elif F == "sqrt_rn":
        r = tl.sqrt_rn(x)
    elif F == "rsqrt":
        r = tl.rsqrt(x)
    elif F == "erf":
        r = tl.erf(x)
    elif F == "floor":
        r = tl.floor(x)
    elif F == "ceil":
        r = tl.ceil(x)
    elif F == "abs":
        r = tl.abs(x)
    elif F == "sigmoid":
        r = tl.sigmoid(x)
    tl.store(out_ptr + o, r)


@experiment
def maths(device):
    out = {}
    for name in MATH:
        y = torch.zeros(N, device=device)
        out[name] = launch(math_kernel, (1,), f32(50).to(device), y, out=y, F=name, N=N)
    return out


LIBRARY_SOURCE = """
@triton.jit
def {name}_{arity}_{kind}(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    r = libdevice.{name}({arguments})
    tl.store(out_ptr + o, r.to(out_ptr.dtype.element_ty))
"""


def library_kernels(plan):
    """Write one kernel per libdevice function: Triton tells kernels apart by their source."""
    text = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
    loads = "tl.load(x_ptr + o)", "tl.load(y_ptr + o)"
    for name, arity, dtype, _ in plan:
        arguments = ", ".join(loads[:arity])
        text += LIBRARY_SOURCE.format(name=name, arity=arity, kind=str(dtype)[6:], arguments=arguments)
    path = Path(tempfile.mkdtemp()) / "library_kernels.py"
    path.write_text(text)
    namespace = runpy.run_path(str(path))
    return [namespace[f"{name}_{arity}_{str(dtype)[6:]}"] for name, arity, dtype, _ in plan]


@experiment
def library(device):
    out = {}
    plan = [(n, 1, torch.float32, torch.float32) for n in UNARY] + [
        (n, 1, torch.float32, torch.int64) for n in UNARY_INT
    ]
    plan += [(n, 2, torch.float32, torch.float32) for n in BINARY]
    plan += [(n, 1, torch.int32, torch.float32 if "float" in n else torch.int32) for n in INT_UNARY]
    plan += [(n, 2, torch.int32, torch.int32) for n in INT_BINARY]
    plan = [entry for entry in plan if hasattr(libdevice, entry[0])]
    for kernel, (name, _, dtype, result) in zip(library_kernels(plan), plan, strict=True):
        x = f32(51, 128) if dtype == torch.float32 else integers(52, dtype, 128)
        y = f32(53, 128) if dtype == torch.float32 else integers(54, dtype, 128)
        r = torch.zeros(128, dtype=result, device=device)
        suffix = "_int" if dtype == torch.int32 else ""
        out[name + suffix] = launch(kernel, (1,), x.to(device), y.to(device), r, out=r, N=128)
    return out


@triton.jit
def wide_math_kernel(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, tl.exp(x))
    tl.store(out_ptr + N + o, tl.log(tl.abs(x)))
    tl.store(out_ptr + 2 * N + o, tl.erf(x))
    tl.store(out_ptr + 3 * N + o, tl.sqrt(tl.abs(x)))
    tl.store(out_ptr + 4 * N + o, tl.rsqrt(tl.abs(x)))
    tl.store(out_ptr + 5 * N + o, x % 0.7)
    tl.store(out_ptr + 6 * N + o, tl.fma(x, x, -x))


@triton.jit
def edge_math_kernel(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, tl.exp(x * 30))
    tl.store(out_ptr + N + o, tl.exp2(x * 40))
    tl.store(out_ptr + 2 * N + o, tl.clamp(x, -1.0, 3.0))
    tl.store(out_ptr + 3 * N + o, tl.clamp(x, -1.0, 3.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 4 * N + o, 1.0 / (1.0 + tl.exp(-x * 50)))
    tl.store(out_ptr + 5 * N + o, x % 3.0)
    tl.store(out_ptr + 6 * N + o, x / 1e-39)


@experiment
def more_maths(device):
    y = torch.zeros(7 * N, dtype=torch.float64, device=device)
    x = f32(55, N, False).double() * 1.00000001
    out = {"fp64": launch(wide_math_kernel, (1,), x.to(device), y, out=y, N=N)}
    y = torch.zeros(7 * N, device=device)
    out["edges"] = launch(edge_math_kernel, (1,), f32(56).to(device), y, out=y, N=N)
    return out


# ---- language ---------------------------------------------------------------------------------------------------


@triton.jit
def random_kernel(out_ptr, seed, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out_ptr + o, tl.rand(seed, o))
    tl.store(out_ptr + N + o, tl.randn(seed, o))
    tl.store(out_ptr + 2 * N + o, (tl.randint(seed, o) % 1024).to(tl.float32))


@triton.jit
def semantics_kernel(x_ptr, out_ptr, scale, n, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, (x * scale).to(tl.float32))  # a float argument is fp32, not a Python number
    tl.store(out_ptr + N + o, (x * 0.1).to(tl.float32))  # a literal is
    acc = x * 0
    for i in range(1, n):
        acc += (x * (i / 3)).to(acc.dtype)  # the loop variable is an int32: i / 3 is fp32
    tl.store(out_ptr + 2 * N + o, acc.to(tl.float32))
    near = (o > 3) and (o < 17) or (o == 40)
    tl.store(out_ptr + 3 * N + o, near.to(tl.float32))
    tl.store(out_ptr + 4 * N + o, (not (o < 20)).to(tl.float32))
    half = n // 2
    tl.store(out_ptr + 5 * N + o, max(o - 8, half).to(tl.float32))
    tl.store(out_ptr + 6 * N + o, ((0 - o) // 3 + (0 - o) % 3).to(tl.float32))
    i = n * 1000003
    tl.store(out_ptr + 7 * N + o, (o * i * 977).to(tl.float32))
    zero_d = tl.sum(x.to(tl.float32), axis=0)
    tl.store(out_ptr + 8 * N + o, tl.where(o == 0, zero_d if n > 3 else -zero_d, 0.0))


@triton.jit
def mixed_kernel(i8_ptr, u8_ptr, i32_ptr, f16_ptr, bf_ptr, out_ptr, n, big, flag, f, N: tl.constexpr):
    o = tl.arange(0, N)
    i8, u8, i32 = tl.load(i8_ptr + o), tl.load(u8_ptr + o), tl.load(i32_ptr + o)
    f16, bf = tl.load(f16_ptr + o), tl.load(bf_ptr + o)
    tl.store(out_ptr + o, (i8 * 3).to(tl.float64))
    tl.store(out_ptr + N + o, (i8 * n).to(tl.float64))
    tl.store(out_ptr + 2 * N + o, (u8 - 1).to(tl.float64))
    tl.store(out_ptr + 3 * N + o, (u8 + i8).to(tl.float64))
    tl.store(out_ptr + 4 * N + o, (i8 * 0.5).to(tl.float64))
    tl.store(out_ptr + 5 * N + o, (f16 + bf).to(tl.float64))
    tl.store(out_ptr + 6 * N + o, (f16 * i32).to(tl.float64))
    tl.store(out_ptr + 7 * N + o, (bf * 3 + f).to(tl.float64))
    tl.store(out_ptr + 8 * N + o, (i32 * n + big).to(tl.float64))
    tl.store(out_ptr + 9 * N + o, (f16 / 3).to(tl.float64))
    tl.store(out_ptr + 10 * N + o, (i32 / 7 + i32 // 7 + i32 % 7).to(tl.float64))
    tl.store(out_ptr + 11 * N + o, ((f16 > bf) * 2.0 + (i8 < 2.5)).to(tl.float64))
    tl.store(out_ptr + 12 * N + o, tl.where(flag, i8, u8).to(tl.float64))
    tl.store(out_ptr + 13 * N + o, (tl.sum(i8, axis=0) + tl.sum(u8, axis=0) + o).to(tl.float64))
    tl.store(out_ptr + 14 * N + o, (-u8 + (~i8) + (i32 >> 3) + (i32 << 2)).to(tl.float64))
    total = 0.0
    count = 0
    for k in range(0, n, 2):
        total += k * 0.1
        count += k
    tl.store(out_ptr + 15 * N + o, (f16 * total + count).to(tl.float64))


@triton.jit
def shape_kernel(x_ptr, out_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    a, b = tl.split(tl.reshape(x, (N // 2, 2)))
    tl.store(out_ptr + o, tl.interleave(b, a))
    joined = tl.permute(tl.join(a, b), (1, 0))
    tl.store(out_ptr + N + o, tl.ravel(joined))
    tl.store(out_ptr + 2 * N + o, tl.gather(x, (o * 7) % N, 0))
    tl.store(out_ptr + 3 * N + o, tl.reshape(tl.trans(tl.reshape(x, (4, N // 4))), (N,)))
    h = tl.histogram(tl.abs(x).to(tl.int32) % 16, 16)
    tl.store(out_ptr + 4 * N + tl.arange(0, 16), h.to(tl.float32))


@experiment
def language(device):
    out = {}
    y = torch.zeros(3 * N, device=device)
    out["random"] = launch(random_kernel, (1,), y, 1234, out=y, N=N)
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        y = torch.zeros(9 * 64, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `and` on blocks is deprecated
            x = f32(60, 64, False).to(dtype).to(device)
            out[f"semantics_{name}"] = launch(semantics_kernel, (1,), x, y, 0.1, 6, out=y, N=64)
    y = torch.zeros(16 * 64, dtype=torch.float64, device=device)
    arguments = (integers(62, torch.int8, 64), integers(63, torch.uint8, 64), integers(64, torch.int32, 64),
                 f32(65, 64, False).half(), f32(66, 64, False).bfloat16())  # fmt: skip
    out["mixed"] = launch(
        mixed_kernel, (1,), *(a.to(device) for a in arguments), y, 11, 2**40, True, 0.3, out=y, N=64
    )
    y = torch.zeros(4 * 64 + 16, device=device)
    out["shapes"] = launch(shape_kernel, (1,), f32(61, 64, False, 40.0).to(device), y, out=y, N=64)
    return out


def bits(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's bytes as unsigned integers of its item size."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[flat.element_size()]
    return flat.view(torch.uint8).numpy().view(unsigned)


def record(path: str, names: list[str]) -> None:
    """Run the named experiments (without names: all) on the GPU and write `experiment/result` -> bits."""
    arrays = {}
    for name in names or EXPERIMENTS:
        function = EXPERIMENTS[name]
        try:
            results = function("cuda")
        except Exception as error:  # noqa: BLE001 - keep what the others give
            print(f"{name}: {type(error).__name__}: {str(error)[:2000]}")  # noqa: T201 - a script
            continue
        arrays.update({f"{name}/{key}": bits(value) for key, value in results.items() if value is not None})
    arrays["versions"] = np.array([triton.__version__, torch.__version__, torch.cuda.get_device_name()])
    print("\n".join(REFUSED), len(arrays))  # noqa: T201 - a script
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2:])
