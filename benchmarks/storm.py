"""Judge honest, wrong, crashing, hanging and hungry candidates at random, many at once, and look for what gives way.

    python benchmarks/storm.py --minutes 8 --parallel 4 --json storm.json

The exit code is 1 unless every verdict is one that is right for its candidate, what hangs is ended in time, and no more
processes, descriptors, files and memory are in use afterwards than before. Candidates are dealt from a shuffled deck, so
that each has its turn.

Without a GPU (`--device cpu`, or none found) what is in `NEEDS_GPU` is left out, and `WITHOUT_GPU` says what else is
right there: the interpreter sees a fault before it happens, and small sizes prove less.
"""

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import random
import secrets
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from adaexplore_mcp.evaluation.compilation import GRACE_S
from adaexplore_mcp.evaluation.definition import Definition, Plan
from adaexplore_mcp.evaluation.device_lock import DeviceLock
from adaexplore_mcp.evaluation.devices import Gpu, find, usage
from adaexplore_mcp.evaluation.evaluator import Evaluator
from adaexplore_mcp.evaluation.pool import WorkerPool
from adaexplore_mcp.evaluation.scheduling import Devices
from adaexplore_mcp.services.connect import LOCKS

MEMORY_BYTES = 3 << 30  # of one process with CUDA, which takes some
HOST_MEMORY_BYTES = (
    1 << 30
)  # of one without: each bomb goes off in two at once, and a small machine fills it in time
OVERRUN_S = 2.0  # after a deadline: to end the process, and to hear how it went
GIVE_UP_S = 180.0  # a verdict that takes longer never comes
STILL_S = 3.0  # a spare process forks, and starts CUDA, within a second
REST_S = 60.0
TOLERANCES = {
    "processes": 0,
    "descriptors": 2,  # libraries open some at their first use
    "files": 0,
    "host_bytes": 2 << 30,  # of the whole machine, on which others work too; a bomb that stays is more
    "gpu_bytes": 256 << 20,  # the judges' allocators keep some; a process that stays holds 400 MiB at least
}
"""By how much more may be in use at rest after the storm than before it."""

# --- candidates ------------------------------------------------------------------------------------------

REFERENCE = """import torch

def op(x, y):
    return {plain}

def make_inputs(workload, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    return [torch.randn(shape, generator=generator, device=device) for shape in {shapes}]
"""
HONEST = """import ctypes, os, signal, sys, time
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
{kernel}

def right(x, y):
    z = torch.empty_like(x)
    programs = {programs}
    kernel[(programs,)](x, y, z, x.shape[-1], BLOCK={block})
    return z
"""
TWISTED = """
{top}

@triton.jit
def other(p, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
{kernel}

def op(x, y):
{before}
    z = right(x, y)
{after}
    return z
"""
ADD = """o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
z = tl.load(x_ptr + o, mask=o < n, other=0.0) + tl.load(y_ptr + o, mask=o < n, other=0.0)
tl.store(z_ptr + o, tl.maximum(z, 0.0), mask=o < n)"""
SOFTMAX = """row = tl.program_id(0)
o = tl.arange(0, BLOCK)
x = tl.load(x_ptr + row * n + o, mask=o < n, other=-float("inf")) + tl.load(y_ptr + o, mask=o < n, other=0.0)
e = tl.exp(x - tl.max(x, axis=0))
tl.store(z_ptr + row * n + o, e / tl.sum(e, axis=0), mask=o < n)"""
MATMUL = """row = tl.program_id(0) // (n // BLOCK) * BLOCK + tl.arange(0, BLOCK)[:, None]
column = tl.program_id(0) % (n // BLOCK) * BLOCK + tl.arange(0, BLOCK)[None, :]
z = tl.zeros((BLOCK, BLOCK), tl.float32)
for k in range(0, n, BLOCK):
    x = tl.load(x_ptr + row * n + k + tl.arange(0, BLOCK)[None, :])
    y = tl.load(y_ptr + (k + tl.arange(0, BLOCK)[:, None]) * n + column)
    z = tl.dot(x, y, z, input_precision="ieee")
tl.store(z_ptr + row * n + column, z)"""


class Task(NamedTuple):
    """A small task on two tensors: shapes, what it computes in torch's words, and a kernel with its programs and block."""

    shapes: str
    plain: str
    kernel: str
    programs: str
    block: int

    @property
    def definition(self) -> Definition:
        """The task as it would be registered."""
        files = {"task.py": REFERENCE.format(plain=self.plain, shapes=self.shapes)}
        return Definition(format="function", files=files, entry="op")


TASKS = {  # the first with a tail, whatever the block
    "add": Task("[((1 << 20) + 37,)] * 2", "torch.relu(x + y)", ADD, "triton.cdiv(x.shape[0], 1024)", 1024),
    "softmax": Task("[(128, 1000), (1000,)]", "torch.softmax(x + y, dim=1)", SOFTMAX, "x.shape[0]", 1024),
    "matmul": Task("[(256, 256)] * 2", "x @ y", MATMUL, "(x.shape[0] // 32) ** 2", 32),
}


class Twist(NamedTuple):
    """What makes a candidate of any task another one, and the statuses that are then right on a GPU."""

    kind: str
    name: str
    statuses: str
    before: str = ""  # statements ahead of the honest call
    after: str = ""  # behind it: they may change z
    kernel: str = ""  # another kernel, launched ahead of it on 64 zeros, p; o are its 32 lanes
    options: str = ""  # of that launch
    top: str = ""  # at module level
    edit: tuple[str, str] = ("\0", "")  # a replacement in the honest text


FAR = "tl.cast(o, tl.int64) + (1 << 40)"  # 4 TiB away
TUNED = '@triton.autotune([triton.Config({}, num_warps=w) for w in (2, 4, 8)], key=["n"])\n@triton.jit'
SHARED = """r = tl.arange(0, 128)
tile = p + r[:, None] * 128 + r[None, :]
z = tl.zeros((128, 128), tl.float32)
for k in range(0, 64):
    z = tl.dot(tl.load(tile + k * 16384), tl.load(tile + k * 16384 + 16384), z)
tl.store(tile, z)"""
CACHED = "key = x.data_ptr(), y.data_ptr()\nif key in cache:\n    return cache[key]"
DRIVER = """size, kept = 1 << 36, ctypes.c_uint64()
while size >= 1 << 20:
    if ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(kept), ctypes.c_size_t(size)):
        size //= 2"""
CACHING = """try:
    for _ in range(4096):
        torch.cuda.caching_allocator_alloc(1 << 30)
except torch.OutOfMemoryError:
    pass"""
GPU = "float(x.flatten()[0])\n"  # compiling, which has no values, does not come further: the rest happens on the GPU
TWISTS = (
    Twist("honest", "Triton", "correct"),
    Twist("honest", "autotuned", "correct", edit=("@triton.jit", TUNED)),
    Twist("honest", "prints 2 MB", "correct", before="print(('x' * 99 + chr(10)) * 20_000)"),
    Twist("honest", "device_print", "correct", kernel="tl.device_print('lane', o)"),
    Twist("honest", "looks at values", "correct", before=GPU),
    Twist("honest", "plain torch", "correct", before="return PLAIN"),
    Twist("wrong", "a program too few", "incorrect", edit=("(programs,)", "(programs - 1,)")),
    Twist("wrong", "off by one in a factor", "incorrect", after="z = z * (256 / 255)"),
    Twist("wrong", "the last element", "incorrect", after="z.view(-1)[-1] += 1"),
    Twist("wrong", "never written", "incorrect", after="z = torch.empty_like(z)"),
    Twist("wrong", "half", "incorrect", after="z = z.half()"),
    Twist("wrong", "cached by address", "incorrect rejected", top="cache = {}", before=CACHED, after="cache[key] = z"),
    Twist("wrong", "one output for all calls", "incorrect rejected", top="kept = []",
          after="kept.append(z)\nz = kept[0].copy_(z)\ndel kept[1:]"),
    Twist("not compiling", "syntax", "compile_error", top="def broken(:"),
    Twist("not compiling", "import", "compile_error", top="import there_is_no_such_module"),
    Twist("not compiling", "unknown function", "compile_error", kernel="tl.store(p + o, tl.no_such_function(o))"),
    Twist("not compiling", "no power of two", "compile_error", kernel="tl.store(p + tl.arange(0, 24), 0.0)"),
    Twist("not compiling", "shared memory", "compile_error", kernel=SHARED, options=", num_stages=8, num_warps=8"),
    Twist("raising", "KeyError", "runtime_error", before="{}['no']"),
    Twist("raising", "shapes", "runtime_error", after="torch.zeros(3, device=x.device) + torch.zeros(4, device=x.device)"),
    Twist("raising", "AssertionError, by values", "runtime_error", before="assert float(x.flatten()[0]) == 12345.0"),
    Twist("crashing", "stores far outside", "crashed", kernel=f"tl.store(p + ({FAR}), 0.0)"),
    Twist("crashing", "loads far outside", "crashed", kernel=f"tl.store(p + o, tl.load(p + ({FAR})))"),
    Twist("crashing", "device_assert", "crashed", kernel="tl.device_assert(o < 0, 'no')", options=", debug=True"),
    Twist("crashing", "index assert", "crashed", before="x.flatten()[torch.full((4,), 1 << 40, device=x.device)]"),
    Twist("crashing", "misaligned", "crashed",
          kernel="tl.store((p.to(tl.int64) + 2).to(tl.pointer_type(tl.float32)) + o, 0.0)"),
    Twist("crashing", "segfault", "crashed", before="ctypes.string_at(0)"),
    Twist("crashing", "segfault at the end", "crashed", after=f"{GPU}ctypes.string_at(0)"),
    Twist("crashing", "os._exit", "crashed", before="os._exit(3)"),
    Twist("crashing", "sys.exit", "crashed", before="sys.exit(0)"),
    Twist("crashing", "abort", "crashed", before=f"{GPU}os.abort()"),
    Twist("crashing", "kills itself", "crashed", before=f"{GPU}os.kill(os.getpid(), signal.SIGKILL)"),
    Twist("signalling", "SIGTERM to its parent", "rejected", before="os.kill(os.getppid(), signal.SIGTERM)"),
    Twist("signalling", "SIGSTOP to its parent, hidden", "rejected",
          before=f"{GPU}try:\n    os.kill(os.getppid(), signal.SIGSTOP)\nexcept OSError:\n    pass"),
    Twist("hanging", "endless kernel", "timeout",
          kernel="n = tl.load(p)\nwhile tl.load(p, volatile=True) == 0.0:\n    n += 1.0\ntl.store(p + 1, n)"),
    Twist("hanging", "sleeps", "timeout", before=f"{GPU}time.sleep(10**6)"),
    Twist("hanging", "sleeps while it is compiled", "timeout", before="time.sleep(10**6)"),
    Twist("hanging", "stops itself", "timeout", before=f"{GPU}os.kill(os.getpid(), signal.SIGSTOP)"),
    Twist("hanging", "spins", "timeout", before=f"{GPU}while True:\n    pass"),
    Twist("flooding", "device_print", "correct timeout incorrect crashed",
          kernel="for i in range(0, 1 << 20):\n    tl.device_print('i', i)"),
    Twist("hungry", "torch.empty", "out_of_memory",
          before=f"{GPU}kept = [torch.empty(1 << 28, dtype=torch.uint8, device=x.device) for _ in range(4096)]"),
    Twist("hungry", "cuMemAlloc", "correct out_of_memory", before=f"{GPU}{DRIVER}"),
    Twist("hungry", "caching_allocator_alloc", "correct out_of_memory", before=f"{GPU}{CACHING}"),
    Twist("hungry", "host memory", "out_of_memory crashed",
          before="kept = [bytearray(b'x') * (1 << 28) for _ in range(256)]"),
    Twist("hungry", "host tensors", "out_of_memory crashed", before=f"{GPU}kept = [torch.ones(1 << 27) for _ in range(256)]"),
)  # fmt: skip
"""Each is made for every task."""
SHARES = {"honest": 3}
"""How often a kind is in the deck, if not once."""
NEEDS_GPU = frozenset({"cuMemAlloc", "caching_allocator_alloc"})
FILLS_GPU = NEEDS_GPU | {"torch.empty"}
"""While one of these has the GPU's memory, another may be told that there is none: that is counted apart."""
WITHOUT_GPU = {
    "honest": "plausible",
    "wrong": "unsupported",
    "raising": "unsupported",
    "crashing": "incorrect runtime_error unsupported",
    "hanging": "unsupported",  # what got on within the last 6 s is too slow for a CPU: with a short limit, that is all
    "flooding": "plausible unsupported",
    "hungry": "crashed",
}
"""By kind, statuses that are right beside the others where there is no GPU."""


def source(task: Task, twist: Twist) -> bytes:
    """Return the text of a candidate."""
    before, kernel = twist.before.replace("PLAIN", task.plain), twist.kernel or "pass"
    if twist.kernel:
        before = f"other[(1,)](torch.zeros(64, device=x.device), BLOCK=32{twist.options})\n{before}"
    fields = {"kernel": kernel, "before": before, "after": twist.after}
    indented = {name: textwrap.indent(text, "    ") for name, text in fields.items()}
    honest = HONEST.format(
        kernel=textwrap.indent(task.kernel, "    "), programs=task.programs, block=task.block
    )
    return (honest.replace(*twist.edit) + TWISTED.format(top=twist.top, **indented)).encode()


# --- what is in use --------------------------------------------------------------------------------------

Census = dict[str, int]


def descendants() -> int:
    """Count the processes below this one, zombies included."""
    children = collections.defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children[int(fields[1])].append(int(entry.name))
    found, frontier = 0, children[os.getpid()]
    while frontier:
        found += len(frontier)
        frontier = [child for pid in frontier for child in children[pid]]
    return found


def count(scratch: Path, gpus: Sequence[Gpu]) -> Census:
    """Count what is in use now, by the names of `TOLERANCES`; no GPU memory without a GPU."""
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(memory[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    census = {
        "processes": descendants(),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "files": sum(len(folders) + len(files) for _, folders, files in os.walk(scratch)),
        "host_bytes": total - free,
    }
    return census | ({"gpu_bytes": sum(usage(gpu).used_bytes or 0 for gpu in gpus)} if gpus else {})


def words(census: Census) -> str:
    """Say it in a line."""
    return ", ".join(
        f"{name.removesuffix('_bytes')} {number >> 20} MiB" if name.endswith("_bytes") else f"{number} {name}"
        for name, number in census.items()
    )


def beyond(base: Census, now: Census, when: str) -> list[str]:
    """Say what is more than before, by more than is tolerated."""
    more = [name for name, number in now.items() if number > base[name] + TOLERANCES[name]]
    return [f"{when}: {name} {now[name]}, {base[name]} before" for name in more]


# --- the storm -------------------------------------------------------------------------------------------

Row = dict[str, Any]
"""One request and its answer; moments, `…_at`, are seconds since the storm began."""


class Storm:
    """Slots that judge candidates until time is over, and what they saw."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self.arguments = arguments
        self.scratch = scratch
        self.gpus = [] if arguments.device == "cpu" else find(())
        locks = {gpu.uuid: DeviceLock(gpu, Path(tempfile.gettempdir()) / LOCKS) for gpu in self.gpus}
        memory_bytes = MEMORY_BYTES if self.gpus else HOST_MEMORY_BYTES
        pool = WorkerPool(Path(sys.executable), scratch, memory_bytes, gpus=self.gpus)
        devices = Devices(self.gpus, locks, per_device=arguments.parallel)
        jobs = max(1, len(os.sched_getaffinity(0)) // arguments.parallel)
        self.evaluator = Evaluator(pool, "sm_90", memory_bytes, devices, jobs)
        self.definitions = {name: task.definition for name, task in TASKS.items()}
        self.plans: dict[str, list[Plan]] = {}
        self.rows: list[Row] = []
        self.censuses: dict[str, Census] = {}
        self.leaks: list[str] = []
        self.started = time.monotonic()
        self.seconds = 0.0

    async def run(self) -> None:
        """Let it rage, and compare what is in use before and after."""
        await self._count("start")  # the first look may open what stays open
        start = await self._count("start")
        try:
            for name, definition in self.definitions.items():
                self.plans[name] = await self.evaluator.examine(definition, lambda _: None)
                print(said(await self._judge(-1, name, TWISTS[0])), flush=True)
            base = await self._at_rest("at rest before")
            self.started = time.monotonic()
            deck = self._deal(random.Random(self.arguments.seed))
            async with anyio.create_task_group() as group:
                group.start_soon(self._tell)
                async with anyio.create_task_group() as slots:
                    for slot in range(self.arguments.parallel):
                        slots.start_soon(self._slot, slot, deck)
                self.seconds = time.monotonic() - self.started
                group.cancel_scope.cancel()
            self.leaks += beyond(base, await self._at_rest("at rest after"), "at rest")
        finally:
            await self.evaluator.aclose()
        self.leaks += beyond(start, await self._count("closed"), "closed")

    def _deal(self, chance: random.Random) -> Iterator[tuple[str, Twist]]:
        """Yield candidates without end: all of them in some order, again and again."""
        twists = [twist for twist in TWISTS if self.gpus or twist.name not in NEEDS_GPU]
        deck = [pair for pair in itertools.product(TASKS, twists) for _ in range(SHARES.get(pair[1].kind, 1))]
        while True:
            yield from chance.sample(deck, len(deck))

    async def _slot(self, slot: int, deck: Iterator[tuple[str, Twist]]) -> None:
        while time.monotonic() < self.started + 60 * self.arguments.minutes:
            self.rows.append(await self._judge(slot, *next(deck)))

    async def _judge(self, slot: int, task: str, twist: Twist) -> Row:
        """Ask for one verdict; whatever is raised instead is a wrong one."""
        row: Row = {"slot": slot, "kind": twist.kind, "name": twist.name, "task": task}
        timeout_s, began, asked = self.arguments.timeout, math.inf, time.monotonic()

        def report(_: str) -> None:
            nonlocal began
            began = min(began, time.monotonic())

        try:
            with anyio.fail_after(GIVE_UP_S):
                evaluation = await self.evaluator.verify(
                    self.definitions[task],
                    self.plans[task],
                    source(TASKS[task], twist),
                    task_id=task,
                    device=self.arguments.device if self.gpus else "cpu",
                    timeout_s=timeout_s,
                    report=report,
                )
            timeline = evaluation.receipt["timeline"]
            outcome = evaluation.outcome
            row |= {"status": outcome.status, "summary": outcome.summary, "timeline": timeline}
            if outcome.status == "timeout":
                row["overrun_s"] = overrun(timeline, timeout_s, compiling=outcome.stage == "compile")
        except Exception as error:  # noqa: BLE001 - that nothing is raised is what is tested
            row |= {"status": f"raised {type(error).__name__}", "summary": str(error)}
        answered = time.monotonic()
        moments = {"asked_at": asked, "began_at": min(began, answered), "answered_at": answered}
        row |= {name: round(moment - self.started, 3) for name, moment in moments.items()}
        allowed = f"{twist.statuses} {'' if self.gpus else WITHOUT_GPU.get(twist.kind, '')}".split()
        return row | {"seconds": round(answered - asked, 3), "right": row["status"] in allowed}

    async def _count(self, when: str) -> Census:
        census = self.censuses[when] = await anyio.to_thread.run_sync(count, self.scratch, self.gpus)
        return census

    async def _at_rest(self, when: str) -> Census:
        """Return what is in use once that no longer changes; kept trials, which differ in number, are given back."""
        self.evaluator.close_files()
        seen = await self._count(when)
        changed = began = time.monotonic()
        while time.monotonic() < min(changed + STILL_S, began + REST_S):
            await anyio.sleep(0.5)
            before, seen = seen, await self._count(when)
            if any(before[name] != seen[name] for name in seen if name != "host_bytes"):
                changed = time.monotonic()
        print(f"{when}: {words(seen)}", flush=True)
        return seen

    async def _tell(self) -> None:
        """Print a line every minute."""
        for minute in itertools.count(1):
            await anyio.sleep(max(0.0, self.started + 60 * minute - time.monotonic()))
            census = await self._count(f"minute {minute}")
            statuses = collections.Counter(f"{row['kind']} {row['status']}" for row in self.rows)
            counts = ", ".join(f"{name} {number}" for name, number in sorted(statuses.items()))
            wrong = sum(not row["right"] for row in self.rows)
            print(
                f"minute {minute}: {len(self.rows)} verdicts, {wrong} wrong; {words(census)}; {counts}",
                flush=True,
            )


def overrun(timeline: Sequence[Row], timeout_s: float, *, compiling: bool) -> float:
    """Return the seconds from the deadline of the last stage, the compiler's or another, to the answer.

    Compiling has some grace beyond its limit, which is not counted. `running: …` is what a stage says of itself.
    """
    stages = [each for each in timeline if not each["stage"].startswith("running: ")]
    last = [each for each in stages if each["stage"].startswith("compiling") == compiling][-1]
    ended = timeline[-1]["at"] + timeline[-1]["seconds"]
    return float(round(ended - last["at"] - timeout_s - (GRACE_S if compiling else 0.0), 3))


# --- what came of it -------------------------------------------------------------------------------------


def said(row: Row) -> str:
    """Say a verdict in a line."""
    candidate = f"{row['kind']}, {row['name']}, {row['task']}"
    return f"{candidate}: {row['status']} after {row['seconds']:.1f} s: {row['summary'][:300]}"


def squeezed(row: Row, rows: Sequence[Row]) -> bool:
    """Tell whether a verdict is for want of GPU memory that another candidate had taken meanwhile."""
    return row["status"] == "out_of_memory" and any(
        other["name"] in FILLS_GPU
        and other is not row
        and max(row["asked_at"], other["asked_at"]) < min(row["answered_at"], other["answered_at"])
        for other in rows
    )


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, p90 and maximum; zeros for nothing."""
    ordered = sorted(values) or [0.0]
    numbers = statistics.median(ordered), ordered[9 * len(ordered) // 10], ordered[-1]
    return {name: round(number, 2) for name, number in zip(("median", "p90", "max"), numbers, strict=True)}


def summary(storm: Storm) -> dict[str, Any]:
    """Return counts, times and faults."""
    rows, timeout_s = storm.rows, storm.arguments.timeout
    wrong = [row for row in rows if not row["right"]]
    beside = [row for row in wrong if storm.gpus and squeezed(row, rows)]
    kinds = {twist.kind: [row for row in rows if row["kind"] == twist.kind] for twist in TWISTS}
    slots = [[row for row in rows if row["slot"] == slot] for slot in range(storm.arguments.parallel)]
    pairs = [pair for slot in slots for pair in itertools.pairwise(slot)]
    crashed = [(one, other) for one, other in pairs if one["status"] == "crashed"]
    hung = [row for row in rows if row["kind"] == "hanging" and row["status"] == "timeout"]
    return {
        "verdicts": len(rows),
        "per_minute": round(60 * len(rows) / max(storm.seconds, 1), 1),
        "statuses": {
            kind: collections.Counter(row["status"] for row in some) for kind, some in kinds.items()
        },
        "seconds": {kind: spread([row["seconds"] for row in some]) for kind, some in kinds.items()},
        "hung_beyond_deadline_s": spread([row["overrun_s"] for row in hung]),
        "hung_seconds_less_timeout": spread([row["seconds"] - timeout_s for row in hung]),
        "gap_s": spread([other["began_at"] - one["answered_at"] for one, other in pairs]),
        "next_began_after_crash_s": spread(
            [other["began_at"] - one["answered_at"] for one, other in crashed]
        ),
        "next_ended_after_crash_s": spread(
            [other["answered_at"] - one["answered_at"] for one, other in crashed]
        ),
        "late": [row for row in hung if row["overrun_s"] > OVERRUN_S],
        "beside_one_that_fills_the_gpu": beside,
        "wrong": [row for row in wrong if row not in beside],
        "leaks": storm.leaks,
    }


def show(found: dict[str, Any]) -> None:
    """Print the table, and every fault."""
    print(f"\n{found['verdicts']} verdicts, {found['per_minute']} a minute")
    for kind, statuses in found["statuses"].items():
        seconds = "   ".join(f"{name} {value:6.2f}" for name, value in found["seconds"][kind].items())
        counts = ", ".join(f"{status} {number}" for status, number in statuses.most_common())
        print(f"{kind:14} {statuses.total():4}   {seconds} s   {counts}")
    for name, value in found.items():
        if name.endswith(("_s", "_timeout")):
            print(f"{name.replace('_', ' ')}: {value}")
        elif name in {"late", "beside_one_that_fills_the_gpu", "wrong", "leaks"}:
            print(f"{name.replace('_', ' ')}: {len(value) or 'none'}")
            print(*(f"  {each if isinstance(each, str) else said(each)}\n" for each in value), sep="", end="")


def main() -> None:
    """Read the arguments, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--parallel", type=int, default=4, help="candidates at a time")
    parser.add_argument("--timeout", type=float, default=6, help="seconds a stage of a verdict may take")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--device", default="", help="a GPU, or cpu for none; any by default")
    parser.add_argument("--json", type=Path, help="file for everything that was seen")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        storm = Storm(arguments, Path(folder) / "scratch")
        try:
            anyio.run(storm.run)
        finally:
            found = summary(storm)
            if arguments.json is not None:
                everything = {
                    "arguments": vars(arguments),
                    "found": found,
                    "censuses": storm.censuses,
                    "rows": storm.rows,
                }
                arguments.json.write_text(json.dumps(everything, indent=1, default=str))
    show(found)
    if found["wrong"] or found["late"] or found["leaks"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
