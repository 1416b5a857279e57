"""One process with the interpreter installed serves all tests of this folder: it forks a child per scenario.

Triton means interpretation only if TRITON_INTERPRET is set before it is imported, and other tests of this repository
need the opposite in their process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[3]


class Host:
    """The process that runs scenarios."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(REPOSITORY),
        }
        command = [sys.executable, str(HERE / "host.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, cwd=HERE
        )

    def run(self, file: str, name: str) -> dict[str, str]:
        """Run one scenario in a child of the host and return what came of it."""
        self._process.stdin.write(json.dumps({"file": str(HERE / "scenarios" / file), "name": name}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the host ended with {self._process.wait(10)}")
        return json.loads(line)

    def close(self) -> None:
        """End the host."""
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def interpreter_host():
    host = Host()
    yield host
    host.close()
