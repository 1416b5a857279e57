"""Let candidates crash, hang and hoard on a GPU: how soon can the next verdict begin, and is all memory back?

    python benchmarks/recovery.py --repeats 5 --out recovery.jsonl

Counted is from the beginning of the stage in which a candidate fails, less the time limit of what never ends, to the moment in
which the next candidate is imported, CUDA being started there. Once at the end, the memory of the host that a server takes with
its judges and spares. The exit code is 1 where a goal is missed. What is in the output file already is not done again.
"""

import argparse
import collections
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from batch import Row, rows_of

from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu, find, usage
from adaexplore_mcp.evaluation.evaluator import Evaluation, Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import LEAVING, Devices
from adaexplore_mcp.server import build_server
from adaexplore_mcp.services.connect import LOCKS, connect
from adaexplore_mcp.services.container import Services
from adaexplore_mcp.settings import load_settings

MEMORY_BYTES = 4 << 30
TIMEOUT_S = 30.0
HANG_S = 4.0
"""Limit of a candidate that never ends."""
SETTLE_S = 3.0
"""After a verdict: spares fork and start CUDA meanwhile."""
GPU_TOLERANCE_MIB = 256
"""The judges' allocators keep some; a process that stays holds 400 MiB at least."""
HOST_GOAL_MIB = 2048
MIB = 1 << 20
MEMORY = "memory"

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(100_000)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
from torch import nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(x_ptr + o, mask=m)
    {body}
    tl.store(y_ptr + o, x * 2 + 1, mask=m)

class ModelNew(nn.Module):
    def forward(self, x):
        {before}
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024{options})
        return y
"""


class Trouble(NamedTuple):
    """A candidate that comes to grief: how, what is then said of it, and how many seconds it may cost the next, if that is a goal."""

    kind: str
    status: str
    goal_s: float
    body: str = "pass"
    before: str = "pass"
    options: str = ""
    timeout_s: float = TIMEOUT_S

    @property
    def source(self) -> bytes:
        """The candidate."""
        return kernel(self.body, self.before, self.options)


def kernel(body: str = "pass", before: str = "pass", options: str = "") -> bytes:
    """Return a candidate that is right, and does something else beside that."""
    return textwrap.dedent(KERNEL).format(body=body, before=before, options=options).encode()


TROUBLES = (
    Trouble("illegal memory access", "crashed", 3.0,
            body="tl.store(y_ptr + o + (x.to(tl.int64) * 0 + (1 << 40)), x, mask=m)"),
    Trouble("device assert", "crashed", 3.0, body="tl.device_assert(x > 1e9)", options=", debug=True"),
    Trouble("endless kernel", "timeout", 2.0,
            body="while tl.load(x_ptr) < 1e30:\n        x += 1", timeout_s=HANG_S),
    Trouble("allocation bomb", "out_of_memory", math.inf,
            before="kept = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(1000)]"),
)  # fmt: skip


class Server:
    """An evaluator on one GPU, and one task."""

    def __init__(self, scratch: Path, gpu: Gpu) -> None:
        self.gpu = gpu
        self.pool = WorkerPool(Path(sys.executable), scratch, MEMORY_BYTES, gpus=[gpu])
        devices = Devices([gpu], {gpu.uuid: DeviceLock(gpu, LOCKS)})
        self.evaluator = Evaluator(self.pool, "sm_90", MEMORY_BYTES, devices, jobs=4)
        self.task = Definition(format="kernelbench", files={"task.py": TASK}, entry="Model")
        self.plans: list[Plan] = []
        self.began = 0.0

    def report(self, stage: str) -> None:
        """Note when the latest candidate was first imported on the GPU."""
        if stage.startswith("importing") and not self.began:
            self.began = time.monotonic()

    async def evaluation(self, source: bytes, timeout_s: float = TIMEOUT_S) -> Evaluation:
        """Judge a candidate."""
        if not self.plans:
            self.plans = await self.evaluator.examine(self.task, lambda _: None)
        self.began = 0.0
        return await self.evaluator.verify(
            self.task, self.plans, source, task_id="", timeout_s=timeout_s, report=self.report
        )

    async def used_mib(self) -> int:
        """Return what is in use of the GPU."""
        return ((await anyio.to_thread.run_sync(usage, self.gpu)).used_bytes or 0) // MIB

    async def after(self, trouble: Trouble) -> Row:
        """Judge what comes to grief, then a candidate that is right."""
        await anyio.sleep(SETTLE_S)
        before = await self.used_mib()
        bad = await self.evaluation(trouble.source, trouble.timeout_s)
        answered = time.monotonic()
        at_once = await self.used_mib()
        asked = time.monotonic()
        good = await self.evaluation(kernel())
        ended = time.monotonic()
        await anyio.sleep(SETTLE_S)
        last_s = last_stage_s(bad.receipt["timeline"])
        limit_s = trouble.timeout_s if trouble.status == "timeout" else 0.0
        return {
            "kind": trouble.kind,
            "status": bad.outcome.status,
            "next": good.outcome.status,
            # Without the look at the GPU's memory between the two.
            "recovery_s": last_s - limit_s + self.began - asked,
            "answer_s": last_s - limit_s,
            "next_s": ended - asked,
            "gpu_at_once_mib": at_once - before,
            "gpu_settled_mib": await self.used_mib() - before,
            "answered": answered,
        }

    async def memory(self) -> Row:
        """Return what a server with its judge and spares takes of the host's memory."""
        await anyio.sleep(SETTLE_S)
        spares = self.pool._spares.items()
        contexts = 1 + sum(len(some) for (role, _), some in spares if role == "gpu_candidate")
        held = await anyio.to_thread.run_sync(lambda: [held_mib(pid) for pid in (*self.pool.pids(), "self")])
        context = await anyio.to_thread.run_sync(context_mib)
        return {
            "kind": MEMORY,
            "processes": len(held),
            "mib": sum(mib for mib, _ in held),
            "by_rss": sum(not exact for _, exact in held),
            "contexts": contexts,
            "context_mib": context,
        }


def last_stage_s(timeline: Sequence[dict[str, Any]]) -> float:
    """Return how long ago the last stage of a candidate began when a receipt's timeline ended.

    What begins with `running: ` is what one says; the GPU is left after it.
    """
    last = [each for each in timeline if not each["stage"].startswith(("running:", LEAVING))][-1]
    return float(timeline[-1]["at"] + timeline[-1]["seconds"] - last["at"])


def held_mib(pid: int | str) -> tuple[float, bool]:
    """Return a process's memory, what is shared in equal parts; where that is closed to us, all it has and False."""
    for name, field, exact in (("smaps_rollup", "Pss", True), ("status", "VmRSS", False)):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text()
        except OSError:
            continue
        if found := re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE):
            return int(found[1]) / 1024, exact
    return 0.0, True  # it has ended


def context_mib() -> float:
    """Return by how much the private memory of a bare process grows when it starts CUDA."""
    measure = """
import re, torch
def private():
    text = open("/proc/self/smaps_rollup").read()
    return sum(map(int, re.findall(r"^Private_(?:Clean|Dirty): +(\\d+) kB", text, re.MULTILINE))) / 1024
before = private()
torch.empty(1, device="cuda").fill_(1)
torch.cuda.synchronize()
print(private() - before)
"""
    done = subprocess.run([sys.executable, "-c", measure], capture_output=True, text=True, check=True)
    return float(done.stdout)


async def run(arguments: argparse.Namespace) -> None:
    """Measure what is not in the output yet, one kind after the other in turn."""
    out = Path(arguments.out)
    gpus = find([arguments.device] if arguments.device else ())
    if not gpus:
        sys.exit("there is no GPU")
    have = collections.Counter(row["kind"] for row in rows_of(out))
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"home": folder})
        # What memory it takes counts too: this process is to be as large as a server's.
        _ = build_server(settings, Services(settings, connect))
        server = Server(Path(folder) / "scratch", gpus[0])
        try:
            for _ in range(2):  # whatever starts at the first use has started then
                await server.evaluation(kernel())
            for number in range(arguments.repeats):
                for trouble in TROUBLES:
                    if number >= have[trouble.kind]:
                        _add(out, await server.after(trouble))
            if not have[MEMORY]:
                _add(out, await server.memory())
        finally:
            await server.evaluator.aclose()


def _add(out: Path, row: Row) -> None:
    print(row, flush=True)
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")


def missed(rows: Sequence[Row]) -> list[str]:
    """Say which goals were missed."""
    found = []
    troubles = {trouble.kind: trouble for trouble in TROUBLES}
    for row in rows:
        if row["kind"] == MEMORY:
            if beyond_mib(row) >= HOST_GOAL_MIB:
                found.append(f"the server takes {beyond_mib(row):.0f} MiB beyond its CUDA contexts")
            continue
        trouble = troubles[row["kind"]]
        if row["status"] != trouble.status or row["next"] != "correct":
            found.append(f"{trouble.kind}: {row['status']}, the next {row['next']}")
        if row["recovery_s"] > trouble.goal_s:
            found.append(f"{trouble.kind}: {row['recovery_s']:.2f} s of {trouble.goal_s:g} s")
        left = {when: row[f"gpu_{when}_mib"] for when in ("at_once", "settled")}
        found += [
            f"{trouble.kind}: {mib} MiB of the GPU not back, {when.replace('_', ' ')}"
            for when, mib in left.items()
            if mib > GPU_TOLERANCE_MIB
        ]
    return found


def beyond_mib(row: Row) -> float:
    """Return what a server takes beyond its CUDA contexts."""
    return float(row["mib"] - row["contexts"] * row["context_mib"])


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each kind of trouble, then the memory."""
    head = (
        "trouble",
        "times",
        "until the next begins",
        "goal",
        "answer late",
        "next verdict",
        "GPU at once",
        "settled",
    )
    yield "{:24} {:>5}  {:>24} {:>6} {:>12} {:>12} {:>12} {:>9}".format(*head)
    for trouble in TROUBLES:
        some = [row for row in rows if row["kind"] == trouble.kind]
        if not some:
            continue
        recovery = [row["recovery_s"] for row in some]
        median = {name: statistics.median(row[name] for row in some) for name in ("answer_s", "next_s")}
        yield (
            f"{trouble.kind:24} {len(some):5}  {statistics.median(recovery):7.2f} s, at most {max(recovery):5.2f} s "
            f"{'' if math.isinf(trouble.goal_s) else f'{trouble.goal_s:g} s':>6} {median['answer_s']:10.2f} s {median['next_s']:10.2f} s "
            f"{max(row['gpu_at_once_mib'] for row in some):+8} MiB {max(row['gpu_settled_mib'] for row in some):+5} MiB"
        )
    for row in rows:
        if row["kind"] == MEMORY:
            closed = (
                f" ({row['by_rss']} of them by RSS, which counts shared pages in full)"
                if row["by_rss"]
                else ""
            )
            yield (
                f"host memory: {row['mib']:.0f} MiB in {row['processes']} processes{closed}, of which {row['contexts']} "
                f"CUDA contexts of {row['context_mib']:.0f} MiB: {beyond_mib(row):.0f} MiB beyond them, goal {HOST_GOAL_MIB} MiB"
            )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="recovery.jsonl")
    arguments = parser.parse_args()
    out = Path(arguments.out)
    try:
        anyio.run(run, arguments)
    finally:
        print(*table(rows_of(out)), sep="\n")
    if faults := missed(rows_of(out)):
        print(*faults, sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
