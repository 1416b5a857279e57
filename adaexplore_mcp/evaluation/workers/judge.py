"""The judge: holds expected outputs, compares bytes, imports neither tasks nor candidates.

A trusted, long-lived process. Each request carries the files it is about; nothing is kept between requests, so a judge
that is lost is simply started again.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from adaexplore_mcp.evaluation.sandbox import guard_memory
from adaexplore_mcp.evaluation.workers.comparison import Comparison, Rule, as_message, compare
from adaexplore_mcp.evaluation.workers.forkserver import ForkServer
from adaexplore_mcp.evaluation.workers.standin.memory import fill
from adaexplore_mcp.evaluation.workers.tensors import decode, read_contiguous

__all__ = ["serve"]

MALFORMED = (ValueError, KeyError, TypeError, RuntimeError, OverflowError)
"""What reading a file raises that is not as it was described."""


def serve(server: ForkServer) -> None:
    """Answer comparisons until the server closes the connection."""
    guard_memory()
    connection = server.connection
    connection.send({"problem": ""})
    while (received := connection.receive()) is not None:
        request, descriptors = received
        try:
            reply = OPERATIONS[request["op"]](request, descriptors)
        except MALFORMED as error:
            # What the candidate sent does not describe its file: its outputs cannot be read.
            reply = {"malformed": f"{type(error).__name__}: {error}"[:500]}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        connection.send(reply)


def _audit(request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    """Compare what a reference gave with itself, and with zeros: can it be a yardstick at all?"""
    rule = Rule(**request["rule"])
    zeros = []
    for reference, exact in zip(*_expected(request, descriptors), strict=True):
        compare(reference, reference, exact, rule)  # raises where its dtype cannot be compared at all
        if bool(reference.any()):
            zero = torch.zeros_like(reference)
            zeros.append(compare(zero, reference, exact, rule, accumulation=request["accumulation"]).passed)
    return {"zeros_pass": bool(zeros) and all(zeros)}


def _expected(
    request: Mapping[str, Any], descriptors: Sequence[int]
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Return what the reference gave, in its own dtype and in float64 where that was possible."""
    entries = request["expected"]
    expected = read_contiguous(descriptors[0], entries)
    return expected, _optional(descriptors[0], [entry["wide"] for entry in entries])


def _compare(request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    """Compare every output of a call with what the reference gave; stop at the first that fails.

    Descriptors: the reference's outputs, the candidate's, and where inputs are to be looked at, the pristine inputs and
    those the candidate was given. Inputs that the task changes by contract come after the outputs.
    """
    entries = request["expected"]
    try:
        expected, wide = _expected(request, descriptors)
    except MALFORMED as error:
        return {"no_yardstick": f"{type(error).__name__}: {error}"[:500]}
    got = read_contiguous(descriptors[1], request["got"])
    changed: list[dict[str, Any]] = []
    if len(descriptors) > 2:
        before, after = (_tensors(request["inputs"], descriptor) for descriptor in descriptors[2:4])
        names = [entry["path"] for entry in request["inputs"]["table"]]
        changed = _changed(names, before, after, set(request["mutated"]))
        got += [after[names.index(name)] for name in request["mutated"]]
    entries = entries[: len(got)]  # without the inputs, those changed by contract cannot be looked at
    rule = Rule(**request["rule"])
    worst = "", Comparison(passed=True, precision_class="exact", nrmse=0.0)
    for entry, own, reference, exact in zip(entries, got, expected, wide, strict=False):
        comparison = compare(
            own,
            reference,
            exact,
            rule,
            accumulation=request["accumulation"],
            poison=_fill_of(own.dtype, request["poison"]),
        )
        if not comparison.passed or (comparison.nrmse or 0.0) >= (worst[1].nrmse or 0.0):
            worst = entry["path"], comparison
        if not comparison.passed:
            break
    return {"output": worst[0], "changed": changed, **as_message(worst[1])}


OPERATIONS = {"compare": _compare, "audit": _audit}


def _fill_of(dtype: torch.dtype, poison: str) -> torch.Tensor | None:
    """Return what the stand-in fills fresh memory of a dtype with, shape ()."""
    if not poison:
        return None
    filled = torch.zeros((), dtype=dtype)
    fill(filled, "nan" if poison == "nan" else "huge")
    return filled


def _optional(descriptor: int, entries: Sequence[Mapping[str, Any] | None]) -> list[torch.Tensor | None]:
    present = iter(read_contiguous(descriptor, [entry for entry in entries if entry is not None]))
    return [None if entry is None else next(present) for entry in entries]


def _tensors(message: Mapping[str, Any], descriptor: int) -> list[torch.Tensor]:
    """Return all tensors of an encoded value, in the order of its table."""
    positions = [{"$": "tensor", "v": i} for i in range(len(message["table"]))]
    tensors: list[torch.Tensor] = decode({**message, "tree": positions}, descriptor)
    return tensors


def _changed(
    names: Sequence[str], before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], allowed: set[str]
) -> list[dict[str, Any]]:
    """Compare inputs bit by bit; describe those that changed and may not."""
    changed: list[dict[str, Any]] = []
    for name, old, new in zip(names, before, after, strict=True):
        if name in allowed or old.numel() == 0:
            continue
        differs = (_bits(old) != _bits(new)).any(axis=1)
        if differs.any():
            index = np.unravel_index(int(np.argmax(differs)), tuple(old.shape)) if old.dim() else ()
            changed.append({"path": name, "count": int(differs.sum()), "index": [int(i) for i in index]})
    return changed


def _bits(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a tensor's elements, row-major, shape (numel, itemsize)."""
    raw: np.ndarray[Any, np.dtype[np.uint8]] = (
        tensor.contiguous().reshape(-1).view(torch.uint8).reshape(tensor.numel(), -1).numpy()
    )
    return raw
