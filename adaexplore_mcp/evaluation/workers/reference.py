"""The confined process of one task: makes inputs and weights, runs the reference, hands expected outputs to the server.

The server passes them on to the judge alone. A task's source is a stranger's code like a candidate's; it costs its own
task when it breaks.

Requests, by `op`; every reply is `{"ok": {...}}` or `{"fault": {...}}` (see `content.TaskFault`):

* `collect`: `path`, `import_root` (or null): the files that a task in a user's package consists of.
* `load`: `task` (see `content.TaskContent`), `domains`, `target`, and `device` where that is not cuda.
* `examine`: what a call costs, its inputs and outputs, at the sizes of `load`, without computing.
* `lower`: `budget` (small or aligned), `seconds`: lowered size constants.
* `stretch`: `edits`: lowered size constants with one of them at its own value again.
* `changes`: the changes of size constants that a candidate's source gets.
* `init`: `construct_seed`: the constructor's arguments, with their file.
* `construct`: `construct_seed`: has it constructed, for what comes next.
* `constants`: `construct_seeds`: the parameters and buffers that the constructor makes the same under both.
* `dependence`: `construct_seed`, `input_seed`, `other_seed`, `seconds`: the inputs, parameters and buffers that make no
  difference to the outputs when each alone gets other values, as far as that is tried in the time; with `hardly` also whether
  one of the others moves so little that it may be chance.
* `trial`: `construct_seed`, `state_seed` and `state_names` (or null), `input_seed`, `transform`, `repeat`: one call. Files: inputs, expected
  outputs, and the state where `state_seed` is given.
"""

import contextlib
import copy
import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from adaexplore_mcp.evaluation.trials import SCALED_DOWN, UNUSUAL
from adaexplore_mcp.evaluation.typical import FEW
from adaexplore_mcp.evaluation.wire import Connection
from adaexplore_mcp.evaluation.workers.arguments import Arguments
from adaexplore_mcp.evaluation.workers.collect import collect
from adaexplore_mcp.evaluation.workers.content import TaskContent, TaskFault
from adaexplore_mcp.evaluation.workers.domains import randomise_state
from adaexplore_mcp.evaluation.workers.lowering import ALIGNED, SMALL
from adaexplore_mcp.evaluation.workers.spaces import HOST, Space, file_bytes
from adaexplore_mcp.evaluation.workers.standin import StandIn
from adaexplore_mcp.evaluation.workers.targets import target
from adaexplore_mcp.evaluation.workers.task import (
    LoadedTask,
    Place,
    Trial,
    load,
    lower_task,
    stretch_task,
    trial,
)
from adaexplore_mcp.evaluation.workers.tensors import as_bytes, decode, dtype_name, encode, write_contiguous
from adaexplore_mcp.evaluation.workers.transforms import transformed_inputs
from adaexplore_mcp.evaluation.workers.trees import leaves, plain
from adaexplore_mcp.evaluation.workers.widening import Call, widened_call

__all__ = ["Machine", "Reference", "StandInMachine", "run", "serve"]

Reply = tuple[dict[str, Any], list[int]]
NOT_OF_VALUES = frozenset({"content", "files", "syntax", "import", "entry", "sizes", "init_arguments"})
"""Faults that another run would show again."""
ROUNDINGS = 32.0
"""Units in the last place: what reaches an output by rounding alone stays below."""
SURELY, MANY = 4.0, 16
"""How far beyond that how many elements move where it is no chance of the values drawn."""
BUDGETS = {"small": SMALL, "aligned": ALIGNED}


class Machine(Protocol):
    """Where a reference runs."""

    @property
    def space(self) -> Space:
        """Where its inputs and outputs lie."""
        ...

    @property
    def place(self) -> Place | None:
        """What puts a module or a tensor on the device; None: as torch does."""
        ...

    def start(self, request: Mapping[str, Any], folder: Path) -> None:
        """Get ready for one task; `request` is that of `load`."""
        ...

    def active(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which the task's code runs."""
        ...

    def export(self, tensors: Sequence[Tensor]) -> tuple[list[int], int, int]:
        """Write tensors where the server can get at them: their starts in bytes, the descriptor, and the whole size."""
        ...

    def on_device(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is the device's."""
        ...

    def near(self, one: Tensor, other: Tensor) -> bool:
        """Tell whether results of two equal calls agree, though not bit by bit."""
        ...

    def widened(self, call: Call, model: Callable[..., Any], arguments: Arguments) -> tuple[Any, Arguments]:
        """Call a reference in float64; see `widening.widened_call`."""
        ...


class StandInMachine:
    """A GPU that is not there: see `standin`."""

    space = HOST
    place: Place | None = None

    def start(self, request: Mapping[str, Any], folder: Path) -> None:
        """Imitate the target."""
        self.standin = StandIn(target(request["target"]), [folder])
        self.place = self.standin.place

    def active(self) -> contextlib.AbstractContextManager[object]:
        """Answer for the GPU."""
        return self.standin

    def export(self, tensors: Sequence[Tensor]) -> tuple[list[int], int, int]:
        """Write into a file that can be sealed."""
        file = file_bytes(0)
        return write_contiguous(tensors, file), file, os.fstat(file).st_size

    def on_device(self, tensor: Tensor) -> bool:
        """Tell what a GPU machine would answer."""
        return self.standin.on_device(tensor)

    def near(self, one: Tensor, other: Tensor) -> bool:  # noqa: ARG002 - on a CPU results are the same or they differ
        """Return False."""
        return False

    def widened(self, call: Call, model: Callable[..., Any], arguments: Arguments) -> tuple[Any, Arguments]:
        """Call it here."""
        return widened_call(call, model, arguments)


def run(connection: Connection, folder: Path) -> None:
    """Answer requests until the server closes the connection."""
    serve(connection, folder, StandInMachine())


def serve(connection: Connection, folder: Path, machine: Machine) -> None:
    """Answer requests until the server closes the connection."""
    reference = Reference(folder, machine)
    operations: Mapping[str, Callable[[Mapping[str, Any]], Reply]] = {
        "collect": reference.collect,
        "load": reference.load,
        "examine": reference.examine,
        "lower": reference.lower,
        "stretch": reference.stretch,
        "changes": reference.changes,
        "init": reference.init,
        "construct": reference.construct,
        "constants": reference.constants,
        "trial": reference.trial,
        "dependence": reference.dependence,
    }
    while (received := connection.receive()) is not None:
        request, _ = received
        files: list[int] = []
        try:
            reply, files = operations[request["op"]](request)
            message = {"ok": reply}
        except TaskFault as fault:
            message = {"fault": fault.to_wire()}
        except torch.OutOfMemoryError as error:  # of our own copies
            message = {"fault": TaskFault("out_of_memory", str(error)[:400]).to_wire()}
        connection.send(message, files)
        for descriptor in files:
            os.close(descriptor)


class Reference:
    """What is asked of one task; every operation returns its reply and the descriptors that go with it.

    Args:
        folder: For its files.
        machine: Where it runs.
    """

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder = folder / "task"
        self.folder.mkdir()
        self.machine = machine
        self.models: dict[
            tuple[int, int | None, frozenset[str] | None], tuple[Callable[..., Any], dict[str, Tensor]]
        ] = {}
        self.usual_gaps = 0

    def collect(self, request: Mapping[str, Any]) -> Reply:
        """Read a task's files; nothing is executed."""
        root = request["import_root"]
        collected = collect(Path(request["path"]), Path(root))
        return {"files": collected.files, "module": collected.module}, []

    def load(self, request: Mapping[str, Any]) -> Reply:
        """Import the task."""
        self.content = TaskContent.from_wire(request["task"])
        self.domains: dict[str, str] = request["domains"]
        self.machine.start(request, self.folder)
        with self.machine.active():
            self.task: LoadedTask = load(
                self.content,
                self.folder / "own",
                device=request.get("device", "cuda"),
                place=self.machine.place,
            )
        return {}, []

    # --- what it costs

    def examine(self, _: Mapping[str, Any]) -> Reply:
        """Run once on fake tensors, or on real ones where the reference looks at values."""
        faked = True
        with self.machine.active():
            try:
                seen = self._trial(fake=True)
            except TaskFault as fault:
                if fault.reason in NOT_OF_VALUES:
                    raise
                faked = False
                seen = self._trial(fake=False)
        self.own = seen
        return {
            "cost": dataclasses.asdict(seen.cost),
            "bytes": seen.cost.bytes,
            "inputs": [dataclasses.asdict(each) for each in seen.inputs],
            "outputs": [dataclasses.asdict(each) for each in seen.outputs],
            "state": seen.state,
            "constants": self.content.constants(),
            "unused_sizes": self.content.unused_sizes(),
            "init_outline": seen.init_outline,
            "inputs_outline": seen.inputs_outline,
            "faked": faked,
        }, []

    def _trial(self, *, fake: bool) -> Trial:
        return trial(self.content, self.folder / "trial", device="cuda", place=self.machine.place, fake=fake)

    def lower(self, request: Mapping[str, Any]) -> Reply:
        """Look for smaller sizes; after `examine`."""
        with self.machine.active():
            lowering = lower_task(
                self.content,
                self.folder / "trial",
                budget=BUDGETS[request["budget"]],
                seconds=request["seconds"],
                device="cuda",
                place=self.machine.place,
                own=self.own,
            )
        return {"edits": {key: list(change) for key, change in lowering.edits.items()}}, []

    def stretch(self, request: Mapping[str, Any]) -> Reply:
        """Look for lowered sizes with one constant at its own value; after `examine`."""
        assert self.own is not None
        edits = {key: (old, new) for key, (old, new) in request["edits"].items()}
        with self.machine.active():
            found = stretch_task(
                self.content,
                self.folder / "trial",
                edits,
                self.own,
                device="cuda",
                place=self.machine.place,
            )
        return {"stretched": [{key: list(edit) for key, edit in each.items()} for each in found]}, []

    def changes(self, _: Mapping[str, Any]) -> Reply:
        """Return what has to change in a candidate's source; names and numbers, nothing of the reference's text."""
        return {"changes": [dict(changes) for changes in self.content.candidate_changes()]}, []

    # --- what it computes

    def init(self, request: Mapping[str, Any]) -> Reply:
        """Return the constructor's arguments."""
        with self.machine.active():
            init = self.task.init_arguments(request["construct_seed"])
        return _encoded({"args": init.args, "kwargs": init.kwargs})

    def construct(self, request: Mapping[str, Any]) -> Reply:
        """Construct it, for trials that come next."""
        self._model(request["construct_seed"], None)
        return {}, []

    def constants(self, request: Mapping[str, Any]) -> Reply:
        """Return the parameters and buffers that the constructor makes the same under two seeds."""
        one, other = (
            dict(model.state_dict()) if isinstance(model, nn.Module) else {}
            for model, _ in (self._model(seed, None) for seed in request["construct_seeds"])
        )
        same = [name for name, value in one.items() if name in other and _equal(value, other[name])]
        return {"names": same}, []

    def trial(self, request: Mapping[str, Any]) -> Reply:
        """Run one trial: inputs as drawn or transformed, the reference in its own dtype and in float64."""
        names = request["state_names"]
        model, state = self._model(
            request["construct_seed"], request["state_seed"], None if names is None else frozenset(names)
        )

        def drawn() -> Arguments:
            with self.machine.active():
                return self.task.inputs(request["input_seed"])

        arguments, transformed = transformed_inputs(
            drawn, request["transform"], self.domains, request["input_seed"]
        )
        given = encode({"args": arguments.args, "kwargs": arguments.kwargs}, space=self.machine.space)
        _rename(given.table, arguments)
        own = self._copied(arguments)
        fresh = copy.deepcopy(model) if request["repeat"] else None
        outputs = self._call(model, own)
        gaps = _not_finite(outputs)
        if request["repeat"]:
            self.usual_gaps = gaps
        unusual = request["transform"] in UNUSUAL and gaps > self.usual_gaps
        problem = self._disagreement(fresh, model, arguments, outputs) if request["repeat"] else ""
        mutated = _changed(arguments, own)
        wide, wide_arguments, not_wide = self._wide(model, arguments)
        entries, tensors = _expected(outputs, own, mutated, wide, wide_arguments)
        self._note_hosts(entries, outputs)
        whole = request["repeat"] or request["transform"] in SCALED_DOWN
        _note_sizes(entries, tensors, most=math.inf if whole else FEW)
        starts, file, size = self.machine.export(tensors)
        for entry in entries:
            for part in (entry, entry.get("wide") or {}):
                if "start" in part:
                    part["start"] = starts[part["start"]]
        files = [given.file, file]
        reply = {
            "inputs": given.message(),
            "expected": entries,
            "expected_bytes": size,
            "mutated": mutated,
            "aliases": _aliases(outputs, own),
            "transformed": transformed,
            "unusual": unusual,
            "problem": problem,
            "not_wide": not_wide,
        }
        if request["state_seed"] is not None:
            encoded = encode(state, space=self.machine.space)
            reply["state"] = encoded.message()
            files.append(encoded.file)
        return reply, [descriptor for descriptor in files if descriptor >= 0]

    def _note_hosts(self, entries: list[dict[str, Any]], outputs: Any) -> None:  # noqa: ANN401 - a task's outputs
        """Note which outputs the reference returns on the CPU."""
        found = dict(leaves(outputs, "out"))
        for entry in entries:
            leaf = found.get(entry["path"])
            if isinstance(leaf, Tensor) and not self.machine.on_device(leaf):
                entry["host"] = True

    def dependence(self, request: Mapping[str, Any]) -> Reply:
        """Give one input or parameter after the other new values, and see which change nothing beyond rounding."""
        end = time.monotonic() + request["seconds"]
        model, _ = self._model(request["construct_seed"], None)
        with self.machine.active():
            arguments = self.task.inputs(request["input_seed"])
            others = dict(self.task.inputs(request["other_seed"]).leaves())
        own = self._copied(arguments)
        outputs = self._call(_copy_of(model) or model, own)
        mutated = _changed(arguments, own)

        def results(outputs: Any, given: Arguments) -> list[Any]:  # noqa: ANN401 - a task's outputs
            changed = dict(given.leaves())
            return [outputs, [changed[name] for name in mutated]]

        usual = results(outputs, own)
        independent = []
        hardly = False

        def look(name: str, model: Callable[..., Any], given: Arguments) -> None:
            nonlocal hardly
            try:
                again = results(self._call(model, given), given)
                if _equal(usual, again) or _agree(usual, again, _rounding):
                    independent.append(name)
                elif request.get("hardly"):
                    hardly = hardly or _moved(usual, again) < MANY
            except (TaskFault, ValueError):  # inputs that belong together, or outputs of another number
                return

        for path, leaf in arguments.leaves():
            other = others.get(path)
            if not isinstance(leaf, Tensor) or not isinstance(other, Tensor) or time.monotonic() > end:
                continue
            if leaf.numel() and leaf.shape == other.shape and not _equal(leaf, other):
                look(path, _copy_of(model) or model, _replaced(self._copied(arguments), path, other))
        for name in dict(model.named_parameters()) if isinstance(model, nn.Module) else {}:
            changed = _copy_of(model)
            if changed is None or time.monotonic() > end:
                break
            assert isinstance(changed, nn.Module)
            randomise_state(changed, request["other_seed"], {}, {name})
            look(name, changed, self._copied(arguments))
        return {"independent": independent, "hardly": hardly}, []

    def _call(self, model: Callable[..., Any], arguments: Arguments) -> Any:  # noqa: ANN401 - a task's outputs
        """Call the reference as on a GPU machine; our own arithmetic stays outside of the stand-in."""
        place = self.machine.place
        with self.machine.active():
            if place is not None:
                model, arguments = place(model), arguments.map(lambda _, leaf: place(leaf))
            return self.task.call(model, arguments)

    def _model(
        self, construct_seed: int, state_seed: int | None, names: frozenset[str] | None = None
    ) -> tuple[Callable[..., Any], dict[str, Tensor]]:
        key = construct_seed, state_seed, names
        if key not in self.models:
            state: dict[str, Tensor] = {}
            model = None if state_seed is None else _copy_of(self._model(construct_seed, None)[0])
            if model is None:
                with self.machine.active():
                    model, _ = self.task.construct(construct_seed)
            if state_seed is not None and isinstance(model, nn.Module):
                state = randomise_state(model, state_seed, self.domains, names)
            self.models[key] = model, state
        return self.models[key]

    def _disagreement(
        self,
        fresh: Callable[..., Any] | None,
        model: Callable[..., Any],
        arguments: Arguments,
        outputs: Any,  # noqa: ANN401 - a task's outputs
    ) -> str:
        """Run again on equal inputs; say why the reference is no function of them, or nothing."""
        second = self._call(model, self._copied(arguments))
        if _equal(outputs, second) or _agree(outputs, second, self.machine.near):
            return ""
        assert fresh is not None
        again = self._call(copy.deepcopy(fresh), self._copied(arguments))
        torch.manual_seed(0)
        seeded = self._call(copy.deepcopy(fresh), self._copied(arguments))
        torch.manual_seed(0)
        seeded_again = self._call(copy.deepcopy(fresh), self._copied(arguments))
        if _equal(outputs, again):
            return "it keeps state between calls: a second call on equal inputs gives another result"
        if _equal(seeded, seeded_again):
            return "it draws random numbers: two calls on equal inputs differ (dropout in training mode?)"
        return "two calls on equal inputs differ"

    def _copied(self, arguments: Arguments) -> Arguments:
        """Return copies of the inputs: strides and shared storages stay as they are, each storage is copied once."""
        space = self.machine.space
        encoded = encode({"args": arguments.args, "kwargs": arguments.kwargs}, space=space)
        try:
            # Shared, though nobody shares it: a private map of a large sparse file would count as private memory.
            descriptor = encoded.file if encoded.file >= 0 else None
            value = decode(encoded.message(), descriptor, shared=True, space=space)
        finally:
            if encoded.file >= 0:
                os.close(encoded.file)
        return Arguments(value["args"], value["kwargs"], arguments.names)

    def _wide(self, model: Callable[..., Any], arguments: Arguments) -> tuple[Any, Arguments | None, str]:
        try:
            outputs, after = self.machine.widened(self._call, model, arguments)
        except Exception as error:  # noqa: BLE001 - a stranger's code in a dtype it was not written for
            return None, None, f"{type(error).__name__}: {error}"[:300]
        return outputs, after, ""


def _copy_of(model: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a copy of a model, which for a large one takes a fraction of drawing its weights again; None without one."""
    try:
        return copy.deepcopy(model)
    except Exception:  # noqa: BLE001 - a module may hold what cannot be copied
        return None


def _encoded(value: Any) -> Reply:  # noqa: ANN401 - any value of a task
    encoded = encode(value)
    return encoded.message(), [encoded.file] if encoded.file >= 0 else []


def _rename(table: list[dict[str, Any]], arguments: Arguments) -> None:
    """Name encoded tensors as the signature does."""
    names = [path for path, leaf in arguments.leaves() if isinstance(leaf, Tensor)]
    for entry, name in zip(table, names, strict=True):
        entry["path"] = name


def _changed(before: Arguments, after: Arguments) -> list[str]:
    """Return the names of inputs that a call has changed."""
    return [
        path
        for (path, old), (_, new) in zip(before.leaves(), after.leaves(), strict=True)
        if isinstance(old, Tensor) and old.numel() and not torch.equal(as_bytes(old), as_bytes(new))
    ]


def _replaced(arguments: Arguments, path: str, value: Tensor) -> Arguments:
    """Return arguments with another value in one place."""
    return arguments.map(lambda name, leaf: value if name == path else leaf)


def _not_finite(outputs: Any) -> int:  # noqa: ANN401 - a task's outputs
    """Return how many elements of floating outputs hold no number."""
    return sum(
        int((~(leaf.float() if leaf.itemsize == 1 else leaf).isfinite()).sum())
        for _, leaf in leaves(outputs)
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())
    )


def _rounding(one: Tensor, other: Tensor) -> bool:
    """Tell whether two floating tensors differ by rounding alone, measured by their root mean square."""
    error, allowed = _beside_rounding(one, other)
    return not error.numel() or bool(error.max() <= allowed)


def _beside_rounding(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far two floating tensors lie apart, and how far rounding may move an element."""
    a, b = (tensor.double().nan_to_num(0.0, 0.0, 0.0) for tensor in (one, other))
    eps = ROUNDINGS * float(torch.finfo(one.dtype).eps)
    return (a - b).abs(), eps * a.square().mean().sqrt()


def _moved(one: Any, other: Any) -> int:  # noqa: ANN401 - outputs of a task
    """Return how many elements of outputs differ by much more than rounding."""
    moved = 0
    for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=True):
        if not isinstance(a, Tensor) or a.shape != b.shape:
            continue
        if a.is_floating_point():
            error, allowed = _beside_rounding(a, b)
            moved += int((error > SURELY * allowed).sum())
        else:
            moved += int((a != b).sum())
    return moved


def _agree(one: Any, other: Any, near: Callable[[Tensor, Tensor], bool]) -> bool:  # noqa: ANN401 - outputs of a task
    """Tell whether floating outputs agree up to rounding, and all others bit by bit."""
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    return all(
        near(a, b) if isinstance(a, Tensor) and a.is_floating_point() and a.shape == b.shape else _equal(a, b)
        for (_, a), (_, b) in pairs
    )


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - outputs of a task
    """Tell whether outputs are equal bit by bit."""
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    return all(
        a.shape == b.shape and torch.equal(as_bytes(a), as_bytes(b))
        if isinstance(a, Tensor)
        else repr(a) == repr(b)
        for (_, a), (_, b) in pairs
    )


def _aliases(outputs: Any, arguments: Arguments) -> dict[str, str]:  # noqa: ANN401
    """Return, by output, the input whose storage it shares."""
    storages = {
        leaf.untyped_storage().data_ptr(): path
        for path, leaf in arguments.leaves()
        if isinstance(leaf, Tensor) and leaf.numel()
    }
    return {
        path: storages[leaf.untyped_storage().data_ptr()]
        for path, leaf in leaves(outputs, "out")
        if isinstance(leaf, Tensor) and leaf.numel() and leaf.untyped_storage().data_ptr() in storages
    }


def _note_sizes(entries: list[dict[str, Any]], tensors: Sequence[Tensor], *, most: float) -> None:
    """Note the root mean square of every floating output of at most so many elements, as far as it is finite."""
    for entry in entries:
        tensor = tensors[entry["start"]] if "start" in entry else None
        if tensor is not None and tensor.is_floating_point() and 0 < tensor.numel() <= most:
            rms = float(tensor.detach().double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
            if math.isfinite(rms):
                entry["rms"] = rms


def _expected(
    outputs: Any,  # noqa: ANN401
    own: Arguments,
    mutated: list[str],
    wide: Any,  # noqa: ANN401
    wide_arguments: Arguments | None,
) -> tuple[list[dict[str, Any]], list[Tensor]]:
    """Describe the expected outputs, inputs changed by contract last; `start` is a position among the tensors.

    Such an input is marked with `input`, and goes by another name where an output has its own.
    """
    pairs = list(leaves(outputs, "out"))
    outcomes = len(pairs)
    taken = {path for path, _ in pairs}
    names = {name: f"input {name}" if name in taken else name for name in mutated}
    changed = dict(own.leaves())
    pairs += [(shown, changed[name]) for name, shown in names.items()]
    wide_leaves: dict[str, Any] = {}
    if wide_arguments is not None:
        wide_changed = dict(wide_arguments.leaves())
        wide_leaves = dict(leaves(wide, "out"))
        wide_leaves |= {shown: wide_changed[name] for name, shown in names.items()}
    entries: list[dict[str, Any]] = []
    tensors: list[Tensor] = []
    for position, (path, leaf) in enumerate(pairs):
        if not isinstance(leaf, Tensor):
            entries.append({"path": path, "plain": plain(leaf)})
            continue
        entry: dict[str, Any] = {
            "path": path,
            "input": position >= outcomes,
            "dtype": dtype_name(leaf.dtype),
            "shape": list(leaf.shape),
            "stride": list(leaf.stride()),
            "start": len(tensors),
        }
        if leaf.is_neg() or leaf.is_conj():
            entry["lazy"] = True
        tensors.append(leaf)
        exact = wide_leaves.get(path)
        if isinstance(exact, Tensor) and exact.shape == leaf.shape:
            entry["wide"] = {
                "dtype": dtype_name(exact.dtype),
                "shape": list(exact.shape),
                "start": len(tensors),
            }
            tensors.append(exact)
        else:
            entry["wide"] = None
        entries.append(entry)
    return entries, tensors
