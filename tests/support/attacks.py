"""Tables of attacks on a verdict: a candidate, the task it is sent for, and what must be found.

The number at the beginning of an id is that of the kind of attack; `test_every_kind.py` counts them.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from court import ADD, MEMORY_BYTES, RIGHT

from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import find
from adaexplore_mcp.evaluation.evaluator import Evaluator, Race
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.evaluation.timing.baselines import baseline

GPUS = find(())
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="no GPU")]
GPU_MEMORY_BYTES = 4 * MEMORY_BYTES

KERNEL = (
    "import gc, inspect, os, random, signal, sys, threading, time, weakref\n"
    "from torch import nn\n"
    "import torch.nn.functional as F\n" + RIGHT + "\nright = op\n"
)
"""An honest `right(x, y)`, which adds by a kernel of its own, for candidates that do something else beside it."""


@dataclass(frozen=True)
class Finding:
    """What the outcome of one candidate must say.

    Args:
        status: Of the outcome.
        checks: One of these is its check; none where there is no check.
        word: In its summary, its evidence or its notes.
        zeros_would_pass: What the evidence says of it; None for anything.
    """

    status: str
    checks: tuple[str, ...] = ("",)
    word: str = ""
    zeros_would_pass: bool | None = None

    def check(self, outcome):
        assert outcome.status == self.status, outcome.summary
        assert outcome.check in self.checks, outcome.summary
        said = [outcome.summary]
        if outcome.evidence is not None:
            said += [outcome.evidence.detail, outcome.evidence.trial]
        if outcome.facts is not None:
            said += [*outcome.facts.notes, *outcome.facts.operators]
        assert self.word in "\n".join(said), said
        if self.zeros_would_pass is not None:
            assert outcome.evidence.zeros_would_pass is self.zeros_would_pass


def attack(name, source, verdict, *, task=ADD, word="", zeros_would_pass=None):
    """Return one row of a table.

    Args:
        name: Its id: the number of its kind, and words.
        source: The candidate.
        verdict: "status" or "status/check", with | between checks of which any will do.
        task: What it is sent for.
        word: To be found in what is said about it.
        zeros_would_pass: As in `Finding`.
    """
    status, _, checks = verdict.partition("/")
    found = Finding(status, tuple(checks.split("|")), word, zeros_would_pass)
    return pytest.param(task, source, found, id=name)


def honest(name, source, *, task=ADD, word="", status="correct"):
    """Return one row for a candidate that looks like an attack and must pass."""
    return attack(name, source, status, task=task, word=word)


def adding(body, *, before="", name="op"):
    """Return a candidate `op(x, y)` with a body and module-level statements of its own; see `KERNEL`."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{KERNEL}{before}\ndef {name}(x, y):\n{lines}\n"


class GpuCourt:
    """The evaluator with all GPUs of this machine, and the plans of the tasks it has seen."""

    def __init__(self, folder):
        locks = {gpu.uuid: DeviceLock(gpu, folder / "locks") for gpu in GPUS}
        self.pool = WorkerPool(Path(sys.executable), folder / "scratch", GPU_MEMORY_BYTES, gpus=GPUS)
        self.evaluator = Evaluator(self.pool, "sm_90", GPU_MEMORY_BYTES, Devices(GPUS, locks), jobs=4)
        self.plans = {}

    async def verdict(self, task, candidate, *, timeout_s=30.0, timed=False):
        if task.digest not in self.plans:
            self.plans[task.digest] = await self.evaluator.examine(task, str)
        evaluation = await self.evaluator.verify(
            task,
            self.plans[task.digest],
            candidate.encode(),
            task_id="task_x",
            timeout_s=timeout_s,
            report=str,
            race=Race([baseline("eager", task)], "quick") if timed else None,
        )
        return evaluation.outcome
