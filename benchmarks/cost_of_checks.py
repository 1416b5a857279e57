"""Switch one check off at a time: what each costs a verdict, and which attacks it alone stops.

    python benchmarks/cost_of_checks.py FOLDER --kernels 15 --device cuda:0 --out cost.jsonl
    python benchmarks/cost_of_checks.py --attacks tests/integrity --out stopped.jsonl

FOLDER holds one folder per kernel, with `reference.py` and `candidate.py`; the time is that in the candidate's process and
with the judge, which on a GPU is the time for which a place there is held. `--attacks` judges the tables of attacks without a
GPU and names those that are accepted without a check, and not with it. What is in the output file already is not done again.
"""

import argparse
import contextlib
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
from batch import Row, rows_of

from adaexplore_mcp.errors import AdaExploreError
from adaexplore_mcp.evaluation import judging, numerics, preparation, verdict
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import find
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.trials import SCHEDULE
from adaexplore_mcp.models import Policy
from adaexplore_mcp.services.connect import LOCKS

MEMORY_BYTES = 8 << 30
GOOD = {"correct", "plausible"}
Patches = Callable[[], contextlib.AbstractContextManager[object]]


async def _nothing(*_: object, **__: object) -> None:
    """Take the place of a step."""


def _without(step: str) -> Patches:
    return lambda: mock.patch.object(numerics.Calls, step, _nothing)


def _without_transforms() -> Patches:
    """Leave out trials whose inputs are transformed, but those with other weights too."""
    due = preparation.applicable

    def fewer(**task: bool) -> list[int]:
        return [
            at
            for at in due(**task)
            if SCHEDULE[at][1] != "constructor" or SCHEDULE[at][2] in {"none", "redrawn"}
        ]

    return lambda: mock.patch.object(preparation, "applicable", fewer)


TRANSFORMED = "inputs that are scaled, negated, whole, of one sign"
CHECKS: dict[str, Patches] = {
    "none": contextlib.nullcontext,
    "other values at the same addresses": _without("_other_values"),
    "the same values at other addresses": _without("_other_addresses"),
    TRANSFORMED: _without_transforms(),
    "other weights": _without("_weights"),
    "repeated calls": _without("_repeat"),
    "a second look at the first outputs": _without("_again"),
    "autotuning and its configurations": lambda: _both("_tuned", "_configurations"),
    "programs in another order": _without("_shuffled"),
    "who did the work": _without("who_did_the_work"),
    "one other size": lambda: mock.patch.object(numerics, "_elsewhere", _nothing),
    "results of other calls": lambda: mock.patch.object(judging.Judging, "_stale", _nothing),
    "conduct of its process": lambda: mock.patch.object(
        verdict, "RULES", tuple(rule for rule in verdict.RULES if rule is not verdict._misconduct)
    ),
}
"""By name, what leaves a check out."""


@contextlib.contextmanager
def _without_any() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for left_out in list(CHECKS.values()):
            stack.enter_context(left_out())
        yield


EVERY = "all of these"
"""Leaves the first call alone: what a verdict costs that looks at nothing else."""


@contextlib.contextmanager
def _both(*steps: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for step in steps:
            stack.enter_context(mock.patch.object(numerics.Calls, step, _nothing))
        yield


# --- what a check costs ----------------------------------------------------------------------------------


async def costs(evaluator: Evaluator, arguments: argparse.Namespace, out: Path) -> None:
    """Judge kernels with every check and without each."""
    folders = [path for path in sorted(Path(arguments.folder).iterdir()) if (path / "candidate.py").exists()]
    step = max(1, len(folders) // arguments.kernels)
    done = {(row["check"], row["kernel"]) for row in rows_of(out)}
    for check, left_out in {"none": CHECKS["none"], EVERY: _without_any, **CHECKS}.items():
        evaluator.close_files()  # trials are made under the same patch
        for folder in folders[::step][: arguments.kernels]:
            if (check, folder.name) in done:
                continue
            with left_out():
                row = {"check": check, "kernel": folder.name} | await _cost(
                    evaluator, folder, arguments.repeats
                )
            keep(out, row)
            print(f"{folder.name:40} {check:40} {row['status']:12} {row['seconds']}", flush=True)


async def _cost(evaluator: Evaluator, folder: Path, repeats: int) -> Row:
    """Judge one kernel once to warm up and so often again; return its status and the seconds of each."""
    task = Definition(
        format="kernelbench",
        files={"task.py": (folder / "reference.py").read_text()},
        entry="Model",
        policy=Policy(precision="relaxed"),
    )
    seconds: list[float] = []
    status = ""
    try:
        plans = await evaluator.examine(task, lambda _: None)
        for _ in range(repeats + 1):
            evaluation = await evaluator.verify(
                task,
                plans,
                (folder / "candidate.py").read_bytes(),
                task_id="",
                timeout_s=60,
                report=lambda _: None,
            )
            status = evaluation.outcome.status
            seconds.append(evaluation.outcome.seconds["numerics"])
    except AdaExploreError as error:
        status = f"refused: {error}"
    return {"status": status, "seconds": seconds[1:]}


def table_of_costs(out: Path) -> None:
    """Print by check the share of the time with every check that it takes."""
    by_check: dict[str, dict[str, float]] = {}
    for row in rows_of(out):
        if row["seconds"] and row["status"] in GOOD:
            by_check.setdefault(row["check"], {})[row["kernel"]] = statistics.median(row["seconds"])
    every = by_check.pop("none", {})
    least = by_check.pop(EVERY, {})
    if added := [every[kernel] / least[kernel] - 1 for kernel in least if kernel in every]:
        print(
            f"{EVERY:40} {statistics.median(added):7.1%} more than a verdict without any ({len(added)} kernels)"
        )
    for check, times in by_check.items():
        shares = [1 - times[kernel] / every[kernel] for kernel in times if every.get(kernel)]
        if shares:
            print(
                f"{check:40} {statistics.median(shares):7.1%} of the time of a verdict ({len(shares)} kernels)"
            )
    print(
        f"with every check: median {statistics.median(every.values()):.3f} s" if every else "nothing measured"
    )


# --- which attacks a check alone stops -------------------------------------------------------------------


async def attacks(evaluator: Evaluator, arguments: argparse.Namespace, out: Path) -> None:
    """Judge attacks with every check and without each."""
    done = {(row["check"], row["attack"]) for row in rows_of(out)}
    for check, left_out in CHECKS.items():
        for row in tables(Path(arguments.attacks)):
            if (check, row.id) in done:
                continue
            task, candidate, _ = row.values
            with left_out():
                if check == TRANSFORMED:  # trials are made under the patch
                    evaluator.close_files()
                try:
                    plans = await evaluator.examine(task, lambda _: None)
                    evaluation = await evaluator.verify(
                        task, plans, candidate.encode(), task_id="", timeout_s=20, report=lambda _: None
                    )
                    status = evaluation.outcome.status
                except AdaExploreError as error:
                    status = f"refused: {error}"
            if check == TRANSFORMED:
                evaluator.close_files()
            keep(out, {"check": check, "attack": row.id, "status": status})


def tables(folder: Path) -> list[Any]:
    """Return the rows of all tables of attacks."""
    sys.path.insert(0, str(folder.parent / "support"))
    rows = []
    for path in sorted(folder.glob("test_*.py")):
        specification = importlib.util.spec_from_file_location(f"table_of_{path.stem}", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        rows += getattr(module, "ATTACKS", [])
    return rows


def table_of_attacks(out: Path) -> None:
    """Print by check the attacks that are accepted without it and not with it."""
    status = {(row["check"], row["attack"]): row["status"] for row in rows_of(out)}
    every = {attack: found for (check, attack), found in status.items() if check == "none"}
    refused = [attack for attack, found in every.items() if found not in GOOD]
    print(f"{len(every)} attacks, {len(refused)} not accepted with every check")
    for check in CHECKS:
        alone = [attack for attack in refused if status.get((check, attack)) in GOOD]
        if check != "none":
            print(f"{check:40} alone stops {len(alone):3}: {'; '.join(alone)}")


# --- both ------------------------------------------------------------------------------------------------


def keep(out: Path, row: Row) -> None:
    """Write one result."""
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")


async def run(arguments: argparse.Namespace) -> None:
    """Do what is not in the output yet."""
    out = Path(arguments.out)
    with tempfile.TemporaryDirectory() as folder:
        gpus = [] if arguments.attacks else find([arguments.device] if arguments.device else ())
        locks = {gpu.uuid: DeviceLock(gpu, LOCKS) for gpu in gpus}
        pool = WorkerPool(Path(sys.executable), Path(folder) / "scratch", MEMORY_BYTES, gpus=gpus)
        evaluator = Evaluator(pool, "sm_90", MEMORY_BYTES, Devices(gpus, locks), jobs=4)
        try:
            await (attacks if arguments.attacks else costs)(evaluator, arguments, out)
        finally:
            await evaluator.aclose()


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("--attacks", default="", help="folder of tables of attacks, judged without a GPU")
    parser.add_argument("--kernels", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="")
    parser.add_argument("--out", default="cost_of_checks.jsonl")
    arguments = parser.parse_args()
    if bool(arguments.folder) == bool(arguments.attacks):
        parser.error("give either a folder of kernels or --attacks")
    anyio.run(run, arguments)
    (table_of_attacks if arguments.attacks else table_of_costs)(Path(arguments.out))


if __name__ == "__main__":
    main()
