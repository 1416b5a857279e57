"""The warm parent of processes that use a GPU: it has imported what they need, and has never touched CUDA."""

import importlib
import os
import tempfile

from adaexplore_mcp.evaluation.workers.forkserver import ForkServer

__all__ = ["serve"]

MODULES = (
    "adaexplore_mcp.evaluation.workers.stub",
    "adaexplore_mcp.evaluation.workers.cuda.candidate",
    "adaexplore_mcp.evaluation.workers.cuda.reference",
)


def serve(server: ForkServer) -> None:
    """Import what children need, build what Triton's driver needs once, then fork on request."""
    os.environ.pop("TRITON_INTERPRET", None)
    problem = ""
    try:
        # For the compiled part of Triton's driver, which is loaded once for all children.
        os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(dir=server.scratch)
        for name in MODULES:
            importlib.import_module(name)
        # One compilation finds out what every launch asks for: the hash of Triton itself, 0.4 s, and ptxas's version.
        importlib.import_module("adaexplore_mcp.evaluation.workers.compiler").warm_up()
        triton = importlib.import_module("triton")
        # Its constructor builds a module of C; it starts nothing of CUDA.
        driver = importlib.import_module("triton.backends.nvidia.driver").CudaDriver()
        triton.runtime.driver.set_active(driver)
        importlib.import_module("adaexplore_mcp.evaluation.workers.integrity").look_ahead()
    except (ImportError, RuntimeError, OSError, AssertionError) as error:
        problem = f"{type(error).__name__}: {error}"
    server.connection.send({"problem": problem})
    if not problem:
        server.serve()
