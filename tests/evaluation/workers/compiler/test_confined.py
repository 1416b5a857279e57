"""The confined process that compiles: children and packed caches work inside the sandbox, and with fewer layers too."""

import base64
import os
import sys
from pathlib import Path

import anyio
import pytest
from bench import MEMORY_BYTES, with_layers

from adaexplore_mcp.evaluation.memfiles import empty_file
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.workers.cuda.cache import unpack
from adaexplore_mcp.evaluation.workers.tensors import outline

pytestmark = pytest.mark.anyio

SOURCE = """
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 1 << block, "WAY": way}) for block in (7, 8) for way in (0, WAY)], key=["n"])
@triton.jit
def fill(y_ptr, n, BLOCK: tl.constexpr, WAY: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = offsets * 1.0
    if WAY == 1:  # no limit of time ends this from inside
        for i in tl.static_range(100000):
            value = value * 0.5 + i
    tl.store(y_ptr + offsets, value + WAY, mask=offsets < n)


def run():
    y = torch.empty(1024, device="cuda")
    fill[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](y, 1024)
    return y
"""


def request(way, **limits):
    nothing = outline({"args": [], "kwargs": {}})
    return {
        "op": "compile",
        "source": base64.b64encode(SOURCE.replace("(0, WAY)", f"(0, {way})").encode()).decode("ascii"),
        "format": "function",
        "entry": "run",
        "changes": [],
        "init": nothing,
        "inputs": nothing,
        "target": "sm_90",
        "fake": True,
        "time_limit_s": 60.0,
        "per_kernel_limit_s": 20.0,
        "configurations_limit_s": 60.0,
        "jobs": 2,
        "launchers": True,
    } | limits


@pytest.mark.parametrize(
    "layers",
    [pytest.param(None, id="all"), pytest.param(("landlock", "seccomp", "capabilities"), id="no namespaces")],
)
async def test_configurations_are_compiled_side_by_side_in_the_sandbox_and_handed_over(tmp_path, layers):
    python = with_layers(tmp_path / "python", layers) if layers else sys.executable
    pool = WorkerPool(Path(python), tmp_path / "scratch", MEMORY_BYTES)
    file = empty_file()
    try:
        async with pool.session("compile", "compile") as session:
            reply = (await session.request(request(1, per_kernel_limit_s=6.0), timeout_s=60)).body
            assert "failure" not in reply, reply
            assert [build["failure"] for build in reply["builds"]] == [None, "time", None, "time"]
            reply = (await session.request(request(2), timeout_s=60)).body
            assert "failure" not in reply, reply
            assert [build["failure"] for build in reply["builds"]] == [None] * 4
            assert all(build["registers"] for build in reply["builds"])
            reply = (await session.request({"op": "pack"}, [file], timeout_s=20)).body
            assert reply == {"packed": os.fstat(file).st_size}
        unpack(file, tmp_path / "cache")
        assert len(list((tmp_path / "cache").rglob("fill.cubin"))) == 4
    finally:
        os.close(file)
        with anyio.CancelScope(shield=True):
            await pool.aclose()
