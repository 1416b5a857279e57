"""Do in a parent process, once, what every child would otherwise do first.

The first compilation of a process hashes Triton's own files, asks ptxas for its version and sets LLVM up: 0.7 s that a
child forked afterwards does not spend.
"""

import os
import tempfile
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from adaexplore_mcp.evaluation.workers.targets import DEFAULT_TARGET, Target

__all__ = ["warm_up"]


@triton.jit  # type: ignore[untyped-decorator]  # triton ships no types
def _softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803 - a kernel
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + offsets, e / tl.sum(e, axis=0), mask=inside)


def warm_up(target: Target = DEFAULT_TARGET) -> None:
    """Compile one small kernel, in a cache of its own that is removed, and leave the process single-threaded.

    Raises:
        RuntimeError: The process has more than one thread, and a child forked from it may hang.
    """
    with tempfile.TemporaryDirectory(prefix="warm-up-") as folder:
        # Through the environment: the knob, once set, would no longer follow it in children.
        before = os.environ.get("TRITON_CACHE_DIR")
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            triton.compile(
                ASTSource(
                    fn=_softmax,
                    signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
                    constexprs={"BLOCK": 128},
                ),
                target=GPUTarget("cuda", target.arch, target.warp_size),
            )
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before
    threads = len(os.listdir(Path("/proc/self/task")))  # noqa: PTH208 - one call, no objects
    if threads != 1:
        msg = (
            f"the process has {threads} threads, and children forked from it may hang: "
            "start it with OMP_NUM_THREADS=1, which numpy and torch read when they are imported"
        )
        raise RuntimeError(msg)
