"""The confined process that compiles one candidate: its host code runs, its launches compile, nothing is computed.

A request with `op` compile is one run of the host code at some sizes (see `evaluation.compilation.Compilation.run`); its
reply: builds, launches, facts, and `failure` where something stopped it. `jobs` says how many configurations of an
autotuner are compiled side by side (1 if not given), `launchers` whether the C stubs that launch kernels are built too, `taped`
that the last file is a `tape`, which launches play.

A request with `op` pack brings the descriptor of a file and has it filled with what was compiled, for the process that
will launch it (`workers.cuda.cache`); its reply: `packed`, the bytes written, 0 where the cache cannot be packed.
"""

import base64
import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers import failures
from adaexplore_mcp.evaluation.workers.compiler import (
    Build,
    Compiler,
    Launch,
    Session,
    explain,
    is_declaration,
    keep_cache_in,
)
from adaexplore_mcp.evaluation.workers.compiler import last_words as compiler_last_words
from adaexplore_mcp.evaluation.workers.cost import largest_grids, library_work, measure
from adaexplore_mcp.evaluation.workers.cuda import cache
from adaexplore_mcp.evaluation.workers.loading import FILE_NAME, load_candidate
from adaexplore_mcp.evaluation.workers.standin import NotFakeable, NotHere, StandIn
from adaexplore_mcp.evaluation.workers.tape import Tape
from adaexplore_mcp.evaluation.workers.targets import target
from adaexplore_mcp.evaluation.workers.tensors import decode, decode_outline
from adaexplore_mcp.evaluation.workers.warming import compile_once

__all__ = ["last_words", "run"]


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection; get ready before there is one."""
    keep_cache_in(folder / "triton")
    compile_once()
    while (received := connection.receive()) is not None:
        request, descriptors = received
        if request["op"] == "pack":
            reply = _pack(folder, descriptors[0])
        else:
            reply = _Compilation(folder, request, descriptors).run()
        connection.send(reply)
        for descriptor in descriptors:
            os.close(descriptor)


def _pack(folder: Path, descriptor: int) -> dict[str, Any]:
    """Pack the kernel cache of this process: nothing where the candidate left what cannot be packed."""
    try:
        return {"packed": cache.pack(folder / "triton", descriptor)}
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        return {"packed": 0}


def last_words(folder: Path) -> dict[str, Any]:
    """Return what the compiler said before it ended the process of a session, as a failure; empty if it did not."""
    said = compiler_last_words(folder / "triton", [folder / FILE_NAME])
    if said is None:
        return {}
    return {
        "kind": "language",
        "phase": "run",
        "type": said.type,
        "message": failures.shorten(said.message, failures.MESSAGE_CHARACTERS),
        "kernel": said.kernel,
        "line": said.line,
        "source": failures.shorten(said.source, 200),
    }


class _Compilation:
    def __init__(self, folder: Path, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        self.folder = folder
        self.file = str(folder / FILE_NAME)
        self.request = request
        self.descriptors = list(descriptors)
        self.phase = "load"

    def run(self) -> dict[str, Any]:
        """Import, construct and call the candidate once; return what was seen."""
        request = self.request
        device = target(request["target"])
        standin = StandIn(device, [self.folder], fake=request["fake"])
        compiler = Compiler.install(device, device_of=standin.on_device)
        session = compiler.session(
            time_limit_s=request["time_limit_s"],
            per_kernel_limit_s=request["per_kernel_limit_s"],
            configurations_limit_s=request["configurations_limit_s"],
            files=[self.file],
            jobs=request.get("jobs", 1),
            launchers=request.get("launchers", False),
            on_launch=standin.launched,
            after_launch=Tape(self.descriptors.pop()).play if request.get("taped") else None,
        )
        reply: dict[str, Any] = {}
        # Everything is caught, SystemExit and KeyboardInterrupt too: what a stranger's code raises is an answer.
        try:
            with standin, session, torch.no_grad():
                reply = self._run(standin)
        except BaseException as error:  # noqa: BLE001 - see above
            reply = {"failure": self._failure(error, session)}
        launches: dict[str, int] = {}
        for launch in session.launches:
            launches[launch.kernel] = launches.get(launch.kernel, 0) + 1
        return reply | {
            "builds": [_as_message(build) for build in session.builds],
            "launches": launches,
            "programs": sum(launch.programs for launch in session.launches),
            "launch_bytes": _largest_bytes(session.launches),
            "grids": largest_grids((launch.kernel, launch.grid) for launch in session.launches),
            "tuned": session.tuned(),
            "assumed": standin.answers["value_assumed"],
            "notes": [*session.notes, *standin.notes],
            "refused": [str(refusal) for refusal in standin.refused],
        }

    def _run(self, standin: StandIn) -> dict[str, Any]:
        request = self.request
        module = load_candidate(
            self.folder, base64.b64decode(request["source"]), request["changes"], entry=request["entry"]
        )
        function = module.entry
        if request["format"] == "kernelbench":
            self.phase = "construct"
            init = self._decoded(request["init"])
            function = module.entry(*init["args"], **init["kwargs"])
            if isinstance(function, nn.Module):
                standin.place(function)
        self.phase = "run"
        inputs = standin.place(self._decoded(request["inputs"]))
        _, cost = measure(lambda: function(*inputs["args"], **inputs["kwargs"]))
        standin.returned()
        return library_work(cost)

    def _decoded(self, message: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value of a task
        if self.request["fake"]:
            return decode_outline(message)
        return decode(message, self.descriptors.pop(0) if message["table"] else None)

    def _failure(self, error: BaseException, session: Session) -> dict[str, Any]:
        # What is raised later the numbers decide about, which a GPU may be there for.
        described = failures.describe(
            error, self.file, phase=self.phase, not_here=(NotHere,), without_gpu=self.phase == "load"
        )
        if isinstance(error, NotFakeable):
            described["kind"] = "not_fakeable"
        elif (self.phase == "load" and not is_declaration(error)) or described["kind"] in {
            "memory",
            "exit",
            "no_space",
            "not_here",
        }:
            return described
        excerpt = explain(error, [self.file])
        failed = [build for build in session.builds if build.failure is not None]
        if isinstance(error, OSError) and excerpt.kernel:  # no kernel opens a file: a folder of ours is gone
            described["kind"] = "no_folder"
        elif failed and described["kind"] == "exception" and excerpt.kernel:
            described["kind"] = failed[-1].failure
        elif excerpt.kernel and described["kind"] == "exception":
            described["kind"] = (
                "language"  # a launch that cannot be specialised: an unknown keyword, no grid, …
            )
        described |= {
            "type": excerpt.type,
            "message": failures.shorten(excerpt.message, failures.MESSAGE_CHARACTERS),
            "kernel": excerpt.kernel,
        }
        if excerpt.line and excerpt.file == self.file:
            described |= {"line": excerpt.line, "source": failures.shorten(excerpt.source, 200)}
        return described


def _largest_bytes(launches: Iterable[Launch]) -> dict[str, int]:
    """Return by kernel the bytes of the tensors that its launches are given, of the largest launch."""
    found: dict[str, int] = {}
    for launch in launches:
        found[launch.kernel] = max(launch.tensor_bytes, found.get(launch.kernel, 0))
    return found


def _as_message(build: Build) -> dict[str, Any]:
    message = asdict(build)
    for name in ("signature", "constants", "diagnostics"):
        message.pop(name, None)
    with contextlib.suppress(TypeError):
        message["failure"] = build.failure
    return message
