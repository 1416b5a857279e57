"""Hints about values (`tl.multiple_of`, `tl.max_contiguous`), held against the values that are there.

They change no number here. On a GPU a compiler believes them: where one is false, it reads and writes several elements at once at
an address where that cannot be done, or other elements. Kernels exist that are right all the same, since what a false hint reads
is masked later; so a false one is told, and decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adaexplore_mcp.evaluation.workers.interpreter.versions import tl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adaexplore_mcp.evaluation.workers.interpreter.builder import Builder

__all__ = ["hints"]

FALSE = "a false hint, {hint}, for values from {first}: on a GPU accesses by them are misaligned or reach other elements"
MOST = 1 << 16
"""Elements of a block that are looked at."""


def hints(builder: Builder) -> dict[str, Callable[..., Any]]:
    """Return the functions of the language that hint, by name; `builder` notes those that are false."""

    def told(name: str, values: np.ndarray, number: int) -> None:
        builder.recorder.note(FALSE.format(hint=f"tl.{name}(…, {number})", first=int(values.flat[0])))

    def multiple_of(value: Any, values: Any, *_: object, **__: object) -> Any:  # noqa: ANN401 - any tensor
        seen, number = _numbers(value), _single(values)
        # Of a block, what its first element is: those that follow are what `max_contiguous` is about.
        if seen is not None and number > 1 and int(seen.flat[0]) % number:
            told("multiple_of", seen, number)
        return value

    def max_contiguous(value: Any, values: Any, *_: object, **__: object) -> Any:  # noqa: ANN401 - any tensor
        seen, number = _numbers(value), _single(values)
        if seen is not None and 1 < number <= seen.size and seen.size % number == 0:
            steps = np.diff(seen.reshape(-1, number), axis=1)
            if not bool((steps == 1).all()):
                told("max_contiguous", seen, number)
        return value

    def max_constancy(value: Any, values: Any, *_: object, **__: object) -> Any:  # noqa: ANN401 - any tensor
        seen, number = _numbers(value), _single(values)
        if seen is not None and 1 < number <= seen.size and seen.size % number == 0:
            groups = seen.reshape(-1, number)
            if not bool((groups == groups[:, :1]).all()):
                told("max_constancy", seen, number)
        return value

    return {"multiple_of": multiple_of, "max_contiguous": max_contiguous, "max_constancy": max_constancy}


def _numbers(value: Any) -> np.ndarray | None:  # noqa: ANN401 - any tensor
    """Return the whole numbers of a scalar or of a block with one axis; None for anything else."""
    if not isinstance(value, tl.tensor) or not value.type.scalar.is_int():
        return None
    data = np.asarray(value.handle.data)
    return data if 0 < data.size <= MOST and data.size == max(data.shape, default=1) else None


def _single(values: Any) -> int:  # noqa: ANN401 - a number or a list of them, constexpr or not
    """Return the only number of a hint; 0 where it has several."""
    values = values.value if isinstance(values, tl.constexpr) else values
    if isinstance(values, int):
        return values
    listed: Sequence[Any] = list(values) if isinstance(values, list | tuple | tl.tuple) else []
    return _single(listed[0]) if len(listed) == 1 else 0
