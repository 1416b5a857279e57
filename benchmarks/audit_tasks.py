"""Register a folder of tasks and print what the audit finds: what their verdicts, and speedups on them, are worth.

    python benchmarks/audit_tasks.py TASKS --parallel 4 --out audit.jsonl

TASKS holds files such as `17_Name.py`, each with a class Model, get_inputs() and get_init_inputs(). What is in the output
file already is not looked at again, so a run that was cut short goes on where it stopped.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import anyio

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.memory_store import Store
from adaexplore_mcp.models import Policy, RegisterRequest
from adaexplore_mcp.services.connect import connect
from adaexplore_mcp.settings import load_settings


async def run(arguments: argparse.Namespace) -> None:
    """Register what is not in the output yet."""
    out = Path(arguments.out)
    done = {json.loads(line)["name"] for line in out.read_text().splitlines()} if out.exists() else set()
    todo = sorted(
        (path for path in Path(arguments.tasks).glob("*.py") if path.stem not in done),
        key=lambda path: (len(path.stem.partition("_")[0]), path.stem),
    )
    with tempfile.TemporaryDirectory() as home:
        devices = [arguments.device] if arguments.device else []
        settings = load_settings({"home": home, "parallel": arguments.parallel, "devices": devices})
        services = connect(settings, Store(settings.database))

        async def work() -> None:
            while todo:
                path = todo.pop(0)
                started = time.monotonic()
                row = {"name": path.stem, "findings": [], "refused": ""}
                try:
                    request = RegisterRequest(
                        name=path.stem,
                        source=path.read_bytes(),
                        policy=Policy(precision=arguments.precision),
                    )
                    row["findings"] = (await services.tasks.register(request, lambda _: None)).findings
                except AdaExploreError as error:
                    row["refused"] = str(error)
                row["seconds"] = round(time.monotonic() - started, 2)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")

        try:
            async with anyio.create_task_group() as group:
                for _ in range(arguments.parallel):
                    group.start_soon(work)
        finally:
            await services.evaluations.aclose()


def table(out: Path) -> None:
    """Print every finding, and times."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
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
