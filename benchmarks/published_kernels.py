"""Judge a folder of published kernels against their KernelBench tasks, and print what became of each.

    python benchmarks/published_kernels.py KERNELS TASKS --precision paper match --parallel 4 --out results.jsonl

KERNELS holds `level2/17.py`, …; TASKS holds `level2/17_Name.py`, …: as in the public repository of AdaExplore
(`results/saved_kernels/kernelbench` and `datasets/KernelBench`). What is in the output file already is not judged again,
so a run that was cut short goes on where it stopped.
"""

import argparse
import collections
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
from batch import Row, judged, rows_of, work_through

from adaexplore_mcp.services.container import Collaborators

T = TypeVar("T")


def found(kernels: Path, tasks: Path) -> list[tuple[str, Path, Path]]:
    """Return (name, task, kernel) in order."""
    names = []
    for level in sorted(path for path in kernels.iterdir() if path.is_dir()):
        for kernel in sorted(level.glob("*.py"), key=lambda path: int(path.stem)):
            (task,) = (tasks / level.name).glob(f"{kernel.stem}_*.py")
            names.append((f"{level.name}/{kernel.stem}", task, kernel))
    return names


def sampled(kernels: Sequence[T], count: int) -> list[T]:
    """Return so many of them, evenly spread from the first on; all for 0, or where there are no more."""
    if not 0 < count < len(kernels):
        return list(kernels)
    return [kernels[number * len(kernels) // count] for number in range(count)]


async def run(arguments: argparse.Namespace) -> None:
    """Judge what is not in the output yet."""
    out = Path(arguments.out)
    done = {(row["name"], row["precision"]) for row in rows_of(out)}
    todo = [
        (each, precision)
        for each in found(Path(arguments.kernels), Path(arguments.tasks))
        if each[0].startswith(arguments.level) and (not arguments.only or each[0] in arguments.only)
        for precision in arguments.precision
        if (each[0], precision) not in done
    ]

    async def judge(services: Collaborators, which: tuple[tuple[str, Path, Path], str]) -> Row:
        (name, task, kernel), precision = which
        return await judged(services, name, task, kernel, precision=precision, timeout_s=arguments.timeout)

    await work_through(
        todo, judge, out, parallel=arguments.parallel, device=arguments.device, target=arguments.target
    )


def table(out: Path) -> None:
    """Print counts and times."""
    every = rows_of(out)
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
