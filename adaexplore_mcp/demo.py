"""A person's first look: the real server, a real client, one task, four kernels with their verdicts, a short search."""

import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult

from adaexplore_mcp.demo_search import search

__all__ = ["main"]

WIDTH = 92
TASK = "fused_add_rmsnorm"
# A row as wide as this is padded to 4096 by a kernel that takes a power of two.
WORKLOADS = [{"name": "decode", "sizes": {"TOKENS": 16, "HIDDEN": 2880}}]
ENDLESS_S = 6
MARKS = {"correct": "✓", "plausible": "✓", "unsupported": "?"}


@dataclass(frozen=True)
class Attempt:
    """A kernel to submit.

    Args:
        title: What it is, for the reader.
        expected: Status it must get.
        old: Text of the right kernel to replace; empty for the right kernel itself.
        new: What to put there.
        timeout_seconds: Limit per stage.
    """

    title: str
    expected: str
    old: str = ""
    new: str = ""
    timeout_seconds: float = 60


ATTEMPTS = (
    Attempt("a right kernel", "correct"),
    Attempt(
        "the same, subtly wrong: it divides by the padded width",
        "incorrect",
        "tl.sum(total * total, axis=0) / hidden + epsilon",
        "tl.sum(total * total, axis=0) / BLOCK + epsilon",
    ),
    Attempt(
        "the same, broken: an `if` on a block of values",
        "compile_error",
        "    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)\n",
        "    if total > 0.0:\n        total = total * 1.0\n"
        "    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)\n",
    ),
    Attempt(
        "the same, never ending: a loop whose condition does not change",
        "timeout",
        "    scale = tl.rsqrt(",
        "    rounds = hidden\n    while rounds > 0:\n        total += 0.0\n    scale = tl.rsqrt(",
        ENDLESS_S,
    ),
)


class CallFailedError(Exception):
    """A call that the demonstration rests on was not answered.

    Args:
        tool: What was called.
        said: Why it failed, and what to do.
    """

    def __init__(self, tool: str, said: str) -> None:
        super().__init__(f"The demonstration ends here, {tool} failed. {said}")


def main() -> int:
    """Run the demonstration; return an exit code."""
    home = tempfile.mkdtemp(prefix="adaexplore-demo-")
    try:
        return anyio.run(_demonstrate, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _demonstrate(home: str) -> int:
    folder = resources.files("adaexplore_mcp") / "builtin" / TASK
    reference = (folder / "reference.py").read_text(encoding="utf-8")
    right = (folder / "kernel.py").read_text(encoding="utf-8")
    _say(
        "AdaExplore judges GPU kernels that a coding agent writes. This is what an agent sees: it registers an "
        "operation, submits kernels and gets verdicts. Numbers come from Triton's interpreter, the language from "
        "Triton's compiler for an H100 (sm_90); no GPU is used."
    )
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "adaexplore_mcp", "serve", "--home", home],
        env=dict(os.environ),
    )
    async with Client(stdio_client(server)) as client:
        try:  # in here: what leaves the client's tasks does so as a group of exceptions
            return await _demonstrated(client, reference, right)
        except CallFailedError as error:
            sys.stderr.write(f"{error}\n")
            return 1


async def _demonstrated(client: Client, reference: str, right: str) -> int:
    """Take the task through a server; return an exit code."""
    tools = (await client.list_tools()).tools
    _rule(f"adaexplore-mcp serve: {len(tools)} tools ({', '.join(tool.name for tool in tools)})")
    task = await _register(client, reference)
    wrong = [
        attempt.title
        for number, attempt in enumerate(ATTEMPTS, 1)
        if not await _submit(client, task, right, number, attempt)
    ]
    _rule("search_step · a search of four steps by a scripted agent")
    _say(
        "Each answer holds the outcome of the last kernel and what to try next. Without a GPU nothing is timed: the "
        "search holds verdicts, and names no kernel the fastest."
    )

    async def call(tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return await _called(client, tool, arguments)

    if not await search(call, str(task["task_id"]), right, _say):
        wrong.append("the search")
    _rule("done")
    if wrong:
        _say(f"Not as expected: {'; '.join(wrong)}.")
        return 1
    _say(
        "Everything above was kept in a database that is now removed. To use it from your agent, see README.md: "
        "one line per host. To look at your own machine: adaexplore-mcp doctor."
    )
    return 0


async def _register(client: Client, reference: str) -> Mapping[str, Any]:
    started = time.monotonic()
    task = await _called(
        client,
        "register_task",
        {
            "name": "fused add + RMSNorm",
            "source": reference,
            "format": "function",
            "entry": TASK,
            "workloads": WORKLOADS,
            "domains": {"x": "normal", "residual": "normal", "weight": "normal"},
            "mutates": ["residual"],
        },
    )
    _rule(f"register_task · {time.monotonic() - started:.1f} s, the start of the worker processes included")
    _say(str(task["summary"]))
    for workload in task["workloads"]:
        inputs = ", ".join(
            f"{spec['name']} {spec['dtype']}{spec.get('shape', [])}" for spec in workload["inputs"]
        )
        _say(f"workload {workload['name']}: {inputs}; {workload['bytes'] / 1e3:.0f} KB to move")
    _say(f"changed in place by contract: {', '.join(task['mutates'])}")
    return task


async def _submit(client: Client, task: Mapping[str, Any], right: str, number: int, attempt: Attempt) -> bool:
    """Submit one kernel and show its verdict; tell whether it is the expected one."""
    assert attempt.old in right, attempt.title
    kernel = right.replace(attempt.old, attempt.new, 1) if attempt.old else right
    started = time.monotonic()
    verdict = await _called(
        client,
        "compile_and_verify",
        {
            "task_id": task["task_id"],
            "kernel": kernel,
            "timeout_seconds": attempt.timeout_seconds,
            "wait_seconds": 45,
            "agent": "demo",
        },
    )
    _rule(f"compile_and_verify {number} · {attempt.title} · {time.monotonic() - started:.2f} s")
    _show(verdict)
    return str(verdict["status"]) == attempt.expected


def _show(verdict: Mapping[str, Any]) -> None:
    status = str(verdict["status"])
    print(f"  {MARKS.get(status, '✗')} {status.upper()}")  # noqa: T201 - a demonstration for people
    _say(str(verdict["summary"]))
    error = verdict.get("error")
    if error and error.get("source"):
        _say(f"line {error['line']}:  {error['source'].strip()}")
    evidence = verdict.get("evidence") or {}
    if evidence.get("outside_share"):
        _say(
            f"evidence: {evidence['outside_share']:.0%} of the elements lie outside the bound; NRMSE "
            f"{evidence.get('nrmse', 0):.1e}; zeros would {'' if evidence.get('zeros_would_pass') else 'not '}have passed"
        )
    for kernel in verdict.get("compiled", []):
        _say(
            f"compiled: {kernel['kernel']} uses {kernel.get('registers', 0)} registers, "
            f"{kernel.get('spill_bytes', 0)} bytes of spills, {kernel.get('shared_bytes', 0)} bytes of shared memory"
        )
    _say(f"next: {verdict['next_step']}")
    _say(f"receipt {verdict['receipt_id']}")


async def _called(client: Client, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a tool; where the call outlasts its wait and becomes a job, follow that to its result."""
    content = _content(tool, await client.call_tool(tool, dict(arguments)))
    if content.get("status") != "running" or not content.get("job_id"):
        return content
    while content["status"] == "running":
        asked = {"job_id": content["job_id"], "wait_seconds": 45, "response_format": "detailed"}
        content = _content("job_status", await client.call_tool("job_status", asked))
    if content["status"] != "done":
        raise CallFailedError(tool, f"{content['summary']} {content.get('next_step', '')}".strip())
    result: Mapping[str, Any] = content["result"]
    return result


def _content(tool: str, result: CallToolResult) -> Mapping[str, Any]:
    if result.is_error or result.structured_content is None:
        text = " ".join(getattr(block, "text", "") for block in result.content)
        raise CallFailedError(tool, text)
    content: Mapping[str, Any] = result.structured_content
    return content


def _rule(title: str) -> None:
    print(f"\n── {title} {'─' * max(2, WIDTH - len(title) - 4)}")  # noqa: T201 - a demonstration for people


def _say(text: str) -> None:
    print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))  # noqa: T201 - as above
