"""The confined process of one candidate: import, construct, call on given inputs, hand outputs over.

It answers the server's requests one by one, so that a later trial's inputs are not there before the earlier trial is
over. It never holds an expected output. Whatever it says about itself (launches, operators, findings) is a claim of the
process that runs a stranger's code; the verdict comes from the bytes of its outputs.

Requests, by `op`; every reply is `{"ok": {...}}` or `{"failure": {...}}` (see `failures.describe`), with `integrity`:

* `load`: `source` (base64), `format`, `entry`, `changes` (of size constants), `target`.
* `construct`: `seed`, `init` with its file: makes the module, afresh each time.
* `weights`: `state` with its file: copies tensors into parameters and buffers of the same name and shape.
* `slot`: `slot`, `inputs` with its file: maps inputs shared, so that the server can put other values at the same address.
* `call`: `slot`, `poison` (of fresh memory), `lanes` (what undefined lanes hold), `config`, `tune`, `order_seed` (of its
  programs), `limit_s`, `detail`, with a file for the outputs: one call. `{"progress": {...}}` comes once a second before its reply.
* `again`, with a file: the outputs of the first call once more, as they are now.
* `finish`: nothing but the last look at what it did to its process.
"""

import base64
import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.cost import largest_grids, library_work, measure
from adaexplore_mcp.evaluation.workers.failures import describe
from adaexplore_mcp.evaluation.workers.integrity import Watch
from adaexplore_mcp.evaluation.workers.interpreter import Call, Interpreter, KernelError, NotInterpretable
from adaexplore_mcp.evaluation.workers.loading import FILE_NAME, CandidateModule, load_candidate
from adaexplore_mcp.evaluation.workers.standin import NotHere, StandIn
from adaexplore_mcp.evaluation.workers.targets import target
from adaexplore_mcp.evaluation.workers.task import seed_all
from adaexplore_mcp.evaluation.workers.tensors import decode, dtype_name, write_contiguous
from adaexplore_mcp.evaluation.workers.trees import leaves, plain
from adaexplore_mcp.evaluation.workers.warming import interpret_once

__all__ = ["run"]

PROGRESS_S = 1.0
Reply = dict[str, Any]
NOT_HERE = (NotHere, NotInterpretable)


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection; get ready before there is one."""
    interpret_once()
    candidate = _Candidate(connection, folder)
    while (received := connection.receive()) is not None:
        request, descriptors = received
        # Everything is caught, SystemExit and KeyboardInterrupt too: what a stranger's code raises is an answer.
        try:
            message: Reply = {"ok": candidate.operations[request["op"]](request, descriptors)}
        except BaseException as error:  # noqa: BLE001 - see above
            message = {"failure": candidate.failure(error), "findings": candidate.findings()}
        message["integrity"] = candidate.integrity()
        connection.send(message)
        for descriptor in descriptors:
            os.close(descriptor)


@dataclass(frozen=True)
class _Slot:
    """Inputs shared with the server.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        storages: By address of a tensor's storage, the input's name.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    storages: dict[int, str]


class OutOfTime(BaseException):
    """A call that was given a limit of its own took longer."""


class _Candidate:
    def __init__(self, connection: Connection, folder: Path) -> None:
        self.connection = connection
        self.folder = folder
        self.phase = "load"
        self.module: CandidateModule | None = None
        self.function: Callable[..., Any] | None = None
        self.standin: StandIn | None = None
        self.watch: Watch | None = None
        self.slots: dict[int, _Slot] = {}
        self.first_outputs: Any = None
        self.first_lanes = ""
        self.call_seen: Call | None = None
        self.operations: Mapping[str, Callable[[Mapping[str, Any], Sequence[int]], Reply]] = {
            "load": self.load,
            "construct": self.construct,
            "weights": self.weights,
            "slot": self.slot,
            "call": self.call,
            "again": self.again,
            "finish": lambda _, __: {},
        }

    @property
    def file(self) -> str:
        """Path of the candidate's own file."""
        return str(self.folder / FILE_NAME)

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Describe what its code raised; inside a kernel, the original and not the interpreter's wrapper."""
        kernel = error.kernel if isinstance(error, KernelError) else ""
        if type(error) is OutOfTime:
            return {"kind": "limit", "phase": self.phase, "type": "OutOfTime"}
        root = error.__cause__ if isinstance(error, KernelError) and error.__cause__ is not None else error
        return describe(root, self.file, phase=self.phase, not_here=NOT_HERE) | {"kernel": kernel}

    def integrity(self) -> dict[str, Any]:
        """Return what the candidate did to its process."""
        if self.watch is None:
            return {}
        return {
            "patched": self.watch.patched(),
            "events": self.watch.events,
            "threads": self.watch.new_threads(),
        }

    def findings(self) -> list[dict[str, Any]]:
        """Return what the interpreter found in the current call."""
        return [] if self.call_seen is None else [asdict(finding) for finding in self.call_seen.findings]

    # --- operations

    def load(self, request: Mapping[str, Any], _: Sequence[int]) -> Reply:
        """Import the candidate with the stand-in active; it stays so to the end of the process."""
        device = target(request["target"])
        self.interpreter = Interpreter.install(device.arch)
        self.standin = StandIn(device, [self.folder])
        self.standin.__enter__()
        self.watch = Watch()
        self.module = load_candidate(
            self.folder, base64.b64decode(request["source"]), request["changes"], entry=request["entry"]
        )
        if request["format"] == "function":
            self.function = self.module.entry
        return {"changed": self.module.changed}

    def construct(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Build the module under a seed, as the reference was built."""
        assert self.module is not None
        assert self.standin is not None
        assert self.watch is not None
        self.phase = self.watch.phase = "construct"
        init = decode(request["init"], descriptors[0] if descriptors else None)
        seed_all(request["seed"])
        model = self.module.entry(*init["args"], **init["kwargs"])
        self.function = self.standin.place(model) if isinstance(model, nn.Module) else model
        state = dict(model.state_dict()) if isinstance(model, nn.Module) else {}
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        return {"state": [f"{name} {tuple(value.shape)}" for name, value in tensors.items()]}

    def weights(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Copy given values into tensors of the same name and shape; name those for which there is none."""
        state = decode(request["state"], descriptors[0] if descriptors else None)
        own = dict(self.function.state_dict()) if isinstance(self.function, nn.Module) else {}
        unloaded = []
        with torch.no_grad():
            for name, value in state.items():
                target_tensor = own.get(name)
                if isinstance(target_tensor, Tensor) and target_tensor.shape == value.shape:
                    target_tensor.copy_(value)
                else:
                    unloaded.append(name)
        return {"unloaded": unloaded}

    def slot(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Map inputs; the server holds the same memory."""
        assert self.standin is not None
        inputs = decode(request["inputs"], descriptors[0] if descriptors else None, shared=True)
        tensors = [leaf for _, leaf in leaves(inputs) if isinstance(leaf, Tensor)]
        storages = {
            tensor.untyped_storage().data_ptr(): entry["path"]
            for entry, tensor in zip(request["inputs"]["table"], tensors, strict=True)
            if tensor.numel()
        }
        self.standin.place(inputs)
        self.slots[request["slot"]] = _Slot(inputs["args"], inputs["kwargs"], storages)
        return {}

    def call(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Call the candidate once and write its outputs into the file given, before anything else can happen to them."""
        assert self.standin is not None
        assert self.watch is not None
        assert self.function is not None
        self.phase = self.watch.phase = "run"
        function, inputs = self.function, self.slots[request["slot"]]
        self.standin.poison = request["poison"]
        facts: dict[str, Any] = {}
        with (
            self._reporting(request["limit_s"]),
            torch.no_grad(),
            self.interpreter.call(
                request["config"],
                tune=request["tune"],
                poison=request["lanes"],
                order_seed=request["order_seed"],
                before_launch=self._check_places,
            ) as seen,
        ):
            self.call_seen = seen
            if request["detail"]:
                outputs, cost = measure(lambda: function(*inputs.args, **inputs.kwargs))
                facts = library_work(cost)
            else:
                outputs = function(*inputs.args, **inputs.kwargs)
            reply = self._export(outputs, inputs.storages, descriptors[0])
            reply |= {"programs_run": sum(launch.programs for launch in seen.launches)}
        self.watch.phase = "between calls"
        if seen.refused:  # whether or not the candidate caught it and went on in another way
            raise NotInterpretable(seen.uncovered[-1])
        if self.first_outputs is None or request["lanes"] != self.first_lanes:
            # Where undefined lanes hold something else, what came before is no result to be kept.
            self.first_outputs, self.first_lanes = outputs, request["lanes"]
        elif _storages(outputs) & _storages(
            self.first_outputs
        ):  # which are kept alive, so no allocator reuses them
            reply["reuses"] = True
        if request["detail"]:
            facts |= self._facts(seen)
        return reply | facts | {"findings": self.findings()}

    def again(self, _: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Hand over the outputs of the first call as they are now."""
        return self._export(self.first_outputs, {}, descriptors[0])

    @contextlib.contextmanager
    def _reporting(self, limit_s: float) -> Iterator[None]:
        """Say every second how many programs have run, so that a slow kernel can be told from one that hangs.

        Raises:
            OutOfTime: The call took longer than `limit_s`; 0 for as long as the server waits.
        """
        end = time.monotonic() + limit_s if limit_s else math.inf

        def report(*_: object) -> None:
            if time.monotonic() > end:
                raise OutOfTime
            launches = self.call_seen.launches if self.call_seen is not None else []
            progress: dict[str, Any] = {"operations": self.standin.calls if self.standin is not None else 0}
            if launches:
                x, y, z = launches[-1].grid
                progress |= {
                    "kernel": launches[-1].kernel,
                    "launch": len(launches),
                    "done": launches[-1].programs,
                    "total": x * y * z,
                }
            self.connection.send({"progress": progress})

        before = signal.signal(signal.SIGALRM, report)
        signal.setitimer(signal.ITIMER_REAL, PROGRESS_S, PROGRESS_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def _check_places(self, kernel: str, arguments: Mapping[str, object]) -> None:
        """Refuse a launch on host memory, as Triton's launcher does.

        Raises:
            ValueError: An argument is a CPU tensor.
        """
        assert self.standin is not None
        for name, value in arguments.items():
            if isinstance(value, Tensor) and not self.standin.on_device(value):
                msg = f"Pointer argument {name} of {kernel} cannot be accessed from Triton (cpu tensor?)"
                raise ValueError(msg)

    # --- what is handed over

    def _export(self, outputs: Any, storages: Mapping[int, str], file: int) -> Reply:  # noqa: ANN401 - whatever it returned
        assert self.standin is not None
        entries: list[dict[str, Any]] = []
        tensors: list[Tensor] = []
        aliases: dict[str, str] = {}
        strange = None
        for path, leaf in leaves(outputs, "out"):
            if not isinstance(leaf, Tensor):
                entries.append({"path": path, "plain": plain(leaf)})
                continue
            if type(leaf) not in {Tensor, nn.Parameter} or leaf.layout is not torch.strided:
                kind = (
                    "a subclass of torch.Tensor" if type(leaf) is not Tensor else f"of layout {leaf.layout}"
                )
                strange = f"{path} is a {type(leaf).__name__}, {kind}; return a plain torch.Tensor"
                entries.append({"path": path, "plain": "a tensor of another kind"})
                continue
            entry: dict[str, Any] = {
                "path": path,
                "dtype": dtype_name(leaf.dtype),
                "shape": list(leaf.shape),
                "start": len(tensors),
            }
            if not self.standin.on_device(leaf):
                entry["host"] = True
            tensors.append(leaf)
            entries.append(entry)
            if leaf.numel() and leaf.untyped_storage().data_ptr() in storages:
                aliases[path] = storages[leaf.untyped_storage().data_ptr()]
        starts = write_contiguous(tensors, file)
        for entry in entries:
            if "start" in entry:
                entry["start"] = starts[entry["start"]]
        return {"outputs": entries, "aliases": aliases, "strange": strange}

    def _facts(self, seen: Call) -> dict[str, Any]:
        assert self.standin is not None
        launches: dict[str, int] = {}
        for launch in seen.launches:
            if not launch.tuning:
                launches[launch.kernel] = launches.get(launch.kernel, 0) + 1
        return {
            "launches": launches,
            "programs": sum(launch.programs for launch in seen.launches if not launch.tuning),
            "grids": largest_grids((launch.kernel, launch.grid) for launch in seen.launches),
            "autotuned": dict(seen.autotuned),
            "dots": sorted(seen.dot_precisions | seen.half_dots),
            "uncovered": list(seen.uncovered),
            "refused": [str(refusal) for refusal in self.standin.refused],
            "notes": list(self.standin.notes),
        }


def _storages(outputs: Any) -> set[int]:  # noqa: ANN401 - whatever it returned
    """Return the addresses of the memory that outputs lie in."""
    tensors = [leaf for _, leaf in leaves(outputs) if type(leaf) in {Tensor, nn.Parameter} and leaf.numel()]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}
