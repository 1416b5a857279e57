"""A Triton driver for a GPU that is not there: it answers for its limits, checks launches as CUDA does, runs nothing."""

import operator
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from adaexplore_mcp.evaluation.workers.cost import distinct_bytes
from adaexplore_mcp.evaluation.workers.targets import Target

from .records import Launch, Resources
from .versions import allocate_scratch

__all__ = ["StandInDriver"]

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the same for all targets.
MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535
REGISTER_ALLOCATION_UNIT = 256  # per warp

BenchmarkFunction = Callable[..., Any]


class StandInDriver(DriverBase):  # type: ignore[misc]  # triton ships no types
    """What Triton asks of a driver, answered for a target.

    Args:
        target: The GPU to compile for.
        device_of: Says whether a kernel may be given a tensor: whether a GPU machine would have it in GPU memory.
        usage_of: Returns the resources of a binary.
        on_launch: Is told of every launch that would run.
        after_launch: Is given the kernel's name and its tensors by name, once it would have run.
        benchmark: Takes the place of Triton's benchmarker.
    """

    binary_ext: ClassVar[str] = "cubin"

    def __init__(
        self,
        target: Target,
        *,
        device_of: Callable[[torch.Tensor], bool],
        usage_of: Callable[[bytes], Resources | None],
        on_launch: Callable[[Launch], None],
        after_launch: Callable[[str, Iterable[tuple[str, torch.Tensor]]], None],
        benchmark: BenchmarkFunction,
    ) -> None:
        super().__init__()
        self.target = target
        self.device_of = device_of
        self.on_launch = on_launch
        self.after_launch = after_launch
        self._usage_of = usage_of
        self._benchmark = benchmark
        self.utils = SimpleNamespace(
            get_device_properties=self.device_properties,
            load_binary=self.load_binary,
            unload_module=lambda module: None,  # noqa: ARG005 - triton's name
            set_printf_fifo_size=lambda size: None,  # noqa: ARG005 - triton's name
        )
        self.launcher_cls = self._launcher

    @classmethod
    def is_active(cls) -> bool:
        """Say that there is a device."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the type unchanged: no launcher is generated."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """Return the target in Triton's words."""
        return GPUTarget("cuda", self.target.arch, self.target.warp_size)

    def get_active_torch_device(self) -> torch.device:
        """Return the one device there is."""
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        """Return the one device there is."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing."""

    def get_current_stream(self, device: int = 0) -> int:  # noqa: ARG002 - triton's signature
        """Return the default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:  # noqa: ARG002 - triton's signature
        """Return the target's compute capability."""
        return self.target.capability

    def get_device_interface(self) -> Any:  # noqa: ANN401 - a module
        """Return `torch.cuda`, which a stand-in answers for."""
        return torch.cuda

    def get_benchmarker(self) -> BenchmarkFunction:
        """Return what an autotuner is to call for each configuration."""
        return self._benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return an empty buffer: there is no cache to flush."""
        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing."""

    def device_properties(self, device: int = 0) -> dict[str, int]:  # noqa: ARG002 - triton's signature
        """Return what Triton's C driver does; clocks are 0, since nothing was measured."""
        target = self.target
        return {
            "max_shared_mem": target.shared_bytes_per_block_optin,
            "max_num_regs": target.registers_per_block,
            "multiprocessor_count": target.multiprocessors,
            "warpSize": target.warp_size,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def load_binary(
        self,
        name: str,  # noqa: ARG002 - triton's signature
        kernel: bytes,
        shared: int,  # noqa: ARG002 - triton's signature
        device: int,  # noqa: ARG002 - triton's signature
    ) -> tuple[object, int, int, int, int]:
        """Return (module, function, registers, spills in words, threads per block), as the C driver does."""
        usage = self._usage_of(kernel) or Resources(0, 0, 0)
        return object(), 0, usage.registers, usage.stack_bytes // 4, self.threads_per_block(usage.registers)

    def threads_per_block(self, registers: int) -> int:
        """Return how many threads of so many registers fit a block, as `cuFuncGetAttribute` answers."""
        target = self.target
        per_warp = -(-registers * target.warp_size // REGISTER_ALLOCATION_UNIT) * REGISTER_ALLOCATION_UNIT
        warps = target.registers_per_block // max(per_warp, 1)
        return min(target.threads_per_block, warps * target.warp_size)

    def _launcher(self, src: Any, metadata: Any) -> "_Launcher":  # noqa: ANN401 - triton's types
        return _Launcher(self, src, metadata)


class _Launcher:
    """Takes the place of the C launcher of one compiled kernel: the same checks, in its order."""

    def __init__(self, driver: StandInDriver, src: Any, metadata: Any) -> None:  # noqa: ANN401 - triton's types
        self._driver = driver
        self._names: list[str] = list(src.fn.arg_names)
        self._types: dict[str, Any] = dict(src.signature)
        self._metadata = metadata

    def __call__(  # noqa: PLR0917 - the C launcher's signature
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: int,  # noqa: ARG002 - the C launcher's signature
        packed_metadata: Any,  # noqa: ANN401, ARG002 - as above
        launch_metadata: Any,  # noqa: ANN401, ARG002 - as above
        enter_hook: Any,  # noqa: ANN401, ARG002 - as above
        exit_hook: Any,  # noqa: ANN401, ARG002 - as above
        *arguments: Any,  # noqa: ANN401 - a kernel's arguments
    ) -> None:
        """Check a launch and write it down.

        Raises:
            TypeError, OverflowError: The grid is not made of C integers.
            RuntimeError: The grid is larger than CUDA allows, or the kernel needs scratch memory and none is given.
            ValueError: A pointer argument is a tensor in host memory.
        """
        grid = (_c_int(grid_x), _c_int(grid_y), _c_int(grid_z))
        metadata = self._metadata
        scratch = getattr(metadata, "global_scratch_size", 0)
        programs = grid[0] * grid[1] * grid[2]
        if scratch:
            clusters = getattr(metadata, "num_ctas", 1)
            allocate_scratch(programs * clusters * scratch, metadata.global_scratch_align, stream)
        self._check_pointers(arguments)
        if programs > 0 and (min(grid) < 1 or max(grid[1:]) > MAX_GRID_YZ):
            msg = (
                f"Triton Error [CUDA]: invalid argument (grid {grid}: "
                f"at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ} programs)"
            )
            raise RuntimeError(msg)
        self._driver.on_launch(
            Launch(
                kernel=metadata.name,
                grid=grid,
                num_warps=metadata.num_warps,
                num_stages=getattr(metadata, "num_stages", None),
                shared_bytes=metadata.shared,
                tensor_bytes=distinct_bytes(
                    getattr(leaf, "base", leaf)
                    for value in arguments
                    for leaf in _flattened(value)
                    if isinstance(getattr(leaf, "base", leaf), torch.Tensor)
                ),
                arguments={
                    name: describe(value) for name, value in zip(self._names, arguments, strict=False)
                },
            )
        )
        self._driver.after_launch(
            metadata.name,
            (
                pair
                for name, value in zip(self._names, arguments, strict=False)
                for pair in _named_tensors(name, value)
            ),
        )

    def _check_pointers(self, arguments: tuple[Any, ...]) -> None:
        position = 0
        for name, value in zip(self._names, arguments, strict=False):
            if self._types.get(name) == "constexpr":
                continue
            for leaf in _flattened(value):
                tensor = getattr(leaf, "base", leaf)  # a tensor descriptor, or a reinterpreted tensor
                if isinstance(tensor, torch.Tensor) and not self._driver.device_of(tensor):
                    msg = (
                        f"Pointer argument (at {position}) cannot be accessed from Triton (cpu tensor?): "
                        f"`{name}`, {describe(tensor)}, is in host memory"
                    )
                    raise ValueError(msg)
                position += 1


def _flattened(value: Any) -> Iterator[Any]:  # noqa: ANN401 - a kernel's argument
    if isinstance(value, tuple):
        for item in value:
            yield from _flattened(item)
    else:
        yield value


def _named_tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:  # noqa: ANN401 - a kernel's argument
    """Yield an argument's tensors, named as the interpreter names them."""
    if isinstance(value, tuple):
        for position, item in enumerate(value):
            yield from _named_tensors(f"{name}[{position}]", item)
    elif isinstance(tensor := getattr(value, "base", value), torch.Tensor):
        yield name, tensor


def _c_int(value: Any) -> int:  # noqa: ANN401 - an element of a grid
    """Return an element of a grid as the C launcher parses it."""
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        msg = f"signed integer is greater than maximum: a grid of {number} programs"
        raise OverflowError(msg)
    return number


def describe(value: Any) -> str:  # noqa: ANN401 - a kernel's argument
    """Return a kernel's argument in a few words: `float32[64, 128]`, `3`, `TensorDescriptor`."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (bool, int, float, str)) or value is None:
        return str(value)[:80]
    return type(value).__name__
