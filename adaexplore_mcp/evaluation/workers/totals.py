"""The sums and counts that a comparison of floating-point outputs rests on, and a way to compute them with torch.

On a GPU the same numbers come from one pass of a kernel of our own; see `cuda.totals`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

__all__ = ["Bound", "ChunkedTotals", "Expected", "Nonfinite", "Outputs", "Totals", "Values"]

CHUNK = 1 << 20
GPU_CHUNK = 1 << 22  # elements: a chunk of float64 and what is computed from it takes 300 MiB
INTEGERS_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Bound:
    """|error_i| <= absolute + relative · |expected_i|.

    Args:
        absolute: Absolute part.
        relative: Relative part.
        rms_error: Largest root mean square of all errors.
        outlier_share: Share of elements that may lie outside.
        outlier_factor: How many times the bound those may be off.
    """

    absolute: float
    relative: float
    rms_error: float = float("inf")
    outlier_share: float = 0.0
    outlier_factor: float = 1.0


class Outputs(NamedTuple):
    """One output of a candidate and what it is measured against, each of shape (n,).

    Args:
        got: The candidate's.
        reference: The reference's, in its own dtype.
        wide: The reference's in float64; the same as `reference` where there is none.
        has_wide: Whether there is one.
        poison: What fresh memory was filled with, shape (); None if unknown.
    """

    got: torch.Tensor
    reference: torch.Tensor
    wide: torch.Tensor
    has_wide: bool
    poison: torch.Tensor | None


class Expected(NamedTuple):
    """Of the elements at which reference and float64 are finite.

    Args:
        finite: How many.
        total: Sum of the float64 values.
        square: Sum of their squares.
        own_square: Sum of the squared differences between the two.
    """

    finite: int
    total: float
    square: float
    own_square: float


class Nonfinite(NamedTuple):
    """Elements that are NaN or infinite where they should not be, or the other way round.

    Args:
        wrong: How many.
        unwritten: Those of them that hold the poison.
        first: The first of them.
    """

    wrong: int
    unwritten: int
    first: int


class Values(NamedTuple):
    """How far the elements are off.

    Args:
        outside: Beyond the bound.
        far: Beyond the bound times its outlier factor.
        unwritten: Beyond the bound, and holding the poison.
        square: Sum of squared errors.
        product: Sum of got · wide, where all are finite.
        own_product: Sum of reference · wide.
        squares: Sum of wide².
        fourths: Sum of wide⁴.
        different: Elements that are not the reference's own.
        zeros_outside: Where zero would be beyond the bound.
        mean_outside: Where the mean would be.
        worst: Largest error relative to its bound.
        worst_at: Where that is.
    """

    outside: int
    far: int
    unwritten: int
    square: float
    product: float
    own_product: float
    squares: float
    fourths: float
    different: int
    zeros_outside: int
    mean_outside: int
    worst: float
    worst_at: int


class Totals(Protocol):
    """Computes them."""

    def expected(self, outputs: Outputs) -> Expected:
        """Look at what is expected."""
        ...

    def compared(
        self, outputs: Outputs, bound: Bound, mean: float, *, against_reference: bool
    ) -> tuple[Nonfinite, Values]:
        """Compare what is got.

        NaN by place, and infinities by place and sign, with the reference or with float64 in its dtype; values with
        float64 or the reference itself, and where both count with the nearer.
        """
        ...


class ChunkedTotals:
    """By torch, in chunks so that memory stays bounded."""

    def expected(self, outputs: Outputs) -> Expected:
        """See `Totals`."""
        finite, total, square, own_square = 0, 0.0, 0.0, 0.0
        for _, _, reference, wide in _chunks(outputs):
            kept = torch.isfinite(wide) & torch.isfinite(reference)
            values = wide[kept]
            finite += values.numel()
            total += float(values.sum())
            square += float(values.square().sum())
            own_square += float((reference[kept] - values).square().sum())
        return Expected(finite, total, square, own_square)

    def compared(
        self, outputs: Outputs, bound: Bound, mean: float, *, against_reference: bool
    ) -> tuple[Nonfinite, Values]:
        """See `Totals`."""
        values = self._values(outputs, bound, mean, against_reference=against_reference)
        return self._nonfinite(outputs), values

    @staticmethod
    def _nonfinite(outputs: Outputs) -> Nonfinite:
        wrong, unwritten, first = 0, 0, -1
        for part, got, reference, wide in _chunks(outputs):
            narrowed = wide.to(outputs.got.dtype).to(torch.float64)
            bad = ~(_same_kind(got, reference) | _same_kind(got, narrowed))
            if bad.any():
                wrong += int(bad.sum())
                unwritten += int((bad & _poisoned(outputs, part)).sum())
                if first < 0:
                    first = part.start + int(bad.to(torch.uint8).argmax())
        return Nonfinite(wrong, unwritten, first)

    @staticmethod
    def _values(outputs: Outputs, bound: Bound, mean: float, *, against_reference: bool) -> Values:
        outside = far = unwritten = different = zeros_outside = mean_outside = 0
        square = product = own_product = squares = fourths = 0.0
        worst, worst_at = -1.0, 0
        for part, got, reference, wide in _chunks(outputs):
            expected = reference if against_reference else wide
            limit = bound.absolute + bound.relative * expected.abs()
            error = (got - expected).abs()
            if not against_reference and outputs.has_wide:
                error = torch.minimum(error, (got - reference).abs())
            error = torch.where(torch.isfinite(expected), error.nan_to_num(0.0, 0.0, 0.0), 0.0)
            ratio = torch.where(error > 0, error / limit.clamp(min=1e-300), 0.0)
            beyond = ratio > 1
            outside += int(beyond.sum())
            far += int((ratio > bound.outlier_factor).sum())
            unwritten += int((beyond & _poisoned(outputs, part)).sum())
            square += float(error.square().sum())
            finite = torch.isfinite(wide) & torch.isfinite(reference) & torch.isfinite(got)
            product += float((got[finite] * wide[finite]).sum())
            own_product += float((reference[finite] * wide[finite]).sum())
            squares += float(wide[finite].square().sum())
            fourths += float(wide[finite].pow(4).sum())
            different += int((got != reference).sum() - (got.isnan() & reference.isnan()).sum())
            zeros_outside += int((expected.abs() > limit).sum())
            mean_outside += int(((expected - mean).abs() > limit).sum())
            at = int(ratio.argmax())
            if float(ratio[at]) > worst:
                worst, worst_at = float(ratio[at]), part.start + at
        return Values(
            outside,
            far,
            unwritten,
            square,
            product,
            own_product,
            squares,
            fourths,
            different,
            zeros_outside,
            mean_outside,
            worst,
            worst_at,
        )


def _chunks(outputs: Outputs) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield (place, got, reference, wide) in float64."""
    size = GPU_CHUNK if outputs.got.is_cuda else CHUNK
    for start in range(0, outputs.got.numel(), size):
        part = slice(start, start + size)
        got, reference, wide = (
            t[part].to(torch.float64) for t in (outputs.got, outputs.reference, outputs.wide)
        )
        yield part, got, reference, wide


def _poisoned(outputs: Outputs, part: slice) -> torch.Tensor:
    """Tell for a chunk which elements hold, bit by bit, what fresh memory was filled with."""
    got = outputs.got[part]
    if outputs.poison is None:
        return torch.zeros(got.shape, dtype=torch.bool, device=got.device)
    integer = INTEGERS_OF_SIZE[got.dtype.itemsize]
    return got.view(integer) == outputs.poison.view(integer)


def _same_kind(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Tell per element whether both are finite, both NaN, or the same infinity."""
    both_finite = torch.isfinite(got) & torch.isfinite(expected)
    return both_finite | (got.isnan() & expected.isnan()) | (torch.isinf(got) & (got == expected))
