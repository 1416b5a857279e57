"""The one place that imports Triton and knows how its versions differ.

What differs between Triton 3.4 and 3.9, and where it is met:

| | 3.4 | 3.6 | 3.9 | met by |
|---|---|---|---|---|
| cache arguments of load and store | two | two | one | trailing `*_` in `memory.py` |
| block pointers | yes | yes | removed | methods of `blocks.py` that 3.9 never calls |
| padding of tensor descriptors | no | yes | yes | a default in `blocks.py` |
| `InterpretedFunction.run` | an instance attribute | a method | a method | all call `GridExecutor`, replaced |
| bf16 constants, fma, unsplat | missing | partly | yes | `arithmetic.py` defines them all |
| `fp_to_fp` between fp16 and bf16 | by fp32 | by fp32 | one step | one conversion table, `numbers.py` |
| bf16x3 and bf16x6 | no | yes | yes | the options of Triton's own CUDA backend |
| `str_to_ty` | one argument | two | two | `named_type` below |
| dot_scaled (3.8) | refused | refused | stock | `language.py` refuses it where the stock builder has none |
| numpy >= 2.4 | breaks the stock one | breaks the stock one | works | the methods that broke are replaced |

A Triton outside the range is refused: a builder method that is new or has changed its meaning would be wrong
silently, and a verdict must not rest on that.
"""

import functools
import inspect
import os
import warnings
from types import SimpleNamespace

import numpy as np
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime import autotuner, jit
from triton.runtime import interpreter as stock
from triton.runtime.errors import InterpreterError

__all__ = [
    "InterpreterError",
    "TritonSemantic",
    "UnsupportedVersionError",
    "autotuner",
    "check_versions",
    "cuda_options",
    "ir",
    "jit",
    "named_type",
    "stock",
    "tl",
    "triton",
]

OLDEST, NEWEST = (3, 4), (3, 9)
OLDEST_NUMPY = (1, 26)
_STR_TO_TY_ARGUMENTS = len(inspect.signature(tl.str_to_ty).parameters)


class UnsupportedVersionError(ImportError):
    """This pair of Triton and numpy is not supported; the message names both."""


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def check_versions(triton_version: str = triton.__version__, numpy_version: str = np.__version__) -> None:
    """Refuse a Triton or numpy that this package was not checked with.

    Raises:
        UnsupportedVersionError: Triton is older than 3.4 or newer than 3.9, or numpy is older than 1.26.
        RuntimeError: Triton was imported without TRITON_INTERPRET, so `@triton.jit` already means
            compilation.
    """
    have = f"triton {triton_version} with numpy {numpy_version}"
    if not OLDEST <= _release(triton_version) <= NEWEST:
        msg = f"{have} cannot be interpreted: triton {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} is needed"
        raise UnsupportedVersionError(msg)
    if _release(numpy_version) < OLDEST_NUMPY:
        msg = f"{have} cannot be interpreted: numpy {OLDEST_NUMPY[0]}.{OLDEST_NUMPY[1]} or newer is needed"
        raise UnsupportedVersionError(msg)
    if not triton.knobs.runtime.interpret:
        msg = f"TRITON_INTERPRET is {os.environ.get('TRITON_INTERPRET')!r}: set it to 1 before triton is imported"
        raise RuntimeError(msg)
    if not isinstance(tl.standard.sum, stock.InterpretedFunction):
        msg = "TRITON_INTERPRET was set after triton was imported: its own functions are compiled ones"
        raise RuntimeError(msg)  # noqa: TRY004 - the process is set up wrongly; no argument is


@functools.cache
def named_type(name: str) -> tl.dtype:
    """Return the type that Triton's launcher names, such as `*fp32` or `i32`."""
    return tl.str_to_ty(name, None) if _STR_TO_TY_ARGUMENTS > 1 else tl.str_to_ty(name)


def cuda_options(capability: int) -> SimpleNamespace:
    """Return what Triton's CUDA backend would compile with: dot precisions, fp8 types and their defaults.

    `debug` is on, so that device_assert fires; `sanitize_overflow` is off, since integers wrap on a GPU.
    """
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - some source builds have no backends
    from triton.backends.nvidia.compiler import CUDABackend  # noqa: PLC0415 - as above

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 3.9 announces a new default for fp fusion
        options = CUDABackend(GPUTarget("cuda", capability, 32)).parse_options({})
    return SimpleNamespace(**{**vars(options), "debug": True, "sanitize_overflow": False})
