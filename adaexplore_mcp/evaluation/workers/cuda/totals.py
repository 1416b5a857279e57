"""The sums and counts of a comparison in one pass over GPU memory, by kernels of our own.

Each program goes over its share of the elements and writes one row of partial results; torch adds the rows up. All
arithmetic is in float64. What is counted is defined by `totals.ChunkedTotals`, which a test holds these kernels to.
"""

# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl

from adaexplore_mcp.evaluation.workers.totals import (
    INTEGERS_OF_SIZE,
    Bound,
    ChunkedTotals,
    Expected,
    Nonfinite,
    Outputs,
    Values,
)

__all__ = ["FusedTotals", "warm_up"]

BLOCK = 512
MOST_PROGRAMS = 4096
DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
FLAGS = ["against_reference", "has_wide", "has_poison", "n"]
"""Arguments that are not to make kernels of their own."""


@triton.jit
def _is_finite(x):  # noqa: ANN001, ANN202
    return tl.abs(x) < float("inf")


@triton.jit
def _same_kind(got, expected):  # noqa: ANN001, ANN202
    both_finite = _is_finite(got) & _is_finite(expected)
    both_nan = (got != got) & (expected != expected)  # noqa: PLR0124 - only NaN is not itself
    return both_finite | both_nan | ((tl.abs(got) == float("inf")) & (got == expected))


@triton.jit(do_not_specialize=["n"])  # type: ignore[untyped-decorator]
def _expected_kernel(reference_at, wide_at, sums_at, n, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    finite = tl.zeros((BLOCK,), tl.float64)
    total = tl.zeros((BLOCK,), tl.float64)
    square = tl.zeros((BLOCK,), tl.float64)
    own_square = tl.zeros((BLOCK,), tl.float64)
    for start in range(program * BLOCK, n, programs * BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        inside = i < n
        reference = tl.load(reference_at + i, mask=inside, other=float("nan")).to(tl.float64)
        wide = tl.load(wide_at + i, mask=inside, other=float("nan")).to(tl.float64)
        kept = _is_finite(reference) & _is_finite(wide)
        difference = reference - wide
        finite += tl.where(kept, 1.0, 0.0)
        total += tl.where(kept, wide, 0.0)
        square += tl.where(kept, wide * wide, 0.0)
        own_square += tl.where(kept, difference * difference, 0.0)
    row = sums_at + program * 4
    tl.store(row, tl.sum(finite))
    tl.store(row + 1, tl.sum(total))
    tl.store(row + 2, tl.sum(square))
    tl.store(row + 3, tl.sum(own_square))


@triton.jit(do_not_specialize=FLAGS)  # type: ignore[untyped-decorator]
def _compare_kernel(  # noqa: ANN202, PLR0915, PLR0917
    got_at,  # noqa: ANN001
    bits_at,  # noqa: ANN001
    reference_at,  # noqa: ANN001
    wide_at,  # noqa: ANN001
    poison_at,  # noqa: ANN001
    bound_at,  # noqa: ANN001
    sums_at,  # noqa: ANN001
    places_at,  # noqa: ANN001
    n,  # noqa: ANN001
    against_reference,  # noqa: ANN001
    has_wide,  # noqa: ANN001
    has_poison,  # noqa: ANN001
    COLUMNS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0).to(tl.int64)
    absolute = tl.load(bound_at)
    relative = tl.load(bound_at + 1)
    factor = tl.load(bound_at + 2)
    mean = tl.load(bound_at + 3)
    poison = tl.load(poison_at)
    wrong = tl.zeros((BLOCK,), tl.float64)
    wrong_unwritten = tl.zeros((BLOCK,), tl.float64)
    outside = tl.zeros((BLOCK,), tl.float64)
    far = tl.zeros((BLOCK,), tl.float64)
    unwritten = tl.zeros((BLOCK,), tl.float64)
    square = tl.zeros((BLOCK,), tl.float64)
    product = tl.zeros((BLOCK,), tl.float64)
    own_product = tl.zeros((BLOCK,), tl.float64)
    squares = tl.zeros((BLOCK,), tl.float64)
    fourths = tl.zeros((BLOCK,), tl.float64)
    different = tl.zeros((BLOCK,), tl.float64)
    zeros_outside = tl.zeros((BLOCK,), tl.float64)
    mean_outside = tl.zeros((BLOCK,), tl.float64)
    worst = tl.full((BLOCK,), -1.0, tl.float64)
    worst_at = tl.full((BLOCK,), 0, tl.int64)
    first = tl.full((BLOCK,), 0, tl.int64) + n
    for start in range(program * BLOCK, n, programs * BLOCK):
        i = start + tl.arange(0, BLOCK).to(tl.int64)
        inside = i < n
        narrow = tl.load(got_at + i, mask=inside, other=0.0)
        got = narrow.to(tl.float64)
        bits = tl.load(bits_at + i, mask=inside, other=0)
        reference = tl.load(reference_at + i, mask=inside, other=0.0).to(tl.float64)
        wide = tl.load(wide_at + i, mask=inside, other=0.0).to(tl.float64)
        poisoned = (bits == poison) & (has_poison != 0)
        if narrow.dtype.primitive_bitwidth == 64:
            narrowed = wide
        else:
            narrowed = wide.to(tl.float32).to(narrow.dtype).to(tl.float64)
        bad = inside & (_same_kind(got, reference) == 0) & (_same_kind(got, narrowed) == 0)
        wrong += tl.where(bad, 1.0, 0.0)
        wrong_unwritten += tl.where(bad & poisoned, 1.0, 0.0)
        first = tl.where(bad & (i < first), i, first)

        expected = tl.where(against_reference != 0, reference, wide)
        limit = absolute + relative * tl.abs(expected)
        error = tl.abs(got - expected)
        own = tl.abs(got - reference)
        nearer = (against_reference == 0) & (has_wide != 0) & ((own < error) | (own != own))  # noqa: PLR0124
        error = tl.where(nearer, own, error)
        error = tl.where(_is_finite(expected) & _is_finite(error), error, 0.0)
        ratio = tl.where(error > 0, error / tl.where(limit < 1e-300, 1e-300, limit), 0.0)
        beyond = inside & (ratio > 1)
        outside += tl.where(beyond, 1.0, 0.0)
        far += tl.where(inside & (ratio > factor), 1.0, 0.0)
        unwritten += tl.where(beyond & poisoned, 1.0, 0.0)
        square += tl.where(inside, error * error, 0.0)
        finite = inside & _is_finite(got) & _is_finite(reference) & _is_finite(wide)
        product += tl.where(finite, got * wide, 0.0)
        own_product += tl.where(finite, reference * wide, 0.0)
        squares += tl.where(finite, wide * wide, 0.0)
        fourths += tl.where(finite, wide * wide * wide * wide, 0.0)
        both_nan = (got != got) & (reference != reference)  # noqa: PLR0124
        different += tl.where(inside & (got != reference) & (both_nan == 0), 1.0, 0.0)
        zeros_outside += tl.where(inside & (tl.abs(expected) > limit), 1.0, 0.0)
        mean_outside += tl.where(inside & (tl.abs(expected - mean) > limit), 1.0, 0.0)
        worse = inside & (ratio > worst)
        worst_at = tl.where(worse, i, worst_at)
        worst = tl.where(worse, ratio, worst)
    row = sums_at + program * COLUMNS
    tl.store(row, tl.sum(wrong))
    tl.store(row + 1, tl.sum(wrong_unwritten))
    tl.store(row + 2, tl.sum(outside))
    tl.store(row + 3, tl.sum(far))
    tl.store(row + 4, tl.sum(unwritten))
    tl.store(row + 5, tl.sum(square))
    tl.store(row + 6, tl.sum(product))
    tl.store(row + 7, tl.sum(own_product))
    tl.store(row + 8, tl.sum(squares))
    tl.store(row + 9, tl.sum(fourths))
    tl.store(row + 10, tl.sum(different))
    tl.store(row + 11, tl.sum(zeros_outside))
    tl.store(row + 12, tl.sum(mean_outside))
    most = tl.max(worst)
    tl.store(row + 13, most)
    tl.store(places_at + program * 2, tl.min(first))
    at = tl.where(worst == most, worst_at, tl.full((BLOCK,), 0, tl.int64) + n)
    tl.store(places_at + program * 2 + 1, tl.min(at))


COLUMNS = 14


class FusedTotals:
    """See `totals.Totals`; dtypes that the kernels do not know are left to torch."""

    def __init__(self) -> None:
        self._chunked = ChunkedTotals()

    def expected(self, outputs: Outputs) -> Expected:
        """See `Totals`."""
        if not _known(outputs):
            return self._chunked.expected(outputs)
        n = outputs.reference.numel()
        programs = _programs(n)
        sums = torch.empty(programs, 4, dtype=torch.float64, device=outputs.reference.device)
        _expected_kernel[programs,](outputs.reference, outputs.wide, sums, n, BLOCK=BLOCK)
        finite, total, square, own_square = sums.sum(0).tolist()
        return Expected(int(finite), total, square, own_square)

    def compared(
        self, outputs: Outputs, bound: Bound, mean: float, *, against_reference: bool
    ) -> tuple[Nonfinite, Values]:
        """See `Totals`."""
        if not _known(outputs):
            return self._chunked.compared(outputs, bound, mean, against_reference=against_reference)
        # The rest on the CPU: every question put to the GPU waits for it.
        sums, places = (
            rows.cpu() for rows in self._rows(outputs, bound, mean, against_reference=against_reference)
        )
        wrong, unwritten, *added = sums[:, :13].sum(0).tolist()
        nonfinite = Nonfinite(int(wrong), int(unwritten), int(places[:, 0].min()) if wrong else -1)
        worst = sums[:, 13].max()
        worst_at = int(places[:, 1][sums[:, 13] == worst].min())
        counts = {0, 1, 2, 8, 9, 10}
        fields = [int(value) if position in counts else value for position, value in enumerate(added)]
        return nonfinite, Values._make([*fields, float(worst), worst_at])

    @staticmethod
    def _rows(
        outputs: Outputs, bound: Bound, mean: float, *, against_reference: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what each program adds up, and where it found something."""
        n, device = outputs.got.numel(), outputs.got.device
        programs = _programs(n)
        integer = INTEGERS_OF_SIZE[outputs.got.dtype.itemsize]
        bits = outputs.got.view(integer)
        poison = bits[:1] if outputs.poison is None else outputs.poison.view(integer).reshape(1)
        limits = [bound.absolute, bound.relative, bound.outlier_factor, mean]
        sums = torch.empty(programs, COLUMNS, dtype=torch.float64, device=device)
        places = torch.empty(programs, 2, dtype=torch.int64, device=device)
        _compare_kernel[programs,](
            outputs.got,
            bits,
            outputs.reference,
            outputs.wide,
            poison,
            torch.tensor(limits, dtype=torch.float64, device=device),
            sums,
            places,
            n,
            int(against_reference),
            int(outputs.has_wide),
            int(outputs.poison is not None),
            COLUMNS=COLUMNS,
            BLOCK=BLOCK,
        )
        return sums, places


def _known(outputs: Outputs) -> bool:
    return all(t.dtype in DTYPES and t.is_contiguous() for t in outputs[:3])


def _programs(n: int) -> int:
    return min(max(1, -(-n // BLOCK)), MOST_PROGRAMS)


def warm_up(device: str = "cuda") -> None:
    """Compile for the most common dtypes.

    Raises:
        Exception: Whatever Triton raises where it cannot compile or launch, for want of a C compiler for example.
    """
    got = torch.zeros(2, device=device)
    outputs = Outputs(got, got, got.double(), True, got[0])
    FusedTotals().expected(outputs)
    FusedTotals().compared(outputs, Bound(1.0, 1.0), 0.0, against_reference=False)
