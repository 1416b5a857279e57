"""What a launch or `warmup` returns in place of a compiled kernel: it can be launched, and what it is asked is answered.

The answers about machine code are made up, and said to be: host code that chooses sizes by them goes the way that it goes for
a small kernel. Whatever a compiler really says is seen where the candidate is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from adaexplore_mcp.evaluation.workers.interpreter.versions import triton

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adaexplore_mcp.evaluation.workers.interpreter.findings import Call

__all__ = ["CompiledKernel"]

SHARED_BYTES = 1024
"""Not 0: host code divides by it."""
RESOURCES = {"n_regs": 32, "n_spills": 0, "n_max_threads": 1024}
TEXTS = ("ttir", "ttgir", "llir", "ptx", "sass")


class _Answers:
    """Answers what a table holds, and refuses everything else.

    Args:
        recorder: Is told what was asked.
        kernel: The kernel's name.
        known: Answers that are true.
    """

    made_up: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, recorder: Call, kernel: str, known: Mapping[str, Any]) -> None:
        self._recorder = recorder
        self._kernel = kernel
        self._known = known

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever is asked
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._known:
            return self._known[name]
        if name in self.made_up:
            self._recorder.note(
                f"host code asked for {name} of the compiled {self._kernel}, which only a compiler knows: an answer was made up, so "
                "launches may have other sizes on a GPU"
            )
            return self.made_up[name]
        sentence = (
            f"the compiled form of {self._kernel} was asked for its {name}: there is none in the interpreter"
        )
        raise self._recorder.refuse(sentence)


class _Metadata(_Answers):
    """What Triton knows of a kernel beside its code."""

    made_up: ClassVar[Mapping[str, Any]] = {"shared": SHARED_BYTES}


class CompiledKernel(_Answers):
    """Stands for a compiled kernel.

    Args:
        recorder: Is told what was asked.
        kernel: The kernel's name.
        options: What it would be compiled with, such as `num_warps`.
        launch: Launches it on a grid, with the arguments that follow.
    """

    made_up: ClassVar[Mapping[str, Any]] = {
        **RESOURCES,
        "asm": {**dict.fromkeys(TEXTS, ""), "cubin": b""},
    }

    def __init__(
        self, recorder: Call, kernel: str, options: Mapping[str, Any], launch: Callable[..., CompiledKernel]
    ) -> None:
        target = triton.runtime.driver.active.get_current_target()
        known = {**options, "name": kernel, "target": target, "warp_size": target.warp_size}
        super().__init__(recorder, kernel, {"name": kernel, "metadata": _Metadata(recorder, kernel, known)})
        self._launch = launch

    def _init_handles(self) -> None:
        """Do nothing: there is no binary to load."""

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:  # noqa: ANN401 - a tuple
        """Return what launches it, given all of its arguments in order."""

        def launched(*args: Any, stream: object = None) -> CompiledKernel:  # noqa: ANN401, ARG001 - as Triton's
            return self._launch(grid, *args)

        return launched
