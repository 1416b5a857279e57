"""Everything here that differs between triton 3.4 and 3.9, or reaches into triton's inside."""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
import triton.backends
import triton.compiler
import triton.compiler.compiler as compiler_module
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.backends.nvidia import driver as nvidia_driver
from triton.runtime import _allocation
from triton.runtime import build as build_module
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

__all__ = [
    "COMPILE_NAMES",
    "Autotuner",
    "CUDABackend",
    "JITFunction",
    "allocate_scratch",
    "build_module",
    "cache_directory",
    "cuobjdump_path",
    "definition",
    "forget_device_limits",
    "keep_cache_in",
    "nvidia_backend",
    "nvidia_compiler",
    "nvidia_driver",
    "replace_driver",
]

CUDABackend: type[Any] = nvidia_compiler.CUDABackend

# `JITFunction` reads the first when it meets a device; the others are what users call.
COMPILE_NAMES: tuple[ModuleType, ...] = (triton.compiler, compiler_module, triton)


def nvidia_backend() -> tuple[dict[str, Any], str]:
    """Return the table of backends, and the key of NVIDIA's."""
    return triton.backends.backends, "nvidia"


def replace_driver(driver: Any) -> Callable[[], None]:  # noqa: ANN401 - a DriverBase
    """Make a driver the active one, and return what puts the one before back.

    Triton 3.4 keeps a lazy proxy under `active`; later versions keep the driver, or None, under `_active`.
    """
    config = triton.runtime.driver
    name = "_active" if "_active" in vars(config) else "active"
    before = vars(config)[name]
    config.set_active(driver)
    return lambda: setattr(config, name, before)


def forget_device_limits() -> None:
    """Forget the shared memory of the device asked before; triton asks once per process."""
    compiler_module.max_shared_mem.cache_clear()


def cache_directory() -> Path:
    """Return the directory that compiled kernels are kept in: what was said last, `TRITON_CACHE_DIR`, or triton's default."""
    return Path(triton.knobs.cache.dir)


def keep_cache_in(folder: Path) -> None:
    """Keep compiled kernels in a folder from now on, whatever becomes of `TRITON_CACHE_DIR`."""
    triton.knobs.cache.dir = str(folder)


def cuobjdump_path() -> str:
    """Return the disassembler that triton's wheel brings."""
    return str(triton.knobs.nvidia.cuobjdump.path)


def allocate_scratch(size: int, alignment: int, stream: int) -> None:
    """Ask the allocator of the code for global scratch memory, as a launch does.

    Triton 3.4 keeps the allocator in a variable, later versions in a `ContextVar`.

    Raises:
        RuntimeError: The code has set none (`triton.set_allocator`).
    """
    allocator = _allocation._allocator  # noqa: SLF001 - it has no public name
    allocate: Callable[[int, int, int], Any] = allocator.get() if hasattr(allocator, "get") else allocator
    allocate(size, alignment, stream)


def definition(function: Any) -> tuple[str, int, str]:  # noqa: ANN401 - a JITFunction
    """Return the file of a kernel, the line of its `def` there, and its source from the `def` on."""
    source: str = function.src
    # Its decorators and comments stand between the first line and the `def`. Triton 3.4 does not keep them.
    lines = getattr(function, "raw_src", None) or inspect.getsourcelines(function.fn)[0]
    before = next((count for count, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return function.fn.__code__.co_filename, function.starting_line_number + before, source
