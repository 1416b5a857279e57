"""Time verdicts on a small task through the real server, over stdio as an agent uses it.

    python benchmarks/small_task.py 30

Prints the median and spread of the whole call, and of its two halves, once with a second between calls (an agent thinks
for longer) and once back to back. The first call, which starts the workers, is shown apart.
"""

import os
import statistics
import sys
import tempfile
import time

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

REFERENCE = """
import torch

ROWS, COLUMNS = 12, 100


def softmax(x):
    return torch.softmax(x, dim=1)


def make_inputs(workload, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    return [torch.randn(workload["ROWS"], workload["COLUMNS"], generator=generator, device=device)]
"""

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=inside)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""


async def main(calls: int) -> None:
    """Time the calls and print the table."""
    with tempfile.TemporaryDirectory() as home:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "adaexplore_mcp", "serve", "--home", home],
            env=dict(os.environ),
        )
        async with Client(stdio_client(server)) as client:
            started = time.perf_counter()
            arguments = {"source": REFERENCE, "format": "function", "entry": "softmax"}
            task = (await client.call_tool("register_task", arguments)).structured_content
            print(f"register_task, workers started: {time.perf_counter() - started:.2f} s")
            started = time.perf_counter()
            await verify(client, task)
            print(f"first verdict: {time.perf_counter() - started:.2f} s")
            for pause in (1.0, 0.0):
                rows = []
                for _ in range(calls):
                    await anyio.sleep(pause)
                    started = time.perf_counter()
                    verdict = await verify(client, task)
                    rows.append((time.perf_counter() - started, verdict["seconds"]))
                show(f"{calls} verdicts, {pause:g} s between them", rows)


async def verify(client: Client, task: dict) -> dict:
    """Judge the kernel once; anything but `correct` ends the benchmark."""
    result = await client.call_tool(
        "compile_and_verify", {"task_id": task["task_id"], "kernel": KERNEL, "again": True}
    )
    verdict = result.structured_content
    if verdict is None or verdict["status"] != "correct":
        raise SystemExit(f"not correct: {result}")
    return verdict


def show(title: str, rows: list) -> None:
    """Print medians, tenths and ninetieths of a hundred."""
    columns = {
        "whole call": [total for total, _ in rows],
        "numerics": [seconds["numerics"] for _, seconds in rows],
        "compile": [seconds["compile"] for _, seconds in rows],
    }
    print(title)
    for name, values in columns.items():
        ordered = sorted(values)
        tenth, ninetieth = ordered[len(ordered) // 10], ordered[len(ordered) * 9 // 10]
        print(f"  {name:11} median {statistics.median(values):.3f} s   p10 {tenth:.3f}   p90 {ninetieth:.3f}")


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 30)
