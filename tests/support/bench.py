"""The real evaluation on a bench: workers, one small task, candidates that misbehave, and a look at what they leave."""

import sys
import textwrap
from pathlib import Path

import anyio
import processes
import pytest

from adaexplore_mcp.evaluation import sandbox
from adaexplore_mcp.evaluation.buffers import HostBuffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.definition import Definition
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.numerics import Setting, run_numerics
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.preparation import make_trials
from adaexplore_mcp.models import Policy

TARGET = "sm_90"
LIMIT_S = 20.0
MEMORY_BYTES = 512 << 20
CANARY = "canary-5d1c9f"
"""A secret in the environment of the server."""

# A weight from the constructor's arguments, so that every kind of file is handed to the candidate.
TASK = """
import torch

N = 64


class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(scale.clone())

    def forward(self, x, y):
        return x * self.scale + y


def get_inputs():
    return [torch.randn(N), torch.randn(N)]


def get_init_inputs():
    return [torch.randn(N)]
"""

CANDIDATE = """
import array, ctypes, fcntl, json, mmap, os, signal, socket, struct, sys, threading, time
import torch
import triton
import triton.language as tl


@triton.jit
def scale_add(x_ptr, scale_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0) * tl.load(scale_ptr + o, mask=o < n, other=0.0)
    tl.store(z_ptr + o, x + tl.load(y_ptr + o, mask=o < n, other=0.0), mask=o < n)


def right(x, scale, y):
    z = torch.empty_like(x)
    scale_add[(triton.cdiv(x.numel(), 64),)](x, scale, y, z, x.numel(), BLOCK=64)
    return z


def wire():
    "Find the socket on which this process answers."
    for descriptor in range(3, 512):
        try:
            return socket.socket(fileno=os.dup(descriptor))
        except OSError:
            pass


def frame(body, descriptors=()):
    "Send one frame of our own making."
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    wire().sendmsg([struct.pack("!IH", len(body), len(descriptors)) + body], rights)


OUT = {"path": "out", "dtype": "float32", "shape": [64], "start": 0}


def forge(outputs, *descriptors):
    "Answer a call in place of the harness, and leave before it can answer too."
    frame({"ok": {"outputs": outputs, "aliases": {}, "strange": None}}, descriptors)
    os._exit(0)


def own_files():
    "Yield descriptors of the memory files that this process was given."
    for name in os.listdir("/proc/self/fd"):
        try:
            if "memfd:adaexplore" in os.readlink("/proc/self/fd/" + name):
                yield int(name)
        except OSError:
            pass


def outputs_file(size):
    "Return the file that this call's outputs go to, made as large as said."
    for fd in own_files():
        if os.fstat(fd).st_size == 0:
            os.ftruncate(fd, size)
            return fd


def loading():
LOADING


def building():
BUILDING


def acting():
ACTING


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        building()
        self.scale = torch.nn.Parameter(scale.clone())

    def forward(self, x, y):
        acting()
        return right(x, self.scale, y)


loading()
"""


def misbehaving(act="pass", *, building="pass", loading="pass", once=False):
    """Return the source of a candidate that is right, and does something else beside that.

    Args:
        act: Statements run in every call.
        building: Statements run in every construction.
        loading: Statements run at import.
        once: Run `act` in the first call of a process only.
    """
    if once:
        body = textwrap.indent(textwrap.dedent(act).strip("\n"), "    ")
        act = f"if not globals().setdefault('acted', []):\n    acted.append(1)\n{body}"
    source = CANDIDATE
    for place, statements in (("LOADING", loading), ("BUILDING", building), ("ACTING", act)):
        body = textwrap.indent(textwrap.dedent(statements).strip("\n"), "    ")
        source = source.replace(f"():\n{place}\n", f"():\n{body}\n")
    return source.encode()


HONEST = misbehaving()


class Bench:
    """One pool of workers and one task on it."""

    def __init__(self, scratch, python=None, memory_bytes=MEMORY_BYTES):
        self.base = Path(scratch)
        self.pool = WorkerPool(Path(python or sys.executable), self.base, memory_bytes)
        self.evaluator = Evaluator(self.pool, TARGET, memory_bytes)
        self.definition = Definition(format="kernelbench", files={"task.py": TASK}, entry="Model")

    async def start(self):
        """Start the workers, make the task's trials, and remember how much there is of everything at rest."""
        self.plans = await self.evaluator.examine(self.definition, str)
        self.trials = await make_trials(self.pool, self.definition, self.plans[0].workload, {}, target=TARGET)
        await self.honest()
        await self.honest()  # the first started what is started on demand
        self.descriptors = None
        await self.at_rest()
        self.descriptors = _open_descriptors()

    async def close(self):
        """End the workers; nothing of them may be left."""
        workers = self.pool._workers
        ours = processes.descendants(workers.supervisor.pid) if workers else []
        self.trials.close()
        await self.evaluator.aclose()
        await self.all_gone(ours)
        assert list(self.base.iterdir()) == []

    @property
    def supervisor(self):
        """Id of the process that owns all others."""
        return self.pool._workers.supervisor.pid

    @property
    def first(self):
        """The first worker, which forks the long-lived ones."""
        return processes.children(self.supervisor)[0]

    @property
    def lasting(self):
        """The long-lived workers: both warm parents and the judge."""
        return processes.children(self.first.pid)

    @property
    def spares(self):
        """Processes of the sessions that wait for a candidate: a stub each, and the process it watches."""
        lasting = {self.first, *self.lasting}
        return [process for process in processes.descendants(self.supervisor) if process not in lasting]

    @property
    def folders(self):
        """Folders of the sessions that there are, or were."""
        scratch = self.pool._workers.scratch.path
        return sorted(entry for entry in scratch.iterdir() if "-" in entry.name)

    def has(self, *layers):
        """Tell whether this machine has some sandbox layers, as far as the workers are told."""
        return all(self.pool._workers.layers.on(layer) for layer in layers)

    async def run(self, source, *, timeout_s=LIMIT_S, place=None):
        """Run a candidate's numbers and return everything that was seen."""
        candidate = Candidate(source, "kernelbench", "ModelNew", Policy())
        setting = Setting(HostBuffers(self.pool), {"target": TARGET}, timeout_s, str, place=place)
        return await run_numerics(setting, candidate, self.trials)

    async def said(self, act, **options):
        """Return what a candidate printed in its first call, which must not have kept it from being right."""
        report = await self.run(misbehaving(act, once=True), **options)
        assert report.clean, (report.failure, report.ended, report.mismatch)
        return report.report.stdout["head"]

    async def judged(self, source, *, timeout_s=LIMIT_S, report=str):
        """Return the whole evaluation of a candidate."""
        return await self.evaluator.verify(
            self.definition, self.plans, source, task_id="task_x", timeout_s=timeout_s, report=report
        )

    async def verdict(self, source, **options):
        """Return the outcome of a candidate."""
        return (await self.judged(source, **options)).outcome

    async def honest(self):
        """Judge a right candidate, which must be found right."""
        outcome = await self.verdict(HONEST)
        assert outcome.status == "correct", outcome.summary

    async def at_rest(self):
        """Wait until there are only the processes, files and descriptors that wait for the next candidate."""
        await processes.soon(lambda: not self._surplus(), lambda: "\n".join(self._surplus()))

    async def all_gone(self, ours):
        """Wait until none of some processes is alive."""
        await processes.soon(
            lambda: not any(process.alive for process in ours),
            lambda: "still alive:\n" + processes.described([process for process in ours if process.alive]),
        )

    def _surplus(self):
        """Say what there is beyond the warm processes, the spare sessions and our own descriptors."""
        said = []
        count, others = sum(map(len, self.pool._spares.values())), self.spares
        if len(others) != 2 * count:
            said.append(f"{len(others)} processes for {count} spares:\n{processes.described(others)}")
        scratch = self.pool._workers.scratch.path
        places = [Path(processes.place(process) or "/") for process in others]
        waiting = sorted(place for place in places if place.parent == scratch)
        if self.folders != waiting or len(waiting) != count:
            said.append(f"folders {self.folders} for sessions in {waiting}")
        if self.descriptors is not None and _open_descriptors() > self.descriptors:
            said.append(f"{_open_descriptors()} descriptors, not {self.descriptors}")
        return said


def _open_descriptors():
    """Count the open files of this process; each spare session holds two of them."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def need(bench, *layers):
    """Skip a test of what this machine cannot do."""
    if not bench.has(*layers):
        pytest.skip(f"this machine lacks one of {', '.join(layers)}")


def nobody_layer(folder):
    """Return "on", or why processes cannot run as the user nobody on this machine."""
    (folder / "probed").mkdir()
    return sandbox._try_in_child(lambda: sandbox._as_nobody(str(folder / "probed")))


def with_layers(python, keep):
    """Write an interpreter that finds only some of the machine's sandbox layers, and return its path.

    It stands for other machines: a container without namespaces, a kernel without Landlock.
    """
    python.write_text(
        f"#!{sys.executable} -P\n"
        + textwrap.dedent(
            f"""
            import importlib
            import sys
            import types
            from pathlib import Path

            KEEP = {tuple(keep)!r}
            package = types.ModuleType("adaexplore_mcp")
            package.__path__ = [str(Path(sys.argv[2]).resolve().parents[1])]
            sys.modules["adaexplore_mcp"] = package
            sandbox = importlib.import_module("adaexplore_mcp.evaluation.sandbox")
            found = sandbox.probe

            def probe(scratch):
                state = dict(found(scratch).state)
                if "nobody" in KEEP:  # not needed beside Landlock, says the probe
                    state["nobody"] = sandbox._try_in_child(lambda: sandbox._as_nobody(scratch))
                return sandbox.Layers(
                    {{name: state[name] if name in KEEP else "switched off by a test" for name in state}}
                )

            sandbox.probe = probe
            sys.exit(int(importlib.import_module(f"adaexplore_mcp.{{sys.argv[3]}}").main(sys.argv[4:])))
            """
        )
    )
    python.chmod(0o755)
    return python


async def together(*calls):
    """Run several calls at once; return their results in order."""
    results = [None] * len(calls)

    async def one(position, call):
        results[position] = await call()

    async with anyio.create_task_group() as group:
        for position, call in enumerate(calls):
            group.start_soon(one, position, call)
    return results
