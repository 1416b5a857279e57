"""What names mean that harnesses compare, draw, time, launch and count with, and that references compute with.

A change in any of these is never part of a kernel. What is left alone: names that a module gains, and what is in none of
the modules here.
"""

import builtins
import copy
import dataclasses
import hashlib
import inspect
import json
import math
import multiprocessing.connection
import os
import pickle
import random
import signal
import socket
import statistics
import sys
import threading
import time
import timeit
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, repeat
from operator import attrgetter, is_not
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Compiling imports it and rebinds torch.manual_seed.
import torch._dynamo
import torch.library
import torch.utils._pytree
import torch.utils.benchmark
import triton
import triton.testing
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

from adaexplore_mcp.evaluation.workers.genuine import is_of_its_module

__all__ = ["TORCH_FOLDER", "WATCHED", "Known", "Meanings", "is_torchs", "put_in", "remember"]

WATCHED: Mapping[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.cuda": torch.cuda,
    "torch.library": torch.library,
    "torch.testing": torch.testing,
    "torch.nn": torch.nn,
    "torch.nn.functional": torch.nn.functional,
    "torch.nn.init": torch.nn.init,
    "torch.nn.Module": torch.nn.Module,
    "torch.autograd": torch.autograd,
    "torch.fft": torch.fft,
    "torch.linalg": torch.linalg,
    "torch.profiler": torch.profiler,
    "torch.random": torch.random,
    "torch.special": torch.special,
    "torch.utils._pytree": torch.utils._pytree,  # noqa: SLF001 - harnesses use it
    "torch.utils.benchmark": torch.utils.benchmark,
    "triton": triton,
    "triton.testing": triton.testing,
    "triton.runtime.Autotuner": Autotuner,
    "triton.runtime.Heuristics": Heuristics,
    "triton.runtime.JITFunction": JITFunction,
    "triton.runtime.KernelInterface": KernelInterface,
    "builtins": builtins,
    "copy": copy,
    "dataclasses": dataclasses,
    "hashlib": hashlib,
    "inspect": inspect,
    "math": math,
    "multiprocessing.connection": multiprocessing.connection,
    "pickle": pickle,
    "random": random,
    "signal": signal,
    "socket": socket,
    "statistics": statistics,
    "threading": threading,
    "time": time,
    "timeit": timeit,
    "numpy": np,
    "numpy.testing": np.testing,
    "os": os,
    "json": json,
}
"""Looked at after every request."""
WITH_CLASSES = (
    "torch._tensor",
    "torch.autograd.grad_mode",
    "torch.autograd.profiler",
    "torch.cuda.graphs",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.library",
    "torch.nn.modules.module",
    "torch.overrides",
    "torch.profiler.profiler",
    "torch.testing._comparison",
    "torch.utils._device",
    "torch.utils._python_dispatch",
    "torch.utils._pytree",
    "torch.utils.benchmark.utils.common",
    "torch.utils.benchmark.utils.timer",
    "multiprocessing.connection",
    "numpy._core.fromnumeric",
    "numpy._core.numeric",
    "numpy.core.fromnumeric",
    "numpy.core.numeric",
    "numpy.linalg",
    "numpy.random",
    "copy",
    "dataclasses",
    "pickle",
    "random",
    "socket",
    "statistics",
    "threading",
    "timeit",
)
"""Modules that are looked at with the classes that they define, at the end; those that this process has."""
CLOCKS = ("Event", "Stream", "CUDAGraph")
COMPUTES = ("forward", "__call__")
"""Methods that a class of torch.nn's may inherit and must not be given."""
NOT_WATCHED = frozenset({"builtins._", "inspect.getfile", "threading.excepthook", "torch.Storage"})
"""What displays, torch.package, loggers and torch.set_default_dtype set."""
TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep
COMPILING = str(Path(TORCH_FOLDER, "_dynamo", "mutation_guard.py"))
MACHINERY = ("adaexplore_mcp.evaluation.", "triton.language", "triton.runtime.interpreter")
MISSING = object()
DESCRIPTORS = (property, staticmethod, classmethod, torch.Generator)
PARTS = ("__code__", "__defaults__", "__kwdefaults__")

Names = dict[str, Any] | types.MappingProxyType[str, Any]
Space = tuple[str, Names, Iterable[tuple[str, object]]]
"""What a namespace is called, the namespace, and names in it with what they mean."""


# A candidate may replace them.
_any, _map = any, map


class Meanings:
    """What names meant when this was made.

    Args:
        spaces: The namespaces.
        hollow: Functions that they use are looked into, too.
    """

    def __init__(self, spaces: Iterable[Space], *, hollow: bool = False) -> None:
        self._spaces: list[tuple[str, Names, tuple[str, ...], tuple[object, ...]]] = []
        self._hollow = hollow
        self.functions: dict[types.FunctionType, str] = {}
        """What they are called."""
        self._parts: list[tuple[Callable[[Any], Any], list[object]]] = [
            (attrgetter(part), []) for part in PARTS
        ]
        self._kept: list[tuple[str, types.FunctionType, tuple[object, ...]]] = []
        self.add(spaces)

    def add(self, spaces: Iterable[Space]) -> None:
        """Take note of more."""
        functions: dict[types.FunctionType, str] = {}
        for prefix, names, all_meant in spaces:
            meant = [(key, value) for key, value in all_meant if f"{prefix}.{key}" not in NOT_WATCHED]
            keys, values = tuple(key for key, _ in meant), tuple(value for _, value in meant)
            self._spaces.append((prefix, names, keys, values))
            for key, value in meant:
                for function in _functions(value):
                    functions.setdefault(function, f"{prefix}.{key}")
        self._look_into(functions)

    def _look_into(self, functions: dict[types.FunctionType, str]) -> None:
        for function, name in list(functions.items()) if self._hollow else ():
            for inner in _kept(function):
                if isinstance(inner, types.FunctionType):
                    functions.setdefault(inner, f"{name} (what it calls)")
        new = {function: name for function, name in functions.items() if function not in self.functions}
        self.functions |= new
        for part, values in self._parts:
            values.extend(map(part, new))
        kept = [(name, function, _kept(function)) for function, name in new.items()]
        self._kept += [each for each in kept if each[2]]

    def renew(self) -> None:
        """Take what names mean by now for what they are to mean: what was done since then is our own work."""
        for at, (prefix, names, keys, values) in enumerate(self._spaces):
            held = names.copy()
            now = tuple(held.get(key, MISSING) for key in keys)
            new = [each for each in zip(keys, now, values, strict=True) if each[1] is not each[2]]
            if new:
                self._spaces[at] = prefix, names, keys, now
                self._look_into(
                    {each: f"{prefix}.{key}" for key, value, _ in new for each in _functions(value)}
                )

    def changed(self) -> list[str]:
        """Return the names that mean something else now; some 80 ns for each."""
        found = []
        for prefix, names, keys, values in self._spaces:
            held = names.copy()  # of a class's names each look-up would take three times as long
            if _any(_map(is_not, _map(held.get, keys, repeat(MISSING)), values)):
                now = [held.get(key, MISSING) for key in keys]
                found += [
                    f"{prefix}.{key}"
                    for key, value, old in zip(keys, now, values, strict=True)
                    if value is not old and not _wraps(value, old)
                ]
        return found

    def emptied(self) -> list[str]:
        """Return the functions that have other code or defaults, or use other functions, than they had; some 2 µs for each."""
        return self._other_parts() + [
            name
            for name, function, kept in self._kept
            if _any(_map(is_not, _kept(function), kept)) or len(_kept(function)) != len(kept)
        ]

    def _other_parts(self) -> list[str]:
        found = []
        for part, values in self._parts:
            if _any(_map(is_not, _map(part, self.functions), values)):
                now = [part(function) for function in self.functions]
                found += [
                    name
                    for name, value, old in zip(self.functions.values(), now, values, strict=True)
                    if value is not old
                ]
        return found


@dataclasses.dataclass(frozen=True)
class Known:
    """What a process knows of names before a candidate is there.

    Args:
        most: What is looked at after every request.
        rest: What is looked at beside that before a candidate is accepted.
        modules: Those whose functions are in it because they run kernels here.
        clocks: Classes by which times are taken; those of a stand-in take their place.
    """

    most: Meanings
    rest: Meanings
    modules: set[str]
    clocks: dict[str, type]

    def name_of(self, function: types.FunctionType) -> str | None:
        """Return what a function is called that is looked at."""
        return self.most.functions.get(function) or self.rest.functions.get(function)

    def renew(self, own: str) -> None:
        """Take note of what was done, and imported, since then."""
        self.most.renew()
        self.rest.renew()
        self.rest.add(_machinery(own, self.modules))
        others = {name: kind for name, kind in _clocks().items() if self.clocks[name] is not kind}
        self.most.add(_space(name, kind) for name, kind in others.items())
        self.clocks.update(others)


_remembered: list[Known] = []


def remember(own: str) -> Known:
    """Return what names mean; takes some 50 ms the first time, and 5 where this process did it before, or its parent.

    Args:
        own: The module that looks; what it holds changes while it does.
    """
    if _remembered:
        _remembered[0].renew(own)
    else:
        modules: set[str] = set()
        rest = Meanings(chain(_everything(), _machinery(own, modules)), hollow=True)
        _remembered.append(Known(Meanings(_most()), rest, modules, _clocks()))
    return _remembered[0]


def _most() -> Iterator[Space]:
    """Yield what is looked at after every request."""
    for prefix, holder in {**WATCHED, **_clocks()}.items():
        yield _space(prefix, holder)
    # Another module may take the place of one.
    yield (
        "sys.modules",
        sys.modules,
        [each for each in WATCHED.items() if sys.modules.get(each[0]) is each[1]],
    )
    yield from _layers(COMPUTES)


def _clocks() -> dict[str, type]:
    """Return the classes that take times, as they are in this process."""
    return {f"torch.cuda.{name}": getattr(torch.cuda, name) for name in CLOCKS}


def _everything() -> Iterator[Space]:
    """Yield what is looked at beside that before a candidate is accepted."""
    for prefix in WITH_CLASSES:
        if (module := sys.modules.get(prefix)) is None:
            continue
        yield _space(prefix, module)
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == prefix:
                yield _space(f"{prefix}.{key}", value)
    yield _space("torch._C", torch._C)  # noqa: SLF001 - what stands behind the public names
    yield _space("torch.nn.Parameter", torch.nn.Parameter)
    yield _space("torch.ops", torch.ops)
    yield "torch.ops", vars(torch.ops), [(name, getattr(torch.ops, name)) for name in ("aten", "prims")]
    yield "torch.ops.aten", vars(torch.ops.aten), list(vars(torch.ops.aten).items())
    if (
        driver := vars(triton.runtime.driver).get("_active")
    ) is not None:  # asked for, it would be looked for
        names = vars(driver)
        meant = [(key, names.get(key, MISSING)) for key in dir(driver) if not key.startswith("__")]
        yield "triton.runtime.driver.active", names, meant
    yield from _layers(())


def _machinery(own: str, known: set[str]) -> Iterator[Space]:
    """Yield the functions of the modules that run kernels here, and those of their classes; `known` is added to."""
    for prefix, module in list(sys.modules.items()):
        if not prefix.startswith(MACHINERY) or prefix in {own, __name__} or prefix in known:
            continue
        known.add(prefix)
        yield prefix, vars(module), _of(vars(module), types.FunctionType)
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == prefix:
                yield f"{prefix}.{key}", vars(value), _of(vars(value), types.FunctionType)


def put_in() -> set[str]:
    """Return what something else than torch put among its functions in C++, and its operators, which it looks up lazily."""
    functions = {
        f"torch._C.{name}"
        for name, value in vars(torch._C).items()  # noqa: SLF001 - as above
        if isinstance(value, types.FunctionType) and not is_torchs(value.__globals__, value.__code__)
    }
    return functions | {
        f"torch.ops.aten.{name}"
        for name, value in vars(torch.ops.aten).items()
        if callable(value)
        and not (
            type(value) is torch._ops.OpOverloadPacket  # noqa: SLF001 - nothing public tells
            and value._qualified_op_name == f"aten::{name}"  # noqa: SLF001 - as above
        )
    }


def is_torchs(names: Mapping[str, Any], code: types.CodeType) -> bool:
    """Tell whether code is that of a file in torch's folder, and runs in the namespace of the module that it is for."""
    return code.co_filename.startswith(TORCH_FOLDER) and is_of_its_module(code, names)


def _space(prefix: str, holder: Any) -> Space:  # noqa: ANN401 - a module, a class
    """Return what can be called in a namespace; of a class also what it inherits, which a new name would hide."""
    names = vars(holder)
    meant: list[tuple[str, object]] = [
        (key, value) for key, value in names.items() if callable(value) or isinstance(value, DESCRIPTORS)
    ]
    if isinstance(holder, type):
        meant += [(key, MISSING) for key in dir(holder) if key not in names and _can_be_called(holder, key)]
    return prefix, names, meant


def _can_be_called(kind: type, key: str) -> bool:
    """Tell whether a class inherits something to call, or a property, under a name."""
    value = next((vars(base)[key] for base in kind.__mro__ if key in vars(base)), None)
    return callable(value) or isinstance(value, DESCRIPTORS) or hasattr(type(value), "__get__")


def _layers(methods: tuple[str, ...]) -> Iterator[Space]:
    """Yield what the classes of torch.nn's modules, and those that they inherit from, compute and draw with.

    Args:
        methods: Which; empty for all that each defines.
    """
    public = [value for value in vars(torch.nn).values() if isinstance(value, type)]
    modules = [kind for kind in public if issubclass(kind, torch.nn.Module) and kind is not torch.nn.Module]
    for kind in dict.fromkeys(base for module in modules for base in module.__mro__):
        if kind in (torch.nn.Module, object):
            continue
        name = f"torch.nn.{kind.__name__}" if kind in public else f"{kind.__module__}.{kind.__qualname__}"
        names = vars(kind)
        if methods:
            yield name, names, [(method, names.get(method, MISSING)) for method in methods]
        else:
            yield name, names, [each for each in _space(name, kind)[2] if each[1] is not MISSING]


def _of(names: Mapping[str, Any], kind: type) -> list[tuple[str, object]]:
    return [(key, value) for key, value in list(names.items()) if isinstance(value, kind)]


def _functions(value: object) -> Iterator[types.FunctionType]:
    """Yield the Python functions that run where something is called, or read."""
    parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
    for part in parts:
        if isinstance(part, types.FunctionType):
            yield part


def _kept(function: types.FunctionType) -> tuple[object, ...]:
    """Return the values of a function's keyword defaults, and the functions that it has from an outer one."""
    cells = tuple(_content(cell) for cell in function.__closure__ or ())
    return (*(function.__kwdefaults__ or {}).values(), *cells)


def _content(cell: types.CellType) -> object:
    """Return what a cell holds, where that can be called: others hold what a function counts."""
    try:
        content = cell.cell_contents
    except ValueError:  # nothing yet
        return None
    return content if isinstance(content, types.FunctionType) else None


def _wraps(value: object, old: object) -> bool:
    """Tell whether torch put a function of its own around another, as compiling does with a module's constructor.

    Only those: much of torch puts something of its own around whatever it is given.
    """
    if not isinstance(value, types.FunctionType) or value.__code__.co_filename != COMPILING:
        return False
    cells = (cell.cell_contents for cell in value.__closure__ or ())
    return is_torchs(value.__globals__, value.__code__) and any(each is old for each in cells)
