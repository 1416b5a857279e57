"""What happens to the kernels of one candidate: every build and launch, within limits of time."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .ahead import Found, Tuning
from .resources import CompileTimeout

if TYPE_CHECKING:
    import torch

    from .records import Build, Launch

__all__ = ["AfterLaunch", "Session"]

AfterLaunch = Callable[[str, Iterable[tuple[str, "torch.Tensor"]]], None]
"""Takes a kernel's name and its tensors by name."""


class Session:
    """Builds and launches of one candidate, in order.

    Args:
        time_limit_s: Seconds of compilation for all kernels together. Beyond them an autotuner's remaining
            configurations are skipped, and any other kernel fails with `failure="time"`.
        per_kernel_limit_s: Seconds that one compilation may take before its next stage is refused, or ptxas is ended.
            The stages inside this process cannot be interrupted: whoever runs it needs a deadline of its own.
        all_configurations: Compile every configuration of an autotuner; otherwise only the first that builds.
        configurations_limit_s: Seconds of compilation after which an autotuner's remaining configurations are skipped,
            once one of them is built.
        files: The author's files, for errors in helper functions that live in another file than their kernel.
        jobs: How many of an autotuner's configurations are compiled side by side; limits then count the time that passes.
        on_launch: Is called with the kernel's name after each launch.
        after_launch: Is given kernel and tensors of each launch that is no try of an autotuner, once it would have run.
        on_leave: Is called when the context is left, with whether all went well in it.
    """

    def __init__(
        self,
        *,
        time_limit_s: float = 60.0,
        per_kernel_limit_s: float = 20.0,
        all_configurations: bool = True,
        configurations_limit_s: float = 60.0,
        files: Iterable[str | Path] = (),
        jobs: int = 1,
        on_launch: Callable[[str], None] = lambda kernel: None,  # noqa: ARG005 - nothing to do
        after_launch: AfterLaunch | None = None,
        on_leave: Callable[[bool], None] = lambda well: None,  # noqa: ARG005 - nothing to do
    ) -> None:
        self.time_limit_s = time_limit_s
        self.per_kernel_limit_s = per_kernel_limit_s
        self.all_configurations = all_configurations
        self.configurations_limit_s = min(configurations_limit_s, time_limit_s)
        self.files = tuple(str(file) for file in files)
        self.jobs = jobs
        self.builds: list[Build] = []
        self.launches: list[Launch] = []
        self.seconds = 0.0
        """Spent in compilation so far."""
        self.skipped_configurations = 0
        """Of autotuners: not compiled, because time ran out or one was enough."""
        self.ahead: dict[str, Found] = {}
        """What children found out about builds that are yet to be made here, by their identity."""
        self.tunings: dict[int, Tuning] = {}
        """The last run of each autotuner."""
        self.built_one = False
        """Whether a configuration of the present tuning could be launched."""
        self._tuned: object = None
        self._rank = 0
        self._tries: list[bool] = []
        self._tried: list[tuple[str, list[bool]]] = []
        self.on_launch = on_launch
        self._after_launch = after_launch
        self._trying = False
        self._on_leave = on_leave

    @property
    def notes(self) -> list[str]:
        """Sentences that a report of the run must show."""
        notes = []
        if self.skipped_configurations and self.all_configurations:
            notes.append(
                f"{self.skipped_configurations} autotuner configurations were not compiled: "
                f"the limit of {self.configurations_limit_s:g} s for them was reached; timing leaves them out"
            )
        elif self.skipped_configurations:
            notes.append(
                f"{self.skipped_configurations} autotuner configurations were not compiled: one is enough"
            )
        built = {build.kernel for build in self.builds if not build.failure}
        if slow := sum(build.failure == "time" and build.kernel in built for build in self.builds):
            notes.append(
                f"{slow} autotuner configurations took longer than {self.per_kernel_limit_s:g} s to compile: "
                "timing leaves them out"
            )
        return notes

    @property
    def out_of_time(self) -> bool:
        """Say whether the time for further configurations is used up."""
        return self.seconds >= self.configurations_limit_s

    def remaining_s(self, kernel_started: float) -> float:
        """Return the seconds that the kernel whose compilation began at `kernel_started` may still take.

        Raises:
            CompileTimeout: None.
        """
        spent = time.monotonic() - kernel_started
        remaining = min(self.per_kernel_limit_s, self.time_limit_s - self.seconds) - spent
        if remaining <= 0:
            raise self.timeout()
        return remaining

    def timeout(self) -> CompileTimeout:
        """Return what a compilation that begins now runs into when its time is over."""
        kernels = self.time_limit_s - self.seconds < self.per_kernel_limit_s
        limit = f"{self.time_limit_s:g} s for all" if kernels else f"{self.per_kernel_limit_s:g} s for one"
        return CompileTimeout(
            f"compilation was given up: the limit of {limit} kernel{'s' if kernels else ''} was reached"
        )

    def about_to_try(self, tuner: Any, configs: Any) -> None:  # noqa: ANN401 - an Autotuner, what it is left with
        """Note which configurations an autotuner is about to try, if children are to help with them."""
        self.tunings.pop(id(tuner), None)
        if self.jobs > 1 and self.all_configurations and isinstance(configs, (list, tuple)):
            self.tunings[id(tuner)] = Tuning(configs)

    def benchmark(
        self,
        tuner: Any,  # noqa: ANN401 - an Autotuner
        kernel_call: Callable[[], None],
        *,
        quantiles: Iterable[float] | None = None,
        **options: Any,  # noqa: ANN401, ARG002 - of any benchmarker
    ) -> list[float] | float:
        """Compile a configuration by launching it; the result ranks it by position and is not a time.

        What the launch raises is left to the autotuner, which skips a configuration that exceeds resources.
        """
        if tuner.nargs is not self._tuned:  # a new dict for each call of the tuned kernel
            self._tuned, self.built_one = tuner.nargs, False
            self._tries = []
            self._tried.append((str(tuner.base_fn.__name__), self._tries))
        tuning = self.tunings.get(id(tuner))
        known = tuning is not None and id(tuning.current) in tuning.known
        built_one = self.built_one or (tuning is not None and tuning.built)
        if built_one and not known and (self.out_of_time or not self.all_configurations):
            self.skipped_configurations += 1
            self._tries.append(False)
            rank = float("inf")
        else:
            self._tries.append(False)
            self._trying = True
            try:
                kernel_call()
            finally:
                self._trying = False
            self._tries[-1] = True
            self.built_one = True
            self._rank += 1
            rank = float(self._rank)
        return [rank for _ in quantiles] if quantiles is not None else rank

    def after_launch(self, kernel: str, tensors: Iterable[tuple[str, "torch.Tensor"]]) -> None:
        """Pass on a launch that is no try of an autotuner."""
        if self._after_launch is not None and not self._trying:
            self._after_launch(kernel, tensors)

    def tuned(self) -> dict[str, list[bool]]:
        """Return by autotuned kernel which of its configurations built, in the order of its tuner.

        A kernel that was tuned several times has those that built every time; one whose tuner had other numbers of them is
        left out.
        """
        found: dict[str, list[bool]] = {}
        for name, tries in self._tried:
            before = found.setdefault(name, tries)
            found[name] = [a and b for a, b in zip(before, tries, strict=False)]
        lengths: dict[str, set[int]] = {}
        for name, tries in self._tried:
            lengths.setdefault(name, set()).add(len(tries))
        return {name: good for name, good in found.items() if len(lengths[name]) == 1 and any(good)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tuned = None
        self.tunings.clear()
        self.ahead.clear()
        self._on_leave(error is None)
