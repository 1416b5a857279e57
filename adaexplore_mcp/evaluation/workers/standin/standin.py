"""Run code written for CUDA on a machine without it, unedited, and keep account of every answer that was made up."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from adaexplore_mcp.evaluation.workers.targets import DEFAULT_TARGET, Target
from adaexplore_mcp.evaluation.workers.trees import leaves

from .built import patch_built
from .compilation import patch_compilation
from .cuda_module import patch_cuda
from .fakes import patch_fake_tensors
from .frames import Callers
from .gradients import patch_gradients
from .handlers import install_handlers
from .ledger import Ledger, Refusal
from .memory import Poison
from .mode import DeviceMode, Guard
from .operators import patch_operators
from .patches import Patches
from .precision import Autocast, Tf32
from .streams import WORK, StreamContext
from .tags import mark, on_device, retag, tag_of
from .tensortypes import patch_tensor_types

__all__ = ["StandIn"]

Value = TypeVar("Value")


class StandIn:
    """A context in which there is one GPU, of a given kind, that computes what the CPU computes.

    Import the candidate, build its module and call it inside. Tensors are CPU tensors; those that would live on the GPU
    are tagged, `place` tags inputs and modules, and every operation passes the tag on. Only the code under `own_paths`
    is told of the GPU: torch's own code sees the truth.

    Args:
        target: Whose properties `torch.cuda` reports.
        own_paths: Files or folders of the task and the candidate.
        poison: What fresh memory holds, or None to leave it as it is. See `Poison`.
        fake: Work with fake tensors: shapes and dtypes at full size, no memory and no arithmetic.

    Raises:
        RuntimeError: On entering, if another stand-in is active in this process.
    """

    _active: ClassVar["StandIn | None"] = None

    def __init__(
        self,
        target: Target = DEFAULT_TARGET,
        own_paths: Iterable[str | Path] = (),
        *,
        poison: Poison | None = "nan",
        fake: bool = False,
    ) -> None:
        self.target = target
        self.fake = fake
        self.ledger = Ledger()
        self._callers = Callers(own_paths)
        self._mode = DeviceMode(self._callers, self.ledger)
        self._tf32 = Tf32(self.ledger)
        self._autocast = Autocast(self.ledger)
        self._patches = Patches()
        self._fake_mode = FakeTensorMode(allow_non_fake_inputs=True) if fake else None
        self._mode.poison = None if fake else poison
        install_handlers(self._mode, tf32=self._tf32, autocast=self._autocast)

    @property
    def answers(self) -> Counter[str]:
        """How often each kind of answer was given: `torch.cuda.is_available`, `device argument`, `value_assumed`."""
        return self.ledger.answers

    @property
    def to_host(self) -> int:
        """Elements that code has brought to the host so far."""
        return self.ledger.to_host

    @property
    def refused(self) -> list[Refusal]:
        """What was asked for and needs a GPU, once each, in order, whether or not the code swallowed the exception."""
        return self.ledger.refused

    @property
    def notes(self) -> list[str]:
        """Sentences that a report of the run must show; complete once the context is left."""
        return self.ledger.notes

    @property
    def calls(self) -> int:
        """How many calls of torch's interface it has seen."""
        return self._mode.calls

    @property
    def poison(self) -> Poison | None:
        """What fresh memory is filled with from now on."""
        return self._mode.poison

    @poison.setter
    def poison(self, poison: Poison | None) -> None:
        self._mode.poison = poison

    def tell_of_late_calls(self, guard: Guard) -> None:
        """Tell of calls of torch's interface that the candidate's code makes while it may not work."""
        self._mode.guard = guard

    @staticmethod
    def launched(kernel: str) -> None:
        """Take note of a launch, on the stream that is current."""
        WORK.launched(kernel, StreamContext.current[-1].cuda_stream)

    def returned(self) -> None:
        """Take note that a call has ended: what it launched on a stream that nothing waits for may not be done then."""
        if left := WORK.returned(StreamContext.current[-1].cuda_stream):
            self.ledger.note(
                f"It launches {', '.join(left)} on a stream of its own, and nothing waits for that stream before the call "
                "returns: on a GPU its result may not be there yet."
            )

    @staticmethod
    def on_device(tensor: torch.Tensor) -> bool:
        """Say whether a kernel may be given this tensor; False only if it is known to live in host memory."""
        return on_device(tensor)

    @staticmethod
    def place(value: Value) -> Value:
        """Put a module, a tensor or containers of them on the device, in place, and return the same value.

        Only parameters and buffers of a module are put there, as by `module.cuda()`. A tensor keeps its memory.

        Raises:
            RecursionError: Containers nest deeper than 32 levels.
        """
        for _, leaf in leaves(value):
            if isinstance(leaf, torch.Tensor):
                retag(leaf, True)
            elif isinstance(leaf, torch.nn.Module):
                for tensor in (*leaf.parameters(), *leaf.buffers()):
                    retag(tensor, True)
        return value

    def __enter__(self) -> Self:
        if StandIn._active is not None:
            msg = "a stand-in is active already: torch.cuda cannot be two devices at once"
            raise RuntimeError(msg)
        StandIn._active = self
        try:
            self._patch()
            if self._fake_mode is not None:
                self._fake_mode.__enter__()
            self._mode.__enter__()  # type: ignore[no-untyped-call]  # torch's own
        except BaseException:
            self._patches.undo()
            StandIn._active = None
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch's own
            if self._fake_mode is not None:
                self._fake_mode.__exit__(None, None, None)
        finally:
            self._tf32.stop()
            self._patches.undo()
            if self._mode.default_changed:
                torch.set_default_device(None)
                self._mode.default_place = self._mode.default_changed = False
            StandIn._active = None

    def _patch(self) -> None:
        patches = self._patches
        self._tf32.start(patches)
        self._autocast.start(patches)
        patch_cuda(patches, self._mode, self.target)
        patch_built(patches, self.ledger)
        patch_gradients(patches, self._mode)
        patch_operators(patches, self._mode, fake=self.fake)
        patch_tensor_types(patches)
        patch_compilation(patches, self.ledger)
        patch_fake_tensors(patches, self._callers, self._mode.place_of, self.ledger)
        _patch_parameters(patches)


def _patch_parameters(patches: Patches) -> None:
    """Let `nn.Parameter(x)` be where `x` is: it is made by a function that no mode sees."""
    make = torch.nn.Parameter.__new__

    def new(
        cls: type[torch.nn.Parameter],
        data: torch.Tensor | None = None,
        requires_grad: bool = True,
    ) -> torch.nn.Parameter:
        parameter = make(cls, data, requires_grad)
        if data is not None and parameter is not data:
            mark(parameter, tag_of(data))
        return parameter

    patches.replace(torch.nn.Parameter, "__new__", staticmethod(new))
