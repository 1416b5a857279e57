"""Run a candidate by Triton's interpreter, on CPU tensors that pass for tensors of a GPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from adaexplore_mcp.evaluation.workers.cost import largest_grids
from adaexplore_mcp.evaluation.workers.integrity import Watch
from adaexplore_mcp.evaluation.workers.interpreter import (
    Call,
    Deadlock,
    Interpreter,
    KernelError,
    NotInterpretable,
)
from adaexplore_mcp.evaluation.workers.omission import Omission
from adaexplore_mcp.evaluation.workers.spaces import HOST
from adaexplore_mcp.evaluation.workers.standin import NotHere, StandIn
from adaexplore_mcp.evaluation.workers.tape import TapeRecorder
from adaexplore_mcp.evaluation.workers.targets import target

__all__ = ["InterpretingEngine"]


class InterpretingEngine:
    """See `engine.Engine`; the stand-in that `start` enters stays active to the end of the process."""

    space = HOST
    not_here = (NotHere, NotInterpretable)
    _watch: Watch | None = None

    def start(self, request: Mapping[str, Any], folder: Path) -> None:
        """Install the interpreter and the stand-in for a target."""
        device = target(request["target"])
        self._interpreter = Interpreter.install(device.arch)
        self._standin = StandIn(device, [folder])
        self._standin.__enter__()

    def guard(self, watch: Watch) -> None:
        """Look at launches, and at each call of torch's interface."""
        self._watch = watch
        self._standin.tell_of_late_calls(watch)

    def place(self, module: nn.Module) -> nn.Module:
        """Put a module on the device that is none."""
        return self._standin.place(module)

    def mark(self, value: Any) -> None:  # noqa: ANN401 - inputs in any containers
        """Treat tensors as those of the device."""
        self._standin.place(value)

    def on_device(self, tensor: Tensor) -> bool:
        """Tell what a GPU machine would answer."""
        return self._standin.on_device(tensor)

    @contextmanager
    def call(self, request: Mapping[str, Any]) -> Iterator["_Run"]:
        """Interpret what is launched in the context."""
        self._standin.poison = request["poison"]
        tape = TapeRecorder(request["tape"]) if "tape" in request else None
        omission = Omission.of(request["omit"])
        with self._interpreter.call(
            request["config"],
            tune=request["tune"],
            poison=request["lanes"],
            order_seed=request["order_seed"],
            omission=omission,
            before_launch=self._before_launch,
            tape=tape,
        ) as seen:
            yield _Run(seen, self._standin, omission, tape)

    def settle(self) -> None:
        """Do nothing: an interpreted launch is over when it returns."""

    def fault(self) -> dict[str, Any]:
        """Return nothing: what is interpreted loses no device."""
        return {}

    def explain(self, error: BaseException) -> tuple[BaseException, dict[str, Any]]:
        """Return the original in place of the interpreter's wrapper, and the kernel."""
        if not isinstance(error, KernelError):
            return error, {}
        cause = error.__cause__ or error
        decided = {"kind": "deadlock"} if type(cause) is Deadlock else {}
        return cause, {"kernel": error.kernel, **decided}

    def _before_launch(self, kernel: str, arguments: Mapping[str, object]) -> None:
        """Note a launch, and refuse one on host memory, as Triton's launcher does.

        Raises:
            ValueError: An argument is a CPU tensor.
        """
        if self._watch is not None and not self._watch.working:
            self._watch.late(f"a launch of {kernel}")
        self._standin.launched(kernel)
        for name, value in arguments.items():
            if isinstance(value, Tensor) and not self._standin.on_device(value):
                msg = f"Pointer argument {name} of {kernel} cannot be accessed from Triton (cpu tensor?)"
                raise ValueError(msg)


class _Run:
    """See `engine.Run`."""

    def __init__(self, seen: Call, standin: StandIn, omission: Omission, tape: TapeRecorder | None) -> None:
        self._omission = omission
        self._tape = tape
        self._seen = seen
        self._standin = standin
        self._to_host = -standin.to_host

    def returned(self) -> None:
        self._to_host += self._standin.to_host
        self._standin.returned()
        self._taped = self._tape is not None and self._tape.finish()

    def programs(self) -> int:
        return sum(launch.programs for launch in self._seen.launches)

    def progress(self) -> dict[str, Any]:
        said: dict[str, Any] = {"operations": self._standin.calls}
        if launches := self._seen.launches:
            x, y, z = launches[-1].grid
            said |= {
                "kernel": launches[-1].kernel,
                "launch": len(launches),
                "done": launches[-1].programs,
                "total": x * y * z,
            }
        return said

    def findings(self) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in self._seen.findings]

    def facts(self) -> dict[str, Any]:
        seen = self._seen
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
            "left_out": self._omission.count,
            "to_host": max(0, self._to_host),
            "taped": self._taped,
            "uncovered": list(seen.uncovered),
            "refused": [str(refusal) for refusal in self._standin.refused],
            "notes": list(self._standin.notes),
        }

    def refuse(self) -> None:
        if self._seen.refused:
            raise NotInterpretable(self._seen.uncovered[-1])
        if self._seen.deadlock is not None:
            raise KernelError("", "") from self._seen.deadlock
