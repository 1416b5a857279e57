"""Warm parents: they have imported and tried out what their children need, and then only fork.

The two cannot be one process: Triton decides at import whether a kernel is interpreted or compiled.
"""

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from adaexplore_mcp.evaluation.scratch import remove_tree
from adaexplore_mcp.evaluation.workers.forkserver import ForkServer

__all__ = ["compile_only", "interpret"]

# Imported before the first fork: each would cost every child its own import, 5 to 60 ms.
INTERPRETING = (
    "adaexplore_mcp.evaluation.workers.stub",
    "adaexplore_mcp.evaluation.workers.candidate",
    "adaexplore_mcp.evaluation.workers.reference",
)
COMPILING = (
    "adaexplore_mcp.evaluation.workers.stub",
    "adaexplore_mcp.evaluation.workers.compilation",
)


def interpret(server: ForkServer) -> None:
    """Become the parent of processes that compute with Triton's interpreter, and serve."""
    os.environ["TRITON_INTERPRET"] = "1"
    _serve(server, INTERPRETING, _install_interpreter, _interpret_once)


def compile_only(server: ForkServer) -> None:
    """Become the parent of processes that compile, and serve."""
    os.environ.pop("TRITON_INTERPRET", None)
    _serve(server, COMPILING, _compile_one, _compile_once)


def _serve(
    server: ForkServer, modules: Sequence[str], prepare: Callable[[], None], warm: Callable[[], None]
) -> None:
    """Import what children need, get it warm, say whether that worked, then fork on request."""
    problem = ""
    try:
        prepare()
        # The first fake tensor imports torch's compiler, 1 to 3 s, which would fail inside a stand-in later.
        importlib.import_module("adaexplore_mcp.evaluation.workers.standin").warm_up()
        for name in modules:
            importlib.import_module(name)
        cache = tempfile.mkdtemp(dir=server.scratch)
        os.environ["TRITON_CACHE_DIR"] = cache
        warm()
        remove_tree(Path(cache))
    except (ImportError, RuntimeError) as error:
        problem = f"{type(error).__name__}: {error}"
    server.connection.send({"problem": problem})
    if not problem:
        server.serve()


def _install_interpreter() -> None:
    importlib.import_module("adaexplore_mcp.evaluation.workers.interpreter").Interpreter.install()
    # Triton looks at the environment each time; a candidate may clear it.
    importlib.import_module("triton").knobs.runtime.interpret = True


def _compile_one() -> None:
    importlib.import_module("adaexplore_mcp.evaluation.workers.compiler").warm_up()


def _interpret_once() -> None:
    importlib.import_module("adaexplore_mcp.evaluation.workers.warming").interpret_once()
    importlib.import_module("adaexplore_mcp.evaluation.workers.integrity").look_ahead()


def _compile_once() -> None:
    importlib.import_module("adaexplore_mcp.evaluation.workers.warming").compile_once()
