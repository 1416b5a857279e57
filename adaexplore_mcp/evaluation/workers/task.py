"""Run a task's source: build its inputs and models from seeds, and call them.

The source is arbitrary code, so this runs only in worker processes. Whatever it raises or returns that makes it no task
becomes a `TaskFault` that names the step and the line.
"""

import contextlib
import copy
import os
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from adaexplore_mcp.evaluation.workers.arguments import (
    Acceptance,
    Arguments,
    Specification,
    accept_outputs,
    bind,
    constructor_arguments,
    moved,
    signature_of,
    specifications,
)
from adaexplore_mcp.evaluation.workers.content import FaultReason, Prepared, TaskContent, TaskFault
from adaexplore_mcp.evaluation.workers.cost import Cost, measure
from adaexplore_mcp.evaluation.workers.lowering import SMALL, Budget, Edits, Lowering, lower, stretched
from adaexplore_mcp.evaluation.workers.snapshot import Snapshot
from adaexplore_mcp.evaluation.workers.tensors import outline
from adaexplore_mcp.evaluation.workers.trees import leaves

__all__ = ["LoadedTask", "Trial", "load", "lower_task", "seed_all", "stretch_task", "trial"]

Built = TypeVar("Built")
Place = Callable[[Any], Any]

_INPUTS = {"kernelbench": "get_inputs", "function": "make_inputs"}


def load(
    content: TaskContent, folder: Path, *, device: str = "cpu", place: Place | None = None
) -> "LoadedTask":
    """Write a task's sources below a folder, run them, and find its entry.

    Args:
        content: The task at one workload.
        folder: For this task alone; files of an earlier version are overwritten.
        device: Where inputs and models are to be: cpu or cuda.
        place: Puts a module or a tensor there, in place, and returns it; by default both are moved as torch does.

    Raises:
        TaskFault: Any reason up to entry.
    """
    return LoadedTask(content, content.prepare(), folder, device, place)


class LoadedTask:
    """A task that has been imported.

    Args:
        content: What was loaded.
        prepared: Its texts with sizes in place.
        folder: Where they are written.
        device: cpu or cuda.
        place: Puts a module or a tensor there.
    """

    def __init__(
        self, content: TaskContent, prepared: Prepared, folder: Path, device: str, place: Place | None
    ) -> None:
        self.content = content
        self.device = device
        self._place = place
        self._draw_on_gpu = place is None and device == "cuda"
        self.workload = prepared.workload
        self._snapshot = Snapshot(folder, prepared.files)
        self._namespace = self._run(prepared.extra)
        self.entry = self._callable(content.entry)
        self._inputs = self._callable(_INPUTS[content.format])

    def construct(self, seed: int) -> tuple[Callable[..., Any], Arguments]:
        """Build the reference and return it with the arguments of its constructor.

        All generators are seeded before `get_init_inputs` and again before the constructor, so that a candidate
        built from the same arguments under the same seed draws the same weights. The function format has nothing to
        build: the function itself, and no arguments.

        Raises:
            TaskFault: reason construct or init_arguments.
        """
        if self.content.format == "function":
            return self.entry, Arguments()
        init = self.init_arguments(seed)
        own = copy.deepcopy(init)  # a constructor may change what it is given
        with self._blaming("construct", f"{self.content.entry}(...)"):
            seed_all(seed)
            model = self.entry(*own.args, **own.kwargs)
            if not isinstance(model, nn.Module):
                detail = f"{self.content.entry}(...) gives {type(model).__name__}, not a torch.nn.Module"
                raise TaskFault("entry", detail)
            lazy = [name for name, parameter in model.named_parameters() if nn.parameter.is_lazy(parameter)]
            if lazy:
                raise TaskFault("construct", f"{lazy[0]} has no shape before the first call: state its sizes")
            if self._place is not None:
                self._place(model)
            elif self.device != "cpu":
                model.to(self.device)
        return model, init

    def inputs(self, seed: int) -> Arguments:
        """Draw the inputs of one call.

        Args:
            seed: Another one than for the models' weights, else the two are correlated.

        Raises:
            TaskFault: reason inputs.
        """
        source = f"{_INPUTS[self.content.format]}()"
        with self._blaming("inputs", source):
            given = self._drawn(seed)
            if not isinstance(given, (tuple, list, dict)):
                detail = (
                    f"{source} gives {type(given).__name__}; return a list of arguments, or a dict by name"
                )
                raise TaskFault("inputs", detail)
            accept = Acceptance("inputs")
            args, kwargs = ((), given) if isinstance(given, dict) else (tuple(given), {})
            bound = bind(self.entry, "forward", args, kwargs, reason="inputs", source=source)
            accepted = Arguments(
                tuple(accept.value(value, name) for name, value in zip(bound.names, bound.args, strict=True)),
                {name: accept.value(value, name) for name, value in bound.kwargs.items()},
                bound.names,
            )
        with self._blaming("inputs", f"moving what {source} gives to {self.device}"):
            place = self._place
            if place is None:
                return moved(accepted, self.device)
            return accepted.map(lambda _, leaf: place(leaf) if isinstance(leaf, Tensor) else leaf)

    def _drawn(self, seed: int) -> Any:  # noqa: ANN401 - whatever the task gives
        """Draw inputs where they are needed: on a GPU at once, unless the task's code does not work so."""
        if self.content.format == "function":
            seed_all(seed)
            return self._inputs(dict(self.workload), self.device, seed)
        if self._draw_on_gpu:
            try:
                seed_all(seed)
                with torch.device("cuda"):
                    return self._inputs()
            except Exception:  # noqa: BLE001 - it mixes devices, say; on the CPU it shows what it really raises
                self._draw_on_gpu = False
        seed_all(seed)
        return self._inputs()

    def call(self, model: Callable[..., Any], arguments: Arguments) -> Any:  # noqa: ANN401 - any task's outputs
        """Call a model without gradients and return its outputs, checked, as plain tensors in plain containers.

        Raises:
            TaskFault: reason call or outputs.
        """
        with self._blaming("call", self.content.entry), torch.no_grad():
            return accept_outputs(model(*arguments.args, **arguments.kwargs))

    def init_arguments(self, seed: int) -> Arguments:
        """Return the constructor's arguments; none for the function format.

        Raises:
            TaskFault: reason construct or init_arguments.
        """
        if self.content.format == "function":
            return Arguments()
        source = "get_init_inputs()"
        with self._blaming("construct", source):
            seed_all(seed)
            given = self._namespace["get_init_inputs"]() if "get_init_inputs" in self._namespace else []
            accepted = Acceptance("init_arguments").value(given, source)
            args, kwargs = constructor_arguments(accepted, signature_of(self.entry, "__init__"))
            return bind(self.entry, "__init__", args, kwargs, reason="init_arguments", source=source)

    # --- loading -----------------------------------------------------------------------------------------

    def _run(self, extra: str) -> dict[str, Any]:
        """Import the module, run the extra text, and return the names that the entry is looked up in."""
        name = self.content.module
        if not self._snapshot.holds(name):
            top = name.partition(".")[0]
            raise TaskFault(
                "import", f"{top!r} is the name of an installed module; rename the file or its folder"
            )
        with self._blaming("import", f"importing {name}"):
            module = self._snapshot.load(name)
            if extra:
                module = self._snapshot.run_after(module, extra)
        return vars(module)

    def _callable(self, name: str) -> Callable[..., Any]:
        if name not in self._namespace:
            defined = sorted(
                key
                for key, value in self._namespace.items()
                if callable(value) and self._snapshot.holds(str(getattr(value, "__module__", "")))
            )
            where = "the source" if self.content.module == "task" else self.content.module
            detail = f"the {self.content.format} format needs {name}, which {where} does not define; "
            detail += f"it defines {', '.join(defined[:20]) or 'nothing to call'}"
            entry = self._namespace.get(self.content.entry)
            if self.content.format == "kernelbench" and isinstance(entry, FunctionType):
                detail += f"; {self.content.entry} is a function, so pass format='function'"
            elif name != self.content.entry:
                detail += f"; beside a file, {name} can be sent as source"
            raise TaskFault("entry", detail)
        value = self._namespace[name]
        if not callable(value):
            raise TaskFault("entry", f"{name} is of type {type(value).__name__}, which cannot be called")
        return value  # type: ignore[no-any-return]  # callable() narrows Any to nothing better

    @contextlib.contextmanager
    def _blaming(self, reason: FaultReason, doing: str) -> Iterator[None]:
        """Turn what the task's code raises into a fault with the last line of that code."""
        with self._snapshot.active():
            try:
                yield
            except TaskFault:
                raise
            # The last two: code that ends itself, or says it was interrupted, must not end the worker.
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                raise self._fault(reason, doing, error) from error

    def _fault(self, reason: FaultReason, doing: str, error: BaseException) -> TaskFault:
        folder = f"{self._snapshot.folder}{os.sep}"
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)
        ]
        line, file = (frames[-1].lineno or 0, frames[-1].filename) if frames else (0, "")
        if isinstance(error, SyntaxError) and (error.filename or "").startswith(folder):
            reason, line, file = "syntax", error.lineno or 0, error.filename or ""
        text = f"{doing} raised {type(error).__name__}: {_message(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            text = self._missing(error.name)
        elif isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _is_cpu_allocation(error):
            reason = "out_of_memory"
        path = file.removeprefix(folder)
        if path and path != self.content.module_path:
            text += f" (in {path})"
        return TaskFault(reason, text, line)

    def _missing(self, name: str) -> str:
        """Explain why a module cannot be found."""
        taken = "only files below import_root that are imported statically were taken"
        if self._snapshot.holds(name):
            return f"no module {name!r} among the task's files: {taken}"
        return f"no module {name!r}: it is not installed where tasks run, and {taken}"


# --- trials ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run of the reference showed.

    Args:
        cost: What the call cost.
        inputs: Leaves of its arguments.
        outputs: Leaves of its outputs, as out, out[1] or out['mean'].
        state: Names of the model's parameters and buffers.
        init_outline: Constructor arguments without contents; see `tensors.outline`.
        inputs_outline: Arguments of the call without contents.
    """

    cost: Cost
    inputs: list[Specification]
    outputs: list[Specification]
    state: list[str]
    init_outline: dict[str, Any]
    inputs_outline: dict[str, Any]

    def empty(self) -> set[str]:
        """Return the names of outputs without elements."""
        return {output.name for output in self.outputs if 0 in output.shape}


def trial(
    content: TaskContent,
    folder: Path,
    *,
    device: str = "cpu",
    place: Place | None = None,
    fake: bool = True,
) -> Trial:
    """Load a task and run it once.

    Args:
        content: The task at one workload.
        folder: For its files.
        device: cpu or cuda.
        place: As for `load`.
        fake: Compute nothing and take no memory (10 to 20 ms). A reference that looks at values (`.item()`, sizes
            from data) cannot be run so, and faults.

    Raises:
        TaskFault: Any reason.
    """
    # Loaded on real tensors: a library imported on the way would keep fake ones for ever.
    task = load(content, folder, device=device, place=place)
    mode = FakeTensorMode(allow_non_fake_inputs=True) if fake else contextlib.nullcontext()
    model, init = _built(lambda: task.construct(seed=0), mode)
    arguments = _built(lambda: task.inputs(seed=1), mode)
    with mode:
        outputs, cost = measure(
            lambda: task.call(model, arguments), inputs=arguments.tensors(), model=model, follow=True
        )
        outlines = [outline({"args": each.args, "kwargs": each.kwargs}) for each in (init, arguments)]
    return Trial(
        cost,
        specifications(arguments.leaves()),
        specifications(leaves(outputs, "out")),
        list(model.state_dict()) if isinstance(model, nn.Module) else [],
        *outlines,
    )


def _built(build: Callable[[], Built], mode: contextlib.AbstractContextManager[object]) -> Built:
    """Build on fake tensors; on real ones where the code looks at values, such as steps of a linspace."""
    try:
        with mode:
            return build()
    except TaskFault as fault:
        if not isinstance(fault.__cause__, DataDependentOutputException):
            raise
    return build()


def lower_task(
    content: TaskContent,
    folder: Path,
    *,
    budget: Budget = SMALL,
    seconds: float = 20.0,
    device: str = "cpu",
    place: Place | None = None,
    own: Trial | None = None,
) -> Lowering:
    """Lower a task's size constants until a run fits a budget; see `lowering.lower`.

    The result was run on real tensors once, unless it still exceeds the budget a hundredfold.

    Args:
        content: The task at one workload, not lowered.
        folder: For its files.
        budget: When to stop.
        seconds: When to stop looking, beside the time of the first trial.
        device: cpu or cuda.
        place: As for `load`.
        own: The trial at the task's own sizes, where the caller has made it: with a recurrent layer over 512 steps
            that takes 18 s.

    Raises:
        TaskFault: The task cannot be run on fake tensors even at its own sizes.
    """
    own = own or trial(content, folder, device=device, place=place)
    measured = _measuring(content, folder, own, device=device, place=place)

    def runs(edits: Edits) -> bool:
        work = measured(edits)
        if work is None or budget.excess(work) > 100:
            return work is not None
        try:
            trial(content.with_edits(edits), folder, device=device, place=place, fake=False)
        except TaskFault:
            return False
        return True

    return lower(content.integers(), measured, budget=budget, seconds=seconds, confirm=runs)


def stretch_task(
    content: TaskContent,
    folder: Path,
    edits: Edits,
    own: Trial,
    *,
    device: str = "cpu",
    place: Place | None = None,
) -> list[dict[str, tuple[int, int]]]:
    """Return lowered sizes of a task with one constant at its own value again; see `lowering.stretched`.

    Args:
        content: The task at one workload, not lowered.
        folder: For its files.
        edits: Its lowered sizes.
        own: The trial at the task's own sizes.
        device: cpu or cuda.
        place: As for `load`.
    """
    return stretched(edits, _measuring(content, folder, own, device=device, place=place))


# --- helpers ---------------------------------------------------------------------------------------------


def _measuring(
    content: TaskContent, folder: Path, own: Trial, *, device: str, place: Place | None
) -> Callable[[Edits], Cost | None]:
    """Return what runs a task on fake tensors at lowered sizes and says what that costs; None where it fails."""

    def measured(edits: Edits) -> Cost | None:
        if not edits:
            return own.cost
        try:
            result = trial(content.with_edits(edits), folder, device=device, place=place)
        except TaskFault:
            return None
        return result.cost if result.empty() <= own.empty() else None

    return measured


def seed_all(seed: int) -> None:
    """Seed every generator that a task may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _message(error: BaseException) -> str:
    """Return an exception's text, which its own code makes, within 1,200 characters."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the task's own __str__
        return "(its text cannot be read)"
    return text if len(text) <= 1200 else f"{text[:900]} ... {text[-290:]}"


def _is_cpu_allocation(error: BaseException) -> bool:
    """Tell whether torch's CPU allocator failed: it raises a plain RuntimeError, known by its text alone."""
    return type(error) is RuntimeError and "DefaultCPUAllocator" in _message(error)
