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

    def hint(name: str, holds: Callable[[np.ndarray, int], bool]) -> Callable[..., Any]:
        def checked(value: Any, values: Any, *_: object, **__: object) -> Any:  # noqa: ANN401 - any tensor
            seen, number = _numbers(value), _single(values)
            if seen is not None and number > 1 and not holds(seen, number):
                said = FALSE.format(hint=f"tl.{name}(…, {number})", first=int(seen.flat[0]))
                builder.recorder.note(said)
            return value

        return checked

    return {
        "multiple_of": hint("multiple_of", _multiple),
        "max_contiguous": hint("max_contiguous", _contiguous),
        "max_constancy": hint("max_constancy", _constant),
    }


def _multiple(seen: np.ndarray, number: int) -> bool:
    """Look at the first element of a block: those that follow are what `max_contiguous` is about."""
    return int(seen.flat[0]) % number == 0


def _contiguous(seen: np.ndarray, number: int) -> bool:
    return bool(seen.size % number) or bool((np.diff(seen.reshape(-1, number), axis=1) == 1).all())


def _constant(seen: np.ndarray, number: int) -> bool:
    return bool(seen.size % number) or bool((np.diff(seen.reshape(-1, number), axis=1) == 0).all())


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
