"""Measure the drawing of synthetic tasks: how many, how long it takes, what they cover, what was turned down and why.

    python benchmarks/synthesis.py --count 500 --seed 0 [--processes 2] [--register 20] [--out tasks.jsonl]
    python benchmarks/synthesis.py --count 1 --first adaexplore_mcp/builtin/synthetic.json

`--register` registers that many of the tasks, spread evenly, and says how many were taken and what was found about them.
"""

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from adaexplore_mcp.errors import TaskError
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.synthesis import Siblings
from adaexplore_mcp.evaluation.synthesizer import Drawn, Synthesizer
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import RegisterRequest
from adaexplore_mcp.services.tasks import TaskService


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """Draw the tasks and print what there is to know about them."""
    pool = WorkerPool(Path(sys.executable), folder / "scratch", 4 << 30)
    try:
        synthesizer = Synthesizer(pool, "sm_90", arguments.processes)
        began = time.monotonic()
        operators = await synthesizer.operators()
        start_s = time.monotonic() - began
        siblings = Siblings()
        drawn = await synthesizer.draw(arguments.seed, 0, siblings, arguments.count)
        seconds = time.monotonic() - began
        coverage = siblings.coverage
        never = [name for name in operators.names if name not in coverage.operators]
        digest = hashlib.sha256("".join(task.source for task in drawn.tasks).encode()).hexdigest()
        rows = {
            "tasks": len(drawn.tasks),
            "drafts": drawn.next_number,
            "seconds": round(seconds, 1),
            "of them to find the operators": round(start_s, 1),
            "operators known": len(operators.names),
            "operators covered": len(coverage.operators),
            "pairs covered": len(coverage.pairs),
            "operators per task": dict(sorted(Counter(len(task.operators) for task in drawn.tasks).items())),
            "most often": coverage.operators.most_common(5),
            "never": never,
            "SHA-256 of all sources": digest,
        }
        print("| what | measured |\n|---|---|")
        for name, value in rows.items():
            print(f"| {name} | {value} |")
        for title, counts in (
            ("drafts turned down", drawn.rejected),
            ("steps that did not work", drawn.tried),
        ):
            print(f"\n| {title} | number |\n|---|---|")
            for reason, count in counts.most_common():
                print(f"| {reason} | {count} |")
        left = Counter(operators.left_out.values())
        print("\nleft out:", dict(left.most_common(40)))
        if arguments.first:
            write_first(arguments, drawn, len(operators.names))
        if arguments.out:
            lines = [json.dumps([task.number, task.operators, task.source]) for task in drawn.tasks]
            arguments.out.write_text("\n".join(lines))
        if arguments.register:
            await register(drawn.tasks[:: max(1, len(drawn.tasks) // arguments.register)], pool, folder)
    finally:
        await pool.aclose()


def write_first(arguments: argparse.Namespace, drawn: Drawn, known: int) -> None:
    """Write what the product ships, so that the first adapt_on_task waits for nothing."""
    wave = {
        "seed": arguments.seed,
        "next_draft": drawn.next_number,
        "known_operators": known,
        "rejected": dict(drawn.rejected),
        "tasks": [
            {"draft": task.number, "name": task.name, "operators": task.operators, "source": task.source}
            for task in drawn.tasks
        ],
    }
    arguments.first.write_text(json.dumps(wave, indent=1) + "\n", encoding="utf-8")


async def register(tasks: list, pool: WorkerPool, folder: Path) -> None:  # type: ignore[type-arg] # tasks of ours
    """Register some tasks and print what was found about them."""
    store = Store(folder / "home" / "adaexplore.db")
    service = TaskService(store, Evaluator(pool, "sm_90", 4 << 30))
    found: Counter[str] = Counter()
    began = time.monotonic()
    for task in tasks:
        try:
            summary = await service.register(
                RegisterRequest(name=task.name, source=task.source.encode()), lambda _: None
            )
            found["taken"] += 1
            for finding in summary.findings:
                print(task.number, finding)
        except TaskError as error:
            found["refused"] += 1
            print(task.number, error)
    print(f"\nregistered: {dict(found)}, {(time.monotonic() - began) / len(tasks):.2f} s each")
    await store.aclose()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--register", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--first", type=Path, help="write the tasks as the first wave that the product ships")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments, Path(folder)))


if __name__ == "__main__":
    main()
