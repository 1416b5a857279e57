"""Time kernels against themselves, and against themselves with a little more work: how often is the answer false?

    python benchmarks/a_a.py --pairs 1000 --out a_a.jsonl            identical kernels: every "faster" or "slower" is false
    python benchmarks/a_a.py --pairs 200 --busy 16 --out busy.jsonl  the same while 16 processes keep the CPUs busy
    python benchmarks/a_a.py --more --pairs 50 --out more.jsonl      1, 2, 5 and 20 % more work: which is told apart?

Each measurement times one kernel against five copies of it, each in a process of its own, in the same rounds: five pairs.
What is in the output file already is not done again, so a run that was cut short goes on where it stopped.
"""

import argparse
import collections
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
from batch import Row, rows_of

from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import find
from adaexplore_mcp.evaluation.evaluator import Evaluator, Race
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.timing.baselines import Contender
from adaexplore_mcp.models import Outcome, Policy
from adaexplore_mcp.services.connect import LOCKS

MEMORY_BYTES = 8 << 30
COPIES = 5
EXTRA = (1, 2, 5, 20)
"""Percent more work."""
LOOPS = {
    "5 us": (1 << 16, 100),
    "15 us": (1 << 18, 1_100),
    "25 us": (1 << 19, 1_100),
    "50 us": (1 << 20, 1_000),
    "500 us": (1 << 22, 2_000),
    "5 ms": (1 << 24, 6_000),
    "20 ms": (1 << 24, 24_000),
}
"""By name, elements and steps of a loop for each: calls of about that length on an H200."""
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn({elements})]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
from torch import nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, steps, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    spent = x
    for _ in range(steps):
        spent = spent * 0.5 + 0.25
    x = tl.where(spent > 1e30, spent, x)
    tl.store(y_ptr + o, x * 2 + 1, mask=o < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), {steps}, BLOCK=512)
        return y
"""
POLICY = Policy(precision="match")


def task_of(name: str) -> Definition:
    """Return the task of which calls take about so long."""
    source = textwrap.dedent(REFERENCE).format(elements=LOOPS[name][0])
    return Definition(format="kernelbench", files={"task.py": source}, entry="Model", policy=POLICY)


def kernel_of(name: str, percent: int = 0) -> bytes:
    """Return a kernel that does so many percent more work than it needs."""
    return KERNEL.format(steps=round(LOOPS[name][1] * (1 + percent / 100))).encode()


def _spin() -> None:
    while True:
        math.sqrt(2.0)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many CPUs at work meanwhile."""
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for each in spinning:
        each.start()
    try:
        yield
    finally:
        for each in spinning:
            each.kill()


async def measured(evaluator: Evaluator, name: str, others: Sequence[bytes], effort: str) -> Outcome:
    """Time the kernel of one task against others."""
    task = task_of(name)
    plans = await evaluator.examine(task, lambda _: None)
    baselines = [
        Contender(f"node:{number}", Candidate(source, "kernelbench", "ModelNew", POLICY))
        for number, source in enumerate(others)
    ]
    evaluation = await evaluator.verify(
        task,
        plans,
        kernel_of(name),
        task_id="",
        timeout_s=60,
        report=lambda _: None,
        race=Race(baselines, effort),
    )
    return evaluation.outcome


def rows_from(name: str, outcome: Outcome, percents: Sequence[int], seconds: float) -> list[Row]:
    """Return a row per pair."""
    if outcome.timing is None or not outcome.timing.latencies:
        notes = () if outcome.timing is None else outcome.timing.notes
        said = " ".join((f"{outcome.status}: {outcome.summary}", *notes))
        raise SystemExit(f"Nothing was timed of {name}: {said}")
    (latency,) = outcome.timing.latencies.values()
    return [
        {
            "task": name,
            "percent": percents[int(each.baseline.removeprefix("node:"))],
            "conclusion": each.conclusion,
            "speedup": each.speedup,
            "half_width": (each.high - each.low) / 2,
            "rounds": next(iter(each.workloads.values())).rounds,
            "median_us": latency.median_us,
            "clock": latency.clock,
            "dirty": len(outcome.timing.dirty),
            "seconds": seconds,
        }
        for each in outcome.timing.speedups
    ]


async def run(arguments: argparse.Namespace) -> None:
    """Measure until there are as many pairs as were asked for, task by task in turn."""
    out = Path(arguments.out)
    gpus = find([arguments.device] if arguments.device else ())
    percents = list(EXTRA) if arguments.more else [0] * COPIES
    with tempfile.TemporaryDirectory() as folder, busy(arguments.busy):
        locks = {gpu.uuid: DeviceLock(gpu, LOCKS) for gpu in gpus}
        pool = WorkerPool(Path(sys.executable), Path(folder) / "scratch", MEMORY_BYTES, gpus=gpus)
        evaluator = Evaluator(pool, "sm_90", MEMORY_BYTES, Devices(gpus, locks), jobs=4)
        try:
            number = len(rows_of(out))
            while number < arguments.pairs:
                name = list(LOOPS)[number // len(percents) % len(LOOPS)]
                others = [kernel_of(name, percent) for percent in percents]
                started = time.monotonic()
                outcome = await measured(evaluator, name, others, arguments.effort)
                rows = rows_from(name, outcome, percents, time.monotonic() - started)
                with out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
                number += len(rows)
        finally:
            await evaluator.aclose()


def table(out: Path) -> None:
    """Print by task and extra work what was concluded, and how many of all were false."""
    groups: dict[tuple[str, int], list[Row]] = collections.defaultdict(list)
    for row in rows_of(out):
        groups[row["task"], row["percent"]].append(row)
    for (task, percent), rows in sorted(
        groups.items(), key=lambda item: (list(LOOPS).index(item[0][0]), item[0][1])
    ):
        counts = collections.Counter(row["conclusion"] for row in rows)
        good = [row for row in rows if "speedup" in row]
        if not good:
            print(f"{task:8} {percent:3} %  {counts}")
            continue
        ratios = [row["speedup"] for row in good]
        print(
            f"{task:8} {percent:3} %  {len(rows):4} pairs  {dict(counts)}  "
            f"median {statistics.median(row['median_us'] for row in good):9.2f} us  "
            f"ratio {statistics.median(ratios):.4f} (spread {statistics.pstdev(ratios):.4f})  "
            f"half-width {statistics.median(row['half_width'] for row in good):.4f}  "
            f"{statistics.median(row['seconds'] for row in good):.2f} s"
        )
    same = [row for (_, percent), rows in groups.items() if not percent for row in rows]
    false = sum(row["conclusion"] in {"faster", "slower"} for row in same)
    if same:
        print(
            f"identical kernels: {false} of {len(same)} told apart; at most {upper_bound(false, len(same)):.2%} with 95 %"
        )


def upper_bound(events: int, tries: int, error: float = 0.05) -> float:
    """Return the largest probability with which no more than so many events are likely (Clopper and Pearson 1934)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        likely = sum(math.comb(tries, k) * middle**k * (1 - middle) ** (tries - k) for k in range(events + 1))
        low, high = (middle, high) if likely > error else (low, middle)
    return high


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument(
        "--more", action="store_true", help="kernels with more work instead of identical ones"
    )
    parser.add_argument("--busy", type=int, default=0, help="processes that keep CPUs busy meanwhile")
    parser.add_argument("--effort", choices=["quick", "full"], default="full")
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="a_a.jsonl")
    arguments = parser.parse_args()
    try:
        anyio.run(run, arguments)
    finally:
        table(Path(arguments.out))


if __name__ == "__main__":
    main()
