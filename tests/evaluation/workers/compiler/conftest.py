"""Candidates that compile: each in a child of one warm process, since the compiler is installed for a whole process."""

import json
import os
import select
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

PROLOGUE = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
ANSWER_LIMIT_S = 100


class Children:
    def __init__(self):
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "children.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.threads = self._read()["threads"]

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self):
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_LIMIT_S)
        assert ready, "no answer within the limit"
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def children():
    children = Children()
    yield children
    children.close()


@pytest.fixture
def compiled(children, tmp_path):
    """Compile a candidate; `source` follows the usual imports, and line 1 of it is line 6 of its file."""

    def compile_(source, *, target="sm_90", fake=True, prologue=PROLOGUE, **session):
        file = tmp_path / "candidate.py"
        file.write_text(prologue + textwrap.dedent(source).lstrip("\n"))
        answer = children.ask(file=str(file), target=target, fake=fake, session=session)
        assert "crashed" not in answer, answer["crashed"]
        for key in ("builds", "launches"):
            answer[key] = [
                SimpleNamespace(
                    **each, excerpt=SimpleNamespace(**each["error"]) if each.get("error") else None
                )
                for each in answer[key]
            ]
        answer["error"] = SimpleNamespace(**answer["error"]) if answer["error"] else None
        answer["file"] = str(file)
        answer["lines"] = file.read_text().splitlines()
        return SimpleNamespace(**answer)

    return compile_
