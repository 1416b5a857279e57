"""Autotuning without a clock: which configuration runs is chosen, never measured.

`@triton.autotune` measures each configuration and keeps the fastest. Here a configuration's rank is its
position, so the first one left after pruning wins, or the one that the caller asks for. Pruning, hooks and
resets run as they are: Triton's own `Autotuner.run` does them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch

from adaexplore_mcp.evaluation.workers.interpreter.findings import Call, NotInterpretable
from adaexplore_mcp.evaluation.workers.interpreter.versions import autotuner, triton

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["DEFAULT_DEVICE_PROPERTIES", "Tuning", "install_driver"]

DEFAULT_DEVICE_PROPERTIES: dict[str, int] = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}
"""What Triton's driver says about an H200, in its own units; kernels size persistent grids by it."""


class Tuning:
    """Which configuration the tuned kernels of one call run.

    Args:
        recorder: Where the number of configurations of each kernel is noted.
        config: The position to run, modulo the number each kernel has after pruning; None means the first.
        tune: Whether to run every configuration once before, as the first call on a GPU does.
    """

    def __init__(self, recorder: Call, config: int | None, *, tune: bool) -> None:
        self.recorder = recorder
        self.config = config or 0
        self.tune = tune
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
            self.recorder.autotuned[name] = max(len(configs), self.recorder.autotuned.get(name, 0))

    def measure(self, tuner: Any, kernel_call: Callable[[], None]) -> list[float]:  # noqa: ANN401 - an Autotuner
        """Stand in for a benchmark: run the configuration if asked to, and return its rank as its time."""
        position, self._rank = self._rank, self._rank + 1
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


class Device(Protocol):
    """What the driver and the autotuners ask: the interpreter, at the moment of the question."""

    capability: int
    device_properties: Mapping[str, int]
    tuning: Tuning


class _Utilities:
    """What Triton's compiled driver module offers to Python."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return dict(self._device.device_properties)

    def set_printf_fifo_size(self, _size: int) -> None:
        pass

    def load_binary(self, *_: object) -> None:
        msg = "a compiled kernel cannot be loaded into the interpreter"
        raise NotInterpretable(msg)


def install_driver(device: Device) -> None:
    """Make the stand-in the active driver and put the current call in charge of every autotuner."""
    triton.runtime.driver.set_active(_make_driver(device))
    _direct_autotuners(device)


def _make_driver(device: Device) -> object:
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - some source builds have no backends
    from triton.backends.driver import DriverBase  # noqa: PLC0415 - as above

    class InterpreterDriver(DriverBase):  # type: ignore[misc]  # Triton is untyped
        """A device that is the interpreter. Versions differ in which methods they require; all are here."""

        utils = _Utilities(device)
        get_device_capability = staticmethod(lambda _device=None: divmod(device.capability, 10))
        is_active = classmethod(lambda _cls: True)
        map_python_to_cpp_type = staticmethod(lambda name: name)
        get_current_target = staticmethod(lambda: GPUTarget("cuda", device.capability, 32))
        get_active_torch_device = staticmethod(lambda: torch.device("cpu"))
        get_device_interface = staticmethod(lambda: torch.cuda)
        get_current_device = staticmethod(lambda: 0)
        set_current_device = staticmethod(lambda _device: None)
        get_current_stream = staticmethod(lambda _device=None: 0)
        get_empty_cache_for_benchmark = staticmethod(lambda: torch.empty(0))
        clear_cache = staticmethod(lambda _cache: None)
        get_benchmarker = staticmethod(
            lambda: lambda kernel_call, **_: device.tuning.measure(None, kernel_call)
        )

        def __init__(self) -> None:
            pass  # the base class of some versions asks a real driver

    return InterpreterDriver()


def _direct_autotuners(device: Device) -> None:
    """Make every autotuner ask the current call. User-made benchmarks and CUDA graphs are never reached."""
    from triton.compiler.errors import CompileTimeAssertionFailure  # noqa: PLC0415 - heavy: it imports the compiler
    from triton.runtime.errors import OutOfResources  # noqa: PLC0415 - beside the line above

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

        while True:
            tuning.begin(self)
            self.fn = Settled()
            try:
                return run(self, *args, **kwargs)
            except (CompileTimeAssertionFailure, OutOfResources):
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
