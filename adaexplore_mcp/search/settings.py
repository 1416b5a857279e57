"""The numbers a search goes by; two presets, and what may be switched between them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from adaexplore_mcp.errors import RequestError

__all__ = ["Preset", "SearchSettings"]

Preset = Literal["default", "paper"]
"""paper: AdaExplore as published (arXiv 2604.16625); default: with what docs/search.md found to help."""

RewardScale = Literal["clipped", "log"]

EXPAND_RATIOS = {1: 1.0, 2: 1.0, 3: 0.5}
"""By KernelBench's level: the harder a task, the less a search spreads. The paper names levels 2 and 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """What a search goes by; the defaults are the paper's.

    Args:
        max_steps: Budget, in charged nodes.
        exploration: c, the weight of the confidence term.
        expand_ratio: r, the weight of spreading out at a node against descending.
        max_weight: alpha, the weight of the largest reward against the mean of all, 0 to 1.
        small_step_limit: Children by small steps after which a node is left by large steps only.
        p_large: Chance of a large step where a small one is possible.
        p_best: Chance that a step edits the best kernel, whatever the tree says and however often that was done; 0: the tree alone.
        memory_size: Nodes shown with a small step: the last of the path from the nearest large step.
        pool_size: Kernels shown with a large step.
        pool_extra_max: How many of them may come from off the path; 0 turns that off.
        pool_extra_p: p of the truncated geometric distribution of their number.
        pool_temperature: Temperature of the softmax over speedups by which they are drawn.
        reward_scale: clipped: linear in the speedup up to 10; log: linear in its logarithm up to 100.
        failure_rewards: Whether a failure's kind counts, or only whether it compiled.
        widening: A node has at most this times the square root of its visits children; 0: no such limit.
        cautious_best: Whether the best is found by the lower end of intervals instead of by speedups.
        virtual_loss: Visits without reward for which an open proposal counts.
        patience: Steps without gain after which a run stops; 0: never.
        min_gain: Factor by which the best must improve to count as a gain.
        roofline_stop: Share of the roofline at which a run stops; 0: never.
    """

    max_steps: int = 100
    exploration: float = 0.3
    expand_ratio: float = 1.0
    max_weight: float = 0.0
    small_step_limit: int = 2
    p_large: float = 0.2
    p_best: float = 0.0
    memory_size: int = 5
    pool_size: int = 5
    pool_extra_max: int = 0
    pool_extra_p: float = 0.6
    pool_temperature: float = 1.0
    reward_scale: RewardScale = "clipped"
    failure_rewards: bool = False
    widening: float = 0.0
    cautious_best: bool = False
    virtual_loss: float = 1.0
    patience: int = 0
    min_gain: float = 1.01
    roofline_stop: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in BOUNDS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise RequestError(f"{name} is {value}.", f"Give a number from {low:g} to {high:g}.")
        if self.reward_scale not in get_args(RewardScale):
            raise RequestError(f"reward_scale is {self.reward_scale!r}.", "Give clipped or log.")

    @classmethod
    def preset(cls, name: str = "default", *, level: int = 2, **changes: Any) -> Self:  # noqa: ANN401 - fields of this class
        """Return a preset.

        Args:
            name: default, paper or paper_level3.
            level: How hard the task is, as KernelBench's level 1, 2 or 3; decides `expand_ratio` where the preset does not.
            **changes: Fields that differ from the preset.

        Raises:
            RequestError: There is no such preset, level or field, or a value is out of bounds.
        """
        if name not in PRESETS:
            raise RequestError(f"There is no preset {name!r}.", f"Use one of: {', '.join(PRESETS)}.")
        if level not in EXPAND_RATIOS:
            raise RequestError(f"There is no level {level}.", "Use 1, 2 or 3; 2 where nothing is known.")
        return cls.from_data({"expand_ratio": EXPAND_RATIOS[level], **PRESETS[name], **changes})

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_data` gave; what it does not mention has the paper's value.

        Raises:
            RequestError: A field is unknown or out of bounds.
        """
        unknown = set(data) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise RequestError(f"There is no setting {', '.join(sorted(unknown))}.", "See docs/search.md.")
        return cls(**data)

    def to_data(self) -> dict[str, Any]:
        """Return all settings as JSON can carry them."""
        return dataclasses.asdict(self)

    def with_changes(self, **changes: Any) -> Self:  # noqa: ANN401 - fields of this class
        """Return these settings with other values of some fields."""
        return self.from_data({**self.to_data(), **changes})


BOUNDS = (
    ("max_steps", 1, 100_000),
    ("exploration", 0, 100),
    ("expand_ratio", 0, 100),
    ("max_weight", 0, 1),
    ("small_step_limit", 0, 1000),
    ("p_large", 0, 1),
    ("p_best", 0, 1),
    ("memory_size", 1, 100),
    ("pool_size", 1, 100),
    ("pool_extra_max", 0, 100),
    ("pool_extra_p", 0, 1),
    ("pool_temperature", 1e-3, 1e6),
    ("widening", 0, 1000),
    ("virtual_loss", 0, 100),
    ("patience", 0, 100_000),
    ("min_gain", 1, 10),
    ("roofline_stop", 0, 1),
)

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "p_best": 0.8,
        "pool_extra_max": 3,
        "cautious_best": True,
        "patience": 100,
        "roofline_stop": 0.9,
    },
    "paper": {},
    "paper_level3": {"expand_ratio": EXPAND_RATIOS[3]},
}
"""paper_level3 is the paper's search for tasks as hard as KernelBench's level 3: whole networks."""
