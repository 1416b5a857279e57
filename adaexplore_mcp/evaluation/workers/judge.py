"""The judge: sees expected outputs, compares bytes, imports neither tasks nor candidates.

A trusted, long-lived process: one for memory files, and one for each GPU. Each request carries the memory it is about by
descriptor; but for mappings nothing is kept between requests, so a judge that is lost is simply started again.
"""

import contextlib
import functools
import hashlib
import importlib
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from adaexplore_mcp.evaluation.sandbox import guard_memory
from adaexplore_mcp.evaluation.workers.comparison import (
    CHUNKED,
    Comparison,
    Rule,
    Yardstick,
    as_message,
    compare,
    compare_form,
    yardstick_of,
)
from adaexplore_mcp.evaluation.workers.cuda.ceilings import measure_ceilings
from adaexplore_mcp.evaluation.workers.cuda.driver import context_error
from adaexplore_mcp.evaluation.workers.cuda.kept import KeptSpace
from adaexplore_mcp.evaluation.workers.cuda.memory import supported
from adaexplore_mcp.evaluation.workers.cuda.properties import device_properties
from adaexplore_mcp.evaluation.workers.cuda.start import start, use_device
from adaexplore_mcp.evaluation.workers.forkserver import ForkServer
from adaexplore_mcp.evaluation.workers.spaces import GUARD, HOST, Space
from adaexplore_mcp.evaluation.workers.standin.memory import fill
from adaexplore_mcp.evaluation.workers.tensors import DTYPES, as_bytes, decode, read_contiguous
from adaexplore_mcp.evaluation.workers.totals import Totals

__all__ = ["Judge", "serve", "serve_gpu"]

SCRATCH_BYTES = 512 << 20  # a comparison in chunks takes 300 MiB beside copies of outputs
DIGEST_BYTES = 1 << 22
NARROW = 1e-3

MALFORMED = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
)
"""What reading a file raises that is not as it was described."""


def serve(server: ForkServer) -> None:
    """Answer for memory files until the server closes the connection."""
    guard_memory()
    server.connection.send({"problem": ""})
    _answer(server, Judge(HOST))


def serve_gpu(server: ForkServer, uuid: str) -> None:
    """Start CUDA on one GPU, and answer for its memory until the server closes the connection."""
    problem = ""
    try:
        use_device(uuid)
        start()
        if not supported():
            problem = "this GPU cannot share memory by descriptor (CUDA virtual memory management)"
        # Held from now on, so that a candidate that takes all memory does not take this.
        torch.empty(SCRATCH_BYTES, dtype=torch.uint8, device="cuda")
    except (RuntimeError, OSError, AssertionError) as error:  # the last from a torch without CUDA
        problem = f"{type(error).__name__}: {error}"[:400]
    guard_memory()
    properties = {} if problem else device_properties()
    server.connection.send({"problem": problem, "properties": properties})
    if not problem:
        _answer(server, Judge(KeptSpace(), _fused()))


def _fused() -> Totals:
    """Return what compares in one pass; torch's way where Triton does not work in this process."""
    try:
        module = importlib.import_module("adaexplore_mcp.evaluation.workers.cuda.totals")
        module.warm_up()
    except Exception:  # noqa: BLE001 - Triton raises many kinds, and there is another way
        traceback.print_exc()
        return CHUNKED
    fused: Totals = module.FusedTotals()
    return fused


def _answer(server: ForkServer, judge: "Judge") -> None:
    connection = server.connection
    while (received := connection.receive()) is not None:
        request, descriptors = received
        files: list[int] = []
        full = False
        try:
            with judge.serving(request, descriptors):
                reply, files = judge.operations[request["op"]](request, descriptors)
        except torch.OutOfMemoryError:
            full = True  # what it had by then is let go of with the error
        except MALFORMED as error:
            # What the candidate sent does not describe its file: its outputs cannot be read.
            reply = {"malformed": f"{type(error).__name__}: {error}"[:500]}
            judge.check_device()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        connection.send(judge.no_memory() if full else reply, files)
        for descriptor in files:
            os.close(descriptor)


class Judge:
    """What is asked of the judge; every operation returns its reply and the descriptors that go with it.

    Args:
        space: Where outputs lie.
        totals: Computes what comparisons rest on.
    """

    def __init__(self, space: Space, totals: Totals = CHUNKED) -> None:
        self.space = space
        self.totals = totals
        self.operations: Mapping[str, Callable[[Mapping[str, Any], Sequence[int]], Reply]] = {
            "compare": self.compare,
            "audit": self.audit,
            "digest": self.digest,
            "make": self.make,
            "copy": self.copy,
            "refill": self.refill,
            "trim": self.trim,
            "release": self.release,
            "ceilings": self.ceilings,
        }

    def serving(
        self, request: Mapping[str, Any], descriptors: Sequence[int]
    ) -> contextlib.AbstractContextManager[None]:
        """Answer one request: GPU memory that it names stays mapped for the next."""
        if isinstance(self.space, KeptSpace):
            return self.space.serving(request, descriptors)
        return contextlib.nullcontext()

    def check_device(self) -> None:
        """End this process if its GPU context is broken: what it says of anything would be wrong, and another starts.

        Raises:
            SystemExit: It is.
        """
        if self.space.device == "cuda" and context_error() is not None:
            raise SystemExit(1)

    def no_memory(self) -> dict[str, Any]:
        """Give back what is cached, and say how much memory the GPU has left."""
        if isinstance(self.space, KeptSpace):
            self.space.forget()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return {"out_of_memory": {"free": free, "total": total}}

    def make(self, request: Mapping[str, Any], _: Sequence[int]) -> "Reply":
        """Make memory of `size` bytes for a candidate's outputs; GPU memory only."""
        _memory, descriptor = self.space.make(request["size"])
        self.space.settle()  # it is filled, and the candidate writes there once it hears of this
        return {}, [descriptor]

    def copy(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> "Reply":
        """Copy memory of `size` bytes, for a candidate to have; GPU memory only."""
        source = self._whole(descriptors[0], request["size"])
        memory, descriptor = self.space.make(request["size"])
        try:
            memory[: request["size"]].copy_(source)
            self.space.settle()
        except BaseException:
            os.close(descriptor)
            raise
        return {}, [descriptor]

    def refill(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> "Reply":
        """Put the content of the second memory into the first, both of `size` bytes; GPU memory only."""
        target, source = (self._whole(each, request["size"]) for each in descriptors)
        target.copy_(source)
        self.space.settle()
        return {}, []

    def trim(self, _: Mapping[str, Any], __: Sequence[int]) -> "Reply":
        """Give back GPU memory that is cached, but for what comparisons need."""
        torch.cuda.empty_cache()
        torch.empty(SCRATCH_BYTES, dtype=torch.uint8, device="cuda")
        return {}, []

    def release(self, request: Mapping[str, Any], _: Sequence[int]) -> "Reply":
        """Unmap what is kept for the lease that is `released`; GPU memory only."""
        if isinstance(self.space, KeptSpace):
            self.space.release(request["released"])
        return {}, []

    def ceilings(self, request: Mapping[str, Any], _: Sequence[int]) -> "Reply":
        """Measure what the GPU can do, which nobody else may use meanwhile; `l2_bytes` of it."""
        found = measure_ceilings(request["l2_bytes"])
        torch.empty(SCRATCH_BYTES, dtype=torch.uint8, device="cuda")
        return found, []

    def _whole(self, descriptor: int, size: int) -> torch.Tensor:
        return self.space.open(descriptor, [(0, size)], size, shared=True)[0]

    def digest(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> "Reply":
        """Return a digest of the first bytes of each of some parts, so that equal contents are known for equal.

        `parts`: start and size; `size` of the whole.
        """
        parts = [(int(start), min(int(nbytes), DIGEST_BYTES)) for start, nbytes in request["parts"]]
        tensors = self.space.open(descriptors[0], parts, request["size"], shared=False)
        return {"digests": [hashlib.sha256(t.cpu().numpy().tobytes()).hexdigest() for t in tensors]}, []

    def audit(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> "Reply":
        """Try what would pass in the place of what a reference gave; can it be a yardstick at all?

        Descriptors: the reference's outputs, and its inputs where it has any.
        """
        rule = Rule(**request["rule"])
        inputs: list[tuple[str, torch.Tensor]] = []
        if len(descriptors) > 1:
            names = [entry["path"] for entry in request["inputs"]["table"]]
            inputs = list(zip(names, self._tensors(request["inputs"], descriptors[1]), strict=True))
        found: dict[str, list[bool]] = {"zeros_pass": [], "mean_pass": [], "narrow": []}
        copies: list[set[str]] = []
        shares: list[float] = []

        for reference, exact in zip(*self._expected(request, descriptors), strict=True):
            # Raises where its dtype cannot be compared at all.
            compared = functools.partial(
                compare,
                reference=reference,
                wide=exact,
                rule=rule,
                accumulation=request["accumulation"],
                totals=self.totals,
                yardstick=yardstick_of(reference, exact, totals=self.totals),
            )
            compared(reference)
            if not bool(reference.any()):
                continue
            shares.append(_share_of_one_value(reference))
            found["zeros_pass"].append(compared(torch.zeros_like(reference)).passed)
            if reference.is_floating_point() and reference.numel() > 1:
                mean = reference.double().mean().to(reference.dtype)
                found["mean_pass"].append(compared(mean.expand_as(reference)).passed)
                found["narrow"].append(_is_narrow(reference))
            copies.append(
                {
                    name
                    for name, tensor in inputs
                    if tensor.shape == reference.shape
                    and tensor.dtype == reference.dtype
                    and compared(tensor).passed
                }
            )
        same = sorted(set.intersection(*copies)) if copies else []
        said = {name: bool(values) and all(values) for name, values in found.items()}
        return {**said, "same_share": min(shares, default=0.0), "input_pass": same[:1]}, []

    def _expected(
        self, request: Mapping[str, Any], descriptors: Sequence[int]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """Return what the reference gave, in its own dtype and in float64 where that was possible."""
        entries, size = request["expected"], request["expected_bytes"]
        present = [entry["wide"] for entry in entries if entry["wide"] is not None]
        if any(entry["wide"] is not None and entry["wide"]["shape"] != entry["shape"] for entry in entries):
            msg = "a result in float64 of another shape"
            raise ValueError(msg)
        # Together: to map GPU memory takes longer than most comparisons.
        found = read_contiguous(descriptors[0], [*entries, *present], size, self.space)
        expected, wide = found[: len(entries)], iter(found[len(entries) :])
        return expected, [None if entry["wide"] is None else next(wide) for entry in entries]

    def compare(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> "Reply":
        """Compare every output of a call with what the reference gave; stop at the first that fails.

        Descriptors: the reference's outputs, the candidate's, and where inputs are to be looked at, the pristine inputs
        and those the candidate was given. Inputs that the task changes by contract come after the outputs.
        `yardsticks` are those of this reference that an earlier reply gave, by output; the reply adds what is new.
        """
        entries = request["expected"]
        rule = Rule(**request["rule"])
        for entry, got in zip(entries, request["got"], strict=False):
            if (found := described_otherwise(entry, got)) is not None:
                return {"output": entry["path"], "changed": [], "yardsticks": {}, **as_message(found)}, []
        try:
            expected, wide = self._expected(request, descriptors)
        except MALFORMED as error:
            self.check_device()
            return {"no_yardstick": f"{type(error).__name__}: {error}"[:500]}, []
        given = read_contiguous(descriptors[1], request["got"], request["room"], self.space)
        got = [self._own(tensor) for tensor in given]
        changed: list[dict[str, Any]] = []
        if len(descriptors) > 2:
            before, after = (self._tensors(request["inputs"], descriptor) for descriptor in descriptors[2:4])
            names = [entry["path"] for entry in request["inputs"]["table"]]
            changed = _changed(names, before, after, set(request["mutated"]))
            changed += self._overrun(request["inputs"], descriptors[3])
            got += [self._own(after[names.index(name)]) for name in request["mutated"]]
        entries = entries[: len(got)]  # without the inputs, those changed by contract cannot be looked at
        worst = "", Comparison(passed=True, precision_class="exact", nrmse=0.0)
        known, found_now = request["yardsticks"], {}
        for entry, own, reference, exact in zip(entries, got, expected, wide, strict=False):
            path, typical = entry["path"], float(entry.get("typical", 0.0))
            if (fields := known.get(path)) is not None:
                yardstick: Yardstick | None = Yardstick(*fields)
            else:
                yardstick = yardstick_of(reference, exact, typical=typical, totals=self.totals)
                if yardstick is not None:
                    found_now[path] = yardstick
            comparison = compare(
                own,
                reference,
                exact,
                rule,
                accumulation=request["accumulation"],
                poison=_fill_of(own, request["poison"]),
                typical=typical,
                totals=self.totals,
                yardstick=yardstick,
            )
            if not comparison.passed or (comparison.nrmse or 0.0) >= (worst[1].nrmse or 0.0):
                worst = path, comparison
            if not comparison.passed:
                break
        if worst[1].passed and self.space.device == "cuda":
            for tensor in given:  # an output that is not written next time is not to be this one
                tensor.reshape(-1).view(torch.uint8).fill_(GUARD)
        self.space.settle()  # the next call may write there once it hears of this
        reply = {"output": worst[0], "changed": changed, **as_message(worst[1])}
        return reply | {"yardsticks": found_now}, []

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of GPU memory: what the candidate's process does to it meanwhile comes too late."""
        return tensor.clone() if self.space.device == "cuda" else tensor

    def _overrun(self, message: Mapping[str, Any], descriptor: int) -> list[dict[str, Any]]:
        """Return inputs behind which something was written: on a GPU a guard lies there."""
        if not self.space.guard:
            return []
        found = []
        ends = [start for start, _ in message["storages"][1:]] + [message["size"]]
        (whole,) = self.space.open(descriptor, [(0, message["size"])], message["size"], shared=True)
        for position, ((begin, nbytes), end) in enumerate(zip(message["storages"], ends, strict=True)):
            written = int((whole[begin + nbytes : end] != GUARD).sum())
            if written:
                path = next(each["path"] for each in message["table"] if each["storage"] == position)
                found.append({"path": path, "count": written, "index": [], "behind": True})
        return found

    def _tensors(self, message: Mapping[str, Any], descriptor: int) -> list[torch.Tensor]:
        """Return all tensors of an encoded value, in the order of its table."""
        positions = [{"$": "tensor", "v": i} for i in range(len(message["table"]))]
        tensors: list[torch.Tensor] = decode({**message, "tree": positions}, descriptor, space=self.space)
        return tensors


Reply = tuple[dict[str, Any], list[int]]


def described_otherwise(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Comparison | None:
    """Compare dtype and shape as they are described, without a look at the bytes."""
    shapes = [
        torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]], device="meta") for entry in (got, expected)
    ]
    return compare_form(*shapes)


def _fill_of(like: torch.Tensor, poison: str) -> torch.Tensor | None:
    """Return what fresh memory of a tensor's dtype and device is filled with, shape ()."""
    if not poison:
        return None
    filled = torch.zeros((), dtype=like.dtype, device=like.device)
    fill(filled, "nan" if poison == "nan" else "huge")
    return filled


def _changed(
    names: Sequence[str], before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], allowed: set[str]
) -> list[dict[str, Any]]:
    """Compare inputs bit by bit; describe those that changed and may not."""
    changed: list[dict[str, Any]] = []
    for name, old, new in zip(names, before, after, strict=True):
        if name in allowed or old.numel() == 0 or _same(old, new):
            continue
        differs = (as_bytes(old) != as_bytes(new)).reshape(old.numel(), -1).any(dim=1)
        index = np.unravel_index(int(differs.to(torch.uint8).argmax()), tuple(old.shape)) if old.dim() else ()
        changed.append({"path": name, "count": int(differs.sum()), "index": [int(i) for i in index]})
    return changed


def _is_narrow(tensor: torch.Tensor) -> bool:
    """Tell whether all values of a floating output are nearly one: they spread by less than a thousandth of their size."""
    values = tensor.double()
    values = values[values.isfinite()]
    if values.numel() < 2:
        return False
    return bool(values.std() < NARROW * values.square().mean().sqrt())


def _share_of_one_value(tensor: torch.Tensor) -> float:
    """Return the share of elements that hold the commonest value, where that is more than half of them; 0 otherwise."""
    if tensor.dtype.is_complex or tensor.numel() < 2:
        return 0.0
    values = tensor.double()
    # More than half of them hold it only if the median does.
    share = int((values == values.median()).sum()) / values.numel()
    return share if share > 0.5 else 0.0


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one layout hold the same bits."""
    a, b = as_bytes(one), as_bytes(other)
    whole = a.numel() // 8 * 8
    return torch.equal(a[:whole].view(torch.int64), b[:whole].view(torch.int64)) and torch.equal(
        a[whole:], b[whole:]
    )
