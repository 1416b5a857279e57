"""The demonstration on a machine that is busy: calls become jobs, and are followed."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from adaexplore_mcp.demo import CallFailedError, _called

pytestmark = pytest.mark.anyio


class Client:
    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def call_tool(self, tool, arguments):
        self.asked.append((tool, arguments))
        return SimpleNamespace(is_error=False, structured_content=self.answers.pop(0), content=[])


async def test_a_call_that_becomes_a_job_is_followed_to_its_result():
    running = {"status": "running", "job_id": "job_1", "summary": "it runs"}
    client = Client(running, running, {"status": "done", "job_id": "job_1", "result": {"task_id": "task_1"}})
    assert await _called(client, "register_task", {"name": "x"}) == {"task_id": "task_1"}
    assert [tool for tool, _ in client.asked] == ["register_task", "job_status", "job_status"]
    assert client.asked[1][1]["job_id"] == "job_1"


@pytest.mark.parametrize(
    "answer", [{"status": "correct", "summary": "x"}, {"status": "stopped", "result": "node 1"}]
)
async def test_a_call_that_is_answered_at_once_is_its_answer(answer):
    assert await _called(Client(answer), "get_run", {}) == answer


async def test_a_job_that_failed_ends_the_demonstration_with_its_reason():
    failed = {"status": "failed", "job_id": "job_1", "summary": "register_task failed: no room"}
    with pytest.raises(CallFailedError, match="no room"):
        await _called(Client({"status": "running", "job_id": "job_1"}, failed), "register_task", {})


def test_without_torch_the_demonstration_ends_with_one_sentence_that_says_what_to_install(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without site-packages
    python.chmod(0o755)
    process = subprocess.run(
        [sys.executable, "-m", "adaexplore_mcp", "demo"],
        env={**os.environ, "ADAEXPLORE_WORKER_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert line.startswith("The demonstration ends here, register_task failed.")
    assert "cannot import torch and triton" in line
    assert "`pip install torch triton numpy`" in line
