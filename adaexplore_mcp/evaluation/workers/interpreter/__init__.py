"""Triton's CPU interpreter, made so true that its numbers can decide a verdict about a kernel.

    # TRITON_INTERPRET=1 was set before triton was imported
    interpreter = Interpreter.install(capability=90)
    with interpreter.call(config=None, tune=False, poison="nan") as call:
        outputs = model(*inputs)
    call.launches, call.findings, call.autotuned, call.dot_precisions, call.uncovered, call.refused

What it changes about the stock interpreter, by module: `numbers`, `arithmetic`, `dots`, `libdevice` (values
as hardware computes them), `regions`, `memory`, `blocks`, `atomics` (every lane checked, races, poison),
`reductions` (any combine function), `rewriting`, `language`, `frontend` (the language as the compiler reads
it, and faster), `driver`, `arguments`, `launches` (what a driver is asked, arguments as a launch passes them),
`turns` (programs that wait for each other), `sampling` (some programs of a launch, without memory), `findings` (what is reported), `versions` (which Triton this is).

It patches Triton for the whole process and for good, so it belongs into a worker process. Fork after
`install`, never after a launch that used several threads: `turns` starts some where programs wait for each other,
which are over when the launch is, and torch and BLAS do unless OMP_NUM_THREADS=1.

Not imitated, and said in `Call.uncovered` where it is met: inline assembly, Gluon, some of libdevice, the low
precision in which sm_90 adds fp8 products, races in storages above 256 MiB. Not imitated and not met: warps,
shared memory and barriers inside a program, fused multiply-add where the compiler contracts `x * y + z`, the
order of a GPU's sums.
"""

from adaexplore_mcp.evaluation.workers.interpreter.findings import (
    Call,
    Deadlock,
    Finding,
    FindingKind,
    KernelError,
    Launch,
    Location,
    NotInterpretable,
    locate,
)
from adaexplore_mcp.evaluation.workers.interpreter.launches import Interpreter
from adaexplore_mcp.evaluation.workers.interpreter.sampling import Sample
from adaexplore_mcp.evaluation.workers.interpreter.versions import UnsupportedVersionError

__all__ = [
    "Call",
    "Deadlock",
    "Finding",
    "FindingKind",
    "Interpreter",
    "KernelError",
    "Launch",
    "Location",
    "NotInterpretable",
    "Sample",
    "UnsupportedVersionError",
    "locate",
]
