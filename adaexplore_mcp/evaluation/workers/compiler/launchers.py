"""The C stubs that launch kernels, built while the kernels compile: up to triton 3.6 there is one per signature.

A process that has a GPU would build each at the first launch that needs it, 0.2 to 0.3 s. Triton's own launcher class
builds them here, in children, into the kernel cache; nothing of CUDA is loaded or started.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from .children import Child, alone
from .versions import build_module, cache_directory, nvidia_driver

__all__ = ["Launchers"]

LIMIT_S = 20.0
MOST_AT_ONCE = 4
PREFIX = "launcher-"


class Launchers:
    """Builds launchers in the background; whatever fails is left to the process that launches.

    Args:
        wanted: Whether to build any at all.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted and _can_be_built()
        self._asked: set[str] = set()
        self._building: list[Child] = []

    def start(self, src: Any, metadata: Any = None) -> None:  # noqa: ANN401 - an ASTSource, its kernel's metadata
        """Begin to build the launcher of a kernel, unless it was begun before, in this process or a child of it.

        Args:
            src: What is compiled.
            metadata: Of the compiled kernel; None before it is. Only a launcher that is given tensor descriptors is made
                of it, and has to wait for it.
        """
        signature = getattr(src, "signature", None)
        if not self._wanted or not isinstance(signature, Mapping):
            return
        described = str([_plain(kind) for kind in signature.values()])
        if "tensordesc" in described:
            if metadata is None:
                return
            described += str(getattr(metadata, "tensordesc_meta", None))
        name = hashlib.sha256(described.encode()).hexdigest()
        if name not in self._asked and alone() and _first(name):
            if len(self._building) >= MOST_AT_ONCE:
                self.finish()
            with contextlib.suppress(OSError):
                self._building.append(Child(lambda tell: _build(src, metadata), LIMIT_S))  # noqa: ARG005
        self._asked.add(name)

    def forget(self) -> None:
        """Leave what is being built to the process that this one was forked from."""
        self._building.clear()

    def finish(self, *, wait: bool = True) -> None:
        """Wait for what is being built, or end it."""
        for child in self._building:
            while wait and not child.late and child.read():
                pass
            child.end()
        self._building.clear()


def _can_be_built() -> bool:
    """Say whether this version of Triton has launchers to build, and the machine a C compiler and CUDA's library."""
    if not hasattr(nvidia_driver, "make_launcher"):
        return False
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return False
    try:
        nvidia_driver.library_dirs()
    except (AssertionError, OSError, subprocess.SubprocessError):
        return False
    return True


def _plain(kind: Any) -> Any:  # noqa: ANN401 - the type of a kernel's argument, a text or a tuple of them
    """Return a type as a launcher sees it: all pointers are alike."""
    if isinstance(kind, tuple):
        return tuple(_plain(each) for each in kind)
    return "*" if kind.startswith("*") else kind


def _first(name: str) -> bool:
    """Say whether nobody who shares the kernel cache has asked for this launcher before."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(directory / f"{PREFIX}{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True


def _build(src: Any, metadata: Any) -> None:  # noqa: ANN401 - as for `start`
    """Build a launcher as Triton does, and load nothing; in a child, whose Triton is nobody else's."""
    build_module._load_module_from_path = lambda name, path: SimpleNamespace(launch=None)  # noqa: ARG005, SLF001
    # Without metadata it raises once the launcher lies in the cache, and the child ends.
    nvidia_driver.CudaLauncher(src, metadata or SimpleNamespace())
