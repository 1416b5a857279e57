"""Read the counters of one call of a candidate: its process under Nsight Compute, confined, alone on the GPU.

Where that cannot be, torch's profiler in the candidate's usual process gives at least the time of each kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adaexplore_mcp.evaluation import boot
from adaexplore_mcp.evaluation.buffers import GpuBuffers
from adaexplore_mcp.evaluation.candidates import Candidate
from adaexplore_mcp.evaluation.claims import number, quoted, text
from adaexplore_mcp.evaluation.compilation import CompileReport
from adaexplore_mcp.evaluation.conversation import Conversation, Decided, NumericsReport, Setting
from adaexplore_mcp.evaluation.counters.ncu import (
    MOST_LAUNCHES,
    Launch,
    Ncu,
    command,
    kernel_name,
    launches,
    problem_in,
)
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.pool import SESSION_LIFE_S, TOOL_BYTES, WorkerPool, nodes_of
from adaexplore_mcp.evaluation.sandbox import Layers
from adaexplore_mcp.evaluation.session import Session, SessionEndedError, SessionTimeoutError
from adaexplore_mcp.evaluation.trials import TrialSet
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["NEEDED_LAYERS", "Counted", "Profiler", "Work"]

NEEDED_LAYERS = ("pid", "net", "mount", "landlock", "seccomp")
"""Without these a profiler, which needs sockets, is not let near a stranger's code."""
START_S = 90.0
"""Until the process is there: the profiler starts, torch is imported anew, CUDA starts under its eyes."""
CALLS_S = 150.0
"""For the calls: each launch is repeated some ten times, with memory saved and restored."""
ANSWER_S = 30.0
LOG = "counters.csv"
PACKAGE = str(Path(boot.__file__).resolve().parents[1])
"""Of this product, which the process imports anew."""
MOST_ANSWER, MOST_WORDS = 2 << 20, 200


@dataclass(frozen=True)
class Counted:
    """What counters showed of one call.

    Args:
        launches: In order; empty where nothing was read.
        problem: Why no counter was read, in words; empty if some were. Launches may have times all the same.
        ours: Whether that was seen before there was a candidate, so that it holds for all of them.
        raw: The profiler's answer as it was.
        by: Which profiler, and which version of it.
    """

    launches: Sequence[Launch] = ()
    problem: str = ""
    ours: bool = False
    raw: str = ""
    by: str = ""


@dataclass(frozen=True)
class Work:
    """What is profiled.

    Args:
        candidate: Its source.
        trials: Inputs of its task; the caller keeps them open.
        compilation: Of the candidate.
        files: What was compiled, as files.
        timeout_s: Limit of importing and constructing it.
        report: Told what is being done.
    """

    candidate: Candidate
    trials: TrialSet
    compilation: CompileReport = field(default_factory=CompileReport)
    files: Sequence[int] = ()
    timeout_s: float = 60.0
    report: Callable[[str], None] = lambda _: None


class Profiler:
    """Nsight Compute on one GPU.

    Args:
        pool: Worker processes.
        gpu: Where.
        ncu: As `ncu.find` found it.
    """

    def __init__(self, pool: WorkerPool, gpu: Gpu, ncu: Ncu) -> None:
        self._pool = pool
        self._gpu = gpu
        self._ncu = ncu
        self._by = f"Nsight Compute {ncu.version}"

    async def unusable(self) -> Counted | None:
        """Return why no counters can be read on this machine; None where they may be.

        Raises:
            WorkerError: Workers cannot be started.
        """
        if self._ncu.problem:
            return Counted(problem=self._ncu.problem, ours=True)
        layers = (await self._pool.workers()).layers
        if missing := [name for name in NEEDED_LAYERS if not layers.on(name)]:
            problem = f"a profiler is not let near a candidate without these layers of isolation: {', '.join(missing)}"
            return Counted(problem=problem, ours=True)
        return None

    async def count(self, work: Work) -> Counted:
        """Read the counters of one call; the caller holds the GPU alone.

        Raises:
            WorkerError: A worker of ours failed.
        """
        layers = (await self._pool.workers()).layers
        readable = [self._ncu.folder, PACKAGE]
        work.report("starting Nsight Compute")
        # The parent is any that has torch: this process only starts the profiler.
        async with self._pool.session("gpu_profile", "compile", readable=readable, gpu=self._gpu) as session:
            return await self._ask(session, work, layers, readable)

    async def _ask(self, session: Session, work: Work, layers: Layers, readable: Sequence[str]) -> Counted:
        log = Path(LOG)
        request = {
            "op": "start",
            "command": command(self._ncu, log, ()),
            "log": LOG,
            "layers": dict(layers.state),
            "memory_bytes": self._pool.memory_bytes + TOOL_BYTES,
            "lifetime_s": int(SESSION_LIFE_S),
            "nodes": nodes_of(self._gpu),
            "readable": list(readable),
        }
        try:
            started = (await session.request(request, timeout_s=START_S)).body
        except SessionTimeoutError:
            return self._nothing(f"no process came up under it within {START_S:g} s", ours=True)
        except (SessionEndedError, FrameError):
            return self._nothing("its process ended before it was given a candidate", ours=True)
        if full := text(started, "full"):
            return self._nothing(f"the GPU had no room for its process ({full})")
        if "profiler" in started:
            return self._counted(started["profiler"], "it ended before it was given a candidate", ours=True)
        call = _Call(self._setting(work), session, work.candidate, work.trials, NumericsReport())
        why = ""
        try:
            # A candidate's code runs from here on, and could write whatever the profiler would.
            await call.once()
        except Decided:
            failure = call.seen.failure
            why = (
                f"under it the candidate raised {failure.type}"
                if failure
                else "the candidate bends its process"
            )
        except SessionTimeoutError as error:
            return self._nothing(f"a call under it took more than {error.timeout_s:g} s")
        except (SessionEndedError, FrameError):
            return self._nothing("the candidate's process ended under it")
        finally:
            call.close()
        try:
            ended = (await session.request({"op": "leave"}, timeout_s=ANSWER_S)).body
        except (SessionTimeoutError, SessionEndedError, FrameError):
            return self._nothing(why or "it gave no answer")
        return self._counted(ended.get("profiler"), why)

    async def times(self, work: Work, instead: Counted) -> Counted:
        """Take the time of each kernel in one call by torch's profiler; the caller holds the GPU alone.

        Args:
            work: What is profiled.
            instead: Why there are no counters.

        Raises:
            WorkerError: A worker of ours failed.
            DeviceFullError: The GPU has too little memory.
        """
        setting = self._setting(work)
        async with setting.buffers.candidate() as session:
            call = _Call(setting, session, work.candidate, work.trials, NumericsReport())
            try:
                answer = await call.once()
            except (Decided, SessionTimeoutError, SessionEndedError, FrameError):
                return instead
            finally:
                call.close()
        return replace(instead, launches=_times(answer.get("kernels")), by="torch's profiler")

    def _setting(self, work: Work) -> Setting:
        load = {
            "memory_share": 1.0,
            "tuned": work.compilation.tuned,
            "timing": True,
            "l2_bytes": 0,  # nothing is flushed here
        }
        return Setting(GpuBuffers(self._pool, self._gpu), load, work.timeout_s, work.report, files=work.files)

    def _counted(self, answer: object, why: str, *, ours: bool = False) -> Counted:
        """Read what was handed over: numbers and complaints a candidate may have forged, so nothing of it is remembered."""
        said: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
        raw, beside = (str(said.get(name) or "")[:MOST_ANSWER] for name in ("answer", "said"))
        if not why and (found := launches(raw)):
            return Counted(found, raw=raw, by=self._by)
        complaint = problem_in(raw) or problem_in(beside)
        if ours and not complaint and (words := beside.strip().rpartition("\n")[2]):
            why = f"{why} ({quoted(text({'said': words}, 'said', MOST_WORDS))})"
        code = number(said, "exit_code")
        problem = complaint or why or f"it answered nothing that can be read (exit code {code})"
        return self._nothing(problem, ours=ours, raw=raw or beside)

    def _nothing(self, problem: str, *, ours: bool = False, raw: str = "") -> Counted:
        return Counted(problem=f"{self._by}: {problem}", ours=ours, raw=raw, by=self._by)


def _times(claim: object) -> list[Launch]:
    """Return launches of which only the time is known."""
    entries = claim[:MOST_LAUNCHES] if isinstance(claim, list) else []
    return [
        Launch(kernel_name(text(each, "name")), {"duration_ns": float(nanoseconds)})
        for each in entries
        if isinstance(each, dict) and (nanoseconds := number(each, "ns"))
    ]


class _Call(Conversation):
    """One call of the candidate that a profiler sees, some unseen before it."""

    async def once(self) -> Mapping[str, Any]:
        """Import, construct, and call it under the profiler; return what the process says of it.

        Raises:
            Decided: Its code raised.
        """
        await self._load()
        await self._build()
        await self._put(self.trials.named("constructor")[0], 0)
        self.report("profiling one call")
        return await self._ask("profiled", slot=0, timeout_s=CALLS_S)
