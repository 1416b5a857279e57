"""Move values between processes: plain data as JSON, tensors as bytes in a sealed-size memory file.

`encode` turns a task's value (containers, plain values, tensors) into JSON in which a tensor is a number; the tensors go
into one memory file, described by a table. Strides, offsets and shared storages survive, since a kernel's verdict may
depend on them: a window of a wider buffer stays a window, two views of one storage stay views. The file can be mapped
shared, so that the receiver computes on the very bytes the sender can inspect later.

Nothing is pickled: a receiver never runs a sender's code.
"""

import base64
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adaexplore_mcp.evaluation.workers.spaces import HOST, PAGE, Space
from adaexplore_mcp.evaluation.workers.trees import indefinite

__all__ = [
    "Encoded",
    "NotTransportableError",
    "as_bytes",
    "contiguous_layout",
    "copy_contiguous",
    "decode",
    "decode_outline",
    "dtype_name",
    "encode",
    "outline",
    "read_contiguous",
    "write_contiguous",
]

SPARSE_BYTES = 64 << 20  # above this, a storage of which a tensor shows only a small part is not copied whole
SPARSE_FACTOR = 4
MAX_TENSORS = 4096
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
}


class NotTransportableError(Exception):
    """A value cannot be handed to another process.

    Args:
        path: Where it stands.
        what: What it is.
    """

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(f"{path or 'the value'} is {what}, which cannot be handed to another process")


@dataclass(frozen=True)
class Encoded:
    """A value ready to travel.

    Args:
        tree: JSON; a tensor is `{"$": "tensor", "v": position in the table}`.
        table: One entry per tensor: path, dtype, shape, stride, offset (in elements) and storage, the position in
            `storages`; `view` is the number of bytes the tensor's own elements take.
        storages: One entry per distinct storage: start in the file and size, both in bytes.
        size: Bytes of the memory that all storages lie in.
        file: Descriptor of the memory, or -1 without tensors; the holder closes it.
    """

    tree: Any
    table: list[dict[str, Any]]
    storages: list[tuple[int, int]]
    size: int
    file: int

    def message(self) -> dict[str, Any]:
        """Return the part that travels as JSON."""
        return {"tree": self.tree, "table": self.table, "storages": self.storages, "size": self.size}


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the prefix."""
    return str(dtype).removeprefix("torch.")


# --- encoding --------------------------------------------------------------------------------------------


def encode(value: Any, path: str = "", space: Space = HOST) -> Encoded:  # noqa: ANN401 - any value a task holds
    """Encode a value; its tensors are copied into new memory.

    Raises:
        NotTransportableError: A leaf is neither plain data nor a dense tensor of the space's device.
    """
    encoder = _Encoder(space)
    tree = encoder.tree(value, path)
    return Encoded(tree, encoder.table, encoder.storages, encoder.end, encoder.write())


def outline(value: Any, path: str = "") -> dict[str, Any]:  # noqa: ANN401 - any value a task holds
    """Describe a value without its tensors' contents, fake tensors included; `decode_outline` makes fake ones of it.

    Raises:
        NotTransportableError: A leaf is neither plain data nor a dense CPU tensor.
    """
    encoder = _Encoder(HOST)
    tree = encoder.tree(value, path)
    return Encoded(tree, encoder.table, encoder.storages, encoder.end, -1).message()


class _Encoder:
    def __init__(self, space: Space) -> None:
        self.space = space
        self.table: list[dict[str, Any]] = []
        self.storages: list[tuple[int, int]] = []
        self._tensors: list[torch.Tensor] = []
        self._positions: dict[int, int] = {}
        self.end = 0

    def tree(self, value: Any, path: str, depth: int = 0) -> Any:  # noqa: ANN401
        """Return the JSON of a value, collecting its tensors."""
        if depth > 32:
            raise NotTransportableError(path, "nested deeper than 32 levels")
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, torch.Tensor):
            return {"$": "tensor", "v": self._tensor(value, path)}
        if type(value) is list:
            return [self.tree(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        if isinstance(value, torch.Size):
            return {"$": "size", "v": list(value)}
        if isinstance(value, (tuple, list)):
            return {
                "$": "tuple",
                "v": [self.tree(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)],
            }
        if isinstance(value, dict):
            pairs = [
                [self.tree(key, f"{path} key", depth + 1), self.tree(item, f"{path}[{key!r}]", depth + 1)]
                for key, item in value.items()
            ]
            return {"$": "dict", "v": pairs}
        return _plain(value, path)

    def _tensor(self, tensor: torch.Tensor, path: str) -> int:
        here = tensor.device.type == self.space.device
        if tensor.layout is not torch.strided or tensor.is_quantized or not here:
            layout = "a quantized tensor" if tensor.is_quantized else f"a tensor of layout {tensor.layout}"
            raise NotTransportableError(path, layout if here else f"on {tensor.device}")
        if len(self.table) >= MAX_TENSORS:
            raise NotTransportableError(path, f"one of more than {MAX_TENSORS} tensors")
        tensor = tensor.detach().resolve_conj().resolve_neg()
        storage = tensor.untyped_storage()
        identity = storage._cdata  # noqa: SLF001 - a fake tensor's storage has no address
        known = self._positions.get(identity)
        if known is None:
            known = len(self.storages)
            self.storages.append((self.end, storage.nbytes()))
            self.end += -(-(storage.nbytes() + self.space.guard) // PAGE) * PAGE
            self._positions[identity] = known
        self._tensors.append(tensor)
        self.table.append(
            {
                "path": path,
                "dtype": dtype_name(tensor.dtype),
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()),
                "offset": tensor.storage_offset(),
                "storage": known,
            }
        )
        return len(self.table) - 1

    def write(self) -> int:
        """Copy the collected tensors into memory; return its descriptor, or -1 without any."""
        if not self._tensors:
            return -1
        target, descriptor = self.space.make(self.end)
        whole: set[int] = set()
        for entry, tensor in zip(self.table, self._tensors, strict=True):
            start, size = self.storages[entry["storage"]]
            if size > SPARSE_BYTES and size > SPARSE_FACTOR * tensor.numel() * tensor.element_size():
                # A lazily committed storage must not be filled by copying it.
                _view(target[start : start + size], entry).copy_(tensor)
            elif size and entry["storage"] not in whole:
                whole.add(entry["storage"])
                target[start : start + size].copy_(
                    torch.tensor([], dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
                )
        return descriptor


def _plain(value: Any, path: str) -> Any:  # noqa: ANN401 - one return per kind
    """Encode a value that is no container and no tensor."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$": "float", "v": repr(float(value))}
    if isinstance(value, complex):
        return {"$": "complex", "v": [repr(value.real), repr(value.imag)]}
    if isinstance(value, (bytes, bytearray)):
        return {"$": "bytes", "v": base64.b64encode(value).decode("ascii")}
    if isinstance(value, torch.dtype):
        return {"$": "dtype", "v": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"$": "device", "v": str(value)}
    if isinstance(value, slice):
        return {"$": "slice", "v": [value.start, value.stop, value.step]}
    if isinstance(value, range):
        return {"$": "range", "v": [value.start, value.stop, value.step]}
    raise NotTransportableError(path, indefinite(type(value).__qualname__))


# --- decoding --------------------------------------------------------------------------------------------


def decode(  # noqa: D417 - the last as in `Space`
    message: Mapping[str, Any], descriptor: int | None, *, shared: bool = False, space: Space = HOST
) -> Any:  # noqa: ANN401 - any value of a task
    """Rebuild a value from `Encoded.message()` and its memory.

    Args:
        message: The JSON part; may come from an untrusted process, so every number in it is checked.
        descriptor: The memory, or None without tensors; may be closed afterwards.
        shared: Map it shared: writes of this process are seen by every holder.

    Raises:
        ValueError: The message does not describe the memory.
    """
    tensors = list(_tensors(message, descriptor, space, shared=shared))
    return _value(message["tree"], tensors)


def decode_outline(message: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Rebuild a value from `outline` with uninitialised tensors; meant for use under FakeTensorMode."""
    storages = [torch.empty(size, dtype=torch.uint8) for _, size in message["storages"]]
    tensors = [_view(storages[entry["storage"]], entry) for entry in message["table"]]
    return _value(message["tree"], tensors)


def _tensors(
    message: Mapping[str, Any], descriptor: int | None, space: Space, *, shared: bool
) -> Iterator[torch.Tensor]:
    table = message["table"]
    if not table:
        return
    if descriptor is None or len(table) > MAX_TENSORS:
        msg = "tensors without a file, or too many"
        raise ValueError(msg)
    extents = [(int(start), int(nbytes)) for start, nbytes in message["storages"]]
    storages = space.open(descriptor, extents, int(message["size"]), shared=shared)
    for entry in table:
        yield _view(storages[entry["storage"]], entry)


def _view(storage: torch.Tensor, entry: Mapping[str, Any]) -> torch.Tensor:
    """Return the tensor that a table entry describes, inside the bytes of its storage."""
    dtype = DTYPES[entry["dtype"]]
    shape, stride, offset = entry["shape"], entry["stride"], entry["offset"]
    item = dtype.itemsize
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if any(n < 0 for n in (*shape, *stride, offset)) or (
        0 not in shape and (last + 1) * item > storage.numel()
    ):
        msg = (
            f"a tensor of shape {shape}, stride {stride} does not fit its storage of {storage.numel()} bytes"
        )
        raise ValueError(msg)
    typed = storage[: storage.numel() // item * item].view(dtype)
    return torch.as_strided(typed, shape, stride, typed.storage_offset() + offset)


def _value(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:  # noqa: ANN401, PLR0911
    if isinstance(tree, list):
        return [_value(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    value = tree["v"]
    match tree["$"]:
        case "tensor":
            return tensors[value]
        case "tuple":
            return tuple(_value(item, tensors) for item in value)
        case "dict":
            return {_value(key, tensors): _value(item, tensors) for key, item in value}
        case "float":
            return float(value)
        case "complex":
            return complex(float(value[0]), float(value[1]))
        case "bytes":
            return base64.b64decode(value)
        case "dtype":
            return DTYPES[value]
        case "device":
            return torch.device(value)
        case "size":
            return torch.Size(value)
        case "slice":
            return slice(*value)
        case "range":
            return range(*value)
        case kind:
            msg = f"unknown kind of value {kind!r}"
            raise ValueError(msg)


def read_contiguous(
    descriptor: int, entries: Sequence[Mapping[str, Any]], size: int = 0, space: Space = HOST
) -> list[torch.Tensor]:
    """Read tensors that `write_contiguous` wrote.

    Args:
        descriptor: The memory.
        entries: dtype, shape and start (bytes) of each; may come from an untrusted process.
        size: Bytes of the memory; a file knows its own.
        space: Where it lies.

    Raises:
        ValueError: An entry lies outside of it.
    """
    dtypes = [DTYPES[entry["dtype"]] for entry in entries]
    extents = []
    for entry, dtype in zip(entries, dtypes, strict=True):
        if any(n < 0 for n in entry["shape"]):
            msg = f"a tensor of shape {entry['shape']}"
            raise ValueError(msg)
        extents.append((entry["start"], math.prod(entry["shape"]) * dtype.itemsize))
    whole = max((start + nbytes for start, nbytes in extents), default=0)
    (memory,) = space.open(descriptor, [(0, whole)], size, shared=False) if whole else (None,)
    tensors = []
    for entry, dtype, (start, nbytes) in zip(entries, dtypes, extents, strict=True):
        raw = (
            torch.empty(0, dtype=torch.uint8, device=space.device)
            if memory is None
            else memory[start : start + nbytes]
        )
        if start < 0 or start % dtype.itemsize or raw.numel() != nbytes:
            msg = f"a tensor of shape {entry['shape']} at byte {start} lies outside of its memory"
            raise ValueError(msg)
        tensors.append(raw.view(dtype).reshape(entry["shape"]))
    return tensors


def contiguous_layout(tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Return where each tensor starts when they lie one after the other (multiples of 64 bytes), and the end of all."""
    starts, position = [], 0
    for tensor in tensors:
        starts.append(position)
        position += -(-tensor.numel() * tensor.element_size() // 64) * 64
    return starts, position


def write_contiguous(tensors: Sequence[torch.Tensor], descriptor: int) -> list[int]:
    """Write tensors one after the other, each in row-major order, into an empty file.

    Written by `write`, not through a mapping, so that the receiver can seal the file at once.

    Returns:
        The start of each tensor in bytes (multiples of 64).
    """
    starts, end = contiguous_layout(tensors)
    for start, tensor in zip(starts, tensors, strict=True):
        position, view = start, as_bytes(tensor).numpy().data
        while view:
            written = os.pwrite(descriptor, view, position)
            position += written
            view = view[written:]
    os.ftruncate(descriptor, max(end, 1))
    return starts


def copy_contiguous(tensors: Sequence[torch.Tensor], memory: torch.Tensor) -> list[int] | None:
    """Copy tensors one after the other, each in row-major order, into memory of the same device.

    Args:
        tensors: Any shapes, dtypes and strides.
        memory: uint8, shape (bytes,).

    Returns:
        The start of each tensor in bytes; None, with nothing copied, where they do not fit.
    """
    starts, end = contiguous_layout(tensors)
    if end > memory.numel():
        return None
    for start, tensor in zip(starts, tensors, strict=True):
        nbytes = tensor.numel() * tensor.element_size()
        target = memory[start : start + nbytes].view(tensor.dtype).reshape(tensor.shape)
        target.copy_(tensor.detach())
    return starts


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's elements, row-major: uint8, shape (bytes,); a copy only where it has to be."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
