"""The confined process of one candidate: import, construct, call on given inputs, hand outputs over.

It answers the server's requests one by one, so that a later trial's inputs are not there before the earlier trial is
over. It never holds an expected output. Whatever it says about itself (launches, operators, findings) is a claim of the
process that runs a stranger's code; the verdict comes from the bytes of its outputs.

Requests, by `op`; every reply is `{"ok": {...}}` or `{"failure": {...}}` (see `failures.describe`), with `integrity`:

* `inspect`: `source` (base64): what its syntax tree shows, before anything of it runs.
* `load`: `source` (base64), `format`, `entry`, `changes` (of size constants), `package` (files to import from, by path),
  and what the engine needs (`target`).
* `construct`: `seed`, `init` with its file: makes the module, afresh each time.
* `weights`: `state` with its file: copies tensors into parameters and buffers of the same name and shape.
* `slot`: `slot`, `inputs` with its file: maps inputs shared, so that the server can put other values at the same address.
* `call`: `slot`, `poison` (of fresh memory), `lanes` (what undefined lanes hold), `config`, `tune`, `order_seed` (of its
  programs), `limit_s`, `detail`, `measure` (what torch does itself), `omit` (launches that do nothing: see `omission`), `timed`
  (how long the device works for its kernels and for torch's), `taped` (a second file takes what its launches leave in memory,
  where they are interpreted), with memory for the outputs of `room` bytes: one call.
  `{"progress": {...}}` comes once a second before its reply.
* `again`, with memory for them: the outputs of the first call once more, as they are now.
* `finish`: nothing but the last look at what it did to its process.
* `sample`, instead of all others, where it is interpreted: see `sampling`.
"""

import base64
import contextlib
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Of its own, since a candidate may replace them.
from signal import ITIMER_REAL, SIGALRM, setitimer
from signal import signal as on_signal
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from adaexplore_mcp.evaluation.trials import MOST_OUTPUTS
from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.cost import library_work, measure
from adaexplore_mcp.evaluation.workers.engine import Engine, Run
from adaexplore_mcp.evaluation.workers.failures import describe
from adaexplore_mcp.evaluation.workers.integrity import Watch
from adaexplore_mcp.evaluation.workers.interpreting import InterpretingEngine
from adaexplore_mcp.evaluation.workers.loading import FILE_NAME, CandidateModule, load_candidate
from adaexplore_mcp.evaluation.workers.sampling import Sampling
from adaexplore_mcp.evaluation.workers.source import signs_of
from adaexplore_mcp.evaluation.workers.task import seed_all
from adaexplore_mcp.evaluation.workers.tensors import (
    copy_contiguous,
    decode,
    dtype_name,
    write_contiguous,
)
from adaexplore_mcp.evaluation.workers.trees import holds_tensors, leaves, plain
from adaexplore_mcp.evaluation.workers.warming import interpret_once

__all__ = ["CandidateProcess", "Reply", "answer", "run", "serve"]

PROGRESS_S = 1.0
Reply = dict[str, Any]


def run(connection: Connection, folder: Path) -> None:
    """Get ready to interpret, then answer requests until the server closes the connection."""
    interpret_once()
    candidate = CandidateProcess(connection, folder, InterpretingEngine())
    candidate.operations["sample"] = Sampling(folder)
    answer(candidate)


def serve(connection: Connection, folder: Path, engine: Engine) -> None:
    """Answer requests until the server closes the connection."""
    answer(CandidateProcess(connection, folder, engine))


def answer(candidate: "CandidateProcess") -> None:
    """Answer requests until the server closes the connection."""
    connection = candidate.connection
    while (received := connection.receive()) is not None:
        request, descriptors = received
        # Everything is caught, SystemExit and KeyboardInterrupt too: what a stranger's code raises is an answer.
        try:
            message: Reply = {"ok": candidate.operations[request["op"]](request, descriptors)}
        except BaseException as error:  # noqa: BLE001 - see above
            message = {"failure": candidate.failure(error), "findings": candidate.findings()}
        if request["op"] not in candidate.at_once:
            message["integrity"] = candidate.integrity(thorough=request["op"] == "finish")
        connection.send(message)
        for descriptor in descriptors:
            os.close(descriptor)


@dataclass(frozen=True)
class _Slot:
    """Inputs shared with the server.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        storages: First address, end, and name of the input for each storage.
        named: Tensors by name of the input.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    storages: list[tuple[int, int, str]]
    named: dict[str, Tensor]

    def input_at(self, tensor: Tensor) -> str:
        """Return the name of the input whose memory a tensor lies in; empty if there is none."""
        if not tensor.numel():
            return ""
        at = tensor.data_ptr()
        return next((name for start, end, name in self.storages if start <= at < end), "")


class OutOfTime(BaseException):
    """A call that was given a limit of its own took longer."""


class CandidateProcess:
    """What one process knows of its candidate, and what it answers."""

    at_once: frozenset[str] = frozenset()
    """Operations whose reply is timed: it does not wait for a look at what the candidate did to its process."""

    def __init__(self, connection: Connection, folder: Path, engine: Engine) -> None:
        self.connection = connection
        self.folder = folder
        self.engine = engine
        self.phase = "load"
        self.module: CandidateModule | None = None
        self.function: Callable[..., Any] | None = None
        self.watch: Watch | None = None
        self.slots: dict[int, _Slot] = {}
        self.first_outputs: Any = None
        self.first_lanes = ""
        self.current: Run | None = None
        self.operations: dict[str, Callable[[Mapping[str, Any], Sequence[int]], Reply]] = {
            "inspect": lambda request, _: signs_of(base64.b64decode(request["source"])),
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
        """Describe what its code raised; inside a kernel, the original and not the engine's wrapper."""
        if type(error) is OutOfTime:
            return {"kind": "limit", "phase": self.phase, "type": "OutOfTime"}
        root, decided = self.engine.explain(error)
        not_here = self.engine.not_here
        described = describe(root, self.file, phase=self.phase, not_here=not_here, without_gpu=bool(not_here))
        return described | decided | self.engine.fault()

    def integrity(self, *, thorough: bool = False) -> dict[str, Any]:
        """Return what the candidate did to its process; see `Watch.patched`."""
        if self.watch is None:
            return {}
        return {
            "patched": self.watch.patched(thorough=thorough),
            "events": self.watch.events,
            "threads": self.watch.new_threads(),
        }

    def findings(self) -> list[dict[str, Any]]:
        """Return what was seen in the kernels of the current call."""
        return [] if self.current is None else self.current.findings()

    # --- operations

    def load(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Get the engine ready and import the candidate."""
        self.engine.start({**request, "files": descriptors}, self.folder)
        for name, text in request.get("package", {}).items():
            (path := self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if request.get("package"):
            sys.path.insert(0, str(self.folder))
        for outdated in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            # What it prints is told, and may tell inputs: the next candidate gets others, which take a while to make.
            warnings.simplefilter("ignore", outdated)
        self.watch = Watch()
        self.engine.guard(self.watch)
        self.module = load_candidate(
            self.folder, base64.b64decode(request["source"]), request["changes"], entry=request["entry"]
        )
        self.engine.settle()
        if request["format"] == "function":
            self.function = self.module.entry
        return {"changed": self.module.changed}

    def construct(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Build the module under a seed, as the reference was built."""
        assert self.module is not None
        assert self.watch is not None
        self.phase = self.watch.phase = "construct"
        self.watch.working = True
        init = decode(request["init"], descriptors[0] if descriptors else None)
        self.function = None  # two models side by side may not fit
        seed_all(request["seed"])
        drawn = torch.get_rng_state()
        model = self.module.entry(*init["args"], **init["kwargs"])
        weightless = torch.equal(drawn, torch.get_rng_state()) and not holds_tensors(model)
        self.function = self.engine.place(model) if isinstance(model, nn.Module) else model
        self.engine.settle()
        state = dict(model.state_dict()) if isinstance(model, nn.Module) else {}
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        return {
            "state": [f"{name} {tuple(value.shape)}" for name, value in tensors.items()],
            "weightless": weightless,
        }

    def weights(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Copy given values into tensors of the same name and shape; name those for which there is none."""
        state = decode(request["state"], descriptors[0] if descriptors else None, space=self.engine.space)
        own = dict(self.function.state_dict()) if isinstance(self.function, nn.Module) else {}
        unloaded = []
        if self.watch is not None:
            self.watch.working = True
        with torch.no_grad():
            for name, value in state.items():
                target_tensor = own.get(name)
                if isinstance(target_tensor, Tensor) and target_tensor.shape == value.shape:
                    target_tensor.copy_(value)
                else:
                    unloaded.append(name)
        self.engine.settle()
        return {"unloaded": unloaded}

    def slot(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Map inputs; the server holds the same memory."""
        descriptor = descriptors[0] if descriptors else None
        self.slots.pop(request["slot"], None)  # its memory is given back before the other is mapped
        inputs = decode(request["inputs"], descriptor, shared=True, space=self.engine.space)
        tensors = [leaf for _, leaf in leaves(inputs) if isinstance(leaf, Tensor)]
        sizes = request["inputs"]["storages"]
        storages, named = [], {}
        for entry, tensor in zip(request["inputs"]["table"], tensors, strict=True):
            start = tensor.data_ptr() - entry["offset"] * tensor.element_size()
            storages.append((start, start + sizes[entry["storage"]][1], entry["path"]))
            named[entry["path"]] = tensor
        self.engine.mark(inputs)
        self.slots[request["slot"]] = _Slot(inputs["args"], inputs["kwargs"], storages, named)
        return {}

    def call(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Call the candidate once and write its outputs into the memory given, before anything else can happen to them."""
        assert self.watch is not None
        assert self.function is not None
        self.phase = self.watch.phase = "run"
        function, inputs, watch = self.function, self.slots[request["slot"]], self.watch
        if request.get("taped"):
            request = {**request, "tape": descriptors[1]}
        facts: dict[str, Any] = {}
        with self._reporting(request["limit_s"]), torch.no_grad(), self.engine.call(request) as seen:
            self.current = seen
            if request["measure"]:
                outputs, cost = measure(lambda: watch.call(function, *inputs.args, **inputs.kwargs))
                facts = library_work(cost)
            else:
                outputs = watch.call(function, *inputs.args, **inputs.kwargs)
            seen.returned()
            reply = self.export(outputs, inputs, descriptors[0], request["room"])
            reply |= {"programs_run": seen.programs()}
        self.watch.phase = "between calls"
        seen.refuse()
        if self.first_outputs is None or request["lanes"] != self.first_lanes:
            # Where undefined lanes hold something else, what came before is no result to be kept.
            self.first_outputs, self.first_lanes = outputs, request["lanes"]
        elif _storages(outputs) & _storages(
            self.first_outputs
        ):  # which are kept alive, so no allocator reuses them
            reply["reuses"] = True
        if request["detail"] or request["timed"] or request["omit"]:
            facts |= seen.facts()
        return reply | facts | {"findings": self.findings()}

    def again(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Reply:
        """Hand over the outputs of the first call as they are now."""
        return self.export(self.first_outputs, None, descriptors[0], request["room"])

    @contextlib.contextmanager
    def _reporting(self, limit_s: float) -> Iterator[None]:
        """Say every second how far the call is, so that a slow kernel can be told from one that hangs.

        Raises:
            OutOfTime: The call took longer than `limit_s`; 0 for as long as the server waits.
        """
        end = monotonic() + limit_s if limit_s else math.inf
        self.current = None

        def report(*_: object) -> None:
            if monotonic() > end:
                raise OutOfTime
            if self.current is not None:
                self.connection.send({"progress": self.current.progress()})

        before = on_signal(SIGALRM, report)
        setitimer(ITIMER_REAL, PROGRESS_S, PROGRESS_S)
        try:
            yield
        finally:
            setitimer(ITIMER_REAL, 0.0)
            on_signal(SIGALRM, before)

    # --- what is handed over

    def export(self, outputs: Any, inputs: _Slot | None, memory: int, room: int) -> Reply:  # noqa: ANN401 - whatever it returned
        """Describe outputs, and write them into the memory given."""
        entries: list[dict[str, Any]] = []
        tensors: list[Tensor] = []
        aliases: dict[str, str] = {}
        strange = nowhere = None
        found = list(itertools.islice(leaves(outputs, "out"), MOST_OUTPUTS + 1))
        if len(found) > MOST_OUTPUTS:
            return {"outputs": [], "many": True}
        for path, leaf in found:
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
            if leaf.is_meta:
                nowhere = f"{path} is on the meta device and holds no values"
                entries.append({"path": path, "plain": "a tensor without values"})
                continue
            entry: dict[str, Any] = {
                "path": path,
                "dtype": dtype_name(leaf.dtype),
                "shape": list(leaf.shape),
                "stride": list(leaf.stride()),
                "start": len(tensors),
            }
            if leaf.is_neg() or leaf.is_conj():
                entry["lazy"] = True
            if not self.engine.on_device(leaf):
                entry["host"] = True
            tensors.append(leaf)
            entries.append(entry)
            if inputs is not None and (name := inputs.input_at(leaf)):
                aliases[path] = name
        starts = self._write(tensors, memory, room)
        for entry in entries:
            if "start" in entry:
                entry["start"] = starts[entry["start"]]
        self.engine.settle()
        return {"outputs": entries, "aliases": aliases, "strange": strange, "nowhere": nowhere}

    def _write(self, tensors: Sequence[Tensor], memory: int, room: int) -> list[int]:
        """Write outputs into the memory given; return where each starts."""
        if self.engine.space.device == "cpu":
            return write_contiguous(tensors, memory)
        (target,) = self.engine.space.open(memory, [(0, room)], room, shared=True)
        # Outputs that do not fit have other shapes or dtypes than expected, which is what the judge looks at first.
        return copy_contiguous(tensors, target) or [0] * len(tensors)


def _storages(outputs: Any) -> set[int]:  # noqa: ANN401 - whatever it returned
    """Return the addresses of the memory that outputs lie in."""
    tensors = [leaf for _, leaf in leaves(outputs) if type(leaf) in {Tensor, nn.Parameter} and leaf.numel()]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}
