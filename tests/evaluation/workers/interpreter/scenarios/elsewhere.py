"""A module that other scenarios import jit functions and constants from; it holds no scenario itself."""

import triton
import triton.language as tl

OFFSET = tl.constexpr(3)


@triton.jit
def shifted(x):
    return x + OFFSET


@triton.jit
def soft_plus_one(x):
    return shifted(tl.log(1.0 + tl.exp(x)))
