"""Verify published kernels and time them against eager: how many an hour, and for how long do they hold the GPU?

    python benchmarks/throughput.py KERNELS TASKS --sample 24 --parallel 6 --out throughput.jsonl
    python benchmarks/throughput.py KERNELS TASKS --sample 24 --parallel 6 --ahead --edits 3 --out throughput.jsonl
    python benchmarks/throughput.py KERNELS TASKS --sample 24 --parallel 1 --edits 2 --broken --out throughput.jsonl

KERNELS and TASKS as for `published_kernels.py`. Each kernel's task is registered, then the kernel is judged and timed, then so
many edits of it are, on the task that is warm now, and a copy that does not compile. With `--ahead` all tasks are registered before
the clock starts, as the task of a search is. What took how long is read from the receipts; `--trips` adds whom the server asked for what,
and how long it waited. With `--harness`, the output of `reference_harness.py`, the ratios to it are printed. What is in the output file
already is not done again, so a run that was cut short goes on where it stopped.
"""

import argparse
import ast
import collections
import contextlib
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from batch import Row, rows_of, work_through
from gpu_use import alone_s, overlaps, spans
from published_kernels import found, sampled
from round_trips import Trips, counted, table_of_trips

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.memory_store.records import from_json
from adaexplore_mcp.models import BenchmarkRequest, Outcome, Policy, RegisterRequest
from adaexplore_mcp.services.container import Collaborators

STAGES = (
    ("waiting", "queue"),
    ("compiling", "compile"),
    ("examining", "reference"),
    ("running the reference", "reference"),
    ("importing", "load"),
    ("preparing", "start"),
    ("running ", "check"),
    ("looking again", "check"),
    ("calling it for the first time", "first calls"),
    ("tuning", "timing"),
    ("warming up", "timing"),
    ("timing", "timing"),
)
"""What an evaluation says it is doing begins like this, in groups. What begins with `running:` tells how far a call is."""
GROUPS = ("queue", "load", "compile", "start", "first calls", "reference", "check", "timing", "other")
TIMEOUT_S = 120

Timeline = Sequence[Mapping[str, Any]]


def stages(timeline: Timeline) -> dict[str, float]:
    """Return the seconds of each group of stages in a receipt's timeline."""
    seconds: dict[str, float] = collections.defaultdict(float)
    group = "other"
    for each in timeline:
        if not each["stage"].startswith("running:"):
            group = next((name for words, name in STAGES if each["stage"].startswith(words)), "other")
        seconds[group] += each["seconds"]
    return dict(seconds)


def inserted(source: str, statement: str) -> str:
    """Return a source with a statement at the beginning of each of its kernels; at its end where it has none."""
    lines = source.splitlines(keepends=True)
    kernels = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each).startswith("triton.jit") for each in node.decorator_list)
    ]
    for first in sorted((node.body[0] for node in kernels), key=lambda first: first.lineno, reverse=True):
        lines.insert(first.lineno - 1, f"{' ' * first.col_offset}{statement}\n")
    return "".join(lines) if kernels else f"{source}\n{statement}\n"


def edited(source: str, number: int) -> str:
    """Return another kernel that does the same: Triton has to compile it anew."""
    return inserted(source, f"edited_{number} = {number}")


def broken(source: str) -> str:
    """Return a kernel that does not compile."""
    return inserted(source, "tl.there_is_no_such_function(0)")


async def receipt_of(services: Collaborators, outcome: Outcome) -> dict[str, Any]:
    """Return a stored receipt, past the store's own method, after which a task's trials would be drawn anew."""
    database = services.evaluations._store.evaluations._database  # type: ignore[attr-defined]

    def receipt(sqlite: Any) -> dict[str, Any]:
        (row,) = sqlite.query("SELECT receipt FROM receipts WHERE receipt_id = ?", [outcome.receipt_id])
        return dict(from_json(row["receipt"]))

    return dict(await database.read(receipt))


async def measured(services: Collaborators, kind: str, request: BenchmarkRequest) -> Row:
    """Judge and time one kernel."""
    row: Row = {"kind": kind, "timed_calls": 0}
    started = time.monotonic()
    try:
        outcome = await services.evaluations.benchmark(request, lambda _: None)
    except AdaExploreError as error:
        took = {"seconds": time.monotonic() - started}
        return row | took | {"status": f"refused: {type(error).__name__}", "summary": str(error)}
    row |= {"seconds": time.monotonic() - started, "status": outcome.status, "summary": outcome.summary}
    if not outcome.receipt_id:  # nothing was judged: there is no GPU
        return row
    receipt = await receipt_of(services, outcome)
    row |= {
        "alone_s": alone_s(receipt["timeline"]),
        "stages": stages(receipt["timeline"]),
        "gpu_used": receipt["device"]["used"],
        "receipt_id": outcome.receipt_id,
        "receipt": {key: receipt[key] for key in ("began_at", "timeline")}
        | {"device": {"uuid": receipt["device"].get("uuid", "")}},
    }
    if outcome.timing is not None:
        row["timed_calls"] = sum(each.calls for each in outcome.timing.latencies.values())
        row["timing"] = outcome.timing.to_wire()
    return row


async def run(arguments: argparse.Namespace) -> None:
    """Measure what is not in the output yet."""
    out = Path(arguments.out)
    done = {(*_group_of(row), row["name"]) for row in rows_of(out)}
    mine = {"parallel": arguments.parallel, "edits": arguments.edits, "ahead": arguments.ahead}
    kernels = [
        each
        for each in found(Path(arguments.kernels), Path(arguments.tasks))
        if each[0].startswith(arguments.level)
    ]
    todo = [each for each in sampled(kernels, arguments.sample) if (*_group_of(mine), each[0]) not in done]
    random.Random(0).shuffle(todo)  # or the heaviest, of level 3, would be the last all together
    if not todo:
        return
    began = time.monotonic()
    piece = round(time.time())
    tasks: dict[str, str] = {}

    async def registered(services: Collaborators, name: str, task: Path) -> str:
        """Register a task, if that was not done ahead, and return its handle."""
        policy = Policy(precision=arguments.precision)
        request = RegisterRequest(name=name, source=task.read_bytes(), policy=policy)
        return tasks.get(name) or (await services.tasks.register(request, lambda _: None)).task_id

    async def ready(services: Collaborators) -> None:
        """Start the workers and measure the GPU's ceilings, which a server does once; register all tasks where that is asked for."""
        nonlocal began
        await services.evaluations.device()
        evaluator = services.evaluations._evaluator  # type: ignore[attr-defined]
        for gpu in evaluator.devices.gpus:
            await evaluator.ceilings(gpu, lambda _: None)
        for name, task, _ in todo if arguments.ahead else []:
            with contextlib.suppress(AdaExploreError):  # found again, and written down, where it is its turn
                tasks[name] = await registered(services, name, task)
        print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
        began = time.monotonic()

    async def measure(services: Collaborators, which: tuple[str, Path, Path]) -> Row:
        name, task, kernel = which
        started = time.monotonic()
        row: Row = {"name": name, "piece": piece, **mine}
        runs: list[Row] = []
        source = kernel.read_text()
        sources = [("first", source), *(("edited", edited(source, n)) for n in range(arguments.edits))]
        sources += [("broken", broken(source))] if arguments.broken else []
        try:
            task_id = await registered(services, name, task)
        except AdaExploreError as error:
            took = time.monotonic() - started
            refused = {"kind": "first", "status": f"refused: {type(error).__name__}", "summary": str(error)}
            runs.append(refused | {"seconds": 0.0, "timed_calls": 0})
            sources = []
        else:
            took = time.monotonic() - started
        for kind, text in sources:
            asked = BenchmarkRequest(
                task_id=task_id,
                source=text.encode(),
                baselines=["eager"],
                effort=arguments.effort,
                timeout_s=TIMEOUT_S,
            )
            runs.append(await measured(services, kind, asked))
        words = ", ".join(f"{each['kind']} {each['status']} {each['seconds']:.1f} s" for each in runs)
        return row | {"words": words, "register_s": took, "at": time.monotonic() - began, "runs": runs}

    await work_through(todo, measure, out, parallel=arguments.parallel, device=arguments.device, first=ready)


def table(rows: Sequence[Row], harness: Sequence[Row] = ()) -> list[str]:
    """Return lines that say how many kernels an hour there were, by how many were in flight, and what took how long."""
    groups: dict[tuple[int, int, bool], list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[_group_of(row)].append(row)
    lines = []
    for (parallel, edits, _), some in sorted(groups.items()):
        lines += _group(parallel, edits, some, harness)
    if harness:
        ours = {row["name"]: row["runs"][0]["status"] for row in rows}
        differ = [
            f"{each['name']} {ours[each['name']]}, there {each['verdict']}"
            for each in harness
            if each["name"] in ours
            and (ours[each["name"]] == "correct") != each["verdict"].startswith("correct")
        ]
        lines.append(f"verdicts that differ: {'; '.join(differ) or 'none'}")
        lines.append(
            f"reference harness: {len(harness)} kernels, {_spread([each['seconds'] for each in harness], 's')}, "
            f"{_per_hour(len(harness), sum(each['seconds'] for each in harness)):.0f} kernels an hour"
        )
    return lines


def _group_of(row: Row) -> tuple[int, int, bool]:
    """Return what rows of one table have in common."""
    return row["parallel"], row["edits"], row.get("ahead", False)


def _group(parallel: int, edits: int, rows: Sequence[Row], harness: Sequence[Row]) -> list[str]:
    runs = [run for row in rows for run in row["runs"]]
    good = [run for run in runs if run["kind"] != "broken"]
    timed = [run for run in good if run.get("timing")]
    follow = f" and {edits} edits of each" if edits else ""
    registered = _spread([row["register_s"] for row in rows], "s")
    lines = [
        f"{_flight(parallel)}, {len(rows)} kernels{follow}: {_pace(parallel, rows)}",
        "  their tasks were registered before"
        if rows[0].get("ahead")
        else f"  registration of their tasks, included: {registered}",
        f"  {dict(collections.Counter(run['status'] for run in good))}",
    ]
    for kind in ("first", "edited"):
        of = [run for run in timed if run["kind"] == kind]
        if not of:
            continue
        lines.append(f"  {kind}, verdict and number: {_spread([run['seconds'] for run in of], 's')}")
        lines.append(f"    GPU held alone: {_spread([run['alone_s'] for run in of], 's')}")
        names = [name for name in GROUPS if any(name in run["stages"] for run in of)]
        medians = {name: statistics.median(run["stages"].get(name, 0.0) for run in of) for name in names}
        lines.append("    medians: " + ", ".join(f"{name} {value:.2f} s" for name, value in medians.items()))
    uses = [span for run in good if "receipt" in run for span in spans(run["receipt_id"], run["receipt"])]
    if uses:
        lines.append(f"  a GPU held alone was used by others meanwhile {len(overlaps(uses))} times")
    failing = [run for run in runs if run["kind"] == "broken" and run["status"] == "compile_error"]
    if failing:
        used = sum(run["gpu_used"] for run in failing)
        lines.append(
            f"  does not compile: the GPU used by {used} of {len(failing)}, {_spread([run['seconds'] for run in failing], 's')}"
        )
    if harness:
        lines.append(_ratio(parallel, rows, harness))
    return lines


def _flight(parallel: int) -> str:
    return "one at a time" if parallel == 1 else f"{parallel} at a time"


def wall_s(rows: Sequence[Row]) -> float:
    """Return how long it took from the start of the first to the end of the last, over all pieces."""
    pieces: dict[int, float] = collections.defaultdict(float)
    for row in rows:
        pieces[row["piece"]] = max(pieces[row["piece"]], row["at"])
    return sum(pieces.values())


def busy_s(rows: Sequence[Row]) -> float:
    """Return for how long all places were taken together, copies that do not compile left out.

    At the end of a run, when no more kernels wait, places stay empty; in a longer one they would not.
    """
    runs = [run["seconds"] for row in rows for run in row["runs"] if run["kind"] != "broken"]
    return (sum(runs) + sum(row["register_s"] for row in rows)) / rows[0]["parallel"]


def _count(rows: Sequence[Row]) -> int:
    return sum(run["kind"] != "broken" for row in rows for run in row["runs"])


def _pace(parallel: int, rows: Sequence[Row]) -> str:
    count = _count(rows)
    if parallel == 1:
        return f"{_per_hour(count, busy_s(rows)):.0f} an hour ({count} in {busy_s(rows):.0f} s)"
    return (
        f"{_per_hour(count, wall_s(rows)):.0f} an hour ({count} in {wall_s(rows):.0f} s), "
        f"{_per_hour(count, busy_s(rows)):.0f} while all places are taken"
    )


def _ratio(parallel: int, rows: Sequence[Row], harness: Sequence[Row]) -> str:
    """Say how many times as many kernels an hour there were as with the harness, on those that both had."""
    theirs = {each["name"]: each["seconds"] for each in harness}
    both = [row for row in rows if row["name"] in theirs]
    if not both:
        return "  the harness had none of these kernels"
    slow = _per_hour(len(both), sum(theirs[row["name"]] for row in both))
    said = f"{_per_hour(_count(both), busy_s(both)) / slow:.1f}"
    if parallel > 1:
        said += f" while all places are taken, {_per_hour(_count(rows), wall_s(rows)) / slow:.1f} over the whole run"
        said += f" of {len(rows)} kernels" if len(both) < len(rows) else ""
    if rows[0]["edits"]:
        first = [row | {"runs": row["runs"][:1]} for row in both]
        said += f"; {_per_hour(len(both), busy_s(first)) / slow:.1f} for the first of each task alone"
    return f"  times as many as the harness, on {len(both)} kernels: {said}"


def _per_hour(count: int, seconds: float) -> float:
    return 3600 * count / seconds if seconds > 0 else 0.0


def _spread(values: Sequence[float], unit: str) -> str:
    ordered = sorted(values)
    if not ordered:
        return "none"
    return (
        f"median {statistics.median(ordered):.2f} {unit}, p90 {ordered[int(0.9 * len(ordered))]:.2f} {unit}"
    )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels")
    parser.add_argument("tasks")
    parser.add_argument("--level", default="")
    parser.add_argument("--sample", type=int, default=0, help="so many, evenly spread; all without")
    parser.add_argument("--precision", default="paper")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--edits", type=int, default=0, help="edited kernels after each, on its task")
    parser.add_argument("--ahead", action="store_true", help="register all tasks before the clock starts")
    parser.add_argument("--broken", action="store_true", help="then a copy that does not compile")
    parser.add_argument("--device", default="")
    parser.add_argument("--trips", action="store_true", help="print what was waited for, too")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the table")
    parser.add_argument("--harness", type=Path, help="output of reference_harness.py to compare with")
    parser.add_argument("--out", default="throughput.jsonl")
    arguments = parser.parse_args()
    before = len(rows_of(Path(arguments.out)))
    trips: Trips = {}
    try:
        if not arguments.table:
            with counted() if arguments.trips else contextlib.nullcontext(trips) as trips:
                anyio.run(run, arguments)
    finally:
        rows = rows_of(Path(arguments.out))
        print(*table_of_trips(trips, sum(len(row["runs"]) for row in rows[before:])), sep="\n")
        for row in rows:
            for each in (row["runs"][0].get("timing") or {}).get("speedups", []):
                print(
                    f"{row['name']:10} {each['speedup']:8.3f} ({each['low']:.3f} to {each['high']:.3f}) {each['conclusion']}"
                )
        print(
            *table(rows, rows_of(arguments.harness) if arguments.harness else []),
            sep="\n",
        )


if __name__ == "__main__":
    main()
