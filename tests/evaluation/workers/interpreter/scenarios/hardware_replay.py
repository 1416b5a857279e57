"""Every launch of hardware.py again, against what an NVIDIA H200 gave (triton 3.6.0, torch 2.11, CUDA 13.0)."""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from support import TRITON, call

sys.path.insert(0, str(Path(__file__).parent.parent))
import hardware

RECORDED = np.load(Path(__file__).parent.parent / "hardware_h200.npz")

# Undefined by the language and decided by how the compiler packs neighbouring lanes: 8-bit unsigned targets out of range.
# The others are faults of 3.6's own conversion (infinity to 65536) and the sign of a NaN that a symmetric clamp removes.
LEFT_OUT = {
    "int_casts/fp32_to_uint8", "int_casts/fp16_to_uint8", "int_casts/bf16_to_uint8", "float_casts/fp8e5_to_bf16",
    "float_binary/fp32_clamp", "float_binary/fp16_clamp",
}  # fmt: skip
# A NaN makes the result depend on the order of the reduction, which the language leaves open.
LEFT_OUT |= {"reductions/nan_argmax", "reductions/nan_argmin", "reductions/fp16_sum_overflow"}
# Coarse on the hardware at large arguments, or a NaN there for a subnormal.
LEFT_OUT |= {f"library/{name}" for name in ("j0", "j1", "y0", "y1", "cbrt", "rcbrt", "fast_sinf", "fast_cosf", "fast_tanf",
                                            "fast_powf", "fast_dividef", "logb", "nextafter", "fmod", "remainder")}  # fmt: skip


def _floats(array, like):
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[array.dtype.itemsize]
    tensor = torch.from_numpy(array.view(f"i{array.dtype.itemsize}").copy())
    return tensor.view(like.dtype).double() if signed else tensor


def _replay(name, *, exact=True, relative=0.0, absolute=0.0):
    hardware.REFUSED.clear()
    with warnings.catch_warnings(), call(poison="zero"):
        warnings.simplefilter("ignore")
        results = hardware.EXPERIMENTS[name]("cpu")
    assert not hardware.REFUSED, hardware.REFUSED[:3]
    wrong = []
    for key, value in results.items():
        recorded = RECORDED[f"{name}/{key}"]
        if f"{name}/{key}" in LEFT_OUT:
            continue
        different = hardware.bits(value) != recorded
        if value.dtype.is_floating_point:
            ours, theirs = value.reshape(-1).double(), _floats(recorded, value)
            agree = (ours == theirs) | (
                ours.isnan() & theirs.isnan()
            )  # any NaN equals any, and -0.0 equals 0.0
            agree |= (ours - theirs).abs() <= absolute + relative * theirs.abs()
            different &= ~agree.numpy()
        if different.any():
            lane = int(np.flatnonzero(different)[0])
            wrong.append((key, int(different.sum()), lane, value.reshape(-1)[lane].item(), recorded[lane]))
    assert exact or relative or absolute
    assert not wrong, wrong[:5]


def float_arithmetic_has_the_bits_of_the_hardware():
    _replay("float_binary", relative=1.3e-7)  # division is one bit off on the hardware (div.full.f32)


def integer_arithmetic_has_the_bits_of_the_hardware():
    _replay("int_binary", relative=1.6e-7)  # true division, as above


def undefined_integer_results_are_those_of_the_hardware():
    _replay("undefined_int")


def float_conversions_have_the_bits_of_the_hardware():
    _replay("float_casts")


def integer_conversions_have_the_bits_of_the_hardware():
    _replay("int_casts")


def reductions_agree_with_the_hardware():
    _replay("reductions", relative=4e-3, absolute=0.1)  # bf16 sums of 64 numbers in another order


def scans_agree_with_the_hardware():
    absolute = 0.1 if TRITON < (3, 7) else 0.5  # later libraries scan bf16 in bf16
    _replay("scans", relative=2e-2, absolute=absolute)


def dots_agree_with_the_hardware():
    _replay("dots", relative=1e-3, absolute=5e-3)


def atomics_have_the_bits_of_the_hardware():
    _replay("atomics")


def masked_loads_leave_zero_on_the_hardware():
    _replay("masked_load")


def functions_agree_with_the_hardware():
    _replay("maths", relative=2.5e-7, absolute=1e-37)


def libdevice_agrees_with_the_hardware():
    _replay("library", relative=2e-6, absolute=1e-6)


def functions_at_the_edges_agree_with_the_hardware():
    _replay("more_maths", relative=4e-7, absolute=1e-37)


def the_language_agrees_with_the_hardware():
    _replay("language", relative=8e-3, absolute=1e-6)
