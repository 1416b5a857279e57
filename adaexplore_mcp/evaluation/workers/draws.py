"""See on which random draws each tensor rests, and give draws other values before anything is made of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from adaexplore_mcp.evaluation.workers.trees import leaves

__all__ = ["Draws"]


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch's
    """While it is active, every operator's results rest on what its arguments rest on, and on a draw of their own if it is random.

    Args:
        change: Gives a draw of floating point other values in place, before anything is made of it.
    """

    def __init__(self, change: Callable[[Tensor], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._change = change
        self._rest_on: dict[int, frozenset[int]] = {}
        self._count = 0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator
        types: Any,  # noqa: ANN401 - what torch passes
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever it gives
        """Run an operator and note on what its results rest."""
        given = dict(kwargs or {})
        found: frozenset[int] = frozenset()
        before = set()
        for tensor in _tensors([args, given]):
            before.add(_memory(tensor))
            found |= self.under(tensor)
        results = func(*args, **given)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._count += 1
            found |= {self._count}
            for tensor in _tensors(results):
                if self._change is not None and tensor.is_floating_point():
                    self._change(tensor)
        for tensor in _tensors(results):
            memory = _memory(tensor)
            kept = self.under(tensor) if memory in before else frozenset()
            self._rest_on[memory] = kept | found
        return results

    def under(self, tensor: Tensor) -> frozenset[int]:
        """Return the draws on which a tensor rests, by number."""
        return self._rest_on.get(_memory(tensor), frozenset())

    def shared(self, named: Iterator[tuple[str, Any]]) -> set[str]:
        """Return the names of those among some tensors that rest on a draw on which another one rests too."""
        under = {name: self.under(leaf) for name, leaf in named if isinstance(leaf, Tensor)}
        return {
            name
            for name, draws in under.items()
            if any(draws & others for other, others in under.items() if other != name)
        }


def _tensors(value: Any) -> Iterator[Tensor]:  # noqa: ANN401 - arguments or results of an operator
    return (leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor))


def _memory(tensor: Tensor) -> int:
    """Return what tensors that share memory have in common."""
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - an address of data may be that of what is gone
    except (RuntimeError, NotImplementedError):  # sparse: it has none
        return id(tensor)
