"""Register a folder of tasks and print what the audit finds: what their verdicts, and speedups on them, are worth.

    python benchmarks/audit_tasks.py TASKS --parallel 4 --out audit.jsonl

TASKS holds files such as `17_Name.py`, each with a class Model, get_inputs() and get_init_inputs(). What is in the output
file already is not looked at again, so a run that was cut short goes on where it stopped.
"""

import argparse
import statistics
import time
from pathlib import Path

import anyio
from batch import Row, rows_of, work_through

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.models import Policy, RegisterRequest
from adaexplore_mcp.services.container import Collaborators


async def run(arguments: argparse.Namespace) -> None:
    """Register what is not in the output yet."""
    out = Path(arguments.out)
    done = {row["name"] for row in rows_of(out)}
    todo = sorted(
        (path for path in Path(arguments.tasks).glob("*.py") if path.stem not in done),
        key=lambda path: (len(path.stem.partition("_")[0]), path.stem),
    )

    async def audit(services: Collaborators, path: Path) -> Row:
        started = time.monotonic()
        row: Row = {"name": path.stem, "findings": [], "refused": ""}
        try:
            request = RegisterRequest(
                name=path.stem, source=path.read_bytes(), policy=Policy(precision=arguments.precision)
            )
            row["findings"] = (await services.tasks.register(request, lambda _: None)).findings
        except AdaExploreError as error:
            row["refused"] = str(error)
        return row | {"seconds": round(time.monotonic() - started, 2)}

    await work_through(todo, audit, out, parallel=arguments.parallel, device=arguments.device)


def table(out: Path) -> None:
    """Print every finding, and times."""
    rows = rows_of(out)
    rows.sort(key=lambda row: (len(row["name"].partition("_")[0]), row["name"]))
    for row in rows:
        for finding in [*row["findings"], *filter(None, [row["refused"]])]:
            print(f"{row['name'][:44]:44} {finding}")
    found = sum(bool(row["findings"]) for row in rows)
    seconds = [row["seconds"] for row in rows]
    print(
        f"\n{len(rows)} tasks, {found} with findings, {sum(bool(row['refused']) for row in rows)} refused; "
        f"median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"
    )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks")
    parser.add_argument("--precision", default="match", choices=["match", "relaxed", "kernelbench", "paper"])
    parser.add_argument("--device", default="", help="which GPUs to use; none: without any")
    parser.add_argument("--parallel", type=int, default=1, help="tasks at a time")
    parser.add_argument("--out", default="audit.jsonl")
    arguments = parser.parse_args()
    anyio.run(run, arguments)
    table(Path(arguments.out))


if __name__ == "__main__":
    main()
