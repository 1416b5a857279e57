"""Judge a folder of honest kernels, and print which of them were condemned: the rate of false rejections.

    python benchmarks/honest_kernels.py FOLDER --device cuda:0 --parallel 4 --out honest.jsonl
    python benchmarks/honest_kernels.py CASES --kind honest --out cases.jsonl

FOLDER holds one folder per kernel: `reference.py`, `candidate.py`, and `case.json` with `precision` (by default `match`)
and `dtype`. A folder of cases, whose `case.json` says `kind` and `expect`, is read with --kind; a status that such a case
expects is never a false rejection. What is in the output file already is not judged again, so a run that was cut short
goes on where it stopped.
"""

import argparse
import collections
import json
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

RIGHT = {"correct", "plausible"}
UNDECIDED = {"unsupported"}


def found(folder: Path, kind: str, only: list[str] | None) -> list[tuple[str, Path, dict[str, Any]]]:
    """Return (name, folder, case.json) in order."""
    cases = []
    for path in sorted(folder.iterdir()):
        if not ((path / "reference.py").exists() and (path / "candidate.py").exists()):
            continue
        described = path / "case.json"
        case = json.loads(described.read_text()) if described.exists() else {}
        if (not kind or case.get("kind") == kind) and (not only or path.name in only):
            cases.append((path.name, path, case))
    return cases


def read(out: Path) -> list[dict[str, Any]]:
    """Return what was judged already."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


async def run(arguments: argparse.Namespace) -> None:
    """Judge what is not in the output yet."""
    out = Path(arguments.out)
    done = {row["name"] for row in read(out)}
    todo = [
        each for each in found(Path(arguments.folder), arguments.kind, arguments.only) if each[0] not in done
    ]
    with tempfile.TemporaryDirectory() as home:
        devices = [arguments.device] if arguments.device else []
        settings = load_settings(
            {"home": home, "target": arguments.target, "parallel": arguments.parallel, "devices": devices}
        )
        services = connect(settings, Store(settings.database))

        async def work() -> None:
            while todo:
                row = await judge(services, todo.pop(0), arguments.timeout)
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(
                    f"{row['name']:40} {row['status']:14} {row['register_s']:6.1f} s {row['verify_s']:6.2f} s  "
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


async def judge(services, which, timeout_s):  # noqa: ANN001, ANN201 - a script
    """Judge one kernel; a refused task is a row too."""
    name, path, case = which
    precision = case.get("precision", "match")
    expect = case.get("expect", {})
    row = {
        "name": name,
        "precision": precision,
        "dtype": case.get("dtype", ""),
        "collection": case.get("collection", case.get("kind", "")),
        "expected": [status for status in [expect.get("verdict"), *expect.get("accept", [])] if status],
        "register_s": 0.0,
        "verify_s": 0.0,
    }
    started = time.monotonic()
    try:
        registered = await services.tasks.register(
            RegisterRequest(
                name=name, source=(path / "reference.py").read_bytes(), policy=Policy(precision=precision)
            ),
            lambda _: None,
        )
        row["register_s"] = round(time.monotonic() - started, 2)
        row["findings"] = registered.findings
        started = time.monotonic()
        outcome = await services.evaluations.verify(
            VerifyRequest(
                task_id=registered.task_id,
                source=(path / "candidate.py").read_bytes(),
                timeout_s=timeout_s,
            ),
            lambda _: None,
        )
        row |= {"status": outcome.status, "summary": outcome.summary, "outcome": outcome.to_wire()}
        row["seconds"] = outcome.seconds
    except AdaExploreError as error:
        row |= {"status": f"refused: {type(error).__name__}", "summary": str(error)}
    row["verify_s"] = round(time.monotonic() - started, 2)
    return row


def verdict(row: dict[str, Any]) -> str:
    """Return right, undecided or condemned."""
    if row["status"] in RIGHT or row["status"] in row["expected"]:
        return "right"
    return "undecided" if row["status"] in UNDECIDED else "condemned"


def table(rows: list[dict[str, Any]]) -> None:
    """Print counts by status, what was not accepted, and the rate of false rejections."""
    if not rows:
        print("nothing was judged")
        return
    print(f"\n{len(rows)} kernels, all honest")
    for what in ("status", "collection", "dtype"):
        counts = collections.Counter(row[what] or "-" for row in rows)
        print(f"{what}: {', '.join(f'{value} {count}' for value, count in counts.most_common())}")
    verdicts = collections.Counter(verdict(row) for row in rows)
    for which in ("condemned", "undecided"):
        for row in sorted(rows, key=lambda row: row["name"]):
            if verdict(row) == which:
                print(f"  {which:10} {row['name']:40} {row['status']:14} {row['summary'][:300]}")
    decided = verdicts["right"] + verdicts["condemned"]
    print(
        f"accepted {verdicts['right']}, undecided {verdicts['undecided']}, condemned {verdicts['condemned']}: "
        f"false rejections {100 * verdicts['condemned'] / max(decided, 1):.1f} % of what was decided, "
        f"{100 * verdicts['condemned'] / len(rows):.1f} % of all"
    )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument(
        "--kind", default="", help="judge only cases whose case.json names this kind, such as honest"
    )
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--device", default="", help="which GPUs to use; none: without any")
    parser.add_argument("--parallel", type=int, default=1, help="kernels at a time")
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--out", default="honest_kernels.jsonl")
    parser.add_argument("--only", nargs="*", help="names of folders")
    arguments = parser.parse_args()
    anyio.run(run, arguments)
    names = {each[0] for each in found(Path(arguments.folder), arguments.kind, arguments.only)}
    table([row for row in read(Path(arguments.out)) if row["name"] in names])


if __name__ == "__main__":
    main()
