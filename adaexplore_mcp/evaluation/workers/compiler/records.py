"""What a run of the compiler leaves behind: builds, launches and explained errors, as plain values."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Build", "ErrorExcerpt", "FailureKind", "Launch", "Resources"]

FailureKind = Literal["language", "resources", "assembler", "time"]
"""Why a kernel did not build: its source, the target's limits, ptxas, or a time limit of ours."""


@dataclass(frozen=True, slots=True)
class ErrorExcerpt:
    """One error as its author needs it: what is wrong, and at which line of the author's own file."""

    type: str
    """The exception's class: `CompilationError`, `OutOfResources`, `TypeError`."""
    message: str
    """What is wrong, with a remedy where the compiler's own words lead astray."""
    kernel: str = ""
    """The kernel that was compiled or launched; empty for host code that has to do with none."""
    file: str = ""
    """The author's file, or empty where no frame or kernel leads to one."""
    line: int = 0
    """1-based line in that file; 0 if unknown."""
    source: str = ""
    """That line, stripped."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled kernel takes of a multiprocessor, from ptxas or from the binary."""

    registers: int
    """32-bit registers per thread."""
    stack_bytes: int
    """Stack frame per thread, in local memory; holds spilled registers and local arrays."""
    spill_bytes: int | None
    """Bytes per thread that spilled registers are stored to; None for a binary found in a cache from before."""


@dataclass(slots=True)
class Build:
    """One specialisation of a kernel that was compiled, found in the cache, or failed to compile."""

    kernel: str
    signature: dict[str, str]
    """Triton's types by argument: `*fp32`, `i32`, `constexpr`."""
    constants: dict[str, str]
    """The values of compile-time constants by argument, as text."""
    options: dict[str, int | None]
    """`num_warps`, `num_stages`, `num_ctas`, `maxnreg`, as the launch or its configuration gave them."""
    seconds: float = 0.0
    cached: bool = False
    """An earlier build of the same specialisation served."""
    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    """Static and dynamic shared memory per block."""
    occupancy: float | None = None
    """Share of a multiprocessor's warps that its blocks can fill, 0 to 1."""
    occupancy_limit: str = ""
    """What keeps out one block more: registers, shared memory, threads or blocks."""
    instructions: dict[str, int] = field(default_factory=dict)
    """See `instructions.instructions`."""
    error: ErrorExcerpt | None = None
    failure: FailureKind | None = None
    diagnostics: str = ""
    """What the compiler wrote to stderr, at most 4,000 characters."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch that a GPU would have run."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int | None
    shared_bytes: int
    tensor_bytes: int = 0
    """Bytes of the tensors that it is given, an element that several of them show once."""
    arguments: dict[str, str] = field(default_factory=dict)
    """By name: `float32[64, 128]` for a tensor, the value for a number, the type for anything else."""

    @property
    def programs(self) -> int:
        """How many programs the grid has; 0 is a launch that runs nothing."""
        x, y, z = self.grid
        return x * y * z
