"""Answers of Nsight Compute, made by hand after its documented raw page, and a stand-in for its command."""

import csv
import io
import stat
import sys
import textwrap

from adaexplore_mcp.evaluation.counters.ncu import METRICS

__all__ = ["HEALTHY_VALUES", "answer_of", "stand_in"]

OURS = {name: metric for metric, name in METRICS.items()}
UNITS = {
    "duration_ns": "ns",
    "dram_read": "byte",
    "dram_written": "byte",
    "cycles_active": "cycle",
    "instructions": "inst",
}
FIRST = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)

HEALTHY_VALUES = {
    "duration_ns": 130_000, "compute_pct": 31.5, "memory_pct": 91.2, "dram_pct": 91.2, "dram_read": 268_500_000, "dram_written": 262_000_000,
    "load_requests": 524_288, "load_sectors": 8_388_608, "store_requests": 524_288, "store_sectors": 8_388_608, "load_conflicts": 0,
    "store_conflicts": 0, "load_wavefronts": 0, "store_wavefronts": 0, "lsu_pct": 14.0, "warps_pct": 80.4, "cycles_active": 225_000,
    "cycles_elapsed": 229_000, "instructions": 13_000_000, "local_loads": 0, "local_stores": 0, "fp64": 0, "tensor_pct": 0, "grid": 32_768,
    "block": 128, "registers": 24, "limit_registers": 16, "limit_shared_memory": 32, "limit_warps": 16, "limit_blocks": 32, "waves": 15.5,
    "stall_global_memory": 31.0, "stall_shared_memory": 0, "stall_shared_memory_queue": 0, "stall_global_memory_queue": 0.3,
    "stall_barrier": 0, "stall_arithmetic": 0.1,
}  # fmt: skip
"""An elementwise kernel that reaches nine tenths of the memory's rate."""


def answer_of(*launches):
    """Return the raw page as CSV; a launch is a kernel's name and our names with what differs from `HEALTHY_VALUES`."""
    text = io.StringIO()
    text.write(
        "==PROF== Connected to process 4242 (/usr/bin/python3.12)\n==PROF== Disconnected from process 4242\n"
    )
    page = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    page.writerow([*FIRST, *OURS.values()])
    page.writerow(
        [*[""] * len(FIRST), *(UNITS.get(name, "%" if name.endswith("_pct") else "") for name in OURS)]
    )
    for number, (kernel, changed) in enumerate(launches):
        values = {**HEALTHY_VALUES, **changed}
        row = [
            number,
            4242,
            "python3.12",
            "127.0.0.1",
            kernel,
            1,
            7,
            "(128, 1, 1)",
            "(32768, 1, 1)",
            0,
            "9.0",
        ]
        page.writerow([*row, *(values.get(name, "n/a") for name in OURS)])
    return text.getvalue()


def stand_in(folder, body):
    """Write an executable that answers in the place of ncu; `body` sees `log`, the path of the answer, and `worker`, a command."""
    file = folder / "ncu"
    file.write_text(
        f"#!{sys.executable} -I\n"
        + textwrap.dedent("""
            import subprocess, sys, time
            if "--version" in sys.argv:
                print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 0) (public-release)")
                sys.exit(0)
            log = sys.argv[sys.argv.index("--log-file") + 1]
            worker = sys.argv[sys.argv.index("--metrics") + 2:]
        """)
        + textwrap.dedent(body),
        encoding="utf-8",
    )
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file
