"""How large an output usually is: what its rounding errors are measured by where one draw of the inputs happens to make it small.

A sum of a hundred numbers may be a thousandth of what it usually is, and still carries the rounding errors of the hundred.
"""

import contextlib
import math
import statistics
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
    for trial in trials:
        peers = [other for other in trials if other.weights == trial.weights]
        if len(peers) < FEWEST_PEERS:
            peers = list(trials)
        shrunk = trial.name in small
        for entry in trial.expected.message:
            if _few(entry):
                typical = _median(entry["path"], peers)
            else:
                typical = _median(entry["path"], trials[:1]) if shrunk else 0.0
            if shrunk:
                typical = min(typical, MOST_SHRUNK * _size(entry))
            if typical > _size(entry):
                entry["typical"] = typical


def _few(entry: Mapping[str, Any]) -> bool:
    return "plain" in entry or math.prod(entry["shape"]) <= FEW


def _median(path: str, trials: Sequence[Trial]) -> float:
    sizes = [_size(entry) for trial in trials for entry in trial.expected.message if entry["path"] == path]
    return statistics.median([size for size in sizes if math.isfinite(size)] or [0.0])


def _size(entry: Mapping[str, Any]) -> float:
    """Return the root mean square of a tensor, the absolute value of a number; NaN for what has none."""
    with contextlib.suppress(ValueError, TypeError):
        return abs(float(entry["plain"] if "plain" in entry else entry.get("rms", math.nan)))
    return math.nan
