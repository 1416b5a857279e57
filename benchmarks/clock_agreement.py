"""Time kernels with our own bursts and with independent clocks: CUPTI and, where it may, Nsight Compute. Do they agree?

    python benchmarks/clock_agreement.py --out clock.jsonl

Each kernel is called in bursts by the code that times candidates (`workers/cuda/bursts.py`), its time taken by events; in turn
with bursts of the same code under torch's profiler, from which CUPTI's durations of the very kernels are read; and once in
bursts under `ncu --clock-control none --cache-control none`. Before each call the same buffer is read, so the L2 cache is in
the same state. From ours is taken off what a pair of events takes by itself, as it is of a candidate's. The exit code is 1 if
events and CUPTI differ by more than 2 % on the same calls of a kernel of 100 µs or more; on shorter ones it shows that a kernel's launch and end lie
between its events too, and they stand apart. What is in the output file already is not done again.
"""

import argparse
import csv
import functools
import io
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from batch import Row, rows_of
from clocked_kernels import CASES, PREFIX, Call, Case

from adaexplore_mcp.evaluation.workers.cuda.bursts import Bursts, Gauge

LONG_US = 100.0
TOLERANCE = 0.02
REPEATS = 6
"""Pairs of bursts, one without the profiler and one with it; the first pair warms up."""
BURST_US = 20_000.0
MOST_CALLS = 32
PAIRS = 21
HELD_US = 10_000.0  # more than it takes to launch them, under a profiler too
NCU_CALLS = 20
NCU = ("--clock-control", "none", "--cache-control", "none", "--metrics", "gpu__time_duration.sum")
# --- clocks


def bursts() -> Bursts:
    """Return what times candidates, for this GPU."""
    return Bursts(torch.cuda.get_device_properties(0).L2_cache_size)


@functools.cache
def pair_us() -> float:
    """Return what a pair of events takes by itself, in microseconds, as it is measured of a GPU."""
    return Gauge(torch.cuda.get_device_properties(0).L2_cache_size).measure(PAIRS)[1]


def by_events(taking: Bursts, call: Call, count: int) -> list[float]:
    """Return the times of calls in one burst, in microseconds, without what a pair of events takes by itself."""
    taking.burst([call], [[]], count, HELD_US)
    times = taking.times()
    return [value / 1e3 - pair_us() for value in times["device_ns"]]


def by_cupti(taking: Bursts, call: Call, count: int) -> tuple[list[float], list[float]]:
    """Return CUPTI's durations of the kernels of one burst, and the times of the same calls by events."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        events = by_events(taking, call, count)
    durations = [
        event.time_range.elapsed_us()
        for event in profile.events() or ()
        if event.name.startswith(PREFIX) and event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return durations, events


def measured(case: Case) -> Row:
    """Time one kernel by events and by CUPTI, in turns."""
    call, taking = case.make("cuda"), bursts()
    call()
    count = 4
    events: list[float] = []
    cupti: list[float] = []
    beside: list[float] = []
    for repeat in range(REPEATS):
        ours = by_events(taking, call, count)
        theirs, same = by_cupti(taking, call, count)
        if repeat == 0:
            count = max(5, min(MOST_CALLS, round(BURST_US / statistics.median(ours))))
            continue
        if len(theirs) != count:
            return {"name": case.name, "problem": f"CUPTI saw {len(theirs)} of {count} kernels"}
        events += ours
        cupti += theirs
        beside += same
    return {
        "name": case.name,
        "events_us": statistics.median(events),
        "cupti_us": statistics.median(cupti),
        "events_under_cupti_us": statistics.median(beside),
        "calls": len(events),
    }


def loop(names: Sequence[str]) -> None:
    """Call some kernels in bursts and measure nothing: what Nsight Compute looks at."""
    for case in (case for case in CASES if case.name in names):
        call, taking = case.make("cuda"), bursts()
        call()
        by_events(taking, call, NCU_CALLS)
        del call
        torch.cuda.empty_cache()


def by_ncu(names: Sequence[str], timeout_s: float) -> dict[str, float]:
    """Return Nsight Compute's median duration of each kernel, in microseconds; says why where it gives none."""
    if (ncu := shutil.which("ncu")) is None:
        print("Nsight Compute: there is no ncu")
        return {}
    which = ["--kernel-name-base", "function", "--kernel-name", f"regex:^{PREFIX}"]
    script = [sys.executable, __file__, "--loop", *names]
    command = [ncu, *NCU, *which, "--csv", "--print-units", "base", *script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        print(f"Nsight Compute: not done within {timeout_s:.0f} s")
        return {}
    found = durations_us(done.stdout)
    if len(found) != len(names) * (1 + NCU_CALLS):
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("==")][-3:]
        print(f"Nsight Compute: {len(found)} kernels seen, exit code {done.returncode}: {' '.join(last)}")
        return {}
    size = 1 + NCU_CALLS  # the first call of each compiles
    return {
        name: statistics.median(found[number * size + 1 : (number + 1) * size])
        for number, name in enumerate(names)
    }


def durations_us(output: str) -> list[float]:
    """Return the durations that Nsight Compute printed as CSV in base units, in order, in microseconds."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    return [
        float(row["Metric Value"].replace(",", ""))
        * (1e-3 if row["Metric Unit"] in {"ns", "nsecond"} else 1.0)
        for row in csv.DictReader(io.StringIO("\n".join(lines)))
        if row.get("Metric Name") == "gpu__time_duration.sum"
    ]


# --- what came of it


def difference(row: Row, other: str = "cupti_us") -> float:
    """Return by how much our time is longer than another clock's, as a share of that."""
    return float(row["events_us"] / row[other] - 1)


def of_same_calls(row: Row) -> float:
    """Return by how much our time of the calls that CUPTI saw is longer than CUPTI's, as a share of that."""
    return float(row["events_under_cupti_us"] / row["cupti_us"] - 1)


def disagreeing(rows: Sequence[Row]) -> list[Row]:
    """Return the long kernels on which the clocks disagree, and those that CUPTI did not see."""
    return [
        row
        for row in rows
        if "problem" in row or (row["cupti_us"] >= LONG_US and abs(of_same_calls(row)) > TOLERANCE)
    ]


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each kernel, long ones first; `same calls` compares the events taken while CUPTI looked on."""
    yield f"{'kernel':40} {'events':>11} {'CUPTI':>11} {'differ':>8} {'same calls':>10} {'ncu':>11} {'differ':>8}  calls"
    good = [row for row in rows if "problem" not in row]
    long = [row for row in good if row["cupti_us"] >= LONG_US]
    for words, some in (
        ("", long),
        (f"shorter than {LONG_US:.0f} us:", [row for row in good if row not in long]),
    ):
        if words and some:
            yield words
        for row in some:
            ncu = (
                f"{row['ncu_us']:8.2f} us {difference(row, 'ncu_us'):+8.2%}"
                if "ncu_us" in row
                else f"{'':20}"
            )
            yield (
                f"{row['name']:40} {row['events_us']:8.2f} us {row['cupti_us']:8.2f} us {difference(row):+8.2%} "
                f"{of_same_calls(row):+10.2%} {ncu}  {row['calls']}"
            )
    for row in rows:
        if "problem" in row:
            yield f"{row['name']:40} {row['problem']}"
    if long:
        worst = max(long, key=lambda row: abs(of_same_calls(row)))
        yield (
            f"{len(long)} kernels of {LONG_US:.0f} us and more: at most {abs(of_same_calls(worst)):.2%} ({worst['name']})"
        )


def main() -> None:
    """Read the arguments, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names, as in the table")
    parser.add_argument("--no-ncu", action="store_true", help="do without Nsight Compute")
    parser.add_argument("--ncu-timeout", type=float, default=240, help="seconds for all of its kernels")
    parser.add_argument("--loop", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="clock.jsonl")
    arguments = parser.parse_args()
    if arguments.loop is not None:
        loop(arguments.loop)
        return
    out = Path(arguments.out)
    rows = {row["name"]: row for row in rows_of(out)}
    for case in CASES:
        if "cupti_us" in rows.get(case.name, {}) or (arguments.only and case.name not in arguments.only):
            continue
        rows[case.name] = measured(case)
        _write(out, rows)
        torch.cuda.empty_cache()
        print(case.name, rows[case.name], flush=True)
    without = [name for name, row in rows.items() if "ncu_us" not in row and "problem" not in row]
    if without and not arguments.no_ncu:
        in_order = [case.name for case in CASES if case.name in without]
        for name, value in by_ncu(in_order, arguments.ncu_timeout).items():
            rows[name]["ncu_us"] = value
        _write(out, rows)
    print(*table(list(rows.values())), sep="\n")
    if wrong := disagreeing(list(rows.values())):
        print(f"{len(wrong)} disagree")
        sys.exit(1)


def _write(out: Path, rows: dict[str, Row]) -> None:
    """Write all rows anew, in one step: what was measured is never lost."""
    new = out.with_name(f"{out.name}.new")
    new.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    new.replace(out)


if __name__ == "__main__":
    main()
