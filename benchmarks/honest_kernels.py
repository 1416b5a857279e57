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
from pathlib import Path
from typing import Any

import anyio
from batch import Row, judged, rows_of, work_through

from adaexplore_mcp.services.container import Collaborators

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


async def run(arguments: argparse.Namespace) -> None:
    """Judge what is not in the output yet."""
    out = Path(arguments.out)
    done = {row["name"] for row in rows_of(out)}
    todo = [
        each for each in found(Path(arguments.folder), arguments.kind, arguments.only) if each[0] not in done
    ]

    async def judge(services: Collaborators, which: tuple[str, Path, dict[str, Any]]) -> Row:
        name, path, case = which
        expect = case.get("expect", {})
        row = await judged(
            services,
            name,
            path / "reference.py",
            path / "candidate.py",
            precision=case.get("precision", "match"),
            timeout_s=arguments.timeout,
        )
        return row | {
            "dtype": case.get("dtype", ""),
            "collection": case.get("collection", case.get("kind", "")),
            "expected": [status for status in [expect.get("verdict"), *expect.get("accept", [])] if status],
        }

    await work_through(
        todo, judge, out, parallel=arguments.parallel, device=arguments.device, target=arguments.target
    )


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
    table([row for row in rows_of(Path(arguments.out)) if row["name"] in names])


if __name__ == "__main__":
    main()
