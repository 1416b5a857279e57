"""Notice what a candidate did to the process it runs in; facts for the verdict, never the verdict itself.

A candidate may replace functions that a harness would compare or time with, register hooks on every module, start
processes, signal others, leave threads behind. None of this reaches the judge, which is another process; but a kernel
that does it is not measured honestly, and a search must not reward it.
"""

import _thread
import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch.utils._device import DeviceContext

from adaexplore_mcp.evaluation.workers.genuine import is_genuine, is_of_its_module
from adaexplore_mcp.evaluation.workers.meanings import TORCH_FOLDER, WATCHED, is_torchs, put_in, remember

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Watch", "look_ahead"]

HOOKS = (
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
    "_global_buffer_registration_hooks",
)
STARTS_A_PROCESS = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
}
STARTS_A_THREAD = (
    (_thread, "start_new_thread"),
    (_thread, "start_new"),
    (_thread, "start_joinable_thread"),
    (threading, "_start_new_thread"),
    (threading, "_start_joinable_thread"),
)
STANDARD = (subprocess.__file__, os.__file__, "<frozen")
BUILDERS = (
    str(Path(triton.__file__).parent) + os.sep,
    TORCH_FOLDER,
)
"""Files that start compilers and assemblers, on a GPU, for a kernel that was not compiled ahead."""
LAUNCHERS = (
    str(Path(TORCH_FOLDER, "distributed")) + os.sep,
    str(Path(TORCH_FOLDER, "multiprocessing")) + os.sep,
    str(Path(TORCH_FOLDER, "utils", "collect_env.py")),
)
"""Files that start whatever they are given."""
STARTERS = frozenset({"subprocess", "kill", "terminate"})
"""What a builder's code names where it starts a process itself, or ends one: much of torch calls whatever it is given."""
OPENS = frozenset({"Library", "_scoped_library", "library"})
"""What torch's code names where it gives the dispatcher something itself."""
INSTALLED = tuple(
    str(path) + os.sep
    for folder in sys.path
    if folder
    for path in (Path(folder).absolute(), Path(folder).resolve())
)
"""Where libraries lie. Those that torch.compile imports may have hooks of their own, such as filelock."""
SIGNALS = {"os.kill", "os.killpg", "signal.pthread_kill"}
LOOKS_AROUND = {"os.listdir", "os.scandir", "glob.glob"}
NOTICED = STARTS_A_PROCESS | SIGNALS | LOOKS_AROUND | {"socket.connect"}
MAX_EVENTS = 50
LIBRARIES = (
    contextlib.__file__,
    str(Path(TORCH_FOLDER, "library.py")),
    str(Path(TORCH_FOLDER, "_library")) + os.sep,
)
"""Files that give torch's dispatcher whatever they are given, some of them for as long as a context lasts."""
# A call of a builtin is an event for a profile function, which may take itself off then; that of a partial is none.
_tracer, _trace = functools.partial(sys.gettrace), functools.partial(sys.settrace)
_profiler, _profile = functools.partial(sys.getprofile), functools.partial(sys.setprofile)


def _caller_outside(files: tuple[str, ...]) -> "FrameType | None":
    """Return the frame in none of some files that led to where the caller of this function was called."""
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - inspect.stack reads source files
    while frame is not None and frame.f_code.co_filename.startswith(files):
        frame = frame.f_back
    return frame


def _by_a_builder() -> bool:
    """Tell whether Triton or torch itself starts a process now, to compile or to assemble, or ends one."""
    if (frame := _caller_outside(STANDARD)) is None:
        return False
    code = frame.f_code
    builds = code.co_filename.startswith(BUILDERS) and not code.co_filename.startswith(LAUNCHERS)
    return builds and not STARTERS.isdisjoint(code.co_names) and is_genuine(code)


def _by_a_library() -> bool:
    """Tell whether an installed module adds an audit hook of its own, as it does when it is imported."""
    frame = sys._getframe(2)  # noqa: SLF001 - as above
    code = frame.f_code
    adds = "addaudithook" in code.co_names and code.co_filename.startswith(INSTALLED)
    return adds and is_of_its_module(code, frame.f_globals)


def look_ahead() -> None:
    """Do most of what making a `Watch` takes, before there is a candidate."""
    remember(__name__)


class Watch:
    """Sees what changes from its creation on; make it before the candidate is imported.

    Its audit hook cannot be removed, so a process has at most one.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, str]] = []
        self.phase = "load"
        self.working = True
        """Whether the candidate's code may work now: it is imported, constructed or called."""
        self._own = os.getpid()
        self._left: dict[str, None] = {}
        self._threads = {thread.ident for thread in threading.enumerate()}
        for module, name in STARTS_A_THREAD:  # that a thread starts is audited since Python 3.12 only
            if (start := getattr(module, name, None)) is not None:
                setattr(module, name, self._noticing(start))
        torch._C._dispatch_library = self._opening(torch._C._dispatch_library)  # noqa: SLF001 - every library passes it
        self._known = remember(__name__)
        self._put_in = put_in()
        self._classes = [(name, holder, type(holder)) for name, holder in WATCHED.items()]
        self._hooks = dict(_hooks())
        self._modes = _modes()
        self._called_by_python = _called_by_python()
        self._tracer, self._profiler = sys.gettrace(), sys.getprofile()
        sys.addaudithook(self._on_event)

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - as the function
        """Call a candidate's function; what it does once that has returned is work too late."""
        self.working = True
        # On one line, and then without calls that a hook would see: else it could work unseen, and go.
        result, self.working = function(*arguments, **keywords), False
        tracer, profiler = _tracer(), _profiler()
        if tracer is not self._tracer:
            _trace(self._tracer)
            self._left["sys.settrace (a function was left on)"] = None
        if profiler is not self._profiler:
            _profile(self._profiler)
            self._left["sys.setprofile (a function was left on)"] = None
        self._look_for_callbacks()
        return result

    def late(self, what: str) -> None:
        """Note that the candidate's code works while it may not."""
        if len(self.events) < MAX_EVENTS:
            self.events.append({"kind": "late", "phase": self.phase, "what": _short((what,))})

    def _look_for_callbacks(self) -> None:
        for name, value in _called_by_python().items():
            if value != self._called_by_python.get(name, ()):
                self._left[f"{name} (a function was left on)"] = None

    def _opening(self, open_library: Callable[..., Any]) -> Callable[..., Any]:
        known = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}  # noqa: SLF001 - nothing public tells
        known.add("_")  # for all of them

        def opened(kind: str, namespace: str, *arguments: Any) -> Any:  # noqa: ANN401 - as the original
            if namespace in known and not _by_torch():
                self._left[f"torch's dispatcher (kernels of its own for {namespace})"] = None
            return open_library(kind, namespace, *arguments)

        return opened

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "object.__setattr__":  # a function's code, or its defaults
            if isinstance(arguments[0], FunctionType) and (name := self._known.name_of(arguments[0])):
                self._left[name] = None
            return
        if event == "sys.addaudithook" and not _by_a_library():
            self._left["sys.addaudithook (a hook that stays)"] = None
        if event not in NOTICED or len(self.events) >= MAX_EVENTS:
            return
        if event in STARTS_A_PROCESS:
            if _by_a_builder():
                return
            self.events.append({"kind": "process", "phase": self.phase, "what": _short(arguments)})
        elif event in LOOKS_AROUND:
            if arguments and isinstance(arguments[0], str) and str.startswith(arguments[0], "/proc"):
                self.events.append({"kind": "search", "phase": self.phase, "what": _short(arguments[:1])})
        elif event == "socket.connect":
            self.events.append({"kind": "socket", "phase": self.phase, "what": _short(arguments[1:])})
        elif event == "os.killpg" or (arguments and arguments[0] != self._own):
            number = arguments[1] if len(arguments) > 1 else 0
            # 0 only asks whether the process exists; a time limit that is up while an assembler runs ends that.
            if number == 0 or _by_a_builder():
                return
            name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
            self.events.append(
                {"kind": "signal", "phase": self.phase, "what": f"{name} to process {arguments[0]}"}
            )

    def _noticing(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - as the original
            if len(self.events) < MAX_EVENTS:
                name = getattr(function, "__qualname__", "a function")
                self.events.append({"kind": "thread", "phase": self.phase, "what": _short((name,))})
            return start(function, *arguments, **keywords)

        return noticed

    def patched(self, *, thorough: bool = False) -> list[str]:
        """Return the names that no longer mean what they meant, such as torch.allclose; takes 0.5 to 1 ms.

        Args:
            thorough: Look at all methods of torch's layers, at what its operators are bound to, at Triton's language, at
                what runs candidates here, and into functions, too; takes some 10 ms.
        """
        most, rest = self._known.most, self._known.rest
        changed = most.changed()
        if thorough:
            changed += rest.changed() + most.emptied() + rest.emptied()
            changed += put_in() - self._put_in
        changed += [f"{name} (its class)" for name, holder, kind in self._classes if type(holder) is not kind]
        if left := [name for mode, name in _modes().items() if mode not in self._modes]:
            changed.append(f"torch's dispatcher (a mode was left on: {left[0]})")
        now = dict(_hooks())
        changed += [
            name for name, (hooks, count) in self._hooks.items() if not _same(now.get(name), hooks, count)
        ]
        if sys.gettrace() is not self._tracer:
            self._left["sys.settrace (a function was left on)"] = None
        if sys.getprofile() is not self._profiler:
            self._left["sys.setprofile (a function was left on)"] = None
        self._look_for_callbacks()
        return sorted({*changed, *self._left})[:MAX_EVENTS]

    def new_threads(self) -> list[str]:
        """Return the names of threads that were not there before the candidate and are alive."""
        return [thread.name for thread in threading.enumerate() if thread.ident not in self._threads]


def _modes() -> dict[int, str]:
    """Return the modes of torch's dispatcher that are on now, by identity."""
    stacks = (
        torch.utils._python_dispatch._get_current_dispatch_mode_stack(),  # noqa: SLF001 - nothing public tells
        torch.overrides._get_current_function_mode_stack(),  # type: ignore[no-untyped-call]  # noqa: SLF001 - as above
    )
    return {
        id(mode): type(mode).__name__
        for stack in stacks
        for mode in stack
        if type(mode) is not DeviceContext  # of torch.set_default_device
    }


def _hooks() -> Iterator[tuple[str, tuple[Mapping[Any, Any], int]]]:
    """Yield the registries of hooks on every module, and how many each holds."""
    for name in HOOKS:
        hooks = getattr(torch.nn.modules.module, name, None)
        if hooks is not None:
            yield f"torch.nn.modules.module.{name} (a hook on every module)", (hooks, len(hooks))


def _same(now: tuple[Mapping[Any, Any], int] | None, hooks: Mapping[Any, Any], count: int) -> bool:
    return now is not None and now[0] is hooks and now[1] == count


def _called_by_python() -> dict[str, list[int]]:
    """Return what Python calls by itself, by identity: when it collects, when a thread starts, at what is monitored."""
    called: dict[str, list[int]] = {"gc.callbacks": [id(each) for each in gc.callbacks]}
    for name in ("settrace", "setprofile"):
        hook = vars(threading).get(f"_{name.removeprefix('set')}_hook")
        called[f"threading.{name}"] = [id(hook)]
    if (monitoring := getattr(sys, "monitoring", None)) is not None:
        called["sys.monitoring"] = [id(monitoring.get_tool(number)) for number in range(6)]
    return called


def _by_torch() -> bool:
    """Tell whether a module of torch's own gives the dispatcher something, as importing parts of it lazily does."""
    frame = _caller_outside(LIBRARIES)
    if frame is None or OPENS.isdisjoint(frame.f_code.co_names):
        return False
    return is_torchs(frame.f_globals, frame.f_code)


def _short(arguments: tuple[Any, ...]) -> str:
    return " ".join(str(argument) for argument in arguments[:2])[:200]
