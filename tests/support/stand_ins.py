"""Stand-ins for the domains behind the tools: they obey one line of the candidate's source.

`# do: correct`, `incorrect`, `endless`, `gated` (until the test opens the gate), `child` (a process that sleeps, its pid
in <home>/child.pid), `slow N` (N stages), `crash`, `lost`, `noise` (prints on every stream), `nan`, `long`.
"""

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field

import anyio

from adaexplore_mcp.errors import NotFoundError, RequestError, TaskError, WorkerLostError
from adaexplore_mcp.evaluation.synthesis import SyntheticTask
from adaexplore_mcp.evaluation.synthesizer import Drawn, Operators
from adaexplore_mcp.memory_store import TaskRecord, content_handle
from adaexplore_mcp.models import (
    Cause,
    Check,
    CompiledKernel,
    Device,
    ErrorExcerpt,
    Evidence,
    Facts,
    Outcome,
    Profile,
    RuleView,
    Scope,
    Speedup,
    TaskPage,
    TaskSummary,
    TensorSpec,
    Timing,
    WorkloadReport,
)
from adaexplore_mcp.services import Collaborators, Services
from adaexplore_mcp.services.adapt import AdaptService
from adaexplore_mcp.services.rules import RuleService

CONNECT = "adaexplore_mcp.services.connect"
"""The module that this one stands in for."""
SOURCE = "class Model: ...\n"


def kernel(action):
    return f"# do: {action}\nclass ModelNew: ...\n"


def long_outcome(task_id="task_222222222222"):
    """An outcome with every field filled, far above the concise budget."""
    return Outcome(
        summary="Output out[1] differs from the reference in 37 % of its elements.",
        next_step="Mask the tail of the last block: rows that are no multiple of BLOCK are wrong.",
        status="incorrect",
        task_id=task_id,
        stage="compare",
        check="values",
        reason="",
        error=ErrorExcerpt(
            type="CompilationError",
            message="\n".join(f"message line {number} with some words" for number in range(40)),
            line=31,
            source="    tl.store(out_ptr + offsets, accumulator)  # " + "x" * 150,
            kernel="fused_kernel",
        ),
        evidence=Evidence(
            output="out[1]",
            workload="tail",
            trial="fresh inputs",
            index=[3, 129],
            got=0.0,
            expected=1.2345678,
            bound=1e-05,
            outside_share=0.37,
            nrmse=0.612345,
            zeros_would_pass=False,
            mean_would_pass=False,
            precision_class="fp32",
            detail="The elements outside lie in the last block of each row. " * 5,
        ),
        compiled=[
            CompiledKernel(
                kernel=f"kernel_{number}", registers=40 + number, spill_bytes=number % 3, num_warps=4
            )
            for number in range(9)
        ],
        facts=Facts(
            launches={f"kernel_{number}": number + 1 for number in range(9)},
            operators={f"aten::operator_{number}": number + 1 for number in range(20)},
            library_flops_share=0.125,
            autotuned={"kernel_0": 12},
            configurations_checked=12,
            notes=[f"Note number {number} about what was seen." for number in range(6)],
        ),
        scope=Scope(
            numerics="interpreter (triton 3.9.0, torch 2.13.0)",
            target="sm_90",
            workloads={"base": "own sizes", "tail": "N=130 of 4096"},
            calls=6,
            not_covered=["races between blocks", "timing", "TF32 rounding of the tensor cores"],
            isolation="partial: namespaces, seccomp; no landlock",
        ),
        rules=[f"rule_{number}: " + "masks guard loads and stores alike, " * 5 for number in range(6)],
        seconds={"load": 0.11, "run": 1.52, "compile": 0.73, "total": 2.4},
        versions={"torch": "2.13.0", "triton": "3.9.0", "python": "3.11.7", "numpy": "2.3"},
    )


@dataclass
class StandInTasks:
    store: object

    async def register(self, request, report):
        report("loading the reference")
        if b"not a task" in request.source:
            raise TaskError("The reference defines no class Model.", "Define it and register again.")
        if action := _action(request.source):
            await _wait_in(action, report)
        digest = hashlib.sha256(request.model_dump_json(exclude={"name"}).encode()).hexdigest()
        summary = TaskSummary(
            task_id=content_handle("task", digest),
            name=request.name or "unnamed",
            format=request.format,
            entry=request.entry or "Model",
            workloads=[
                WorkloadReport(
                    name=workload.name,
                    sizes=workload.sizes,
                    flops=1000,
                    bytes=4096,
                    inputs=[
                        TensorSpec(name=f"x{number}", dtype="float32", shape=[64, 130]) for number in range(3)
                    ],
                    outputs=[TensorSpec(name="out", dtype="float32", shape=[64, 130])],
                )
                for workload in request.workloads
            ],
            mutates=request.mutates,
            policy=request.policy,
        )
        await self.store.tasks.put(TaskRecord(summary.task_id, {"source": request.source.decode()}, summary))
        return summary

    async def list(self, query, limit, cursor):
        if cursor and await self.store.tasks.get(cursor) is None:
            raise NotFoundError(f"There is no cursor {cursor[:40]!r}.", "Call list_tasks without cursor.")
        records, more = await self.store.tasks.list(query, limit, cursor)
        return TaskPage(
            tasks=[record.summary for record in records],
            has_more=more,
            next_cursor=records[-1].task_id if more else "",
        )

    async def get(self, task_id):
        record = await self.store.tasks.get(task_id)
        if record is None:
            raise NotFoundError(f"There is no task {task_id[:40]!r}.", "list_tasks shows them.")
        return record.summary

    async def kept(self, task_id):
        return await self.get(task_id)

    async def source(self, task_id):
        await self.get(task_id)
        return (await self.store.tasks.get(task_id)).content["source"]


@dataclass
class StandInEvaluations:
    store: object
    home: object
    gate: anyio.Event = field(default_factory=anyio.Event)
    """Set by a test to let `gated` candidates end."""
    times: bool = False
    begun: int = 0
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    closed: bool = False
    children: list = field(default_factory=list)

    async def verify(self, request, report):
        self.begun += 1
        try:
            outcome = await self._verify(request, report)
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return await self.store.evaluations.record(
            outcome,
            request.source,
            receipt={"task_id": request.task_id, "target": request.target},
            texts=[("log", "first line\n" + "x" * 20_000)] if outcome.status == "compile_error" else [],
            agent=request.agent,
        )

    def place(self, pinned):
        return pinned or "a stand-in (sm_90)"

    def gpu(self, pinned):
        if pinned != "cuda:1" or not self.times:
            raise RequestError(f"There is no GPU {pinned!r}; there are: cuda:1.", "Name it, or none.")
        return "GPU-1"

    async def benchmark(self, request, report):
        outcome = await self.verify(request, report)
        if outcome.status != "correct" or not self.times:
            return outcome
        speedup = Speedup(
            baseline=(request.baselines or ["eager"])[0], speedup=2.0, low=1.9, high=2.1, conclusion="faster"
        )
        timing = Timing(effort=request.effort, device="cuda:0 (stand-in)", speedups=[speedup])
        return outcome.model_copy(update={"timing": timing})

    async def profile(self, request, workload, report, against=""):
        cause = Cause(name="tiny_grid", evidence="2 programs", remedy="Give each less.", basis="inferred")
        return Profile(
            summary="Most likely: 2 programs.", task_id=request.task_id, workload=workload, causes=[cause]
        )

    async def _verify(self, request, report):
        action = _action(request.source)
        verdict = Outcome(summary="Agrees with the reference.", status="correct", task_id=request.task_id)
        match action.split():
            case ["incorrect"]:
                return verdict.model_copy(
                    update={"status": "incorrect", "summary": "Wrong.", "check": "values"}
                )
            case ["compile_error"]:
                return verdict.model_copy(update={"status": "compile_error", "summary": "Does not compile."})
            case ["torch"]:
                return verdict.model_copy(update={"facts": Facts(operators={"mm": 1}, own_share=0.0)})
            case ["unsupported"]:
                return verdict.model_copy(update={"status": "unsupported", "summary": "Needs a GPU."})
            case ["gated"]:
                report("waiting at the gate")
                await self.gate.wait()
            case ["child"]:
                await self._child(report)
            case ["crash"]:
                raise RuntimeError("secret detail of the server")
            case ["lost"]:
                raise WorkerLostError("the judge ended")
            case ["noise"]:
                print("noise by print")  # noqa: T201 - the subject of a test
                sys.__stdout__.write("noise on the old stream")
                os.write(1, b"noise on descriptor 1\n")
                await anyio.run_process(["echo", "noise of a child"], stdout=None)
            case ["nan"]:
                evidence = Evidence(got=float("nan"), expected=float("inf"), nrmse=float("nan"))
                return verdict.model_copy(
                    update={"status": "incorrect", "evidence": evidence, "seconds": {"total": float("nan")}}
                )
            case ["long"]:
                return long_outcome(request.task_id)
            case _:
                await _wait_in(action, report)
        return verdict

    async def _child(self, report):
        child = subprocess.Popen(  # noqa: ASYNC220 - ended by a signal handler, which cannot await
            ["sleep", "1000"], stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.children.append(child)
        (self.home / "child.pid").write_text(str(child.pid))
        report("running a child")
        try:
            await anyio.sleep_forever()
        finally:
            self.shutdown_now()

    async def device(self):
        return Device(
            summary="No GPU: numbers by the interpreter.",
            target="sm_90",
            isolation="strong",
            cannot=["see races"],
        )

    async def checks(self):
        state = os.environ.get("STAND_IN_CHECK", "ok")
        return [
            Check(name="torch", state=state, detail="2.13.0", remedy="" if state == "ok" else "Install it.")
        ]

    async def release_idle(self, after_s):
        pass

    def shutdown_now(self):
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        self.children.clear()

    async def aclose(self):
        self.shutdown_now()
        self.closed = True


def _action(source):
    found = re.search(rb"# do: ([^\n]*)", source)
    return found[1].decode() if found else ""


async def _wait_in(action, report):
    match action.split():
        case ["endless"]:
            report("running")
            await anyio.sleep_forever()
        case ["slow", stages]:
            for stage in range(int(stages)):
                report(f"stage {stage}")
                await anyio.sleep(0.15)


@dataclass
class StandInLessons:
    """Refuses what does not begin as a rule does; a task that is shown rules is shown all."""

    rules: list = field(default_factory=list)

    async def lesson(self, outcome_or_candidate_id, text, agent, *, task_id=""):
        if not text.startswith("You cannot "):
            raise RequestError('It must begin with "You cannot ".', "Word it again.")
        rule = RuleView(rule_id=f"rule_{len(self.rules)}", rule=text, provenance=f"told by {agent}")
        self.rules.append(rule)
        return rule

    async def rules_for(self, *, task_id="", limit=20):
        return self.rules[:limit]

    async def teaches(self, candidate_id, task_id):
        return True


@dataclass
class StandInSynthesis:
    """Draws two tasks from every four drafts; the second of seed 13 is no task, nor is any of seed 14."""

    finds: int = 0
    used: object = None

    async def version(self):
        return "torch 2, drawing 0"

    def use(self, operators):
        self.used = operators

    async def operators(self):
        self.finds += 1
        return Operators(("F.gelu", "torch.sum", "nn.Linear"), {})

    async def draw(self, seed, first, siblings, wanted):
        drawn = Drawn(first + 4)
        drawn.rejected["constant"] = 2
        for number in (first, first + 2):
            bad = seed == 14 or (seed, number) == (13, 2)
            text = f"{'# not a task, ' if bad else ''}class Model: {seed}, {number}"
            drawn.tasks.append(SyntheticTask(number, text, ("F.gelu", "torch.sum", "F.gelu")))
        return drawn


def connect(settings, store):
    return collaborators(store, StandInEvaluations(store, settings.home))


def collaborators(store, evaluations):
    tasks = StandInTasks(store)
    adapt = AdaptService(store, tasks, evaluations, StandInLessons(), StandInSynthesis())
    return Collaborators(tasks, evaluations, RuleService(store), adapt)


def services_of(settings):
    return Services(settings, connect)
