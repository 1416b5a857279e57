"""Operators that a candidate registers for CUDA, served where its tensors are: in host memory.

An operator runs with the mode switched off, so its kernel is made to see calls again. Fake tensors are given to the
kernel too, not to the function that only tells shapes: what it launches is to be compiled.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.library import Library

from .mode import DeviceMode
from .patches import Patches
from .tags import tensors_in
from .versions import fake_kernel, frame_above

__all__ = ["patch_operators"]

TWINS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}
"""By dispatch key of a GPU: that of the tensors here."""
ANYWHERE = "CompositeExplicitAutograd"
RUNS_HERE = frozenset({"CPU", ANYWHERE, "CompositeImplicitAutograd"})
TORCHS_OWN = frozenset({"aten", "prim", "prims"})


def patch_operators(patches: Patches, mode: DeviceMode, *, fake: bool) -> None:
    """Have the candidate's registrations serve tensors of the stand-in until `patches` are undone."""
    operators = _Operators(mode, fake=fake)
    patches.replace(Library, "impl", operators.impl())
    patches.replace(Library, "_register_fake", operators.register_fake())


class _Operators:
    """What the candidate registered.

    Args:
        mode: Sees calls.
        fake: Tensors are fake.
    """

    def __init__(self, mode: DeviceMode, *, fake: bool) -> None:
        self._mode = mode
        self._fake = fake
        self._true_impl: Callable[..., None] = Library.impl
        self._true_register_fake: Callable[..., None] = Library._register_fake  # noqa: SLF001 - all ways lead here
        self._for_cuda: dict[str, Callable[..., Any]] = {}
        self._anywhere: dict[str, Callable[..., Any]] = {}
        self._here: set[str] = set()
        """Operators that have a kernel for tensors here."""
        self._told: set[str] = set()
        """Operators whose kernel was registered to tell shapes."""

    def impl(self) -> Callable[..., None]:
        """Return what takes the place of `Library.impl`."""

        def impl(
            library: Library,
            op_name: Any,  # noqa: ANN401 - a name or an operator
            fn: Callable[..., Any],
            dispatch_key: str = "",
            **options: Any,  # noqa: ANN401 - torch's
        ) -> None:
            key = dispatch_key or library.dispatch_key
            own = self._own(library) and fn is not torch.library.fallthrough_kernel
            name = _qualified(library, op_name)
            if own and key in TWINS:
                self._serve(library, name, self._seeing(fn), key, options)
            elif own and key in RUNS_HERE:
                fn = self._seeing(fn)
                if key == "CPU":
                    if name in self._for_cuda:
                        return
                    self._here.add(name)
                    fn = self._preferring(name, fn)
                if key == ANYWHERE:
                    self._anywhere[name] = fn
                    self._tell(library, name)
            elif key in TWINS and self._mode.callers.acts_for_own(frame_above(1)):
                self._mode.ledger.refuse(f"{name} for {key}", "it replaces an operator of torch on a GPU")
            self._true_impl(library, op_name, fn, dispatch_key, **options)

        return impl

    def register_fake(self) -> Callable[..., None]:
        """Return what takes the place of `Library._register_fake`."""

        def register_fake(
            library: Library,
            op_name: str,
            fn: Callable[..., Any],
            *args: Any,  # noqa: ANN401 - torch's
            **options: Any,  # noqa: ANN401 - torch's
        ) -> None:
            name = _qualified(library, op_name)
            if name in self._told:
                return
            if self._fake and self._own(library):
                fn = self._launching(name, fn)
            self._true_register_fake(library, op_name, fn, *args, **options)

        return register_fake

    def _own(self, library: Library) -> bool:
        """Say whether the candidate registers an operator of its own; asked by what takes a method's place."""
        return library.ns not in TORCHS_OWN and self._mode.callers.acts_for_own(frame_above(2))

    def _serve(
        self, library: Library, name: str, fn: Callable[..., Any], key: str, options: Mapping[str, Any]
    ) -> None:
        """Register a function for tensors here too."""
        if key == "CUDA":
            self._for_cuda[name] = fn
            self._tell(library, name)
            if name in self._here:
                return
            self._here.add(name)
            fn = self._preferring(name, fn)
        self._true_impl(_twin(library), name, fn, TWINS[key], **options)

    def _preferring(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return what calls the kernel for CUDA, whenever it is registered, and this function where there is none."""

        def preferring(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the operator's own
            return self._for_cuda.get(name, fn)(*args, **kwargs)

        return preferring

    def _tell(self, library: Library, name: str) -> None:
        """Let fake tensors be given to a kernel of an operator that nothing tells shapes of yet."""
        if self._fake and fake_kernel(name) is None:
            self._true_register_fake(_twin(library), name.partition("::")[2], self._launching(name, None))
            self._told.add(name)

    def _launching(self, name: str, fn: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return the kernel of an operator in place of what only tells shapes, where it has one by then."""

        def told(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the operator's own
            kernel = self._for_cuda.get(name) or self._anywhere.get(name) or fn
            assert kernel is not None
            return kernel(*args, **kwargs)

        return told

    def _seeing(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        mode = self._mode

        @functools.wraps(fn)
        def seeing(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the operator's own
            on_device = any(mode.place_of(tensor) for tensor in tensors_in((*args, *kwargs.values())))
            with mode.seeing(unknown=True if on_device else None):
                return fn(*args, **kwargs)

        return seeing


def _twin(library: Library) -> Library:
    """Return a library of any dispatch key for the same operators, which lives as long as this one."""
    twin = Library(library.ns, "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own
    vars(library).setdefault("_twins", []).append(twin)
    return twin


def _qualified(library: Library, op_name: Any) -> str:  # noqa: ANN401 - a name or an operator
    """Return the name of an operator with its namespace."""
    name: str = op_name if isinstance(op_name, str) else op_name.name()
    return name if "::" in name else f"{library.ns}::{name}"
