"""Launch kernels as Triton does, and keep the books of one call of a candidate."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from adaexplore_mcp.evaluation.workers.interpreter.arguments import (
    Signature,
    as_value,
    extents_of,
    signature_of,
    tensors_in,
)
from adaexplore_mcp.evaluation.workers.interpreter.builder import Builder
from adaexplore_mcp.evaluation.workers.interpreter.compiled import CompiledKernel
from adaexplore_mcp.evaluation.workers.interpreter.driver import DEFAULT_DEVICE_PROPERTIES, install_driver
from adaexplore_mcp.evaluation.workers.interpreter.findings import (
    Call,
    Finding,
    KernelError,
    Launch,
    NotInterpretable,
    candidate_frame,
)
from adaexplore_mcp.evaluation.workers.interpreter.language import Statements, patch_language, resolved
from adaexplore_mcp.evaluation.workers.interpreter.regions import AddressSpace, place_of
from adaexplore_mcp.evaluation.workers.interpreter.rewriting import rewrite
from adaexplore_mcp.evaluation.workers.interpreter.turns import Abandoned, Turns
from adaexplore_mcp.evaluation.workers.interpreter.versions import (
    check_versions,
    jit,
    stock,
    triton,
)
from adaexplore_mcp.evaluation.workers.omission import Omission
from adaexplore_mcp.evaluation.workers.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FunctionType

    from adaexplore_mcp.evaluation.workers.interpreter.sampling import Sample
    from adaexplore_mcp.evaluation.workers.tape import TapeRecorder

__all__ = ["Interpreter"]

DEFAULT_CAPABILITY = 90
SHUFFLE_LIMIT = 1 << 20
"""Programs of a launch; larger ones run in order."""
LAUNCH_OPTIONS = frozenset(
    [
        "grid",
        "warmup",
        "stream",
        "device",
        "device_type",
        "debug",
        "sanitize_overflow",
        "instrumentation_mode",
    ]
)
"""Keywords that a launch takes beside the kernel's parameters and the backend's options."""


class Interpreter:
    """Triton's interpreter, corrected. One per process; see the package's documentation for what it changes.

    Use `install`, not the constructor.
    """

    _installed: Interpreter | None = None

    def __init__(self, capability: int, device_properties: Mapping[str, int]) -> None:
        self.capability = capability
        self.device_properties = device_properties
        self.builder = Builder(capability)
        self.recorder = Call()
        self.tuning = Tuning(self.recorder.autotuned, None, tune=False)
        self.poison = "nan"
        self._before_launch: Callable[[str, Mapping[str, object]], None] | None = None
        self._order: np.random.Generator | None = None
        self._omission = Omission()
        self._sample: Sample | None = None
        self._tape: TapeRecorder | None = None
        self._in_call = False

    @classmethod
    def install(
        cls, capability: int | None = None, device_properties: Mapping[str, int] | None = None
    ) -> Interpreter:
        """Patch Triton in this process, once; later calls return the same interpreter.

        Args:
            capability: The compute capability to imitate, such as 90 for sm_90. It decides the fp8 types and
                the dots' precisions. None: 90 the first time, later what is set.
            device_properties: What kernels may ask about the device, in the words of Triton's driver; None:
                an H200's the first time, later what is set.

        Raises:
            UnsupportedVersionError: This Triton or numpy is not supported; the message names both.
            RuntimeError: TRITON_INTERPRET was not set before triton was imported, or a call is in progress.
        """
        if cls._installed is None:
            check_versions()
            interpreter = cls(
                capability or DEFAULT_CAPABILITY, device_properties or DEFAULT_DEVICE_PROPERTIES
            )
            statements = Statements(interpreter.builder)
            patch_language(interpreter.builder, statements)
            install_driver(interpreter)
            _patch_interpreter(interpreter, statements)
            cls._installed = interpreter
        elif capability is not None or device_properties is not None:
            cls._installed.retarget(capability, device_properties)
        return cls._installed

    def retarget(self, capability: int | None, device_properties: Mapping[str, int] | None) -> None:
        """Imitate another device from now on; None keeps what is set.

        Raises:
            RuntimeError: A call is in progress.
        """
        if self._in_call:
            msg = "the device cannot be changed while a call is in progress"
            raise RuntimeError(msg)
        self.capability = capability or self.capability
        self.device_properties = device_properties or self.device_properties
        self.builder.imitate(self.capability)

    @contextmanager
    def call(
        self,
        config: int | None = None,
        *,
        tune: bool = False,
        poison: str = "nan",
        order_seed: int | None = None,
        omission: Omission | None = None,
        before_launch: Callable[[str, Mapping[str, object]], None] | None = None,
        sample: Sample | None = None,
        tape: TapeRecorder | None = None,
    ) -> Iterator[Call]:
        """Keep the books of one forward of a candidate.

        Args:
            config: The autotune configuration to run, modulo the number each kernel has after pruning; None:
                the first.
            tune: Run every configuration once and then `config`, as the first call on a GPU does: an update
                without `reset_to_zero` then shows in the result.
            poison: What undefined lanes hold: "nan" (NaN and the largest integers) or "zero" (what an H200
                was seen to leave there). A result that only "zero" gives rests on undefined values.
            order_seed: Run the programs of each launch in an order drawn from this seed; None: one after the other.
                A GPU promises no order.
            omission: Launches that do nothing: a result that stays right without one does not rest on it.
            before_launch: Called with the kernel's name and its bound arguments before each launch; may
                raise.
            sample: Chooses the programs that run, on memory that holds nothing; None: all, on their tensors.
            tape: Is told what each launch changed.

        Raises:
            ValueError: `poison` is neither "nan" nor "zero".
            RuntimeError: Another call is in progress.
        """
        if poison not in ("nan", "zero"):
            msg = f"poison is {poison!r}: it is 'nan' or 'zero'"
            raise ValueError(msg)
        if self._in_call:
            msg = "calls do not nest: another Interpreter.call() is in progress"
            raise RuntimeError(msg)
        self._in_call = True
        recorder = Call()
        self.recorder, self.tuning = recorder, Tuning(recorder.autotuned, config, tune=tune)
        self.poison, self._before_launch, self._omission = poison, before_launch, omission or Omission()
        self._sample, self._tape = sample, tape
        self._order = None if order_seed is None else np.random.default_rng(order_seed)
        try:
            yield recorder
        finally:
            self._in_call = False
            self.recorder = Call()
            self.tuning = Tuning(self.recorder.autotuned, None, tune=False)
            self.poison, self._before_launch, self._order, self._omission = "nan", None, None, Omission()
            self._sample = self._tape = None

    # ---- one launch

    def launch(
        self,
        kernel: FunctionType,
        grid: Any,  # noqa: ANN401 - a tuple, or a function of the arguments that returns one
        hooks: Sequence[Callable[..., None]],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> CompiledKernel:
        """Bind the arguments as a compiled launch does, and run every program.

        Raises:
            TypeError: The arguments do not fit the kernel's parameters.
            RuntimeError: The grid is one that CUDA refuses.
            KernelError: A program raised; the cause is attached. Triton's own errors and MemoryError pass as
                they are.
            NotInterpretable: The kernel cannot be judged here.
        """
        signature = signature_of(kernel)
        options = {name: kwargs.pop(name) for name in list(kwargs) if name not in signature.names}
        self._check_options(kernel.__name__, options)
        known = {name: options[name] for name in options if name in vars(self.builder.base_options)}
        result = CompiledKernel(
            self.recorder,
            kernel.__name__,
            {**vars(self.builder.base_options), **known},
            lambda grid, *arguments: self.launch(kernel, grid, (), arguments, dict(known)),
        )
        bound = signature.bind(args, kwargs)
        if options.get("warmup"):
            return result
        for hook in hooks:
            hook(*args, **kwargs)
        extents = extents_of(grid, bound)
        launch = Launch(kernel.__name__, extents, config=self.tuning.chosen)
        if self.tuning.measuring is not None:
            launch.config, launch.tuning = self.tuning.measuring, True
        if self._before_launch is not None:
            self._before_launch(kernel.__name__, bound)
        self.recorder.launches.append(launch)
        if self._omission.takes(kernel.__name__, extents):
            return result
        # The candidate's torch modes (counting, device stand-ins) must not see the interpreter's own use of
        # torch.
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), np.errstate(all="ignore"):  # noqa: SLF001 - the only way to step out of a mode that someone else entered
            self.builder.choose_options(known)
            tape = None if launch.tuning else self._tape
            if tape is not None:
                tape.before(tensors_in(bound))
            self._run(kernel, signature, bound, launch)
            if tape is not None:
                tape.after(kernel.__name__)
        return result

    def _run(self, kernel: FunctionType, signature: Signature, bound: dict[str, Any], launch: Launch) -> None:
        builder, started, sample = self.builder, time.perf_counter(), self._sample
        space = AddressSpace(tensors_in(bound)) if sample is None else sample.space(tensors_in(bound))
        arguments = {
            name: value if name in signature.constants else as_value(value, space, signature.types.get(name))
            for name, value in bound.items()
        }
        positional, named = signature.passed(arguments)
        builder.grid_dim = launch.grid
        programs = math.prod(launch.grid)
        builder.order = range(programs)
        if self._order is not None and programs <= SHUFFLE_LIMIT:
            builder.order = self._order.permutation(programs).tolist()
        builder.begin_launch(kernel.__name__, space, self.recorder, self.poison)
        builder.running = True

        def program() -> None:
            kernel(*positional, **named)
            launch.programs += 1

        try:
            if sample is None:
                builder.turns = Turns(builder, builder.order, program)
                builder.turns.run()
            else:
                self._run_some(sample, program, launch)
        except (NotInterpretable, MemoryError, triton.TritonError) as error:
            error.kernel = kernel.__name__  # type: ignore[union-attr]  # for `locate`
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise KernelError(message, kernel.__name__) from error
        finally:
            builder.end_launch()
            builder.running = False
            launch.seconds = time.perf_counter() - started

    def _run_some(self, sample: Sample, program: Callable[[], None], launch: Launch) -> None:
        """Run what a sample chooses; a program that waits for another one ends there, for nothing is ever written."""
        builder = self.builder
        for number in sample.order(launch.kernel, launch.grid):
            builder.grid_idx = place_of(number, launch.grid)
            builder.program += 1
            try:
                program()
            except Abandoned:
                sample.cut_short.add(launch.kernel)

    def _check_options(self, kernel: str, options: dict[str, Any]) -> None:
        for name in options:
            if name in LAUNCH_OPTIONS or name in vars(self.builder.base_options):
                continue
            file, line = candidate_frame()
            if not self.recorder.seen("unknown_launch_keyword", kernel, file, line):
                detail = f"{name!r} is neither a parameter of {kernel} nor a launch option"
                self.recorder.add(Finding("unknown_launch_keyword", kernel, file, line, (0, 0, 0), detail))

    def call_function(self, function: FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - what the function returns
        """Call a jit function from a kernel.

        Raises:
            RuntimeError: No launch is in progress: the kernel was called like a Python function, without a
                grid.
        """
        if not self.builder.running:
            msg = "Cannot call @triton.jit'd outside of the scope of a kernel"
            raise RuntimeError(msg)
        return function(*args, **kwargs)


# ---- the seams of Triton's interpreter ---------------------------------------------------------------------


def _patch_interpreter(interpreter: Interpreter, statements: Statements) -> None:
    """Put ours behind the three names through which Triton's decorators reach its interpreter."""
    helpers = statements.helpers()

    class Executor:
        """A kernel and its grid; what `kernel[grid]` and `kernel.run` call."""

        def __init__(
            self,
            fn: FunctionType,
            arg_names: object,
            grid: object,
            pre_run_hooks: Sequence[Callable[..., None]] = (),
        ) -> None:
            del arg_names  # the function's own signature says it
            self._arguments = fn, grid, pre_run_hooks

        def __call__(self, *args: Any, **kwargs: Any) -> CompiledKernel:  # noqa: ANN401 - the kernel's arguments
            kernel, grid, hooks = self._arguments
            return interpreter.launch(kernel, grid, hooks, args, kwargs)

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> CompiledKernel:  # noqa: ANN401 - InterpretedFunction.run
        options = {**kwargs, "warmup": True} if warmup else kwargs
        return interpreter.launch(self.rewrite(), grid, getattr(self, "pre_run_hooks", ()), args, options)

    def compiled_run(self: Any, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - JITFunction.run; never returns
        sentence = f"{self.__name__} is a {type(self).__name__}, which is compiled: Gluon is not imitated"
        raise interpreter.recorder.refuse(sentence)

    def call_function(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - InterpretedFunction.__call__
        kwargs.pop("_semantic", None)
        return interpreter.call_function(self.rewrite(), args, kwargs)

    stock.GridExecutor = Executor
    stock.InterpretedFunction.__call__ = call_function
    stock.InterpretedFunction.run = run
    stock.FunctionRewriter.rewrite_ast = lambda self: rewrite(self.fn, helpers, resolved)
    stock.interpreter_builder = interpreter.builder
    stock.interpreter_semantic = interpreter.builder.semantic
    jit.JITFunction.run = compiled_run
