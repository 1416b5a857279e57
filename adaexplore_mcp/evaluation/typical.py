"""How large an output usually is: what its rounding errors are measured by where one draw of the inputs happens to make it small.

A sum of a hundred numbers may be a thousandth of what it usually is, and still carries the rounding errors of the hundred.
"""

import contextlib
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from adaexplore_mcp.evaluation.trials import Trial

__all__ = ["FEW", "note_typical"]

FEW = 8
"""Elements that may all be small by chance; the root mean square of more is what it usually is."""
FEWEST_PEERS = 3
MOST_SHRUNK = 100.0
"""Inputs times 0.01 shrink a result by as much; what shrinks more is held to a hundred times its own size."""


def note_typical(trials: Sequence[Trial], *, small: Collection[str]) -> None:
    """Note as `typical` how large each number, or the root mean square of each tensor, is usually, where that tells more.

    For a number and for a tensor of at most `FEW` elements it is the median over the trials with the same weights; for
    larger ones, where inputs were scaled down, what they are without that.

    Args:
        trials: All of a workload; the first one's inputs are as the task draws them.
        small: Names of those whose inputs were scaled down.
    """
    drawn, with_weights = _medians(trials[:1]), {}
    for weights in {trial.weights for trial in trials}:
        peers = [trial for trial in trials if trial.weights == weights]
        with_weights[weights] = _medians(peers if len(peers) >= FEWEST_PEERS else trials)
    for trial in trials:
        shrunk = trial.name in small
        for entry in trial.expected.message:
            usual = with_weights[trial.weights] if _few(entry) else drawn if shrunk else {}
            size, typical = _size(entry), usual.get(entry["path"], 0.0)
            if shrunk:
                typical = min(typical, MOST_SHRUNK * size)
            if typical > size:
                entry["typical"] = typical


def _few(entry: Mapping[str, Any]) -> bool:
    return "plain" in entry or math.prod(entry["shape"]) <= FEW


def _medians(trials: Sequence[Trial]) -> dict[str, float]:
    """Return by output the median of its sizes, of those that are finite."""
    sizes = defaultdict(list)
    for trial in trials:
        for entry in trial.expected.message:
            if math.isfinite(size := _size(entry)):
                sizes[entry["path"]].append(size)
    return {path: statistics.median(found) for path, found in sizes.items()}


def _size(entry: Mapping[str, Any]) -> float:
    """Return the root mean square of a tensor, the absolute value of a number; NaN for what has none."""
    with contextlib.suppress(ValueError, TypeError):
        return abs(float(entry["plain"] if "plain" in entry else entry.get("rms", math.nan)))
    return math.nan
