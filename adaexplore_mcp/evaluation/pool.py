"""The server's hold on its worker processes: started when first needed, asked for sessions, ended without trace.

    server ── supervisor ── base ─┬─ judge
                                  ├─ interpreting parent ── stub ── candidate | reference
                                  ├─ compiling parent ───── stub ── candidate
                                  ├─ GPU parent ─────────── stub ── candidate | reference, with CUDA
                                  └─ one judge per GPU, with CUDA

A session is one confined process for one candidate or task. Everything it says is data; when it breaks, hangs or lies
it costs its own session only.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread

from adaexplore_mcp.errors import WorkerError, WorkerLostError
from adaexplore_mcp.evaluation import boot
from adaexplore_mcp.evaluation.channel import Channel, Message
from adaexplore_mcp.evaluation.devices import Gpu
from adaexplore_mcp.evaluation.sandbox import Layers
from adaexplore_mcp.evaluation.scratch import ScratchError, ScratchFolder
from adaexplore_mcp.evaluation.session import Session
from adaexplore_mcp.evaluation.supervisor import descendants
from adaexplore_mcp.evaluation.wire import FrameError

__all__ = ["SESSION_LIFE_S", "TOOL_BYTES", "Role", "WorkerPool", "Workers", "nodes_of"]

ParentKind = Literal["interpret", "compile", "cuda"]
Role = Literal[
    "candidate", "reference", "compile", "synthesis", "gpu_candidate", "gpu_reference", "gpu_profile"
]

SPARE_ROLES: frozenset[Role] = frozenset({"candidate", "compile", "gpu_candidate"})
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
SPARE_LIFE_S = 600.0
TOOL_BYTES = 4 << 30  # a profiler, and torch imported anew below it
ROOM_FOR_SPARES = 32 << 30
SESSION_LIFE_S = (
    7200.0  # a stub ends its session after this, whatever the server does; deadlines end it long before
)

START_S = 120.0  # importing torch from a cold disk has been seen to take 60 s
END_S = 3.0  # clients kill a server that has not ended after 5 s
JUDGE_S = 120.0  # comparing a gigabyte takes it 10 s
PASSED_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CUDA_HOME",
    "CUDA_PATH",
)
"""The environment of workers holds these and nothing else of the server's."""


@dataclass
class Workers:
    """One generation of worker processes; replaced as a whole when its base is lost.

    Args:
        scratch: Their folder.
        supervisor: The process that owns them all.
        lifeline: Write end of the pipe that the supervisor watches.
        base: Channel to the first worker.
        layers: Sandbox layers in use.
        versions: python, torch, numpy, triton of the worker interpreter.
        parents: Channels to the long-lived workers that were asked for.
        ready: Those of them that have said they are.
        properties: By UUID, what each GPU's judge says of it: the fields of a `targets.Target`.
    """

    scratch: ScratchFolder
    supervisor: subprocess.Popen[bytes]
    lifeline: int
    base: Channel
    layers: Layers
    versions: Mapping[str, str]
    parents: dict[str, Channel] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    properties: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def lost(self) -> bool:
        """Whether the supervisor, the first worker or the scratch folder is gone."""
        return self.supervisor.poll() is not None or self.base.hung_up or not self.scratch.path.is_dir()

    def end_now(self, wait_s: float) -> None:
        """End everything, without an event loop; returns when the supervisor is gone or time is over."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        try:
            self.supervisor.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()  # the stubs of its sessions see that and end them
            self.supervisor.wait()
        self.scratch.close()


class WorkerPool:
    """Starts workers on demand and hands out sessions.

    Args:
        worker_python: Interpreter with torch and triton.
        scratch: Folder below which this server's private folder is made.
        memory_bytes: What one session may take.
        stderr: Where the workers' own log goes; None for this process's.
        gpus: Those that are used.
    """

    def __init__(
        self,
        worker_python: Path,
        scratch: Path,
        memory_bytes: int,
        stderr: int | None = None,
        *,
        gpus: Sequence[Gpu] = (),
    ) -> None:
        self._python = worker_python
        self._scratch = scratch
        self.memory_bytes = memory_bytes
        self._stderr = stderr
        self._workers: Workers | None = None
        self._starting = anyio.Lock()  # one generation at a time
        self._forking = anyio.Lock()  # requests on one connection must not interleave
        self.gpus = tuple(gpus)
        kinds = ["interpret", "compile", "judge"]  # one of each
        if gpus:
            kinds += ["cuda", *(_judge_of(gpu) for gpu in gpus)]
        self._roles = {role: anyio.Lock() for role in kinds}
        self._judging = {role: anyio.Lock() for role in kinds}  # a judge answers one request after the other
        self._spares: dict[tuple[Role, str], list[tuple[Session, float]]] = defaultdict(list)
        self._preparing: Counter[tuple[Role, str]] = Counter()
        self.sessions = 0
        self.last_used = time.monotonic()

    # --- life

    async def workers(self) -> Workers:
        """Return the running workers, starting them if need be.

        Raises:
            WorkerError: They cannot be started; says why and what to do.
        """
        async with self._starting:
            if self._workers is not None and self._workers.lost:
                await self._drop()
            if self._workers is None:
                try:
                    self._workers = await self._start()
                except WorkerLostError:  # something ended them on the way: once more
                    self._workers = await self._start()
                for role in self._roles:  # each takes 2 to 4 s to get ready, side by side
                    await self._request_trusted(self._workers, role)
            return self._workers

    async def _start(self) -> Workers:
        if not os.access(self._python, os.X_OK) or self._python.is_dir():
            msg = f"Workers cannot start: there is no interpreter {str(self._python)!r}. Set --worker-python."
            raise WorkerError(msg)
        try:
            scratch = await anyio.to_thread.run_sync(ScratchFolder, self._scratch)
        except ScratchError as error:
            msg = f"Workers cannot start: {error}. Choose another folder with --scratch."
            raise WorkerError(msg) from error
        base, theirs = await Channel.pair("the base worker")
        read_end, write_end = os.pipe()
        try:
            supervisor = self._spawn(read_end, theirs.fileno(), scratch.path)
        except OSError as error:
            os.close(write_end)
            await base.close()
            scratch.close()
            msg = f"Workers cannot start with {str(self._python)!r}: {error}. Set --worker-python."
            raise WorkerError(msg) from error
        finally:
            os.close(read_end)
            theirs.close()
        workers = Workers(scratch, supervisor, write_end, base, Layers({}), {})
        try:
            with anyio.fail_after(START_S):
                hello = await base.receive()
            workers.layers = Layers(hello.body["layers"])
            workers.versions = hello.body["versions"]
            problem = hello.body["problem"]
        except (TimeoutError, WorkerLostError) as error:
            await anyio.to_thread.run_sync(workers.end_now, END_S)
            await base.close()
            msg = f"Workers did not start with {str(self._python)!r}: {error}. Run `adaexplore-mcp doctor`."
            raise (WorkerError if isinstance(error, TimeoutError) else WorkerLostError)(msg) from error
        except BaseException:
            workers.end_now(END_S)
            raise
        if problem:
            await anyio.to_thread.run_sync(workers.end_now, END_S)
            await base.close()
            msg = (
                f"{str(self._python)!r} cannot import torch and triton: {problem}. Install them there (the package's "
                "extra `torch` names the versions), or name an interpreter that has them with --worker-python."
            )
            raise WorkerError(msg)
        return workers

    def _spawn(self, lifeline: int, control: int, scratch: Path) -> subprocess.Popen[bytes]:
        start = str(Path(boot.__file__))
        environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        environment |= {
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            # What Triton does today; later versions change their default, and with it a kernel's numbers.
            "TRITON_DEFAULT_FP_FUSION": "1",
            "PYTHONIOENCODING": "utf-8:backslashreplace",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            # A fork of a process with a thread pool hangs, and one core per candidate is what it gets.
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            # torch.compile's own pool of processes, and the thread that watches it.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }
        return subprocess.Popen(  # noqa: S603 - our own program and the configured interpreter
            [
                *(
                    sys.executable,
                    "-P",
                    start,
                    "evaluation.supervisor",
                    str(lifeline),
                    str(control),
                    str(scratch),
                ),
                *(
                    str(self._python),
                    "-P",
                    start,
                    "evaluation.workers.forkserver",
                    str(control),
                    str(scratch),
                ),
            ],
            pass_fds=(lifeline, control),
            env=environment,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
        )

    async def _drop(self) -> None:
        """Forget the current generation; its processes end."""
        workers, self._workers = self._workers, None
        if workers is None:
            return
        while self._spares:
            for spare, _ in self._spares.popitem()[1]:
                await spare.abandon()
        for channel in (*workers.parents.values(), workers.base):
            await channel.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(workers.end_now, END_S)

    async def release_idle(self, after_s: float) -> bool:
        """End the workers if nobody has used them for `after_s` seconds; tell whether that happened."""
        async with self._starting:
            idle = self.sessions == 0 and time.monotonic() - self.last_used >= after_s
            if idle and self._workers is not None:
                await self._drop()
                return True
            return False

    async def aclose(self) -> None:
        """End all workers and remove their folder."""
        async with self._starting:
            await self._drop()

    def pids(self) -> set[int]:
        """Return the ids of all worker processes; reads /proc."""
        return set() if self._workers is None else descendants(self._workers.supervisor.pid)

    def shutdown_now(self, wait_s: float = 2.0) -> None:
        """End all workers without an event loop, as from a signal handler; returns when they are gone."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.end_now(wait_s)

    # --- what they do

    async def _trusted(self, workers: Workers, role: str) -> Channel:
        """Return the channel to a long-lived worker, forking it if need be."""
        async with self._roles[role]:
            if role not in workers.parents:
                await self._request_trusted(workers, role)
            channel = workers.parents[role]
            if role not in workers.ready:
                try:
                    hello = await self._await_trusted(channel, role)
                except BaseException:
                    workers.parents.pop(role, None)
                    await channel.close()
                    raise
                workers.ready.add(role)
                workers.properties |= {role: hello["properties"]} if "properties" in hello else {}
            return channel

    async def _request_trusted(self, workers: Workers, role: str) -> None:
        """Ask the base to fork a long-lived worker; it gets ready meanwhile."""
        channel, theirs = await Channel.pair(f"the {role} worker", limit_bytes=16 << 20)
        workers.parents[role] = channel
        try:
            async with self._forking:
                kind, _, uuid = role.partition(":")
                request = {"op": "trusted", "role": kind, "arguments": [uuid] if uuid else []}
                await workers.base.send(request, [theirs.fileno()])
        finally:
            theirs.close()

    @staticmethod
    async def _await_trusted(channel: Channel, role: str) -> Mapping[str, Any]:
        try:
            with anyio.fail_after(START_S):
                hello = await channel.receive()
        except TimeoutError as error:
            msg = f"The {role} worker did not start within {START_S:g} s. Run `adaexplore-mcp doctor`."
            raise WorkerError(msg) from error
        if problem := hello.body["problem"]:
            msg = f"The {role} worker cannot start: {problem}. Run `adaexplore-mcp doctor`."
            raise WorkerError(msg)
        return hello.body

    async def _forget(self, role: str, lost: Channel) -> None:
        """Drop a long-lived worker that was lost, unless another has taken its place; the next use starts another."""
        if self._workers is not None and self._workers.parents.get(role) is lost:
            del self._workers.parents[role]
            self._workers.ready.discard(role)
        await lost.close()

    @asynccontextmanager
    async def session(
        self, role: Role, parent: ParentKind, *, readable: Sequence[str] = (), gpu: Gpu | None = None
    ) -> AsyncIterator[Session]:
        """Run a confined process for as long as the context lasts.

        Candidates get one that was forked ahead, so they do not wait the 60 ms that forking and confining take, nor the
        half second that CUDA takes to start.

        Args:
            role: What it does.
            parent: Which warm process to fork from.
            readable: Paths it may read beside Python's own.
            gpu: The GPU it may use.
        """
        self.sessions += 1
        try:
            opened = await self._take_spare(role, parent, gpu) if role in SPARE_ROLES else None
            if opened is None:
                opened = await self._open(role, parent, readable, gpu)
            try:
                await opened.ready()
                if gpu is not None:
                    await self._prepare_spare(role, parent, gpu)  # the next one starts CUDA meanwhile
                yield opened
            finally:
                with anyio.CancelScope(shield=True):
                    await opened.end()
                    # Who has a reference run will have a candidate judged next.
                    await self._prepare_spare(
                        "gpu_candidate" if role == "gpu_reference" else role, parent, gpu
                    )
        finally:
            self.sessions -= 1
            self.last_used = time.monotonic()

    async def _prepare_spare(self, role: Role, parent: ParentKind, gpu: Gpu | None) -> None:
        """Ask for the next session now, when nobody waits: it takes 150 ms of a core to fork and get ready."""
        key = _spare_of(role, gpu)
        if (
            role not in SPARE_ROLES
            or len(self._spares[key]) + self._preparing[key] >= _spares_wanted(gpu)
            or self._workers is None
            or self._workers.lost  # nobody waits, so nothing is started for it
        ):
            return
        self._preparing[key] += 1
        try:
            with contextlib.suppress(WorkerError):
                self._spares[key].append((await self._open(role, parent, (), gpu), time.monotonic()))
        finally:
            self._preparing[key] -= 1

    async def _take_spare(self, role: Role, parent: ParentKind, gpu: Gpu | None) -> Session | None:
        await self._trusted(
            await self.workers(), parent
        )  # a spare of lost workers is of no use: this notices
        if not (spares := self._spares[_spare_of(role, gpu)]):
            return None
        spare, forked_at = spares.pop(0)
        if not spare.lost and time.monotonic() - forked_at < SPARE_LIFE_S:
            with contextlib.suppress(WorkerError):  # it could not get ready: another one may
                await spare.ready()
                return spare
        await spare.end()
        return None

    async def _open(
        self, role: Role, parent: ParentKind, readable: Sequence[str], gpu: Gpu | None
    ) -> Session:
        name = f"{role}-{secrets.token_hex(6)}"
        request = {
            "op": "session",
            "role": role,
            "session": name,
            "memory_bytes": self.memory_bytes + (TOOL_BYTES if role == "gpu_profile" else 0),
            "lifetime_s": SESSION_LIFE_S,
            "readable": list(readable),
            "gpu": None if gpu is None else {"uuid": gpu.uuid, "nodes": nodes_of(gpu)},
        }
        for attempt in (1, 2):
            workers = await self.workers()
            try:
                server = await self._trusted(workers, parent)
            except WorkerLostError:
                if attempt == 2:
                    raise
                continue
            channel, session_end = await Channel.pair(f"the {role} process")
            control, control_end = await Channel.pair(f"the stub of the {role} process")
            try:
                async with self._forking:
                    await server.send(request, [control_end.fileno(), session_end.fileno()])
                return Session(channel, control, workers.scratch.path / name)
            except WorkerLostError:
                await channel.close()
                await control.close()
                await self._forget(parent, server)
                if attempt == 2:
                    raise
            finally:
                session_end.close()
                control_end.close()
        raise AssertionError("unreachable")

    async def properties(self, gpu: Gpu) -> Mapping[str, Any]:
        """Return what a GPU is, as its judge says: the fields of a `targets.Target`.

        Raises:
            WorkerError: It cannot be used; says why.
        """
        role = _judge_of(gpu)
        workers = await self.workers()
        await self._trusted(workers, role)
        return workers.properties[role]

    async def judge(
        self, body: Mapping[str, Any], descriptors: Sequence[int], gpu: Gpu | None = None
    ) -> Message:
        """Ask a judge; it alone sees expected outputs.

        Args:
            body: The request; see `workers.judge`.
            descriptors: The memory it is about.
            gpu: Where that memory lies; None for the host.

        Raises:
            WorkerLostError: It was lost twice; or once in the middle of a comparison, since it overwrites outputs that passed.
        """
        role = "judge" if gpu is None else _judge_of(gpu)
        for attempt in (1, 2):
            channel: Channel | None = None
            try:
                async with self._judging[role]:
                    channel = await self._trusted(await self.workers(), role)
                    return await _asked(channel, body, descriptors)
            except (TimeoutError, WorkerLostError, FrameError) as error:
                if channel is not None:
                    await self._forget(role, channel)
                if attempt == 2 or (channel is not None and body["op"] == "compare"):
                    msg = f"The judge gave no answer: {error or f'none within {JUDGE_S:g} s'}."
                    raise WorkerLostError(msg) from error
        raise AssertionError("unreachable")

    async def release(self, lease: str, gpu: Gpu) -> None:
        """Have a GPU's judge unmap what it keeps for a lease; one that was lost keeps nothing."""
        role = _judge_of(gpu)
        async with self._judging[role]:
            workers = self._workers
            if workers is None or role not in workers.ready:
                return
            channel = workers.parents[role]
            try:
                await _asked(channel, {"op": "release", "released": lease}, [])
            except (TimeoutError, WorkerLostError, FrameError):
                await self._forget(role, channel)


async def _asked(channel: Channel, body: Mapping[str, Any], descriptors: Sequence[int]) -> Message:
    """Ask a judge and wait for its answer, in any case: a reply left unread would answer the next request."""
    with anyio.CancelScope(shield=True), anyio.fail_after(JUDGE_S):
        await channel.send(body, descriptors)
        return await channel.receive()
    raise AssertionError("unreachable")


def nodes_of(gpu: Gpu) -> list[str]:
    """Return the files that a process needs in order to use a GPU."""
    return [gpu.node, *CONTROL_NODES]


def _judge_of(gpu: Gpu) -> str:
    """Return the role of a GPU's judge."""
    return f"gpu_judge:{gpu.uuid}"


def _spares_wanted(gpu: Gpu | None) -> int:
    """Return how many sessions are kept ready; one that has started CUDA takes 600 MiB of the GPU."""
    return 2 if gpu is not None and gpu.memory_bytes >= ROOM_FOR_SPARES else 1


def _spare_of(role: Role, gpu: Gpu | None) -> tuple[Role, str]:
    """Return what a spare session is kept under."""
    return role, "" if gpu is None else gpu.uuid
