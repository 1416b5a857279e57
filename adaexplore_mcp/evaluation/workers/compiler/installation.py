"""Make Triton compile for a target that is not there, and keep account of it."""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import triton
from triton.runtime.errors import OutOfResources, PTXASError

from adaexplore_mcp.evaluation.workers.targets import Target

from .ahead import Found, build_ahead, identity, outcome
from .allocation import shared_bytes
from .capture import Captured, captured_output
from .children import Tell
from .driver import StandInDriver
from .explain import Origin, attach_origin, explain
from .instructions import instructions
from .launchers import Launchers
from .occupancy import occupancy
from .records import Build, FailureKind, Launch, Resources
from .resources import Assembler, CompileTimeout, digest, private_temporary_files, usage_of_binary
from .session import AfterLaunch, Session
from .versions import (
    COMPILE_NAMES,
    Autotuner,
    CUDABackend,
    definition,
    forget_device_limits,
    nvidia_backend,
    nvidia_compiler,
    replace_driver,
)

__all__ = ["Compiler"]

MAX_TENSOR_MEMORY_COLUMNS = 512  # of Blackwell, as triton.compiler.compiler has it
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class Compiler:
    """Triton's compiler for one target, installed in this process until `uninstall`.

    A kernel that was launched before for another target keeps that one: fork a child per target.
    """

    _installed: ClassVar["Compiler | None"] = None

    def __init__(self, target: Target, device_of: Callable[[torch.Tensor], bool]) -> None:
        self.target = target
        self._assembler = Assembler()
        self._usage: dict[bytes, Resources] = {}
        self._session: Session | None = None
        self._launchers = Launchers(wanted=False)
        self._tell: Tell | None = None
        self._started = 0.0
        self._ran_stages = False
        self._undo: list[Callable[[], None]] = []
        self._driver = StandInDriver(
            target,
            device_of=device_of,
            usage_of=self._usage_of,
            on_launch=self._record_launch,
            after_launch=self._after_launch,
            benchmark=lambda *args, **options: 0.0,  # noqa: ARG005 - autotuners are given the session's
        )

    @classmethod
    def install(
        cls,
        target: Target,
        device_of: Callable[[torch.Tensor], bool] = lambda tensor: True,  # noqa: ARG005 - all tensors
    ) -> Self:
        """Install the compiler for a target, in the place of one that is installed, and return it.

        Raises:
            RuntimeError: Triton was imported to interpret kernels, not to compile them.
        """
        if triton.knobs.runtime.interpret:
            msg = "TRITON_INTERPRET is set: kernels of this process are interpreted and cannot be compiled"
            raise RuntimeError(msg)
        if Compiler._installed is not None:
            Compiler._installed.uninstall()
        compiler = cls(target, device_of)
        compiler._install()
        Compiler._installed = compiler
        return compiler

    def session(
        self,
        *,
        time_limit_s: float = 60.0,
        per_kernel_limit_s: float = 20.0,
        all_configurations: bool = True,
        configurations_limit_s: float = 60.0,
        files: Iterable[str | Path] = (),
        jobs: int = 1,
        launchers: bool = False,
        on_launch: Callable[[str], None] = lambda kernel: None,  # noqa: ARG005 - nothing to do
        after_launch: AfterLaunch | None = None,
    ) -> Session:
        """Begin to keep account of builds and launches; use it as a context around the candidate.

        With `launchers`, what Triton builds to launch a kernel is built into the kernel cache too; the other arguments
        are those of `Session`.

        Raises:
            RuntimeError: Another session is open.
        """
        if self._session is not None:
            msg = "a session of this compiler is open already"
            raise RuntimeError(msg)
        session = self._session = Session(
            time_limit_s=time_limit_s,
            per_kernel_limit_s=per_kernel_limit_s,
            all_configurations=all_configurations,
            configurations_limit_s=configurations_limit_s,
            files=files,
            jobs=jobs,
            on_launch=on_launch,
            after_launch=after_launch,
            on_leave=self._end_session,
        )
        self._launchers = Launchers(wanted=launchers)
        return session

    def uninstall(self) -> None:
        """Put Triton's own driver, backend and compiler back."""
        while self._undo:
            self._undo.pop()()
        if Compiler._installed is self:
            Compiler._installed = None

    def _end_session(self, well: bool) -> None:
        self._session = None
        self._launchers.finish(wait=well)

    def _set(self, owner: Any, name: str, value: Any) -> None:  # noqa: ANN401 - any attribute
        before = vars(owner)[name]
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def _install(self) -> None:
        backends, key = nvidia_backend()
        before = backends[key]
        self._undo.append(lambda: backends.update({key: before}))
        backends[key] = dataclasses.replace(before, compiler=self._backend_class())

        self._undo.append(replace_driver(self._driver))
        forget_device_limits()
        self._undo.append(forget_device_limits)

        self._set(nvidia_compiler, "subprocess", self._assembler)
        self._set(Autotuner, "do_bench", property(self._benchmarker))
        self._set(Autotuner, "prune_configs", self._prune(vars(Autotuner)["prune_configs"]))
        self._set(Autotuner, "_bench", self._bench(vars(Autotuner)["_bench"]))
        compile_ = functools.wraps(triton.compile)(functools.partial(self._compile, triton.compile))
        for module in COMPILE_NAMES:
            self._set(module, "compile", compile_)

    def _backend_class(self) -> type[Any]:
        compiler = self

        class Backend(CUDABackend):  # type: ignore[misc]  # triton ships no types
            """Triton's backend, with limits looked at between its stages."""

            def add_stages(self, stages: dict[str, Any], options: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
                super().add_stages(stages, options, *args, **kwargs)
                for name, stage in stages.items():
                    stages[name] = functools.partial(compiler._run_stage, name, stage, options)

        return Backend

    def _run_stage(
        self,
        name: str,
        stage: Callable[..., Any],
        options: Any,  # noqa: ANN401 - CUDAOptions
        source: Any,  # noqa: ANN401 - a module or text
        metadata: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - the next module, text, or binary
        """Run one stage of a compilation, unless a limit says that its result is of no use.

        Raises:
            OutOfResources: The kernel needs more shared memory than the target has.
            CompileTimeout: A limit of time was reached before the stage, or by ptxas in it.
        """
        self._ran_stages = True
        session = self._session or Session()
        remaining = session.remaining_s(self._started)
        if name == "llir":
            self._check_shared_memory(shared_bytes(source, options, self.target.arch))
        elif name == "ptx":
            self._check_shared_memory(metadata.get("shared"))
        if name != "cubin":
            return stage(source, metadata)
        self._assembler.time_limit_s = remaining
        with private_temporary_files():
            cubin = stage(source, metadata)
        if self._assembler.usage is not None:
            self._usage[digest(cubin)] = self._assembler.usage
        return cubin

    def _check_shared_memory(self, needed: int | None) -> None:
        limit = self.target.shared_bytes_per_block_optin
        if needed is not None and needed > limit:
            raise OutOfResources(needed, limit, "shared memory")

    def _compile(
        self,
        compile_: Callable[..., Any],
        src: Any,  # noqa: ANN401 - an ASTSource, or the path of an intermediate representation
        target: Any = None,  # noqa: ANN401 - a GPUTarget
        options: dict[str, Any] | None = None,
        **internal: Any,  # noqa: ANN401 - of later versions
    ) -> Any:  # noqa: ANN401 - a CompiledKernel
        """Take the place of `triton.compile`: the same, kept account of."""
        build = _describe(src, options or {})
        session = self._session or Session()
        session.builds.append(build)
        place = definition(src.fn)[:2] if hasattr(src, "fn") else ("", 0)
        self._ran_stages = False
        self._started = time.monotonic()
        self._launchers.start(src)
        captured, name, found = Captured(), "", None
        try:
            name, found = self._found_ahead(session, src, options or {})
            with captured_output(build.kernel, *place) as captured:
                if found is not None:
                    found.fail_again()
                kernel = compile_(src, target=target, options=options, **internal)
        except Exception as error:
            said = found.diagnostics if found else captured.stderr
            if hasattr(src, "fn"):
                attach_origin(error, Origin(build.kernel, *place, src.fn, said))
            build.error = explain(error, session.files)
            build.failure = _kind(error)
            self._tell_of(name, build, captured, error)
            raise
        else:
            sys.stdout.write(found.printed if found else captured.stdout)  # static_print
            self._fill(build, kernel, found)
            self._tell_of(name, build, captured)
            self._launchers.start(src, kernel.metadata)
            exceeded = self._exceeded_at_load(build, kernel.metadata)
            if exceeded is not None:  # Triton raises it at the launch
                if hasattr(src, "fn"):
                    attach_origin(exceeded, Origin(build.kernel, *place, src.fn))
                build.error, build.failure = explain(exceeded, session.files), "resources"
            return kernel
        finally:
            taken = time.monotonic() - self._started
            session.seconds += taken
            build.seconds = found.seconds if found else taken
            build.diagnostics = found.diagnostics if found else captured.stderr

    def _found_ahead(
        self,
        session: Session,
        src: Any,  # noqa: ANN401 - as in `_compile`
        options: dict[str, Any],
    ) -> tuple[str, Found | None]:
        """Return what this build is known by where children help, and what one of them found out about it."""
        if self._tell is None and not session.ahead:
            return "", None
        name = identity(src, options)
        found = session.ahead.get(name)
        if found is not None and found.raised is None:
            del session.ahead[name]  # from now on an earlier build serves
        if self._tell is not None:
            self._tell({"begins": name})
        return name, found

    def _tell_of(self, name: str, build: Build, captured: Captured, error: Exception | None = None) -> None:
        """Tell the parent of this child how a build ended, if it is a child."""
        if self._tell is None:
            return
        usage = None
        if build.registers is not None and build.stack_bytes is not None:
            usage = Resources(build.registers, build.stack_bytes, build.spill_bytes)
        found = Found(
            seconds=time.monotonic() - self._started,
            cached=build.cached,
            usage=usage,
            diagnostics=captured.stderr,
            printed=captured.stdout,
            raised=error,
        )
        self._tell({"ends": name, **outcome(found)})

    def _fill(self, build: Build, kernel: Any, found: Found | None) -> None:  # noqa: ANN401 - a CompiledKernel
        build.cached = found.cached if found else not self._ran_stages
        build.shared_bytes = kernel.metadata.shared
        if found is not None and found.usage is not None:
            self._usage[digest(kernel.asm["cubin"])] = found.usage
        usage = self._usage_of(kernel.asm["cubin"])
        if usage is not None:
            build.registers = usage.registers
            build.spill_bytes = usage.spill_bytes
            build.stack_bytes = usage.stack_bytes
            threads = kernel.metadata.num_warps * self.target.warp_size
            found_out = occupancy(self.target, usage.registers, threads, build.shared_bytes or 0)
            build.occupancy, build.occupancy_limit = found_out
        build.instructions = instructions(kernel.asm["ptx"])

    def _exceeded_at_load(self, build: Build, metadata: Any) -> OutOfResources | None:  # noqa: ANN401 - a named tuple
        """Return which limit of the target a finished kernel exceeds, as Triton finds out when it loads it."""
        threads = metadata.num_warps * self.target.warp_size
        most_threads = self._driver.threads_per_block(build.registers or 0)
        if threads > most_threads:
            return OutOfResources(threads, most_threads, "threads")
        tensor_memory = getattr(metadata, "tmem_size", None) or 0
        if tensor_memory > MAX_TENSOR_MEMORY_COLUMNS:
            return OutOfResources(tensor_memory, MAX_TENSOR_MEMORY_COLUMNS, "tensor memory")
        return None

    def _usage_of(self, cubin: bytes) -> Resources | None:
        key = digest(cubin)
        if key not in self._usage:
            usage = usage_of_binary(cubin)
            if usage is None:
                return None
            self._usage[key] = usage
        return self._usage[key]

    def _after_launch(self, kernel: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        if self._session is not None:
            self._session.after_launch(kernel, tensors)

    def _record_launch(self, launch: Launch) -> None:
        if self._session is not None:
            self._session.launches.append(launch)
            self._session.on_launch(launch.kernel)

    def _prune(self, prune: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of an autotuner's `prune_configs`: it also notes which are about to be tried."""

        @functools.wraps(prune)
        def prune_and_note(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - an Autotuner's method
            configs = prune(tuner, *args, **kwargs)
            if self._session is not None:
                self._session.about_to_try(tuner, configs)
            return configs

        return prune_and_note

    def _bench(self, bench: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of an autotuner's `_bench`: children try all configurations before the first."""

        @functools.wraps(bench)
        def bench_after_children(tuner: Any, /, *args: Any, config: Any, **meta: Any) -> Any:  # noqa: ANN401 - as above
            session = self._session
            tuning = session.tunings.get(id(tuner)) if session is not None else None
            if session is not None and tuning is not None:
                if not tuning.begun:
                    build_ahead(
                        session,
                        tuning,
                        lambda each, tell: self._attempt(
                            session, tell, lambda: bench(tuner, *args, config=each, **meta)
                        ),
                    )
                tuning.current = config
            return bench(tuner, *args, config=config, **meta)

        return bench_after_children

    def _attempt(self, session: Session, tell: Tell, bench: Callable[[], object]) -> None:
        """Try one configuration, in a child; see `build_ahead`."""
        session.jobs = 1
        session.built_one = False
        self._tell = tell
        self._launchers.forget()
        try:
            bench()
        except BaseException:  # noqa: BLE001 - whatever ends the tuning is raised again by the parent itself
            tell({"done": "raised"})
        else:
            tell({"done": "launched" if session.built_one else "passed over"})
        self._launchers.finish()

    def _benchmarker(self, tuner: Any) -> Callable[..., Any]:  # noqa: ANN401 - an Autotuner
        return functools.partial((self._session or Session()).benchmark, tuner)


def _describe(src: Any, options: dict[str, Any]) -> Build:  # noqa: ANN401 - an ASTSource or a path
    """Return a build of which only the question is known."""
    if not hasattr(src, "fn"):
        return Build(kernel=str(src), signature={}, constants={}, options={})
    names = list(src.fn.arg_names)
    constants = {
        ".".join([names[path[0]], *map(str, path[1:])]): str(value)[:80]
        for path, value in src.constants.items()
    }
    return Build(
        kernel=src.name,
        signature={name: str(kind) for name, kind in src.signature.items()},
        constants=constants,
        options={name: options.get(name) for name in OPTIONS},
    )


def _kind(error: Exception) -> FailureKind:
    if isinstance(error, CompileTimeout):
        return "time"
    if isinstance(error, OutOfResources):
        return "resources"
    if isinstance(error, PTXASError):
        return "assembler"
    return "language"
