"""Nsight Compute's command line: where it is, what it is asked, what its answer says.

Its answer comes out of a process that runs a stranger's code: everything in it is checked, bounded, and never a verdict.
"""

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adaexplore_mcp.evaluation.claims import name_in, quoted, text

__all__ = ["METRICS", "Launch", "Ncu", "command", "find", "kernel_name", "launches", "problem_in"]

PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/usr/local/cuda-*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
VERSION_S = 20.0
MOST_LAUNCHES = 40
MOST_CHARACTERS = 4 << 20
MOST = 1e18
"""No counter of one launch comes to that; sums of what is below can be told as whole numbers."""
SAID = 300
MOST_NAME, SHOWN_NAME = 1000, 80

METRICS = {
    "gpu__time_duration.sum": "duration_ns",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute_pct",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory_pct",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_pct",
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_written",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "store_sectors",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "load_conflicts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "store_conflicts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "load_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "store_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed": "lsu_pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps_pct",
    "sm__cycles_active.avg": "cycles_active",
    "sm__cycles_elapsed.max": "cycles_elapsed",
    "smsp__inst_executed.sum": "instructions",
    "smsp__inst_executed_op_local_ld.sum": "local_loads",
    "smsp__inst_executed_op_local_st.sum": "local_stores",
    "sm__inst_executed_pipe_fp64.sum": "fp64",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pct",
    "launch__grid_size": "grid",
    "launch__block_size": "block",
    "launch__registers_per_thread": "registers",
    "launch__occupancy_limit_registers": "limit_registers",
    "launch__occupancy_limit_shared_mem": "limit_shared_memory",
    "launch__occupancy_limit_warps": "limit_warps",
    "launch__occupancy_limit_blocks": "limit_blocks",
    "launch__waves_per_multiprocessor": "waves",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "stall_global_memory",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio": "stall_shared_memory",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio": "stall_shared_memory_queue",
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio": "stall_global_memory_queue",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "stall_barrier",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio": "stall_arithmetic",
}
"""What is asked for, and what we call it. All of it takes some ten passes over each launch."""

UNITS = {
    **dict.fromkeys(("ns", "nsecond", "byte", "%", "", "inst", "cycle", "sector", "request"), 1.0),
    **dict.fromkeys(("us", "usecond", "Kbyte"), 1e3),
    **dict.fromkeys(("ms", "msecond", "Mbyte"), 1e6),
    **dict.fromkeys(("s", "second", "Gbyte"), 1e9),
}
"""To nanoseconds and bytes; what is not here counts as it is."""
REFUSED = "ERR_NVGPUCTRPERM"
FORBIDDEN = (
    "the driver lets only administrators read counters (ERR_NVGPUCTRPERM); its option "
    "NVreg_RestrictProfilingToAdminUsers=0 opens them to everybody"
)
DRIVER = Path("/proc/driver/nvidia/params")
COMPLAINTS = (
    re.compile(r"^==ERROR==\s*(.+)$", re.MULTILINE),
    re.compile(r"^==WARNING==\s*(?!Note:)(.+)$", re.MULTILINE),
)


@dataclass(frozen=True)
class Ncu:
    """Nsight Compute on this machine.

    Args:
        path: Of its command; empty where there is none.
        version: As it gives it.
        problem: Why there is none to use; empty if there is.
    """

    path: str = ""
    version: str = ""
    problem: str = ""

    @property
    def folder(self) -> str:
        """The installation, which it reads."""
        return str(Path(self.path).resolve().parent)


@dataclass(frozen=True)
class Launch:
    """What the counters showed of one launch.

    Args:
        kernel: Its name.
        values: By our names, see `METRICS`; what was not measured is not there.
    """

    kernel: str
    values: Mapping[str, float] = field(default_factory=dict)


def find(path: str | None = None, places: Sequence[str] = PLACES) -> Ncu:
    """Look for Nsight Compute; waits for its version.

    Args:
        path: Folders to look in first, as in PATH; the environment's own by default.
        places: Patterns of paths to look at after it.
    """
    found = [shutil.which("ncu", path=path)]
    for pattern in places:
        root = Path(pattern).anchor
        found += sorted(map(str, Path(root).glob(pattern.removeprefix(root))), reverse=True)
    for each in filter(None, found):
        if os.access(each, os.X_OK):
            return _of(each)
    return Ncu(problem="Nsight Compute (ncu) is not installed here")


def _of(path: str) -> Ncu:
    try:
        said = subprocess.run(  # noqa: S603 - a program of this machine, found on its PATH
            [path, "--version"], capture_output=True, timeout=VERSION_S, check=True, stdin=subprocess.DEVNULL
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError) as error:
        return Ncu(path, problem=f"{path} does not say which version it is ({type(error).__name__})")
    found = re.search(r"[Vv]ersion\s+([\w.]+)", said[:2000])
    if not found:
        return Ncu(path, problem=f"{path} does not say which version it is")
    return Ncu(path, found[1], FORBIDDEN if os.geteuid() and _restricted() else "")


def _restricted() -> bool:
    """Tell whether the driver shows counters to root only."""
    try:
        return "RmProfilingAdminOnly: 1" in DRIVER.read_text(encoding="ascii", errors="replace")
    except OSError:  # another driver: whether it refuses is seen when it is asked
        return False


def command(ncu: Ncu, log: Path, worker: Sequence[str]) -> list[str]:
    """Return the command that reads counters of what a worker does between cudaProfilerStart and cudaProfilerStop.

    Clocks are left alone. Caches are emptied before every pass, as before every timed call: the passes of one launch would
    otherwise find what the pass before has left there.

    Args:
        ncu: Which one.
        log: Where its answer goes.
        worker: The command that it starts.
    """
    return [
        *(ncu.path, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off"),
        *("--target-processes", "application-only", "--launch-count", str(MOST_LAUNCHES)),
        *("--metrics", ",".join(METRICS), *worker),
    ]


def problem_in(said: str) -> str:
    """Return why an answer holds no counters, in words; empty where it complains of nothing."""
    if REFUSED in said:
        return FORBIDDEN
    for kind in COMPLAINTS:
        if complaint := kind.search(said[:MOST_CHARACTERS]):
            return f"it says {quoted(text({'said': complaint[1]}, 'said', SAID))}"
    return ""


def launches(said: str) -> list[Launch]:
    """Return the launches in an answer, in order, at most 40; none where it is no such answer."""
    lines = (line for line in said[:MOST_CHARACTERS].splitlines() if line.startswith('"'))
    found: list[Launch] = []
    header: list[str] = []
    units: dict[str, str] = {}
    for row in _rows(lines):
        if "Kernel Name" in row:
            header, units = row, {}
        elif header and len(row) == len(header):
            fields = dict(zip(header, row, strict=True))
            if not units and not fields["Kernel Name"]:
                units = fields
            elif fields["Kernel Name"] and len(found) < MOST_LAUNCHES:
                found.append(Launch(kernel_name(fields["Kernel Name"]), _values(fields, units)))
    return found


def kernel_name(said: str) -> str:
    """Return a kernel's name: Triton's as it is, a template of C++ without its result and all but its first arguments."""
    head = said[:MOST_NAME].partition("(")[0].removeprefix("void ").replace("::", ".")
    return name_in({"name": head}, "name", SHOWN_NAME)


def _rows(lines: Iterable[str]) -> Iterable[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error:  # a field beyond all bounds: what came before it stands
        return


def _values(fields: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    values = {}
    for metric, name in METRICS.items():
        try:
            value = float(fields.get(metric, "").replace(",", "")) * UNITS.get(units.get(metric, ""), 1.0)
        except ValueError:  # n/a
            continue
        if 0 <= value < MOST:
            values[name] = value
    return values
