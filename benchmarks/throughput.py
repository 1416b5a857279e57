"""Verify published kernels and time them against eager, several in flight: how many an hour?

    python benchmarks/throughput.py KERNELS TASKS --level level2 --parallel 6 --out throughput.jsonl

KERNELS and TASKS as for `published_kernels.py`. Printed: seconds per kernel sustained, and for how long each held the GPU
alone. What is in the output file already is not done again.
"""

import argparse
import collections
import statistics
import time
from pathlib import Path

import anyio
from batch import Row, rows_of, work_through
from published_kernels import found

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.models import BenchmarkRequest, Policy, RegisterRequest
from adaexplore_mcp.services.container import Collaborators

ALONE = ("tuning", "warming up", "timing")
"""Stages in which a kernel holds the GPU alone begin like this."""


async def run(arguments: argparse.Namespace) -> None:
    """Measure what is not in the output yet."""
    out = Path(arguments.out)
    done = {row["name"] for row in rows_of(out)}
    todo = [
        each
        for each in found(Path(arguments.kernels), Path(arguments.tasks))
        if each[0] not in done and each[0].startswith(arguments.level)
    ][: arguments.count]

    async def measure(services: Collaborators, which: tuple[str, Path, Path]) -> Row:
        name, task, kernel = which
        alone: list[float] = []
        began: list[float] = []

        def report(stage: str) -> None:
            now = time.monotonic()
            if began:
                alone.append(now - began.pop())
            if stage.startswith(ALONE):
                began.append(now)

        row: Row = {"name": name}
        started = time.monotonic()
        try:
            policy = Policy(precision=arguments.precision)
            request = RegisterRequest(name=name, source=task.read_bytes(), policy=policy)
            summary = await services.tasks.register(request, lambda _: None)
            row["register_s"] = time.monotonic() - started
            started = time.monotonic()
            outcome = await services.evaluations.benchmark(
                BenchmarkRequest(
                    task_id=summary.task_id,
                    source=kernel.read_bytes(),
                    baselines=["eager"],
                    effort=arguments.effort,
                    timeout_s=120,
                ),
                report,
            )
            row |= {"status": outcome.status, "summary": outcome.summary, "outcome": outcome.to_wire()}
        except AdaExploreError as error:
            row |= {"status": f"refused: {type(error).__name__}", "summary": str(error)}
        return row | {"seconds": time.monotonic() - started, "alone_s": sum(alone)}

    await work_through(todo, measure, out, parallel=arguments.parallel, device=arguments.device)


def table(out: Path) -> None:
    """Print what became of the kernels and how long they took."""
    rows = rows_of(out)
    print(dict(collections.Counter(row["status"] for row in rows)))
    timed = [row for row in rows if (row.get("outcome") or {}).get("timing")]
    for name in ("seconds", "alone_s"):
        values = sorted(row[name] for row in timed)
        if values:
            print(
                f"{name}: median {statistics.median(values):.2f}, p90 {values[int(0.9 * len(values))]:.2f}, {len(values)} kernels"
            )
    for row in timed:
        for each in row["outcome"]["timing"].get("speedups", []):
            print(
                f"{row['name']:10} {each['speedup']:8.3f} ({each['low']:.3f} to {each['high']:.3f}) {each['conclusion']}"
            )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels")
    parser.add_argument("tasks")
    parser.add_argument("--level", default="")
    parser.add_argument("--count", type=int, default=1000, help="how many more")
    parser.add_argument("--precision", default="paper")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="throughput.jsonl")
    arguments = parser.parse_args()
    try:
        anyio.run(run, arguments)
    finally:
        table(Path(arguments.out))


if __name__ == "__main__":
    main()
