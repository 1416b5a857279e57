"""Autotuning without a clock: which configuration runs is chosen, never measured.

`@triton.autotune` measures each configuration and keeps the fastest. Where a verdict is all that is wanted, a
configuration's rank is its position, so the first one left after pruning wins, or the one that the caller asks for.
Pruning, hooks and resets run as they are: Triton's own `Autotuner.run` does them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from triton.runtime import autotuner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Tuned", "Tuning", "direct_autotuners", "quick_autotuners"]

WARM_UP_MS, MEASURE_MS = 2, 10
"""Of each configuration, where autotuners choose by the clock: Triton's own 25 and 100 ms would hold the GPU for seconds."""


class Tuning:
    """Which configuration the tuned kernels of one call run.

    Args:
        autotuned: Where the number of configurations of each kernel is noted.
        config: The position to run, modulo the number each kernel has after pruning; None means the first.
        tune: Whether to run every configuration once before, as the first call on a GPU does.
        good: By kernel, which of its configurations are known to build; all others are passed over. A kernel that is not
            in it, or has another number of them, is tuned over all.
    """

    def __init__(
        self,
        autotuned: dict[str, int],
        config: int | None,
        *,
        tune: bool,
        good: Mapping[str, Sequence[bool]] | None = None,
    ) -> None:
        self.autotuned = autotuned
        self.config = config or 0
        self.tune = tune
        self.good = good or {}
        self.measuring: int | None = None
        self.chosen: int | None = None
        self.settled: int | None = None
        self._pruned: dict[int, list[Any]] = {}
        self._failed: dict[int, set[int]] = {}
        self._begun: list[Any] = []
        self._rank = 0

    def begin(self, tuner: Any) -> None:  # noqa: ANN401 - an Autotuner
        """Forget what earlier calls tuned, once per tuner and call."""
        if not any(tuner is known for known in self._begun):
            self._begun.append(tuner)
            tuner.cache.clear()
            tuner.cache_results = False
        self._rank = 0
        self.chosen = self.settled = None

    def pruned(self, tuner: Any, configs: Sequence[Any]) -> None:  # noqa: ANN401 - an Autotuner
        """Remember which configurations compete."""
        self._pruned[id(tuner)] = list(configs)
        if len(configs) > 1:
            name = tuner.base_fn.__name__
            self.autotuned[name] = max(len(configs), self.autotuned.get(name, 0))

    def measure(self, tuner: Any, kernel_call: Callable[[], None]) -> list[float]:  # noqa: ANN401 - an Autotuner
        """Stand in for a benchmark: run the configuration if asked to, and return its rank as its time."""
        position, self._rank = self._rank, self._rank + 1
        if self._is_bad(tuner, position):
            return [math.inf] * 3
        if self.tune:
            self.measuring = position
            try:
                kernel_call()
            finally:
                self.measuring = None
        rank = float((position - self.config) % max(1, len(self._pruned.get(id(tuner), ()))))
        if position in self._failed.get(id(tuner), ()):
            rank = math.inf  # what Triton gives a configuration that does not compile
        return [rank, rank, rank]

    def _is_bad(self, tuner: Any, position: int) -> bool:  # noqa: ANN401 - an Autotuner
        known = _known(self.good, tuner, len(self._pruned.get(id(tuner), ())))
        return bool(known) and not known[position]

    def fail(self, tuner: Any) -> bool:  # noqa: ANN401 - an Autotuner
        """Pass over the configuration in use, which does not compile; False if there is no other."""
        failed = self._failed.setdefault(id(tuner), set())
        if self.settled is None or self.settled in failed:
            return False
        failed.add(self.settled)
        tuner.cache.clear()
        return len(failed) < len(self._pruned.get(id(tuner), ()))

    def settle(self, tuner: Any, config: Any) -> None:  # noqa: ANN401 - an Autotuner and one of its Configs
        """Note which configuration the coming launch runs."""
        known = self._pruned.get(id(tuner), ())
        position = next((i for i, other in enumerate(known) if other is config), None)
        self.chosen = self.settled = position if len(known) > 1 else None


def _known(good: Mapping[str, Sequence[bool]], tuner: Any, count: int) -> Sequence[bool]:  # noqa: ANN401 - an Autotuner
    """Return which of so many configurations are known to build; nothing where that is not known of exactly these."""
    known = good.get(getattr(getattr(tuner, "base_fn", None), "__name__", ""), ())
    return known if len(known) == count else ()


class Tuned(Protocol):
    """Whose `tuning` autotuners ask, at the moment of the question."""

    @property
    def tuning(self) -> Tuning:
        """What decides now."""
        ...


def direct_autotuners(device: Tuned) -> None:
    """Make every autotuner ask the current call. User-made benchmarks and CUDA graphs are never reached."""
    from triton.compiler.errors import CompileTimeAssertionFailure  # noqa: PLC0415 - heavy: it imports the compiler
    from triton.runtime.errors import OutOfResources, PTXASError  # noqa: PLC0415 - beside the line above

    tuner_class = autotuner.Autotuner
    run, prune = tuner_class.run, tuner_class.prune_configs

    def directed_run(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Autotuner.run
        tuning = device.tuning
        base = self.fn

        class Settled:
            """The tuned function, announcing the configuration that Autotuner.run settled on."""

            fn = base

            def run(self_, *inner: Any, **options: Any) -> Any:  # noqa: ANN401, N805 - as fn.run; self is the tuner
                if tuning.measuring is None:
                    tuning.settle(self, self.best_config)
                try:
                    return base.run(*inner, **options)
                finally:
                    tuning.chosen = None

            run.__module__, run.__qualname__ = "triton.runtime.jit", "JITFunction.run"  # as errors name it

        while True:
            tuning.begin(self)
            self.fn = Settled()
            try:
                return run(self, *args, **kwargs)
            except (CompileTimeAssertionFailure, OutOfResources, PTXASError):
                if not tuning.fail(self):
                    raise
            finally:
                self.fn = base

    def directed_prune(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Autotuner.prune_configs
        configs = prune(self, *args, **kwargs)
        device.tuning.pruned(self, configs)
        return configs

    tuner_class.run = directed_run
    tuner_class.prune_configs = directed_prune
    tuner_class.do_bench = property(
        lambda self: lambda kernel_call, **_: device.tuning.measure(self, kernel_call)
    )


def quick_autotuners(good: Mapping[str, Sequence[bool]]) -> None:
    """Make every autotuner choose by the clock, as Triton does, in less time, among what is known to build.

    Whatever else there is was judged in no verdict, and would be compiled while the GPU is held alone.

    Args:
        good: See `Tuning`.
    """
    from triton.testing import do_bench  # noqa: PLC0415 - it imports the driver, which interpreting processes lack

    def bench(kernel_call: Callable[[], None], quantiles: Sequence[float] = (0.5, 0.2, 0.8), **_: Any) -> Any:  # noqa: ANN401 - as Autotuner's do_bench
        return do_bench(kernel_call, warmup=WARM_UP_MS, rep=MEASURE_MS, quantiles=quantiles)

    prune = autotuner.Autotuner.prune_configs

    def only_good(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Autotuner.prune_configs
        configs = list(prune(self, *args, **kwargs))
        known = _known(good, self, len(configs))
        return (
            [each for each, builds in zip(configs, known, strict=True) if builds] if any(known) else configs
        )

    autotuner.Autotuner.do_bench = property(lambda _: bench)
    autotuner.Autotuner.prune_configs = only_good
