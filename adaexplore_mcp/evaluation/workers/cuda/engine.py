"""Run a candidate on a GPU."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from triton.runtime.errors import OutOfResources

from adaexplore_mcp.evaluation.workers.compiler import explain
from adaexplore_mcp.evaluation.workers.cuda.cache import unpack
from adaexplore_mcp.evaluation.workers.cuda.driver import context_error
from adaexplore_mcp.evaluation.workers.cuda.fresh import Fresh
from adaexplore_mcp.evaluation.workers.cuda.launches import Launches, Recorder
from adaexplore_mcp.evaluation.workers.cuda.start import restore_flags, tf32_is_on
from adaexplore_mcp.evaluation.workers.cuda.times import DeviceTimes
from adaexplore_mcp.evaluation.workers.failures import MESSAGE_CHARACTERS, shorten
from adaexplore_mcp.evaluation.workers.integrity import Watch
from adaexplore_mcp.evaluation.workers.loading import FILE_NAME
from adaexplore_mcp.evaluation.workers.omission import Omission
from adaexplore_mcp.evaluation.workers.spaces import DeviceSpace
from adaexplore_mcp.evaluation.workers.tuning import quick_autotuners

__all__ = ["CudaEngine"]

COMPILES = "It uses torch.compile: torch writes the kernels."


class CudaEngine:
    """See `engine.Engine`; CUDA has been started in this process.

    Args:
        report: Told of the first launch of each kernel, as `claims.Progress` reads it.
    """

    space = DeviceSpace()
    not_here = ()

    def __init__(self, report: Callable[[Mapping[str, Any]], None]) -> None:
        self._recorder = Recorder(report)
        self._fresh = Fresh()
        self._notes: list[str] = []
        self._file = ""
        self._good: Mapping[str, Sequence[bool]] = {}

    def start(self, request: Mapping[str, Any], folder: Path) -> None:
        """Put what was compiled into this process's own cache, and watch launches."""
        self._file = str(folder / FILE_NAME)
        self._good = request["tuned"]
        for descriptor in request["files"]:
            # Packed by another process of the same candidate: what cannot be unpacked is compiled again.
            with contextlib.suppress(ValueError, OSError):
                unpack(descriptor, folder / "triton")
        torch.cuda.set_per_process_memory_fraction(request["memory_share"])
        if request.get("timing"):
            quick_autotuners(self._good)
        else:
            self._recorder.install()
            self._fresh.install()
            self._note_compile()
        restore_flags()

    def guard(self, watch: Watch) -> None:
        """Look at launches."""
        self._recorder.guard = watch

    def _note_compile(self) -> None:
        """Note the use of torch.compile, by whatever arguments."""
        compile_ = torch.compile

        def noted(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - as torch's
            if COMPILES not in self._notes:
                self._notes.append(COMPILES)
            return compile_(*arguments, **keywords)

        torch.compile = noted

    def place(self, module: nn.Module) -> nn.Module:
        """Move a module to the GPU."""
        return module.cuda()

    def mark(self, value: Any) -> None:  # noqa: ANN401 - inputs in any containers
        """Do nothing: they lie on the GPU."""

    def on_device(self, tensor: Tensor) -> bool:
        """Tell whether a tensor lies on the GPU."""
        return tensor.is_cuda

    @contextmanager
    def call(self, request: Mapping[str, Any]) -> Iterator[Launches]:
        """Watch one call."""
        # Where the device's time is taken, what fills memory would take its part.
        self._fresh.poison = None if request["timed"] else request["poison"]
        self._fresh.prepare(request["room"])
        times = DeviceTimes() if request["timed"] else None
        launches = Launches(
            request["config"],
            tune=request["tune"],
            notes=self._notes,
            one_by_one=request["detail"],
            good=self._good,
            omission=Omission.of(request["omit"]),
            times=times,
            over=(timing := contextlib.ExitStack()).close,
        )
        self._recorder.current = launches
        with timing:
            if times is not None:
                timing.enter_context(times)
            yield launches
        if tf32_is_on():
            self._note("It switched TF32 on for torch's own operators.")

    def _note(self, sentence: str) -> None:
        if sentence not in self._notes:
            self._notes.append(sentence)

    def settle(self) -> None:
        """Wait for the GPU; raises what went wrong there."""
        torch.cuda.synchronize()

    def fault(self) -> dict[str, Any]:
        """Ask the driver whether this process's context still works."""
        if (error := context_error()) is None:
            return {}
        name, text = error
        return {"kind": "device", "type": name, "message": text, "kernel": self._recorder.last}

    def explain(self, error: BaseException) -> tuple[BaseException, dict[str, Any]]:
        """Tell a kernel that does not compile, or does not fit, from other errors."""
        if not isinstance(error, Exception):
            return error, {}
        said = explain(error, [self._file])
        if not said.kernel and not isinstance(error, OutOfResources):
            return error, {}
        fields: dict[str, Any] = {
            "kind": "resources" if isinstance(error, OutOfResources) else "language",
            "type": said.type,
            "message": shorten(said.message, MESSAGE_CHARACTERS),
            "kernel": said.kernel,
        }
        if said.line and said.file == self._file:
            fields |= {"line": said.line, "source": shorten(said.source, 200)}
        return error, fields
