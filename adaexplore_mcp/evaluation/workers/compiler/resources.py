"""Run ptxas within a time limit, and read what a kernel takes from its log or from the binary."""

import hashlib
import os
import re
import select
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triton.runtime.errors import PTXASError

from .children import end_process
from .records import Resources
from .versions import cache_directory, cuobjdump_path

__all__ = ["Assembler", "CompileTimeout", "usage_of_binary"]

MAX_LOG_CHARACTERS = 2000

# ptxas -v, for each function it compiles (CUDA Binary Utilities; the same text since CUDA 11).
ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
PROPERTIES = re.compile(
    r"Function properties for (?P<name>\S+)\s*\n\s*(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, \d+ bytes spill loads"
)
REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
# cuobjdump --dump-resource-usage
RESOURCE_USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) SHARED:\d+ LOCAL:(?P<local>\d+)")


class CompileTimeout(PTXASError):  # type: ignore[misc]  # noqa: N818 - triton ships no types; named as `TimeoutError`
    """A time limit of ours ended the compilation; an autotuner skips the configuration, as for a ptxas failure."""

    def __str__(self) -> str:
        return self.error_message or ""


class Assembler:
    """Takes the place of the module `subprocess` in triton's NVIDIA backend, which calls it for ptxas alone.

    It limits the time, keeps the log, and raises ptxas's own words: triton would print the whole PTX to stdout.
    """

    def __init__(self) -> None:
        self.time_limit_s: float | None = None
        self.usage: Resources | None = None
        """Of the last kernel assembled."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of subprocess
        return getattr(subprocess, name)

    def run(self, command: list[str], *, stderr: Any = None, **options: Any) -> Any:  # noqa: ANN401 - as subprocess.run
        """Run ptxas.

        Raises:
            CompileTimeout: It did not end within `time_limit_s`.
            PTXASError: It refused the code.
        """
        self.usage = None
        status = _exit_status(command, self.time_limit_s, stderr=stderr, **options)
        log = Path(stderr.name).read_text(errors="replace") if hasattr(stderr, "name") else ""
        if status:
            raise PTXASError(_complaint(log, status))
        self.usage = usage_of_log(log)
        return subprocess.CompletedProcess(command, status)


def _exit_status(command: list[str], time_limit_s: float | None, **options: Any) -> int:  # noqa: ANN401 - as subprocess.run
    """Run ptxas and return its exit status, or end it and raise `CompileTimeout`.

    `Popen.wait` with a limit sleeps up to 50 ms between looks, 15 ms too long for a ptxas of 17 ms, and a sandbox refuses
    a pidfd. A pipe tells at once: its other end closes when the process that inherited it ends.
    """
    options = {name: value for name, value in options.items() if name not in {"check", "close_fds"}}
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(command, pass_fds=(write_end,), **options)  # noqa: S603 - ptxas with Triton's options
        os.close(write_end)
        write_end = -1
        if select.select([read_end], [], [], time_limit_s)[0]:
            return process.wait()
        end_process(process.pid)
        process.wait()
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
    msg = f"ptxas gave no result within {time_limit_s:.0f} s"
    raise CompileTimeout(msg)


def _complaint(log: str, status: int) -> str:
    """Return the lines of a ptxas log that say what is wrong, without the names of temporary files."""
    # The assembler for newer targets calls itself ptxas-blackwell.
    lines = [re.sub(r"^ptxas(-\w+)? (\S+\.ptx, )?", "", line) for line in log.splitlines()]
    wrong = [line for line in lines if not line.startswith("info")]
    text = "\n".join(wrong)[:MAX_LOG_CHARACTERS] or f"exit status {status}"
    return f"ptxas failed: {text}"


def usage_of_log(log: str) -> Resources | None:
    """Return the resources of the entry function that a ptxas log tells of."""
    entry = ENTRY.search(log)
    if entry is None:
        return None
    rest = log[entry.end() :]
    registers = REGISTERS.search(rest)
    properties = next((p for p in PROPERTIES.finditer(rest) if p["name"] == entry["name"]), None)
    if registers is None or properties is None:
        return None
    return Resources(int(registers["registers"]), int(properties["stack"]), int(properties["stores"]))


def usage_of_binary(cubin: bytes) -> Resources | None:
    """Return the resources of a binary by cuobjdump: for one that came from a cache. Spills are not in it."""
    with private_temporary_files() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        listing = subprocess.run(  # noqa: S603 - a tool of Triton's wheel, on a file of our own
            [cuobjdump_path(), "--dump-resource-usage", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        ).stdout
    found = RESOURCE_USAGE.search(listing)
    if found is None:
        return None
    stack = int(found["stack"]) + int(found["local"])
    return Resources(int(found["registers"]), stack, 0 if stack == 0 else None)


def digest(cubin: bytes) -> bytes:
    """Return the key that a binary is known by."""
    return hashlib.sha256(cubin).digest()


@contextmanager
def private_temporary_files() -> Iterator[str]:
    """Let temporary files be made in a folder of their own, below the kernel cache, that goes with everything in it.

    Triton leaves its PTX behind when ptxas fails. Below the cache a caller finds what a killed process left.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="assemble-", dir=cache) as folder:
        tempfile.tempdir = os.fspath(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before
