"""Notice what a candidate did to the process it runs in; facts for the verdict, never the verdict itself.

A candidate may replace functions that a harness would compare or time with, register hooks on every module, start
processes, signal others, leave threads behind. None of this reaches the judge, which is another process; but a kernel
that does it is not measured honestly, and a search must not reward it.
"""

import _thread
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import timeit
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.testing
from torch.utils._device import DeviceContext
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

__all__ = ["Watch"]

# What harnesses compare, draw, time, launch and count with, and what references compute with. A change in any of these is never part of a kernel.
WATCHED: Mapping[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.cuda": torch.cuda,
    "torch.testing": torch.testing,
    "torch.nn.functional": torch.nn.functional,
    "torch.nn.init": torch.nn.init,
    "torch.nn.Module": torch.nn.Module,
    "torch.autograd": torch.autograd,
    "torch.fft": torch.fft,
    "torch.linalg": torch.linalg,
    "torch.profiler": torch.profiler,
    "torch.random": torch.random,
    "torch.special": torch.special,
    "triton.testing": triton.testing,
    "triton.runtime.Autotuner": Autotuner,
    "triton.runtime.Heuristics": Heuristics,
    "triton.runtime.JITFunction": JITFunction,
    "triton.runtime.KernelInterface": KernelInterface,
    "math": math,
    "random": random,
    "statistics": statistics,
    "time": time,
    "timeit": timeit,
    "numpy": np,
    "numpy.testing": np.testing,
    "os": os,
    "json": json,
}
CLOCKS = ("Event", "Stream", "CUDAGraph")
COMPUTES = ("forward", "__call__")
"""Methods of every class of torch.nn's modules that are watched."""
HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
    "_global_buffer_registration_hooks",
)
TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep
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
SIGNALS = {"os.kill", "os.killpg", "signal.pthread_kill"}
LOOKS_AROUND = {"os.listdir", "os.scandir", "glob.glob"}
NOTICED = STARTS_A_PROCESS | SIGNALS | LOOKS_AROUND | {"socket.connect"}
MACHINERY = ("adaexplore_mcp.evaluation.", "triton.language.", "triton.runtime.interpreter")
MAX_EVENTS = 50
MISSING = object()


@dataclass(frozen=True, slots=True)
class _Binding:
    """What a name meant.

    Args:
        name: In full.
        names: The namespace that holds it.
        key: Its key there.
        value: What it was bound to.
        code: The code of that, for a Python function.
    """

    name: str
    names: Mapping[str, Any]
    key: str
    value: object
    code: object

    def changed(self) -> bool:
        """Tell whether it means something else now."""
        now = self.names.get(self.key, MISSING)
        if now is self.value:
            return self.code is not None and getattr(now, "__code__", None) is not self.code
        return not _is_torchs(now)


def _by_a_builder() -> bool:
    """Tell whether Triton or torch itself starts a process now, to compile or to assemble, or ends one."""
    frame: types.FrameType | None = sys._getframe(2)  # noqa: SLF001 - inspect.stack reads source files
    while frame is not None and frame.f_code.co_filename.startswith(STANDARD):
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    return file.startswith(BUILDERS) and not file.startswith(LAUNCHERS)


def _is_torchs(value: object) -> bool:
    """Tell whether something is torch's own: importing parts of it lazily rebinds names, as torch._dynamo does."""
    code = getattr(value, "__code__", None)
    if isinstance(code, types.CodeType):
        return code.co_filename.startswith(TORCH_FOLDER)
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        own = (getattr(module, "__file__", None) or "").startswith(TORCH_FOLDER)
        return own and getattr(module, value.__qualname__, None) is value
    return False


class Watch:
    """Sees what changes from its creation on; make it before the candidate is imported.

    Its audit hook cannot be removed, so a process has at most one.
    """

    def __init__(self) -> None:
        self._bindings = list(_bindings())
        self._classes = [(name, holder, type(holder)) for name, holder in WATCHED.items()]
        self._hooks = dict(_hooks())
        self._machinery = list(_machinery())
        self._modes = _modes()
        self._threads = {thread.ident for thread in threading.enumerate()}
        self.events: list[dict[str, str]] = []
        self.phase = "load"
        self._own = os.getpid()
        sys.addaudithook(self._on_event)
        for module, name in STARTS_A_THREAD:  # that a thread starts is audited since Python 3.12 only
            if (start := getattr(module, name, None)) is not None:
                setattr(module, name, self._noticing(start))

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
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
        """Return the names that no longer mean what they meant, such as torch.allclose; takes 1 to 2 ms.

        Args:
            thorough: Look at Triton's language and at what runs candidates here, too; takes several ms.
        """
        bindings = [*self._bindings, *self._machinery] if thorough else self._bindings
        changed = [
            each.name
            for each in bindings
            # Most are what they were and have no code of Python: a call for each would take twice as long.
            if (each.code is not None or each.names.get(each.key, MISSING) is not each.value)
            and each.changed()
        ]
        changed += [f"{name} (its class)" for name, holder, kind in self._classes if type(holder) is not kind]
        if left := [name for mode, name in _modes().items() if mode not in self._modes]:
            changed.append(f"torch's dispatcher (a mode was left on: {left[0]})")
        changed += [name for name, (hooks, count) in self._hooks.items() if len(hooks) != count]
        return sorted(changed)[:MAX_EVENTS]

    def new_threads(self) -> list[str]:
        """Return the names of threads that were not there before the candidate and are alive."""
        return [thread.name for thread in threading.enumerate() if thread.ident not in self._threads]


def _bindings() -> Iterator[_Binding]:
    """Yield every watched name with what it means now."""
    clocks = {
        f"torch.cuda.{name}": getattr(torch.cuda, name) for name in CLOCKS
    }  # as they are on this machine
    for prefix, holder in {**WATCHED, **clocks}.items():
        names = vars(holder)
        for name, value in names.items():
            if callable(value) or isinstance(value, (property, staticmethod, classmethod)):
                yield _Binding(f"{prefix}.{name}", names, name, value, getattr(value, "__code__", None))
        if isinstance(holder, type):  # a new attribute may hide an inherited method
            for name in dir(holder):
                if name not in names and not name.startswith("__"):
                    yield _Binding(f"{prefix}.{name}", names, name, MISSING, None)
        elif sys.modules.get(prefix) is holder:  # another module may take its place
            yield _Binding(f"sys.modules[{prefix!r}]", sys.modules, prefix, holder, None)
    yield from _forwards()


def _forwards() -> Iterator[_Binding]:
    """Yield what the classes of torch.nn's modules, and those that they inherit from, compute with."""
    public = [value for value in vars(torch.nn).values() if isinstance(value, type)]
    modules = [kind for kind in public if issubclass(kind, torch.nn.Module) and kind is not torch.nn.Module]
    for kind in dict.fromkeys(base for module in modules for base in module.__mro__):
        if kind in (torch.nn.Module, object):
            continue
        name = f"torch.nn.{kind.__name__}" if kind in public else f"{kind.__module__}.{kind.__qualname__}"
        for method in COMPUTES:
            value = vars(kind).get(method, MISSING)
            yield _Binding(f"{name}.{method}", vars(kind), method, value, getattr(value, "__code__", None))


def _machinery() -> Iterator[_Binding]:
    """Yield the functions of the modules that run kernels here, and those of their classes."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(MACHINERY) or name == __name__:
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                yield _Binding(f"{name}.{key}", vars(module), key, value, value.__code__)
            elif isinstance(value, type) and value.__module__ == name:
                for attribute, member in list(vars(value).items()):
                    if isinstance(member, types.FunctionType):
                        full = f"{name}.{key}.{attribute}"
                        yield _Binding(full, vars(value), attribute, member, member.__code__)


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
        if not isinstance(mode, DeviceContext)  # of torch.set_default_device
    }


def _hooks() -> Iterator[tuple[str, tuple[Mapping[Any, Any], int]]]:
    """Yield the registries of hooks on every module, and how many each holds."""
    for name in HOOKS:
        hooks = getattr(torch.nn.modules.module, name, None)
        if hooks is not None:
            yield f"torch.nn.modules.module.{name} (a hook on every module)", (hooks, len(hooks))


def _short(arguments: tuple[Any, ...]) -> str:
    return " ".join(str(argument) for argument in arguments[:2])[:200]
