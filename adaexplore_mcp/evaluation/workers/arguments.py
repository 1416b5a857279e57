"""What enters and leaves a call of a task: arguments by name, checked, copied and moved.

Inputs and constructor arguments must be able to reach another process, outputs must be able to be compared; anything
else is a `TaskFault` that names the item and its type.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from adaexplore_mcp.evaluation.workers.content import FaultReason, TaskFault
from adaexplore_mcp.evaluation.workers.trees import leaves, map_leaves

__all__ = [
    "Acceptance",
    "Arguments",
    "Specification",
    "accept_outputs",
    "bind",
    "constructor_arguments",
    "moved",
    "signature_of",
    "specifications",
]

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, slice, range)
"""Leaves beside tensors that can be handed to a candidate's process."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one call.

    Args:
        args: Positional ones.
        kwargs: Keyword ones.
        names: Name of each positional one in the signature; `xs[0]` for those a `*xs` takes.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def named(self) -> dict[str, Any]:
        """Return all arguments by name, positional ones first."""
        return dict(zip(self.names, self.args, strict=True)) | self.kwargs

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Yield (path, leaf) such as x, batch['keep'], xs[0]."""
        for name, value in self.named().items():
            yield from leaves(value, name)

    def tensors(self) -> list[Tensor]:
        """Return the tensors in the order of `leaves`."""
        return [leaf for _, leaf in self.leaves() if isinstance(leaf, Tensor)]

    def map(self, function: Callable[[str, Any], Any]) -> "Arguments":
        """Return the same arguments in new containers, with `function(path, leaf)` in place of every leaf."""
        args = tuple(
            map_leaves(function, value, name) for name, value in zip(self.names, self.args, strict=True)
        )
        kwargs = {name: map_leaves(function, value, name) for name, value in self.kwargs.items()}
        return Arguments(args, kwargs, self.names)


@dataclass(frozen=True, slots=True)
class Specification:
    """Name, dtype and shape of one input or output.

    Args:
        name: Path of the leaf.
        dtype: Torch's name without the prefix; for a plain value its Python type.
        shape: Sizes; empty for a plain value.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


def specifications(named: Iterator[tuple[str, Any]]) -> list[Specification]:
    """Describe leaves as `leaves` yields them."""
    return [
        Specification(name, str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape))
        if isinstance(leaf, Tensor)
        else Specification(name, type(leaf).__name__, ())
        for name, leaf in named
    ]


class Acceptance:
    """Checks that a value can be handed to another process, and strips tensors of what cannot."""

    def __init__(self, reason: FaultReason) -> None:
        self._reason: FaultReason = reason

    def value(self, value: Any, path: str, depth: int = 0) -> Any:  # noqa: ANN401 - any task's value
        """Return the value with plain tensors, in new containers."""
        if depth > 32:
            raise TaskFault(self._reason, f"{path[:80]}... nests deeper than 32 levels")
        if isinstance(value, Tensor):
            return self.tensor(value, path)
        if isinstance(value, torch.Size):
            return value
        if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            items = [self.value(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, (str, int, float, type(None))):
                    raise TaskFault(self._reason, f"{path} has a key of type {_type_name(key)}")
            return {key: self.value(item, f"{path}[{key!r}]", depth + 1) for key, item in value.items()}
        if isinstance(value, PLAIN):
            return value
        detail = f"{path} is of type {_type_name(value)}; only tensors, plain values, tuples, lists and dicts can be sent"
        raise TaskFault(self._reason, f"{detail} to a candidate's process")

    def tensor(self, tensor: Tensor, path: str) -> Tensor:
        """Return a strided tensor without gradient; parameters become tensors."""
        if type(tensor) not in {Tensor, nn.Parameter, FakeTensor}:
            raise TaskFault(
                self._reason, f"{path} is of type {_type_name(tensor)}, a subclass of torch.Tensor"
            )
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
            layout = str(tensor.layout).removeprefix("torch.")
            kinds = {"quantized": tensor.is_quantized, "nested": tensor.is_nested, "meta": tensor.is_meta}
            kind = next((kind for kind, applies in kinds.items() if applies), layout)
            raise TaskFault(
                self._reason, f"{path} is a {kind} tensor; only dense, strided ones can be judged"
            )
        return tensor.detach().resolve_conj().resolve_neg()


def accept_outputs(value: object) -> Any:  # noqa: ANN401 - any task's outputs
    """Check what a call returned: at least one tensor, and beside tensors only None and numbers."""
    accept = Acceptance("outputs")

    def checked(path: str, leaf: object) -> object:
        if isinstance(leaf, Tensor):
            return accept.tensor(leaf, path)
        if leaf is None or isinstance(leaf, (bool, int, float, complex)):
            return leaf
        raise TaskFault(
            "outputs", f"{path} is of type {_type_name(leaf)}; outputs are tensors, and numbers beside them"
        )

    try:
        outputs = map_leaves(checked, value, "out")
    except RecursionError as error:
        raise TaskFault("outputs", f"the outputs cannot be walked: {error}") from error
    if not any(isinstance(leaf, Tensor) for _, leaf in leaves(outputs)):
        raise TaskFault(
            "outputs", f"the reference returns no tensor but {_type_name(value)}: {str(outputs)[:80]}"
        )
    return outputs


def moved(arguments: Arguments, device: str) -> Arguments:
    """Move tensors with their strides; those that share a storage still do."""
    storages: dict[tuple[int, torch.dtype], Tensor] = {}

    def move(_: str, leaf: object) -> object:
        if not isinstance(leaf, Tensor) or leaf.device.type == device:
            return leaf
        storage = leaf.untyped_storage()
        key = (storage._cdata, leaf.dtype)  # noqa: SLF001 - its identity, also for fake ones
        if key not in storages:
            elements = storage.nbytes() // leaf.element_size()
            storages[key] = leaf.as_strided((elements,), (1,), 0).to(device)
        return storages[key].as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())

    return arguments.map(move)


def bind(
    entry: Callable[..., Any],
    method: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    reason: FaultReason,
    source: str,
) -> Arguments:
    """Name positional arguments by the signature that is to take them.

    Args:
        entry: A function, or a class of which `method` is called.
        method: `__init__` or `forward`.
        args: Positional arguments.
        kwargs: Keyword arguments.
        reason: For the fault.
        source: What gave the arguments, for the fault.

    Raises:
        TaskFault: The signature cannot take them.
    """
    signature = signature_of(entry, method)
    if signature is None:
        return Arguments(args, kwargs, tuple(f"arg{i}" for i in range(len(args))))
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = ", ".join([f"{len(args)} values"] * bool(args or not kwargs) + [str(name) for name in kwargs])
        detail = f"{source} gives {given}, but {entry.__name__} takes {signature}: {error}"
        raise TaskFault(reason, detail) from error
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(len(args) - len(names))]
        elif parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
            names.append(parameter.name)
    return Arguments(args, kwargs, tuple(names[: len(args)]))


def constructor_arguments(
    given: object, signature: inspect.Signature | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read the forms of `get_init_inputs()` in use.

    A list of positional arguments (KernelBench); a dict by name; `[[...], {...}]`, positional and by name (KernelBook);
    `[{...}]`, by name if every key is a parameter's name, else one positional argument.
    """
    if isinstance(given, dict):
        return (), given
    if not isinstance(given, (tuple, list)):
        raise TaskFault("init_arguments", f"get_init_inputs() gives {_type_name(given)}, not a list")
    match given:
        case [list() | tuple() as args, dict() as kwargs] if _takes(signature, args, kwargs):
            return tuple(args), kwargs
        case [dict() as kwargs] if (
            kwargs and _takes(signature, (), kwargs) and _names(signature) >= kwargs.keys()
        ):
            return (), kwargs
    return tuple(given), {}


def _takes(signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[Any, Any]) -> bool:
    if signature is None or not all(isinstance(key, str) for key in kwargs):
        return False
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _names(signature: inspect.Signature | None) -> set[str]:
    return set(signature.parameters) if signature is not None else set()


def signature_of(entry: Callable[..., Any], method: str) -> inspect.Signature | None:
    """Return the signature of a function, or of a class's method without `self`; None if it has none to read."""
    try:
        if not isinstance(entry, type):
            return inspect.signature(entry)
        signature = inspect.signature(getattr(entry, method))
    except (AttributeError, TypeError, ValueError):
        return None
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
