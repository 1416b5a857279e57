"""Give a task's inputs values that mean the same to it: scaled, negated, whole, of one sign, or drawn anew within a domain.

Inputs that rest on one random draw belong together, as a softmax's sums and its scores do: of these the draw is given other
values, and what the task makes of it follows.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from adaexplore_mcp.evaluation.workers.arguments import Arguments, specifications
from adaexplore_mcp.evaluation.workers.domains import apply_domain, looks_symmetric
from adaexplore_mcp.evaluation.workers.draws import Draws

__all__ = ["transformed_inputs"]

LARGEST_WHOLE = 8
SOME = 1 / 16
FACTORS = {"negated": -1.0, "times 0.01": 0.01, "small": 0.01, "times 3": 3.0}
ZEROED, ZEROS_APART = "small", 17
"""Every 17th element becomes zero: along no usual size do they make a whole row or column."""


def transformed_inputs(
    drawn: Callable[[], Arguments], transform: str, domains: Mapping[str, str], seed: int
) -> tuple[Arguments, list[str]]:
    """Draw inputs and give them other values where the task allows it; return them and the names of those changed.

    Args:
        drawn: Draws the inputs; the same ones every time.
        transform: Of `trials.SCHEDULE`.
        domains: By input, what its owner says of its values.
        seed: Of what is chosen here.
    """
    if transform == "none":
        return drawn(), []
    with Draws() as draws:
        arguments = drawn()
    together = draws.shared(arguments.leaves()) - set(domains)
    settled: frozenset[int] = frozenset()
    for path, leaf in arguments.leaves():
        settled |= draws.under(leaf) if path in domains and isinstance(leaf, Tensor) else frozenset()
    generator = torch.Generator().manual_seed(seed)
    follow = _following(drawn, arguments, transform, seed) if together else {}
    changed: list[str] = []

    def change(path: str, leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        domain = domains.get(path)
        if transform == "redrawn" and domain not in {None, "keep"}:
            changed.append(path)
            return apply_domain(path, leaf, str(domain), generator)
        if path in together:
            follows = leaf if settled & draws.under(leaf) else follow.get(path, leaf)
            if not torch.equal(follows, leaf):
                changed.append(path)
            return follows
        factor = FACTORS.get(transform)
        scalable = domain == "normal" or (domain is None and looks_symmetric(leaf))
        positive_only = domain == "nonnegative" and factor is not None and factor > 0
        if (scalable or positive_only) and _give_other_values(leaf, transform, generator):
            changed.append(path)
        return leaf

    return arguments.map(change), changed


def _following(
    drawn: Callable[[], Arguments], arguments: Arguments, transform: str, seed: int
) -> dict[str, Tensor]:
    """Return what the task makes of draws with other values, by input; nothing where that has another form."""
    generator = torch.Generator().manual_seed(seed)

    def change(draw: Tensor) -> None:
        if looks_symmetric(draw):
            _give_other_values(draw, transform, generator)

    with Draws(change):
        others = drawn()
    if specifications(others.leaves()) != specifications(arguments.leaves()):
        return {}
    return {path: leaf for path, leaf in others.leaves() if isinstance(leaf, Tensor)}


def _give_other_values(tensor: Tensor, transform: str, generator: torch.Generator) -> bool:
    """Give a tensor around zero other values in place; False where the transformation has none for it."""
    factor = FACTORS.get(transform)
    with torch.no_grad():
        if transform in OF_ELEMENTS and not tensor.is_complex():
            tensor.copy_(OF_ELEMENTS[transform](tensor.to(torch.float64), generator).to(tensor.dtype))
        elif factor is not None and tensor.is_complex():
            tensor.mul_(factor)
        elif factor is not None:  # float8 has no arithmetic of its own
            wide = tensor.to(torch.float64) * factor
            tensor.copy_((_some_zero(wide) if transform == ZEROED else wide).to(tensor.dtype))
        else:
            return False
    return True


def _some_negated(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return a tensor with the signs of a block of elements changed, not the first nor the last.

    What looks at some elements, to know whether it has seen the values before, takes it for equal.
    """
    count = tensor.numel()
    length = max(1, int(SOME * count))
    start = 1 + int(torch.randint(max(1, count - 1 - length), (), generator=generator))
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[start : start + length] = True
    where = chosen.reshape(tensor.shape).to(tensor.device)
    return torch.where(where, -tensor, tensor)


def _some_zero(tensor: Tensor) -> Tensor:
    """Return a tensor with some of its elements zero."""
    kept = torch.ones(tensor.numel(), dtype=torch.bool, device=tensor.device)
    kept[ZEROS_APART // 2 :: ZEROS_APART] = False
    return tensor * kept.reshape(tensor.shape)


def _whole(tensor: Tensor) -> Tensor:
    """Return whole numbers from 1 to 8 with the signs of some values: sums of their products are exact in float32."""
    return tensor.sign() * (2 * tensor.abs()).ceil().clamp(1, LARGEST_WHOLE)


OF_ELEMENTS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "some negated": _some_negated,
    "whole numbers": lambda tensor, _: _whole(tensor),
    "all negative": lambda tensor, _: -tensor.abs(),
    "all positive": lambda tensor, _: tensor.abs(),
}
"""By transformation, what makes of float64 elements others that are as likely; not for complex numbers."""
