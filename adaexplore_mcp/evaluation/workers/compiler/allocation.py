"""Learn how much shared memory a kernel takes before the expensive half of its compilation.

Triton allocates shared memory in the first passes of its `llir` stage, and compares it with the device's limit only
when it loads the finished binary. A configuration that asks for 1 MiB took 19 s to lower and 100 s in ptxas; the first
passes alone, run on a copy of the module, take 10 to 60 ms and gave the same number for every kernel tried (99 of the
published AdaExplore kernels, triton 3.4, 3.6 and 3.9).
"""

import tempfile
from pathlib import Path
from typing import Any

from triton._C.libtriton import ir, nvidia, passes

from .versions import cache_directory, nvidia_compiler

__all__ = ["shared_bytes"]

USES_SHARED_MEMORY = "ttg.shared_memory"  # how a module names the memory space


def shared_bytes(module: Any, options: Any, arch: int) -> int | None:  # noqa: ANN401 - triton's types
    """Return the bytes of shared memory per block that a TTGIR module will be given, or None if that is not known.

    None too for a module without shared buffers of its own: what reductions and layout conversions take is small.
    """
    text = str(module)
    if USES_SHARED_MEMORY not in text:
        return None
    try:
        copy = _copy(text, module.context)
        manager = ir.pass_manager(module.context)
        _add_allocation_passes(manager, options, arch)
        _run(manager, copy)
        allocated: int | None = copy.get_int_attr("ttg.shared")
    except (AttributeError, TypeError, RuntimeError):
        # A version of Triton with other passes, or a module that the real stage will refuse with a message.
        return None
    return allocated


def _copy(text: str, context: Any) -> Any:  # noqa: ANN401 - triton's types
    """Return a module of its own: by way of a file, since Triton's bindings neither clone nor parse text."""
    with tempfile.NamedTemporaryFile("w", suffix=".ttgir", dir=cache_directory()) as file:
        file.write(text)
        file.flush()
        return ir.parse_mlir_module(str(Path(file.name)), context)


def _add_allocation_passes(manager: Any, options: Any, arch: int) -> None:  # noqa: ANN401 - triton's types
    """Add the passes of `make_llir` up to the allocation, in each version's order."""
    if not hasattr(nvidia.passes.ttgpuir, "add_allocate_shared_memory_nv"):  # 3.4
        nvidia.passes.ttnvgpuir.add_lower_mma(manager)
        passes.ttgpuir.add_combine_tensor_select_and_if(manager)
        passes.ttgpuir.add_allocate_warp_groups(manager)
        passes.convert.add_scf_to_cf(manager)
        passes.ttgpuir.add_allocate_shared_memory(manager)
        return
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    try:
        passes.ttgpuir.add_allocate_warp_groups(manager)
    except TypeError:  # from 3.7 on it is told whether a sanitizer is in use
        passes.ttgpuir.add_allocate_warp_groups(manager, False)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    version = nvidia_compiler.get_ptx_version_from_options(options, arch)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, arch, version)


def _run(manager: Any, module: Any) -> None:  # noqa: ANN401 - triton's types
    try:
        manager.run(module, "allocate shared memory")
    except TypeError:  # 3.4
        manager.run(module)
