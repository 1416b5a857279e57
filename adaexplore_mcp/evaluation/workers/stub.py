"""The watcher of one session: our own code, between the server and the process that runs a stranger's.

    fork server ── fork ── (detaches, enters namespaces) ── fork ── stub ── fork ── confined process

The stub drains and caps what the confined process prints, watches the memory and files of its whole tree, ends it when
told, when the server or the supervisor goes away or when its lifetime is over, finds strays, and reports how it ended. With a process namespace the
stub is its first process: when it ends, the kernel ends everything inside.
"""

import contextlib
import errno
import importlib
import os
import resource
import selectors
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaexplore_mcp.evaluation.sandbox import (
    NOBODY,
    Layers,
    Limits,
    become_subreaper,
    confine,
    die_with_parent,
    enter_namespaces,
    guard_memory,
    mount_private_proc,
    unguard_memory,
)
from adaexplore_mcp.evaluation.scratch import remove_tree
from adaexplore_mcp.evaluation.supervisor import parents
from adaexplore_mcp.evaluation.wire import Connection, FrameError
from adaexplore_mcp.evaluation.workers.cuda.start import use_device

__all__ = ["start"]

SESSION_ROLES = {
    "candidate": "adaexplore_mcp.evaluation.workers.candidate",
    "compile": "adaexplore_mcp.evaluation.workers.compilation",
    "reference": "adaexplore_mcp.evaluation.workers.reference",
    "synthesis": "adaexplore_mcp.evaluation.workers.synthesis",
    "gpu_candidate": "adaexplore_mcp.evaluation.workers.cuda.candidate",
    "gpu_reference": "adaexplore_mcp.evaluation.workers.cuda.reference",
    "gpu_profile": "adaexplore_mcp.evaluation.workers.cuda.profiler",
}
"""Modules whose `run(connection, folder)` is the confined process's work. `prepare()`, where they have one, comes before,
and may say that there is no memory for it."""

LAST_WORDS = {"compile": "adaexplore_mcp.evaluation.workers.compilation"}
"""Modules whose `last_words(folder)` can say why the confined process was ended by a signal."""

GUARDED_ROLES = {"reference"}
"""These hold what a candidate must not see: closed to other processes of the same user. On a GPU they close themselves."""

MEMORY_FILE_ROLES = {"reference", "synthesis", "gpu_reference"}
"""These hand over files of their own making; a candidate fills those that it is given."""

TOOL_ROLES = {"gpu_profile"}
"""These start a tool of the system's, which talks by Unix sockets to a process below it that confines itself in full."""

HARNESS_FAILED = 70
"""Exit code of a confined process whose harness raised (EX_SOFTWARE); a stranger's code can make it do so."""

LIMITS = ("RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_FSIZE", "RLIMIT_NPROC")
"""Limits that a process of ours cannot go on without; whatever runs in it may lower them."""

PAUSES = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT}
"""What the server asks for beside the end: that nothing of the session runs on the CPU, and that it does again."""

KEPT_BYTES = 32 << 10  # of the head and of the tail of each output stream
TICK_S = 0.1
FILES_EVERY_S = 1.0
MOST_FILES = 20_000
MOST_PROCESSES, MANY_PROCESSES = 200, 50
DRAIN_S = 0.05


@dataclass
class Capture:
    """Head and tail of what a stream carried, and how much there was."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        """Take more output; keeps at most twice KEPT_BYTES."""
        self.total += len(data)
        room = KEPT_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * KEPT_BYTES:
            del self.tail[:-KEPT_BYTES]

    def report(self) -> dict[str, Any]:
        """Return text for a frame: head, tail and the total in bytes."""
        return {
            "head": self.head.decode(errors="replace"),
            "tail": self.tail[-KEPT_BYTES:].decode(errors="replace"),
            "total": self.total,
        }


def start(
    request: Mapping[str, Any],
    control: socket.socket,
    session: socket.socket,
    *,
    scratch: str,
    layers: Layers,
    supervisor: int,
) -> int:
    """Detach, enter namespaces, become the stub; runs in a fresh fork, returns in the stub's parent and in the stub.

    Args:
        request: `role`, `session` (its name), `memory_bytes`, `lifetime_s`, and for the confined process `readable` and
            `gpu` (its `uuid` and `nodes`, or nothing).
        control: To the server: it says "end", we report.
        session: To the server: the confined process answers on it.
        scratch: Folder below which the session's folder is made.
        layers: What the probe found.
        supervisor: A pidfd of the supervisor, without which the session ends.
    """
    os.setsid()
    enter_namespaces(layers)
    if os.fork() != 0:
        return 0
    return Stub(request, control, session, scratch=scratch, layers=layers, supervisor=supervisor).run()


class Stub:
    """Watches one confined process; see the module.

    Args: as for `start`.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        control: socket.socket,
        session: socket.socket,
        *,
        scratch: str,
        layers: Layers,
        supervisor: int,
    ) -> None:
        self.request = request
        self.supervisor = supervisor
        self.control = Connection(control)
        self.session = session
        self.layers = layers
        self.folder = Path(scratch) / request["session"]
        self.capture = {"stdout": Capture(), "stderr": Capture()}
        self.reason = "ended"
        self.peak_bytes = 0
        self._files_bytes = 0
        self._next_files = 0.0
        self.child = 0
        self.status: int | None = None
        self.usage = resource.getrusage(resource.RUSAGE_SELF)

    def run(self) -> int:
        """Start the confined process, watch it to its end, report; return the exit code of the stub."""
        if self.layers.on("pid"):
            mount_private_proc()
        else:
            become_subreaper()
        guard_memory()
        self.folder.mkdir(mode=0o700)
        if self.layers.on("nobody"):
            os.chown(self.folder, NOBODY, NOBODY)
        started = time.monotonic()
        outputs = self._fork()
        self._base_bytes = _private_bytes(self.child)
        self._watch(outputs, started + float(self.request["lifetime_s"]))
        strays = self._end_strays()
        self._drain(outputs)
        with contextlib.suppress(OSError):  # a server that is gone wants no report
            self.control.send(self._report(time.monotonic() - started, strays))
        remove_tree(self.folder)
        return 0

    # --- the confined process

    def _fork(self) -> dict[int, str]:
        """Fork the confined process; return the read ends of its output."""
        pipes = {name: os.pipe() for name in self.capture}
        stub = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            self._become_confined(pipes, 0 if self.layers.on("pid") else stub)
        self.session.close()
        for _, write_end in pipes.values():
            os.close(write_end)
        for read_end, _ in pipes.values():
            os.set_blocking(read_end, False)
        return {read_end: name for name, (read_end, _) in pipes.items()}

    def _become_confined(self, pipes: Mapping[str, tuple[int, int]], stub: int) -> None:
        code = HARNESS_FAILED
        given: dict[str, int] = {}
        try:
            die_with_parent(stub)
            os.setsid()
            null = os.open("/dev/null", os.O_RDONLY)
            for source, target in ((null, 0), (pipes["stdout"][1], 1), (pipes["stderr"][1], 2)):
                os.dup2(source, target)
            connection = Connection(_only_descriptor_above_2(self.session))
            self._prepare_environment()
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr] # text streams over pipes
            if self.request["role"] not in GUARDED_ROLES:
                unguard_memory()
            memory_bytes = int(self.request["memory_bytes"])
            gpu = self.request.get("gpu")
            limits = Limits(
                memory_bytes=memory_bytes,
                file_bytes=memory_bytes,
                cpu_s=int(self.request["lifetime_s"]),
                address_space=gpu is None,
            )
            role = importlib.import_module(SESSION_ROLES[self.request["role"]])
            if gpu is not None:
                use_device(gpu["uuid"])
            tool = self.request["role"] in TOOL_ROLES
            # CUDA names its threads by writing below /proc; a tool does so for those of another process.
            named = "/proc" if tool else "/proc/self/task"
            confine(
                self.layers,
                limits,
                writable=[str(self.folder), *([] if gpu is None else (*gpu["nodes"], named))],
                readable=self.request.get("readable", []),
                memory_files=tool or self.request["role"] in MEMORY_FILE_ROLES,
                connect=tool,
            )
            given = _soft_limits()
            full = getattr(role, "prepare", _nothing)()
            connection.send({"full": full or ""})
            if not full:
                role.run(connection, self.folder)
            code = 0
        except BaseException:  # noqa: BLE001 - the outermost frame: nothing may return into the stub
            traceback.print_exc()
            for name, now in _soft_limits().items():
                if now < given.get(name, now):
                    sys.stderr.write(f"{name} was lowered to {now}: the process could not go on\n")
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # no atexit handler and no waiting for threads of the candidate

    def _prepare_environment(self) -> None:
        os.chdir(self.folder)
        os.umask(0o077)
        for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
            os.environ[name] = str(self.folder)
        tempfile.tempdir = None  # remembered from the process this one was forked from
        os.environ["TRITON_CACHE_DIR"] = str(self.folder / "triton")
        os.environ["TORCH_EXTENSIONS_DIR"] = str(self.folder / "extensions")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "inductor")

    # --- watching

    def _watch(self, outputs: Mapping[int, str], lifetime_end: float) -> None:
        """Return once the confined process has ended, by itself or by us."""
        handle = os.pidfd_open(self.child)
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ, "child")
            selector.register(self.control.socket, selectors.EVENT_READ, "control")
            selector.register(self.supervisor, selectors.EVENT_READ, "supervisor")
            for descriptor in outputs:
                selector.register(descriptor, selectors.EVENT_READ, "output")
            while self.status is None:
                for key, _ in selector.select(TICK_S):
                    if key.data == "child":
                        _, self.status, self.usage = os.wait4(self.child, 0)
                    elif key.data == "output":
                        if not self._read_output(key.fd, outputs[key.fd]):
                            selector.unregister(key.fd)
                    elif key.data == "supervisor":  # nobody would end what this session leaves behind
                        self._kill("lost")
                        selector.unregister(self.supervisor)
                    elif not self._obeyed():
                        self._kill("told" if self.reason == "ended" else self.reason)
                        selector.unregister(self.control.socket)
                if self.status is None:
                    self._check_limits(lifetime_end)
        os.close(handle)

    def _obeyed(self) -> bool:
        """Do what the server asks for; False where the session is over: it says so, or is gone."""
        with contextlib.suppress(OSError, FrameError):
            received = self.control.receive()
            while received is not None and received[0].get("op") in PAUSES:
                self._signal_all(PAUSES[received[0]["op"]])
                self.control.send({"done": True})
                if (received := self.control.waiting()) is None:
                    return True
        return False

    def _signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process of the session, also to those that one forked meanwhile."""
        told: set[int] = set()
        while new := set(self._tree()) - told:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= new

    def _check_limits(self, lifetime_end: float) -> None:
        tree = self._tree()
        used = sum(max(0, _private_bytes(pid) - self._base_bytes) for pid in tree)
        if time.monotonic() > self._next_files:
            started = time.monotonic()
            self._files_bytes = _bytes_of_files(self.folder) + self._nameless_bytes(tree)
            self._next_files = time.monotonic() + max(FILES_EVERY_S, 10 * (time.monotonic() - started))
        used += self._files_bytes
        self.peak_bytes = max(self.peak_bytes, used)
        if used > int(self.request["memory_bytes"]):
            # What so many take by being there is not what one of them takes; compilers run side by side.
            forks = len(tree) > MANY_PROCESSES and self.request["role"] != "compile"
            self._kill("processes" if forks else "memory")
        elif len(tree) > MOST_PROCESSES:
            self._kill("processes")
        elif time.monotonic() > lifetime_end:
            self._kill("lifetime")

    def _nameless_bytes(self, tree: Sequence[int]) -> int:
        """Return what files take that have no name any more: open ones, mapped ones, and in memory those of its own."""
        own_memory_files = self.request["role"] in MEMORY_FILE_ROLES
        found: dict[tuple[int, int], int] = {}
        for pid in tree:
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        state = entry.stat()
                        in_memory = state.st_nlink == 0 and str(Path(entry.path).readlink()).startswith(
                            "/memfd:"
                        )
                        if (
                            stat.S_ISREG(state.st_mode)
                            and state.st_nlink == 0
                            and (own_memory_files or not in_memory)
                        ):
                            found[state.st_dev, state.st_ino] = state.st_blocks * 512
                for line in (
                    Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
                ):
                    if str(self.folder) in line and line.endswith(" (deleted)"):
                        span, _, _, device, inode, _ = line.split(maxsplit=5)
                        start, end = (int(address, 16) for address in span.split("-"))
                        major, minor = (int(part, 16) for part in device.split(":"))
                        found.setdefault((os.makedev(major, minor), int(inode)), end - start)
        return sum(found.values())

    def _kill(self, reason: str) -> None:
        self.reason = reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)

    def _read_output(self, descriptor: int, name: str) -> bool:
        """Take what there is; False at the end of the stream."""
        try:
            data = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            return True
        self.capture[name].add(data)
        return bool(data)

    def _drain(self, outputs: Mapping[int, str]) -> None:
        """Take what was still in the pipes; nobody writes to them any more."""
        end = time.monotonic() + DRAIN_S
        for descriptor, name in outputs.items():
            with contextlib.suppress(BlockingIOError, OSError):
                while time.monotonic() < end and (data := os.read(descriptor, 1 << 20)):
                    self.capture[name].add(data)
            os.close(descriptor)

    def _tree(self) -> list[int]:
        """Return the processes of this session, the stub left out."""
        if self.layers.on("pid") and self.layers.on("mount"):
            return [
                int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit() and entry.name != "1"
            ]
        known = dict(parents())
        members, frontier = [], [os.getpid()]
        while frontier:
            frontier = [pid for pid, parent in known.items() if parent in frontier]
            members += frontier
        return members

    def _end_strays(self) -> int:
        """Kill what the confined process left running; return how many there were."""
        strays: set[int] = set()
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            for pid in self._tree():
                strays.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                break
        return len(strays)

    def _report(self, wall_s: float, strays: int) -> dict[str, Any]:
        status = self.status or 0
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if self.reason == "told" and killed_by != signal.SIGKILL:
            self.reason = "ended"  # it was faster than we were
        module = LAST_WORDS.get(self.request["role"]) if killed_by and self.reason == "ended" else None
        return {
            "last_words": importlib.import_module(module).last_words(self.folder) if module else {},
            "reason": self.reason,
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
            "signal": signal.Signals(killed_by).name if killed_by else "",
            "strays": strays,
            "wall_s": wall_s,
            "cpu_s": self.usage.ru_utime + self.usage.ru_stime,
            "peak_bytes": self.peak_bytes,
            **{name: capture.report() for name, capture in self.capture.items()},
        }


def _soft_limits() -> dict[str, int]:
    """Return by name what this process may use, where there is a limit."""
    found = {name: resource.getrlimit(getattr(resource, name))[0] for name in LIMITS}
    return {name: sys.maxsize if now == resource.RLIM_INFINITY else now for name, now in found.items()}


def _nothing() -> str:
    """Prepare for nothing."""
    return ""


def _only_descriptor_above_2(keep: socket.socket) -> socket.socket:
    """Close every descriptor but 0, 1, 2 and this one."""
    descriptor = keep.fileno()
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 1 << 16)
    return keep


def _private_bytes(pid: int) -> int:
    """Return the memory only this process pays for: anonymous pages and shared memory it mapped, in bytes."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    return total


def _bytes_of_files(folder: Path) -> int:
    """Return what the files below a folder take, in bytes; without end where they are too many or nested too deep."""
    total, seen, folders = 0, 0, [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    seen += 1
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except (
            OSError
        ) as error:  # gone meanwhile, or closed to everybody: then nothing is written there either
            if error.errno == errno.ENAMETOOLONG:
                return 1 << 62
        if seen > MOST_FILES:
            return 1 << 62
    return total
