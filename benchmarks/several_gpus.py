"""Judge and time on all GPUs of a machine through the tools: is a measurement ever disturbed, and are verdicts the same?

    python benchmarks/several_gpus.py search --trace TRACE.json --kernels 40 --out search.jsonl
    python benchmarks/several_gpus.py servers --trace TRACE.json --kernels 40 --out servers.jsonl
    python benchmarks/several_gpus.py crash --out crash.jsonl

TRACE.json as for `trace_replay.py`. `search`: four agents submit its kernels to one run, on all GPUs; then to runs that are
pinned to one GPU each, all at once. `servers`: two servers on one database share all GPUs, four agents each. `crash`: one GPU's
candidates end by an illegal memory access, one after the other, while a right kernel is timed on another.
From receipts, whose timelines say when, comes where each evaluation was and whether anybody used a GPU that another held alone.
The script fails where that was so, where a pinned run strayed, or where a crash reached the other GPU.
"""

import argparse
import collections
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from gpu_use import Span, overlaps, spans
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from recovery import TASK, TROUBLES, kernel
from trace_replay import ask

from adaexplore_mcp.memory_store.records import from_json

AGENTS = 4
TIMED = 5

Row = dict[str, Any]


class Bench:
    """Servers on one database, and what they recorded."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @asynccontextmanager
    async def server(self) -> AsyncIterator[Client]:
        """Start a server and connect to it."""
        command = ["-m", "adaexplore_mcp", "serve", "--home", str(self.home), "--parallel", "12"]
        parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with Client(stdio_client(parameters)) as client:
            yield client

    def receipts(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return stored receipts by their ids, each with its outcome."""
        with sqlite3.connect(f"file:{self.home / 'adaexplore.db'}?mode=ro", uri=True) as sqlite:
            rows = sqlite.execute(
                "SELECT receipt_id, receipt, outcome FROM receipts JOIN outcomes USING (outcome_id)"
            ).fetchall()
        wanted = set(ids)
        return {
            key: {**from_json(receipt), "outcome": from_json(outcome)}
            for key, receipt, outcome in rows
            if key in wanted
        }

    def where(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows with the GPU of each, without one where it was not used, and its speedup."""
        receipts = self.receipts([row["receipt_id"] for row in rows])
        found = []
        for row in rows:
            receipt = receipts[row["receipt_id"]]
            speedups = (receipt["outcome"].get("timing") or {}).get("speedups") or [{}]
            found.append(
                row | {"uuid": receipt["device"].get("uuid", ""), "speedup": speedups[0].get("speedup")}
            )
        return found

    def spans(self, rows: Sequence[Row]) -> list[Span]:
        """Return the uses of GPUs of all rows."""
        receipts = self.receipts([row["receipt_id"] for row in rows])
        return [span for key, receipt in receipts.items() for span in spans(key, receipt)]


async def searched(
    clients: Sequence[Client], task_id: str, kernels: Mapping[int, str], *, device: str = ""
) -> tuple[list[Row], float]:
    """Submit kernels to one run, four agents for each client, and return what became of each and the seconds all took."""
    begun = await ask(
        clients[0],
        "search_step",
        task_id=task_id,
        max_steps=2 * len(kernels) + 20,
        **({"device": device} if device else {}),
    )
    # Nobody shall be answered from what an earlier run found.
    left = {number: f"{source}\nrun = {begun['run_id']!r}\n" for number, source in kernels.items()}
    rows, started = [], time.monotonic()

    async def agent(client: Client, name: str) -> None:
        while left:
            number = next(iter(left))
            source = left.pop(number)
            proposal = await ask(client, "search_step", run_id=begun["run_id"], agent=name)
            if proposal["status"] == "stopped":
                proposal = await ask(
                    client, "search_step", run_id=begun["run_id"], agent=name, resume=True, max_steps=2000
                )
            answer = await ask(
                client,
                "search_step",
                run_id=begun["run_id"],
                agent=name,
                step_id=proposal["step_id"],
                kernel=source,
            )
            if answer["receipt_id"] and not answer.get("duplicate"):
                rows.append(
                    {"number": number, "status": answer["status"], "receipt_id": answer["receipt_id"]}
                )

    async with anyio.create_task_group() as group:
        for place, client in enumerate(clients):
            for one in range(AGENTS):
                group.start_soon(agent, client, f"agent-{place}-{one}")
    return rows, time.monotonic() - started


def said_of(bench: Bench, name: str, rows: Sequence[Row], seconds: float) -> list[str]:
    """Print where kernels were judged, and return what was wrong."""
    counts = collections.Counter(row["uuid"][:12] or "none" for row in rows)
    used = bench.spans(rows)
    found, alone = overlaps(used), [span for span in used if span.alone]
    print(
        f"{name}: {len(rows)} kernels in {seconds:.1f} s, {3600 * len(rows) / seconds:.0f} an hour, by GPU {dict(counts)}; "
        f"{dict(collections.Counter(row['status'] for row in rows))}; GPUs held alone for "
        f"{sum(span.ended - span.began for span in alone):.1f} s in all, used by others meanwhile {len(found)} times",
        flush=True,
    )
    return [f"{name}: {mine} and {other} for {seconds:.3f} s" for mine, other, seconds in found[:5]]


async def search(
    bench: Bench, trace: Mapping[str, Any], kernels: Mapping[int, str]
) -> tuple[list[Row], list[str]]:
    """One run on all GPUs, then a pinned run on each at once."""
    async with bench.server() as client:
        task_id = await registered(client, trace)
        uuids = {each["label"]: each["uuid"] for each in (await ask(client, "get_device"))["devices"]}
        first = next(iter(kernels.items()))
        await searched([client], task_id, dict([first]))  # workers run, ceilings are measured
        rows, seconds = await searched([client], task_id, kernels)
        rows = bench.where(rows)
        wrong = said_of(bench, "all GPUs", rows, seconds)
        pinned: dict[str, tuple[list[Row], float]] = {}

        async def one(label: str) -> None:
            pinned[label] = await searched([client], task_id, kernels, device=label)

        async with anyio.create_task_group() as group:
            for label in uuids:
                group.start_soon(one, label)
    every = [row | {"part": "search", "run": "all"} for row in rows]
    verdicts = {row["number"]: row["status"] for row in rows}
    for label, (judged, took) in pinned.items():
        some = bench.where(judged)
        wrong += said_of(bench, f"pinned to {label}", some, took)
        strayed = [row for row in some if row["uuid"] not in {"", uuids[label]}]
        wrong += [f"pinned to {label}, judged on {row['uuid']}" for row in strayed]
        both = [row for row in some if row["number"] in verdicts]
        differ = {
            row["number"]: (verdicts[row["number"]], row["status"])
            for row in both
            if row["status"] != verdicts[row["number"]]
        }
        print(
            f"  verdicts as on all GPUs: {len(both) - len(differ)} of {len(both)}; {differ or 'none differ'}"
        )
        wrong += [f"verdicts differ: {differ}"] if differ else []
        every += [row | {"part": "search", "run": label} for row in some]
    _speedups({label: bench.where(some) for label, (some, _) in pinned.items()})
    return every, wrong + _overlapping(bench, every)


def _overlapping(bench: Bench, rows: Sequence[Row]) -> list[str]:
    """Return the uses of a GPU held alone over all runs together."""
    return [
        f"over all runs: {mine} and {other} for {took:.3f} s"
        for mine, other, took in overlaps(bench.spans(rows))[:5]
    ]


def _speedups(pinned: Mapping[str, Sequence[Row]]) -> None:
    """Print by how much the speedups of the same kernels differ between the first two GPUs."""
    if len(pinned) < 2:
        return
    first, second = [
        {row["number"]: row["speedup"] for row in rows if row["speedup"]}
        for rows in list(pinned.values())[:2]
    ]
    ratios = [first[number] / second[number] for number in first.keys() & second.keys()]
    if len(ratios) > 1:
        print(
            f"  speedups on one GPU over those on another, both busy, {len(ratios)} kernels: median "
            f"{statistics.median(ratios):.4f}, standard deviation {statistics.stdev(ratios):.4f}"
        )


async def servers(
    bench: Bench, trace: Mapping[str, Any], kernels: Mapping[int, str]
) -> tuple[list[Row], list[str]]:
    """One run by the agents of two servers."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bench.server()) for _ in range(2)]
        first = next(iter(kernels.items()))
        task_id = await registered(clients[0], trace)
        for client in clients:
            await searched([client], task_id, dict([first]))
        rows, seconds = await searched(clients, task_id, kernels)
    rows = bench.where(rows)
    wrong = said_of(bench, "two servers", rows, seconds)
    return [row | {"part": "servers", "run": "two servers"} for row in rows], wrong


async def crash(bench: Bench) -> tuple[list[Row], list[str]]:
    """Crashes on the first GPU while a kernel is timed on the last."""
    rows: list[Row] = []
    crashing = TROUBLES[0].source.decode()
    async with bench.server() as client:
        task = await ask(client, "register_task", name="crash", source=TASK)
        labels = [each["label"] for each in (await ask(client, "get_device"))["devices"]]

        async def timed(run: str, number: int) -> None:
            started = time.monotonic()
            outcome = await ask(
                client,
                "benchmark_kernel",
                task_id=task["task_id"],
                kernel=f"{kernel().decode()}\nagain = {run!r}, {number}\n",
                device=labels[-1],
            )
            speedups = (outcome.get("timing") or {}).get("speedups") or [{}]
            took = {"seconds": time.monotonic() - started, "speedup": speedups[0].get("speedup")}
            rows.append({"part": "crash", "run": run, "status": outcome["status"], **took})

        async def crashes(done: anyio.Event) -> None:
            number = 0
            while not done.is_set():
                number += 1
                source = f"{crashing}\nagain = {number}\n"
                outcome = await ask(
                    client, "compile_and_verify", task_id=task["task_id"], kernel=source, device=labels[0]
                )
                rows.append({"part": "crash", "run": "illegal access", "status": outcome["status"]})

        await timed("first", 0)
        for number in range(TIMED):
            await timed("alone", number)
        async with anyio.create_task_group() as group:
            done = anyio.Event()
            group.start_soon(crashes, done)
            for number in range(TIMED):
                await timed("beside crashes", number)
            done.set()
    wrong = []
    for run, expected in (("alone", "correct"), ("beside crashes", "correct"), ("illegal access", "crashed")):
        some = [row for row in rows if row["run"] == run]
        seconds = [row["seconds"] for row in some if "seconds" in row]
        took = f", median {statistics.median(seconds):.2f} s" if seconds else ""
        speedups = [round(row["speedup"], 3) for row in some if row.get("speedup")]
        print(f"{run}: {dict(collections.Counter(row['status'] for row in some))}{took}, speedups {speedups}")
        wrong += [f"{run}: {row}" for row in some if row["status"] != expected]
    return rows, wrong


async def registered(client: Client, trace: Mapping[str, Any]) -> str:
    """Register the task of a trace."""
    task = await ask(
        client,
        "register_task",
        name=trace.get("label", "trace")[:120],
        source=trace["reference_src"],
        policy={"precision": "paper"},
    )
    return str(task["task_id"])


async def run(arguments: argparse.Namespace) -> int:
    """Run one part, write its rows, and return the exit status."""
    with tempfile.TemporaryDirectory() as home:
        bench = Bench(Path(home))
        if arguments.part == "crash":
            rows, wrong = await crash(bench)
        else:
            trace = json.loads(arguments.trace.read_text(encoding="utf-8"))
            kernels = {step["step"]: step["code"] for step in trace["steps"] if step.get("code")}
            kernels = dict(list(kernels.items())[: arguments.kernels])
            part = search if arguments.part == "search" else servers
            rows, wrong = await part(bench, trace, kernels)
    with arguments.out.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    for each in wrong:
        print(f"WRONG: {each}")
    return 1 if wrong else 0


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["search", "servers", "crash"])
    parser.add_argument("--trace", type=Path, help="needed but for crash")
    parser.add_argument("--out", type=Path, default=Path("several_gpus.jsonl"))
    parser.add_argument("--kernels", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.part != "crash" and arguments.trace is None:
        parser.error(f"{arguments.part} needs --trace")
    sys.exit(anyio.run(run, arguments))


if __name__ == "__main__":
    main()
