"""Judge a folder of published kernels against their KernelBench tasks, and print what became of each.

    python benchmarks/published_kernels.py KERNELS TASKS --precision paper match --parallel 4 --out results.jsonl

KERNELS holds `level2/17.py`, …; TASKS holds `level2/17_Name.py`, …: as in the public repository of AdaExplore
(`results/saved_kernels/kernelbench` and `datasets/KernelBench`). What is in the output file already is not judged again,
so a run that was cut short goes on where it stopped.
"""

import argparse
import collections
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import Policy, RegisterRequest, VerifyRequest
from adaexplore_mcp.services.connect import connect
from adaexplore_mcp.settings import load_settings


def found(kernels: Path, tasks: Path) -> list[tuple[str, Path, Path]]:
    """Return (name, task, kernel) in order."""
    names = []
    for level in sorted(path for path in kernels.iterdir() if path.is_dir()):
        for kernel in sorted(level.glob("*.py"), key=lambda path: int(path.stem)):
            (task,) = (tasks / level.name).glob(f"{kernel.stem}_*.py")
            names.append((f"{level.name}/{kernel.stem}", task, kernel))
    return names


async def run(arguments: argparse.Namespace) -> None:
    """Judge what is not in the output yet."""
    out = Path(arguments.out)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(row["name"], row["precision"]) for row in rows}
    todo = [
        each
        for each in found(Path(arguments.kernels), Path(arguments.tasks))
        if each[0].startswith(arguments.level) and (not arguments.only or each[0] in arguments.only)
    ]
    with tempfile.TemporaryDirectory() as home:
        devices = [arguments.device] if arguments.device else []
        settings = load_settings(
            {"home": home, "target": arguments.target, "parallel": arguments.parallel, "devices": devices}
        )
        services = connect(settings, Store(settings.database))

        async def work() -> None:
            while todo:
                which = todo.pop(0)
                for precision in arguments.precision:
                    if (which[0], precision) in done:
                        continue
                    row = await judge(services, which, precision, arguments.timeout)
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(
                        f"{which[0]:12} {precision:12} {row['status']:14} {row['register_s']:6.1f} s {row['verify_s']:6.2f} s  "
                        f"{row['summary'][:150]}",
                        flush=True,
                    )

        started = time.monotonic()
        try:
            async with anyio.create_task_group() as group:
                for _ in range(arguments.parallel):
                    group.start_soon(work)
        finally:
            await services.evaluations.aclose()
        print(f"{time.monotonic() - started:.0f} s in all, {arguments.parallel} at a time")


async def judge(services, which, precision, timeout_s):  # noqa: ANN001, ANN201 - a script
    """Judge one kernel; a refused task is a row too."""
    name, task, kernel = which
    row = {"name": name, "precision": precision, "register_s": 0.0, "verify_s": 0.0}
    started = time.monotonic()
    try:
        registered = await services.tasks.register(
            RegisterRequest(name=name, source=task.read_bytes(), policy=Policy(precision=precision)),
            lambda _: None,
        )
        row["register_s"] = round(time.monotonic() - started, 2)
        row["findings"] = registered.findings
        started = time.monotonic()
        outcome = await services.evaluations.verify(
            VerifyRequest(task_id=registered.task_id, source=kernel.read_bytes(), timeout_s=timeout_s),
            lambda _: None,
        )
        row |= {"status": outcome.status, "summary": outcome.summary, "outcome": outcome.to_wire()}
        row["seconds"] = outcome.seconds
    except AdaExploreError as error:
        row |= {"status": f"refused: {type(error).__name__}", "summary": str(error)}
    row["verify_s"] = round(time.monotonic() - started, 2)
    return row


def table(out: Path) -> None:
    """Print counts and times."""
    every = [json.loads(line) for line in out.read_text().splitlines()]
    for precision in sorted({row["precision"] for row in every}):
        _table(precision, [row for row in every if row["precision"] == precision])


def _table(precision: str, rows: list[dict[str, Any]]) -> None:
    counts = collections.Counter(row["status"] for row in rows)
    compiled = sum(
        bool(row.get("outcome", {}).get("compiled")) or row["status"] in {"plausible", "correct"}
        for row in rows
    )
    print(
        f"\n{precision}, {len(rows)} kernels: {', '.join(f'{status} {count}' for status, count in counts.most_common())}"
    )
    print(f"compiled at full size or without a kernel of its own: {compiled}")
    for what in ("register_s", "verify_s"):
        values = sorted(row[what] for row in rows)
        print(
            f"{what}: median {statistics.median(values):.2f}, p90 {values[int(0.9 * len(values))]:.2f}, max {values[-1]:.2f}"
        )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels")
    parser.add_argument("tasks")
    parser.add_argument(
        "--precision", nargs="+", default=["paper"], choices=["match", "relaxed", "kernelbench", "paper"]
    )
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--device", default="", help="which GPUs to use; none: without any")
    parser.add_argument("--parallel", type=int, default=1, help="kernels at a time")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--out", default="published_kernels.jsonl")
    parser.add_argument("--level", default="", help="level2 or level3; both without")
    parser.add_argument("--only", nargs="*", help="names such as level2/17")
    arguments = parser.parse_args()
    anyio.run(run, arguments)
    table(Path(arguments.out))


if __name__ == "__main__":
    main()
