"""Decide whether one output is right: our own arithmetic on bytes, in a process that runs nobody else's code.

The yardstick is the reference itself: how far its own result, in its own dtype, lies from its result in float64. With

    scale_i = |wide_i| + rms(wide)            what an error at element i is measured against; where an output is small
                                              by chance or by small inputs, the rms that it usually has
    own     = 99.9th percentile of |reference_i - wide_i| / scale_i
    floor   = 8 · eps(float32) · sqrt(K) + 2 · eps(dtype of a half output)

an element passes `match` when |got_i - wide_i| <= max(4 · own, floor) · scale_i, or when it is as near to the reference
in its own dtype (the two differ by much where the task rounds or branches). K is the longest accumulation that feeds
an element: rounding errors of a sum grow with its square root (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., 2.8). At most 1e-5 of the elements may lie outside, and those within ten times the bound; the root mean square of
the error is held to the same factor of the reference's own.

A percentile, not the maximum, so that one element on which the reference itself is ambiguous does not excuse all
others. The dtype of a half output enters through two roundings, not through sqrt(K): such kernels accumulate in float32.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from adaexplore_mcp.evaluation.workers.totals import Bound, ChunkedTotals, Nonfinite, Outputs, Totals, Values

__all__ = ["CHUNKED", "Comparison", "Rule", "Yardstick", "compare", "compare_form", "yardstick_of"]

SAMPLE = 1 << 18
EPS32 = float(torch.finfo(torch.float32).eps)
EPS_BF16 = float(torch.finfo(torch.bfloat16).eps)
OWN_FACTOR = 4.0
FLOOR_FACTOR = 8.0
HALF_ROUNDINGS = 2.0
OUTLIER_SHARE = 1e-5
OUTLIER_FACTOR = 10.0
TF32_ERROR = 1.5e-3  # root mean square, relative: operands rounded to 10 bits of mantissa give about 4e-4
HALF_ERROR = 2e-2  # bfloat16 operands give about 2e-3, accumulation in half up to ten times that
SLICES_LIMIT = 1 << 23  # elements: larger outputs are not compared slice by slice
BIAS_ROUNDINGS, SPREAD_ROUNDINGS = 0.5, 2.0
LOST_SHARE = 0.1
LOST_FACTOR = 16.0
SMALLEST_SLICE = 16  # elements: the error of a few is a matter of chance
SLICE_BLOCK = 64
CHUNKED = ChunkedTotals()
FACTOR_SHARE = 0.9
"""Of the error, what one factor on all elements explains before it is told."""
DIFFUSE_SHARE = 0.2  # lower precision shows in many elements at once, a wrong index or mask in some


@dataclass(frozen=True)
class Rule:
    """How exact an output must be; the fields of the task's policy.

    Args:
        precision: match, relaxed, kernelbench, paper or custom.
        atol: Absolute tolerance, for custom.
        rtol: Relative tolerance, for custom.
        max_outlier_share: Share of elements allowed outside, for custom.
    """

    precision: str = "match"
    atol: float = 0.0
    rtol: float = 0.0
    max_outlier_share: float = 0.0


class Yardstick(NamedTuple):
    """What an output is measured by, whatever it is: found once for what a reference gave.

    Args:
        finite: Elements at which the reference and float64 are finite; at least 1.
        mean: Of the float64 values there.
        square: Mean of their squares.
        own_square: Mean of the squared differences between the two.
        rms: Root of `square`, or what the output usually has where that is more.
        own: 99.9th percentile of the reference's own error relative to the scale, from a sample.
    """

    finite: int
    mean: float
    square: float
    own_square: float
    rms: float
    own: float


def yardstick_of(
    reference: torch.Tensor, wide: torch.Tensor | None, *, typical: float = 0.0, totals: Totals = CHUNKED
) -> Yardstick | None:
    """Find what an output of floating point is measured by; None for others, and those without elements.

    Args:
        reference: See `compare`.
        wide: See `compare`.
        typical: See `compare`.
        totals: See `compare`.

    Raises:
        ValueError: Its values are too large to be measured.
    """
    if not reference.numel() or not (reference.dtype.is_floating_point or reference.dtype.is_complex):
        return None
    reference, exact = (
        torch.view_as_real(t) if t.dtype.is_complex else t
        for t in (reference, reference if wide is None else wide)
    )
    own, exact = reference.reshape(-1), exact.reshape(-1)
    finite, total, square, own_square = totals.expected(Outputs(own, own, exact, wide is not None, None))
    finite = max(1, finite)
    if not math.isfinite(square + own_square):
        msg = "values of more than 1e154, whose squares are no number in float64"
        raise ValueError(msg)
    small = math.sqrt(square / finite)
    rms = max(small, typical)
    percentile = 0.0 if wide is None or rms == 0.0 else _own_percentile(own, exact, rms)
    return Yardstick(finite, total / finite, square / finite, own_square / finite, rms, percentile)


def _own_percentile(reference: torch.Tensor, wide: torch.Tensor, rms: float) -> float:
    step = max(1, reference.numel() // SAMPLE)
    reference, wide = (t[::step].to(torch.float64) for t in (reference, wide))
    kept = torch.isfinite(wide) & torch.isfinite(reference)
    if not bool(kept.any()):
        return 0.0
    error = (reference[kept] - wide[kept]).abs() / (wide[kept].abs() + rms)
    rank = max(1, math.ceil(0.999 * error.numel()))
    return float(error.kthvalue(rank).values)


@dataclass
class Comparison:
    """The verdict on one output, with its evidence.

    Args:
        passed: Within the rule.
        check: What failed: dtype, shape, nonfinite, unwritten, values, precision_class; empty when passed.
        index: Where the element with the largest error relative to its bound is.
        got: Its value, as a number or as text (nan, inf, True).
        expected: The reference's value there.
        bound: Largest difference allowed there.
        outside_share: Share of elements outside.
        nrmse: Root of the summed squared error over that of expected around its mean.
        zeros_would_pass: An output of zeros would have passed.
        mean_would_pass: The constant mean of expected would have passed.
        precision_class: exact, fp32, tf32, half or none.
        detail: One sentence.
    """

    passed: bool
    check: str = ""
    index: tuple[int, ...] = ()
    got: float | str | None = None
    expected: float | str | None = None
    bound: float | None = None
    outside_share: float | None = None
    nrmse: float | None = None
    zeros_would_pass: bool | None = None
    mean_would_pass: bool | None = None
    precision_class: str | None = None
    detail: str = ""


def compare(
    got: torch.Tensor,
    reference: torch.Tensor,
    wide: torch.Tensor | None,
    rule: Rule,
    *,
    accumulation: int = 1,
    poison: torch.Tensor | None = None,
    typical: float = 0.0,
    totals: Totals = CHUNKED,
    yardstick: Yardstick | None = None,
) -> Comparison:
    """Compare one output.

    Args:
        got: The candidate's output.
        reference: The reference's output in its own dtype.
        wide: The reference's output computed in float64, same shape; None where that was not possible: then the
            reference itself stands in, and the yardstick is the floor alone.
        rule: From the task's policy.
        accumulation: K, see the module.
        typical: Root mean square that this output usually has, where it is small by chance or inputs were scaled down: its
            rounding errors are of that size, as in exp(x) - 1.
        poison: What fresh memory of this dtype was filled with, shape (), to recognise what was never written.
        totals: Computes sums and counts.
        yardstick: Of this reference, where it is known already.
    """
    if (found := compare_form(got, reference)) is not None:
        return found
    if reference.numel() == 0:
        return Comparison(passed=True, precision_class="exact")
    measured = yardstick or yardstick_of(reference, wide, typical=typical, totals=totals)
    if reference.dtype.is_complex:
        parts = [None if t is None else torch.view_as_real(t) for t in (got, reference, wide, poison)]
        got, reference, wide = parts[0], parts[1], parts[2]  # type: ignore[assignment] # None only where it was None
        poison = None if parts[3] is None else parts[3][0]
    if measured is not None:
        outputs = Outputs(
            got.reshape(-1),
            reference.reshape(-1),
            (reference if wide is None else wide).reshape(-1),
            wide is not None,
            poison,
        )
        return _Floating(
            outputs,
            reference.shape,
            totals,
            measured,
            rule=rule,
            accumulation=accumulation,
        ).compare()
    return _exact(got, reference, wide, poison)


def compare_form(got: torch.Tensor, reference: torch.Tensor) -> Comparison | None:
    """Compare dtype and shape; None where they are the same."""
    if got.dtype != reference.dtype:
        return Comparison(
            passed=False,
            check="dtype",
            got=_name(got.dtype),
            expected=_name(reference.dtype),
            detail=f"dtype is {_name(got.dtype)}, the reference returns {_name(reference.dtype)}",
        )
    if got.shape != reference.shape:
        return Comparison(
            passed=False,
            check="shape",
            got=str(tuple(got.shape)),
            expected=str(tuple(reference.shape)),
            detail=f"shape is {tuple(got.shape)}, the reference returns {tuple(reference.shape)}",
        )
    return None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _readable(value: torch.Tensor) -> float | str:
    item = value.item()
    if isinstance(item, bool):
        return str(item)
    number = float(item)
    return number if math.isfinite(number) else str(number)


def _unravel(position: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


def _exact(
    got: torch.Tensor, reference: torch.Tensor, wide: torch.Tensor | None, poison: torch.Tensor | None
) -> Comparison:
    """Integers and booleans: equal to the reference, or to what it gives in float64 where rounding is ambiguous."""
    wrong = got != reference
    if wide is not None and wide.dtype == reference.dtype:
        wrong &= got != wide
    count = int(wrong.sum())
    if not count:
        return Comparison(passed=True, precision_class="exact", outside_share=0.0)
    first = int(wrong.reshape(-1).to(torch.uint8).argmax())
    unwritten = poison is not None and got.dtype is not torch.bool and bool((got[wrong] == poison).all())
    return Comparison(
        passed=False,
        check="unwritten" if unwritten else "values",
        index=_unravel(first, reference.shape),
        got=_readable(got.reshape(-1)[first]),
        expected=_readable(reference.reshape(-1)[first]),
        bound=0.0,
        outside_share=count / reference.numel(),
        precision_class="none",
        detail=f"{count} of {reference.numel()} {_name(reference.dtype)} elements "
        + ("were never written" if unwritten else "differ; integers must be equal"),
    )


class _Floating:
    """The comparison of one floating-point output."""

    def __init__(
        self,
        outputs: Outputs,
        shape: torch.Size,
        totals: Totals,
        yardstick: Yardstick,
        *,
        rule: Rule,
        accumulation: int,
    ) -> None:
        self.outputs = outputs
        self.shape = shape
        self.totals = totals
        self.got, self.reference, self.wide = outputs.got, outputs.reference, outputs.wide
        self.dtype = self.reference.dtype
        self.has_wide = outputs.has_wide
        self.rule = rule
        self.accumulation = max(1, accumulation)
        self.count = self.reference.numel()
        self.finite, self.mean, self.own = yardstick.finite, yardstick.mean, yardstick.own
        self.rms = yardstick.rms
        self.std = math.sqrt(max(0.0, yardstick.square - self.mean**2))
        self.own_rms_error = math.sqrt(yardstick.own_square)

    def compare(self) -> Comparison:
        """Return the verdict."""
        bound = self._bound()
        against_reference = self.rule.precision in {"kernelbench", "paper", "custom"}
        nonfinite, values = self.totals.compared(
            self.outputs, bound, self.mean, against_reference=against_reference
        )
        if nonfinite.wrong:
            return self._nonfinite(nonfinite)
        return self._values(values, bound, against_reference=against_reference)

    # --- the yardstick

    def _floor(self) -> float:
        """Return the smallest relative error that is never held against a candidate."""
        floor = FLOOR_FACTOR * EPS32 * math.sqrt(self.accumulation)
        if self.dtype is torch.float64:
            return floor * float(torch.finfo(torch.float64).eps) / EPS32
        if self.dtype is not torch.float32:
            return floor + HALF_ROUNDINGS * float(torch.finfo(self.dtype).eps)
        return floor + (HALF_ROUNDINGS * EPS_BF16 if self.rule.precision == "relaxed" else 0.0)

    def _bound(self) -> Bound:
        rule = self.rule
        if rule.precision == "custom":
            return Bound(rule.atol, rule.rtol, math.inf, rule.max_outlier_share, math.inf)
        if rule.precision == "paper":
            return Bound(5e-2, 5e-2)
        if rule.precision == "kernelbench":
            tolerance = 1e-4 if self.dtype in {torch.float32, torch.float64} else 1e-2
            return Bound(tolerance, tolerance)
        factor = max(OWN_FACTOR * self.own, self._floor())
        rms_error = max(OWN_FACTOR * self.own_rms_error, self._floor() * self.rms)
        return Bound(factor * self.rms, factor, rms_error, OUTLIER_SHARE, OUTLIER_FACTOR)

    # --- the checks

    def _nonfinite(self, seen: Nonfinite) -> Comparison:
        """NaN by place, infinities by place and sign; as the reference has them, or as float64 would in this dtype."""
        wrong, unwritten, first = seen
        check = "unwritten" if unwritten == wrong else "nonfinite"
        return Comparison(
            passed=False,
            check=check,
            index=_unravel(first, self.shape),
            got=_readable(self.got[first]),
            expected=_readable(self.reference[first]),
            outside_share=wrong / self.count,
            precision_class="none",
            detail=f"{wrong} of {self.count} elements "
            + (
                "were never written (they hold the fill of fresh memory)"
                if check == "unwritten"
                else "are NaN or infinite where the reference is not, or the other way round"
            ),
        )

    def _values(self, seen: Values, bound: Bound, *, against_reference: bool) -> Comparison:
        outside, worst_at = seen.outside, seen.worst_at
        rms_error = math.sqrt(seen.square / self.finite)
        allowed = bound.outlier_share * self.count
        passed = outside <= allowed and seen.far == 0 and rms_error <= bound.rms_error
        result = Comparison(
            passed=passed,
            index=_unravel(worst_at, self.shape),
            got=_readable(self.got[worst_at]),
            expected=_readable((self.reference if against_reference else self.wide)[worst_at]),
            outside_share=outside / self.count,
            nrmse=rms_error / self.std if self.std > 0 else (0.0 if rms_error == 0 else None),
            zeros_would_pass=seen.zeros_outside <= allowed,
            mean_would_pass=seen.mean_outside <= allowed,
            precision_class=self._class(rms_error, seen.different, passed=passed),
        )
        center = abs(float((self.reference if against_reference else self.wide)[worst_at]))
        result.bound = bound.absolute + bound.relative * center if math.isfinite(center) else None
        if not passed:
            self._explain(result, seen, rms_error, bound)
        elif self.rule.precision == "match" and self.has_wide and seen.squares > 0:
            spread = math.sqrt(seen.fourths) / seen.squares  # 1 over the root of how many elements count
            self._proportion(
                result, seen.product / seen.squares - 1, seen.own_product / seen.squares - 1, spread
            )
            if result.passed:
                self._slices(result)
        return result

    def _proportion(self, result: Comparison, excess: float, own_excess: float, spread: float) -> None:
        """Fail where all of a half or narrower output is too large or too small by one factor.

        Rounding goes both ways, so the best factor between output and float64 is 1 to within one rounding; a sum that is
        divided by n + 1 hides within the bound of a single element, but not there.
        """
        if self.dtype in {torch.float32, torch.float64} or self.count < SMALLEST_SLICE:
            return
        eps = float(torch.finfo(self.dtype).eps)
        if abs(excess) > (BIAS_ROUNDINGS + SPREAD_ROUNDINGS * spread) * eps + OWN_FACTOR * abs(own_excess):
            result.passed, result.check, result.precision_class = False, "values", "none"
            result.detail = (
                f"every element is within the bound, but all together are {1 + excess:.4g} times what they should be: a wrong "
                "factor, divisor or epsilon"
            )

    def _slices(self, result: Comparison) -> None:
        """Fail where a part of the output is lost that is too small beside the rest to count in the bound.

        For every index along every dimension, and for blocks of a vector: the error of that slice relative to its own
        root mean square, the candidate's and the reference's own. A slice is lost where the candidate's is large and the
        reference's is not. As many may be as the reference itself loses, twice: routing and quantisation flip at ties.
        """
        if not self.has_wide or self.count > SLICES_LIMIT:
            return
        shape = (-1, SLICE_BLOCK) if len(self.shape) == 1 else tuple(self.shape)
        kept = self.count - self.count % SLICE_BLOCK if len(self.shape) == 1 else self.count
        own, exact, reference = (
            t[:kept].to(torch.float64).nan_to_num(0.0, 0.0, 0.0).reshape(shape)
            for t in (self.got, self.wide, self.reference)
        )
        mine = torch.minimum((own - exact).abs(), (own - reference).abs()).square()
        theirs, squares = (reference - exact).square(), exact.square()
        for dimension in [0] if len(self.shape) == 1 else range(len(shape)):
            if own.shape[dimension] < 2 or own.numel() // own.shape[dimension] < SMALLEST_SLICE:
                continue
            rest = [each for each in range(own.dim()) if each != dimension]
            size = squares.sum(rest)
            present = size > 0
            share, own_share = ((t.sum(rest)[present] / size[present]).sqrt() for t in (mine, theirs))
            lost = (share > LOST_SHARE) & (own_share * LOST_FACTOR < share)
            if int(lost.sum()) > 2 * int((own_share > LOST_SHARE).sum()):
                at = int(present.nonzero()[lost.nonzero()[0]])
                worst = int(mine.select(dimension, at).reshape(-1).argmax())
                place = list(_unravel(worst, mine.select(dimension, at).shape))
                place.insert(dimension, at)
                index = [place[0] * SLICE_BLOCK + place[1]] if len(self.shape) == 1 else place
                result.passed, result.check, result.precision_class = False, "values", "none"
                result.index = tuple(index)
                result.got = _readable(self.got.reshape(self.shape)[result.index])
                result.expected = _readable(self.wide.reshape(self.shape)[result.index])
                result.detail = (
                    f"{int(lost.sum())} of {own.shape[dimension]} slices along dimension {dimension} are lost, though small "
                    f"beside the rest: the error is {float(share[lost][0]):.0%} of the slice's own size, the reference's "
                    f"{float(own_share[lost][0]):.1g}"
                )
                return

    def _class(self, rms_error: float, different: int, *, passed: bool) -> str:
        if different == 0:
            return "exact"
        relative = rms_error / self.rms if self.rms > 0 else math.inf
        if self.dtype not in {torch.float32, torch.float64}:
            return "half" if passed or relative < HALF_ERROR else "none"
        strict = max(
            OWN_FACTOR * self.own_rms_error / self.rms if self.rms > 0 else 0.0, self._strict_floor()
        )
        for limit, name in ((strict, "fp32"), (TF32_ERROR, "tf32"), (HALF_ERROR, "half")):
            if relative <= limit:
                return name
        return "none"

    def _strict_floor(self) -> float:
        return FLOOR_FACTOR * EPS32 * math.sqrt(self.accumulation)

    def _explain(self, result: Comparison, seen: Values, rms_error: float, bound: Bound) -> None:
        outside = seen.outside
        share = outside / self.count
        if outside and seen.unwritten == outside:
            result.check = "unwritten"
            result.detail = f"{outside} of {self.count} elements were never written"
        elif (
            self.rule.precision == "match"
            and self.dtype is torch.float32
            and result.precision_class in {"tf32", "half"}
            and (share >= DIFFUSE_SHARE or (outside <= bound.outlier_share * self.count and not seen.far))
        ):
            result.check = "precision_class"
            result.detail = f"relative error {rms_error / self.rms:.1e}"
            excess = seen.product / seen.squares - 1 if self.has_wide and seen.squares > 0 else 0.0
            if abs(excess) > FACTOR_SHARE * rms_error / self.rms:
                result.detail += f", all together {1 + excess:.6g} times what they should be"
        else:
            result.check = "values"
            result.detail = f"{outside} of {self.count} elements lie outside the bound"
            if outside <= bound.outlier_share * self.count and rms_error > bound.rms_error and not seen.far:
                result.detail = f"its root mean square error is {rms_error:.3g}, {bound.rms_error:.3g} is allowed: many small errors"


def as_message(comparison: Comparison) -> Mapping[str, Any]:
    """Return a comparison as JSON-ready data; numbers that are not finite become None."""
    values = dict(vars(comparison))
    values["index"] = list(comparison.index)
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
