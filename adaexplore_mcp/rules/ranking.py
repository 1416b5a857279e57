"""Which rules matter for a task or a kernel: what it uses, how sure the support is, what it did itself, whether showing helps."""

import functools
import math
from collections.abc import Collection
from typing import NamedTuple

from adaexplore_mcp.rules.kinds import KINDS_BY_ID, Subject

__all__ = ["Evidence", "effect", "lower_bound", "relevance", "score"]

Z = 1.96  # 95 %
OPERATOR_APIS = {
    "matmul": ("dot",), "linear": ("dot",), "conv": ("dot",), "bmm": ("dot",), "mm": ("dot",), "attention": ("dot",),
    "softmax": ("sum", "max"), "norm": ("sum",), "mean": ("sum",), "sum": ("sum",), "pool": ("max",), "max": ("max",),
    "min": ("min",), "argmax": ("argmax",), "cumsum": ("cumsum",), "loss": ("sum",), "entropy": ("sum", "max"),
}  # fmt: skip
"""What a kernel for an operator is likely to use, by a part of the operator's name."""
BROAD = frozenset({"arange", "load", "store"})
"""What nearly every kernel uses: it says nothing about relevance."""


class Evidence(NamedTuple):
    """What is known about one rule when rules are ranked; a tuple, for a thousand are made for each answer.

    Args:
        key: Its fingerprint.
        support: Task families that broke it here.
        families: Task families that were tried at all.
        vouched: A probe or a person says that it holds.
        own: This task or family broke it.
        seen: It can be seen in the kernel that is asked about.
    """

    key: str
    support: int
    families: int
    vouched: bool = False
    own: bool = False
    seen: bool = False


@functools.lru_cache(maxsize=4096)
def lower_bound(hits: int, trials: int) -> float:
    """Return the lower end of Wilson's 95 % interval of a share: few trials count little, however many hit."""
    if trials <= 0:
        return 0.0
    share = min(hits, trials) / trials
    middle = share + Z * Z / (2 * trials)
    spread = Z * math.sqrt((share * (1 - share) + Z * Z / (4 * trials)) / trials)
    return max(0.0, (middle - spread) / (1 + Z * Z / trials))


def apis_of_operators(operators: Collection[str]) -> frozenset[str]:
    """Return what a kernel for these operators is likely to use."""
    return frozenset(
        api
        for operator in operators
        for part, apis in OPERATOR_APIS.items()
        if part in operator.lower()
        for api in apis
    )


@functools.lru_cache(maxsize=4096)
def relevance(key: str, apis: frozenset[str]) -> float:
    """Return how much a rule has to do with what a kernel uses: 0 nothing, 0.5 as much as any kernel, 1 directly.

    Args:
        key: Fingerprint of the rule.
        apis: As `source_check.Source.apis` has them, or `apis_of_operators`.
    """
    kind, _, construct = key.partition(":")
    known = KINDS_BY_ID.get(kind)
    needed = set(known.apis) if known else set()
    if construct.startswith("tl."):
        needed.add(construct.removeprefix("tl."))
    if needed & BROAD or not needed:
        return 0.5
    if not apis:
        return 0.4
    return 1.0 if needed & set(apis) else 0.1


def effect(broken_before: int, kernels_before: int, broken_after: int, kernels_after: int) -> float:
    """Return by how much the share of kernels that break a rule is surely lower where it was shown, 0 to 1."""
    if not (kernels_before and kernels_after):
        return 0.0
    after = 1.0 - lower_bound(kernels_after - broken_after, kernels_after)
    return max(0.0, lower_bound(broken_before, kernels_before) - after)


def score(evidence: Evidence, apis: frozenset[str], subject: Subject) -> float:
    """Return the rank of a rule: the larger, the earlier."""
    own = 2.0 if evidence.own else 0.0
    seen = 4.0 if evidence.seen else 0.0
    vouched = 0.25 if evidence.vouched else 0.0
    general = 0.0 if subject in {"language", "launch", "resource"} else -0.2
    return (
        own
        + seen
        + vouched
        + general
        + relevance(evidence.key, apis)
        + lower_bound(evidence.support, evidence.families)
    )
