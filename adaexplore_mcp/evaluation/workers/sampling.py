"""Run some programs of a candidate's launches at full size, on fake tensors: which of its accesses leave their tensors there.

The request `sample` of a candidate's process, instead of all others; its fields are those of `workers.compilation`. Its
reply: `programs` (by kernel, how many ran), `cut_short` (kernels for which there was no time), `findings`, and `of_values` (those
that come up when loaded integers are large).
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adaexplore_mcp.evaluation.workers.interpreter import Finding, Interpreter, Sample
from adaexplore_mcp.evaluation.workers.loading import load_candidate
from adaexplore_mcp.evaluation.workers.standin import StandIn
from adaexplore_mcp.evaluation.workers.targets import target
from adaexplore_mcp.evaluation.workers.tensors import decode_outline

__all__ = ["Sampling"]

LARGE = 1 << 28  # elements: no tensor that a kernel means to reach by it has so many


class Sampling:
    """Answers the request.

    Args:
        folder: The candidate's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:  # noqa: ARG002 - an operation of `candidate`
        """Import, construct and call: with zeros for whatever is loaded and, where integers are, with large ones."""
        device, limit_s = target(request["target"]), request["limit_s"]
        interpreter = Interpreter.install(device.arch)
        with StandIn(device, [self._folder], fake=True) as standin, torch.no_grad():
            with interpreter.call(sample=Sample(limit_s)):
                call = self._made(request, standin)
            sample = Sample(limit_s)
            found = _called(interpreter, call, sample)
            of_values: list[Finding] = []
            if sample.integers_loaded:
                of_values = _called(interpreter, call, Sample(limit_s, LARGE))
        return {
            "programs": dict(sample.programs),
            "cut_short": sorted(sample.cut_short),
            "findings": [asdict(finding) for finding in found],
            "of_values": [asdict(finding) for finding in of_values],
        }

    def _made(self, request: Mapping[str, Any], standin: StandIn) -> Callable[[], object]:
        source = base64.b64decode(request["source"])
        function = load_candidate(self._folder, source, request["changes"], entry=request["entry"]).entry
        if request["format"] == "kernelbench":
            init = decode_outline(request["init"])
            function = function(*init["args"], **init["kwargs"])
            if isinstance(function, nn.Module):
                standin.place(function)
        inputs = standin.place(decode_outline(request["inputs"]))
        return lambda: function(*inputs["args"], **inputs["kwargs"])


def _called(interpreter: Interpreter, call: Callable[[], object], sample: Sample) -> list[Finding]:
    """Call once; what it raises after some launches takes nothing from what these showed."""
    with interpreter.call(sample=sample) as seen:
        try:
            call()
        except Exception:
            if not sample.programs:
                raise
    return seen.findings
