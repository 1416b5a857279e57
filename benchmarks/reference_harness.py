"""Let the paper's own harness judge and time published kernels, one after the other: how long does it take?

    python benchmarks/reference_harness.py CHECKOUT KERNELS TASKS --sample 24 --like throughput.jsonl --out harness.jsonl

CHECKOUT is AdaExplore's public repository (of it `src/eval_subprocess_runner.py`, `src/eval.py` and `src/format.py`), KERNELS
and TASKS as for `published_kernels.py`. Each kernel is a process of its own, as that repository runs them: five comparisons
with the reference, then timed calls of the kernel and as many of eager. With `--like`, a kernel has as many of them as our
own measurement of it had. What is in the output file already is not done again.
"""

import argparse
import collections
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from batch import Row, rows_of
from published_kernels import found, sampled

RUNNER = "src/eval_subprocess_runner.py"
CORRECT_TRIALS = 5
"""What the paper's agents ask for."""
ANSWER_CHARACTERS = 300
STAND_INS = {
    "pydantic": """
class BaseModel:
    def __init__(self, **fields):
        for name in type(self).__annotations__:
            setattr(self, name, fields.get(name, getattr(type(self), name)))
""",
    "requests": "",
}
"""Modules that the harness imports and, run locally, uses for no more than this: for where they are not installed."""


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment of its processes: caches that begin empty, and what stands in for missing modules."""
    missing = (
        "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"
    )
    asked = [sys.executable, "-c", missing, *STAND_INS]
    names = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        (scratch / f"{name}.py").write_text(STAND_INS[name])
    path = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(scratch)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TMPDIR": str(scratch),
    }


def request(task: str, kernel: str, calls: int) -> str:
    """Return what the runner is asked."""
    return json.dumps({
        "original_model_src": task,
        "custom_model_src": kernel,
        "seed_num": 42,
        "num_correct_trials": CORRECT_TRIALS,
        "num_perf_trials": calls,
        "verbose": False,
        "measure_performance": True,
        "build_dir": None,
        "device": 0,
        "backend": "triton",
        "dtype_str": "fp32",
        "gpu_name": None,
        "level": None,
        "problem_id": None,
    })  # fmt: skip


def verdict(output: str) -> Row:
    """Return what a runner's output says: its last line is the result, before it is what the kernel printed."""
    try:
        result = json.loads(output.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"verdict": "no result", "said": output[-ANSWER_CHARACTERS:]}
    if not isinstance(result, dict):
        return {"verdict": "no result", "said": str(result)}
    if "error" in result:
        return {"verdict": "failed", "said": str(result["error"])[:ANSWER_CHARACTERS]}
    metadata, stats = result.get("metadata") or {}, result.get("runtime_stats") or {}
    if not result.get("compiled"):
        return {"verdict": "not compiled", "said": str(metadata)[:ANSWER_CHARACTERS]}
    if not result.get("correctness"):
        raised = metadata.get("runtime_error_name")
        return {"verdict": "raised" if raised else "incorrect", "said": str(metadata)[-ANSWER_CHARACTERS:]}
    if not stats:
        return {"verdict": "correct, not timed"}
    return {
        "verdict": "correct",
        "speedup": stats.get("fast_p"),
        "kernel_ms": stats.get("mean"),
        "eager_ms": stats.get("baseline_time"),
    }


def judged(checkout: Path, asked: str, variables: Mapping[str, str], timeout_s: float) -> Row:
    """Run the harness on one kernel; what does not end in time is killed with all that it started."""
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, str(checkout / RUNNER), asked],
        cwd=checkout,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as runner:
        try:
            output, errors = runner.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            row: Row = {"verdict": "timeout"}
        else:
            row = verdict(output)
            if row["verdict"] == "no result":
                row["said"] = (row["said"] or errors)[-ANSWER_CHARACTERS:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(runner.pid, signal.SIGKILL)
    return {**row, "seconds": time.monotonic() - started}


def calls_of(out: Path | None) -> dict[str, int]:
    """Return by kernel how many calls our own measurement timed."""
    if out is None:
        return {}
    return {
        row["name"]: run["timed_calls"]
        for row in rows_of(out)
        for run in row["runs"]
        if run["kind"] == "first" and run["timed_calls"]
    }


def run(arguments: argparse.Namespace) -> None:
    """Judge what is not in the output yet."""
    out, checkout = Path(arguments.out), Path(arguments.checkout).resolve()
    if not (checkout / RUNNER).exists():
        sys.exit(f"{checkout} has no {RUNNER}: name a checkout of AdaExplore's public repository")
    done = {row["name"] for row in rows_of(out)}
    calls = calls_of(arguments.like)
    kernels = [
        each
        for each in found(Path(arguments.kernels), Path(arguments.tasks))
        if each[0].startswith(arguments.level)
    ]
    with tempfile.TemporaryDirectory() as folder:
        variables = environment(Path(folder))
        for name, task, kernel in sampled(kernels, arguments.sample):
            if name in done:
                continue
            count = calls.get(name, arguments.calls)
            asked = request(task.read_text(), kernel.read_text(), count)
            row = {"name": name, "calls": count} | judged(checkout, asked, variables, arguments.timeout)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{name:12} {row['seconds']:7.1f} s  {row['verdict']:14} {row.get('speedup', '')}", flush=True
            )


def table(out: Path) -> None:
    """Print how long it took and what it said."""
    rows = rows_of(out)
    if not rows:
        return
    seconds = sorted(row["seconds"] for row in rows)
    print(f"{len(rows)} kernels: {dict(collections.Counter(row['verdict'] for row in rows))}")
    print(
        f"seconds: median {statistics.median(seconds):.1f}, p90 {seconds[int(0.9 * len(seconds))]:.1f}, "
        f"{3600 * len(rows) / sum(seconds):.0f} kernels an hour, one at a time"
    )


def main() -> None:
    """Read the arguments, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout")
    parser.add_argument("kernels")
    parser.add_argument("tasks")
    parser.add_argument("--level", default="")
    parser.add_argument("--sample", type=int, default=0, help="so many, evenly spread; all without")
    parser.add_argument("--calls", type=int, default=100, help="timed calls of the kernel, and of eager")
    parser.add_argument("--like", type=Path, help="output of throughput.py: as many timed calls as there")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a kernel")
    parser.add_argument("--out", default="harness.jsonl")
    arguments = parser.parse_args()
    try:
        run(arguments)
    finally:
        table(Path(arguments.out))


if __name__ == "__main__":
    main()
