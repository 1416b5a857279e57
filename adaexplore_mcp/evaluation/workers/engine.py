"""What runs a candidate's kernels: Triton's interpreter, or a GPU. The same questions to both."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from adaexplore_mcp.evaluation.workers.integrity import Watch
from adaexplore_mcp.evaluation.workers.spaces import Space

__all__ = ["Engine", "Run"]


class Run(Protocol):
    """One call of a candidate, while it goes on and afterwards."""

    def returned(self) -> None:
        """Take note that the candidate's code has ended; what follows is the harness's."""
        ...

    def programs(self) -> int:
        """Return how many programs ran in all launches."""
        ...

    def progress(self) -> dict[str, Any]:
        """Return how far it is, as `claims.Progress` reads it."""
        ...

    def findings(self) -> list[dict[str, Any]]:
        """Return what was seen in its kernels, as `claims.findings` reads it."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return launches, grids and the like, as `claims.CallFacts` reads them."""
        ...

    def refuse(self) -> None:
        """Raise one of `Engine.not_here` if the call met what cannot be judged here, even if the candidate caught it."""
        ...


class Engine(Protocol):
    """What runs kernels."""

    @property
    def space(self) -> Space:
        """Where inputs and outputs lie."""
        ...

    @property
    def not_here(self) -> tuple[type[BaseException], ...]:
        """Exceptions that say the machine, not the candidate, is at fault."""
        ...

    def start(self, request: Mapping[str, Any], folder: Path) -> None:
        """Get ready for one candidate, before it is imported; `request` is that of `load`, `folder` the candidate's."""
        ...

    def guard(self, watch: Watch) -> None:
        """Tell of what the candidate's code launches, and asks of torch where that is seen, while it may not work."""
        ...

    def place(self, module: nn.Module) -> nn.Module:
        """Put a module on the device."""
        ...

    def mark(self, value: Any) -> None:  # noqa: ANN401 - inputs in any containers
        """Treat inputs, which lie in `space`, as tensors of the device."""
        ...

    def on_device(self, tensor: Tensor) -> bool:
        """Tell whether a GPU machine would have a tensor in GPU memory."""
        ...

    def call(self, request: Mapping[str, Any]) -> AbstractContextManager[Run]:
        """Watch one call; see the requests of `candidate`."""
        ...

    def settle(self) -> None:
        """Wait for what was launched; raise what went wrong in it."""
        ...

    def fault(self) -> dict[str, Any]:
        """Return what the device itself reports, in the fields of `claims.Failure`; empty where it works."""
        ...

    def explain(self, error: BaseException) -> tuple[BaseException, dict[str, Any]]:
        """Return the error behind one raised in a kernel, and the fields of `claims.Failure` that it decides."""
        ...
