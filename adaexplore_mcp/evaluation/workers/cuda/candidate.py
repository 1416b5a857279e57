"""The confined process of one candidate on a GPU, with CUDA started ahead; answers as `workers.candidate` says.

Request `load` has a `memory_share` (of the GPU's memory, for torch's allocator), `tuned` (which configurations of autotuners
build) and, as its file, what was compiled (`cache.pack`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.candidate import serve
from adaexplore_mcp.evaluation.workers.cuda.engine import CudaEngine
from adaexplore_mcp.evaluation.workers.cuda.start import start_if_room

__all__ = ["prepare", "run"]


def prepare() -> str:
    """Start CUDA, before there is a candidate; say so where there is no memory for it."""
    return start_if_room()


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection."""

    def report(progress: Mapping[str, Any]) -> None:
        connection.send({"progress": progress})

    serve(connection, folder, CudaEngine(report))
