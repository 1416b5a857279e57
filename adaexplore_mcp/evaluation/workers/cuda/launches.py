"""Triton's launches on a real GPU, kept account of: which kernel, how many programs, and which was the last.

The driver's launcher is wrapped, so every launch is seen whatever way it was made. Autotuners choose without a clock
(`workers.tuning`): a verdict does not depend on how busy the GPU was.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton

from adaexplore_mcp.evaluation.workers.cost import largest_grids
from adaexplore_mcp.evaluation.workers.cuda.times import DeviceTimes
from adaexplore_mcp.evaluation.workers.omission import Omission
from adaexplore_mcp.evaluation.workers.tuning import Tuning, direct_autotuners

if TYPE_CHECKING:
    from adaexplore_mcp.evaluation.workers.integrity import Watch

__all__ = ["Launch", "Launches", "Recorder"]

MAX_TOLD = 16  # messages of progress in a call, beside those of every second
MAX_LAUNCHES = 100_000  # a call with more is counted no further


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Args:
        kernel: Name of the function.
        grid: Programs along each axis.
        tuning: An autotuner tried a configuration.
    """

    kernel: str
    grid: tuple[int, int, int]
    tuning: bool

    @property
    def programs(self) -> int:
        """Programs in all."""
        return math.prod(self.grid)


class Launches:
    """What one call launched; see `engine.Run`.

    Args:
        config: Autotuner configuration to run, by position; None for the first.
        tune: Run every configuration once before.
        notes: Sentences for the report, shared by all calls.
        one_by_one: Wait after every launch, so that a fault is known for one kernel.
        good: See `workers.tuning.Tuning`.
        omission: Launches that do nothing.
        times: Told of the device's work for launches; None where nobody asks.
        over: Called when the candidate's code has ended.
    """

    def __init__(
        self,
        config: int | None,
        *,
        tune: bool,
        notes: Sequence[str] = (),
        one_by_one: bool = False,
        good: Mapping[str, Sequence[bool]] | None = None,
        omission: Omission | None = None,
        times: DeviceTimes | None = None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self.launches: list[Launch] = []
        self.autotuned: dict[str, int] = {}
        self.tuning = Tuning(self.autotuned, config, tune=tune, good=good)
        self.one_by_one = one_by_one
        self.omission = omission or Omission()
        self.times = times
        self.told = 0
        self._notes = notes
        self._over = over

    def returned(self) -> None:
        """Take no more times."""
        self._over()

    def programs(self) -> int:
        """Return how many programs were launched."""
        return sum(launch.programs for launch in self.launches)

    def progress(self) -> dict[str, Any]:
        """Return the last launch."""
        if not self.launches:
            return {}
        last = self.launches[-1]
        return {"kernel": last.kernel, "launch": len(self.launches), "total": last.programs}

    def findings(self) -> list[dict[str, Any]]:
        """Return nothing: a GPU does not look into its kernels."""
        return []

    def facts(self) -> dict[str, Any]:
        """Return launches and grids."""
        own = [launch for launch in self.launches if not launch.tuning]
        counts: dict[str, int] = {}
        for launch in own:
            counts[launch.kernel] = counts.get(launch.kernel, 0) + 1
        return {
            "launches": counts,
            "programs": sum(launch.programs for launch in own),
            "grids": largest_grids((launch.kernel, launch.grid) for launch in self.launches),
            "autotuned": dict(self.autotuned),
            "notes": list(self._notes),
            "left_out": self.omission.count,
            **({} if self.times is None else self.times.facts()),
        }

    def refuse(self) -> None:
        """Do nothing: whatever runs on a GPU can be judged there."""


class Recorder:
    """Sees every launch of this process, once installed.

    Args:
        on_first: Told of the first launch of each kernel in a call, before it runs: where the kernel never ends, this is
            the last that is heard.
    """

    def __init__(self, on_first: Callable[[Mapping[str, Any]], None]) -> None:
        self.current = Launches(None, tune=False)
        self.last = ""
        self.guard: Watch | None = None
        self._on_first = on_first

    @property
    def tuning(self) -> Tuning:
        """What autotuners ask."""
        return self.current.tuning

    def install(self) -> None:
        """Wrap the launcher of Triton's driver; CUDA must have been started."""
        driver = triton.runtime.driver.active
        launcher = driver.launcher_cls
        driver.launcher_cls = lambda source, metadata: _Launcher(self, launcher(source, metadata), source)
        direct_autotuners(self)

    def before(self, kernel: str, grid: tuple[int, int, int]) -> None:
        """Note a launch that is about to be made."""
        if self.guard is not None and not self.guard.working:
            self.guard.late(f"a launch of {kernel}")
        current = self.current
        first = all(launch.kernel != kernel for launch in current.launches[-100:])
        if len(current.launches) < MAX_LAUNCHES:
            current.launches.append(Launch(kernel, grid, current.tuning.measuring is not None))
        self.last = kernel
        if first and current.one_by_one and current.told < MAX_TOLD:
            current.told += 1
            self._on_first(current.progress())

    def after(self) -> None:
        """Wait for the launch, where they are to run one by one."""
        if self.current.one_by_one and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
            self.last = ""  # whatever breaks later, it was not this one


class _Launcher:
    """Takes the place of the launcher of one compiled kernel."""

    def __init__(self, recorder: Recorder, launcher: Any, source: Any) -> None:  # noqa: ANN401 - triton's types
        self._recorder = recorder
        self._launcher = launcher
        self._name = str(getattr(source, "name", "") or getattr(source.fn, "__name__", "kernel"))

    def __call__(self, x: int, y: int, z: int, *arguments: Any) -> Any:  # noqa: ANN401 - as Triton's
        self._recorder.before(self._name, (x, y, z))
        current = self._recorder.current
        if current.omission.takes(self._name, (x, y, z)):
            return None
        with contextlib.nullcontext() if current.times is None else current.times.own():
            result = self._launcher(x, y, z, *arguments)
        self._recorder.after()
        return result

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever Triton asks of its own
        return getattr(self._launcher, name)
