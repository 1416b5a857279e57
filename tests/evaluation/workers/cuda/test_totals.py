"""The kernels that compare outputs, held to what torch computes; by Triton's interpreter, in a process of its own."""

import os
import subprocess
import sys
import textwrap

SCRIPT = """
    import itertools, math
    import torch
    from adaexplore_mcp.evaluation.workers.cuda.totals import FusedTotals
    from adaexplore_mcp.evaluation.workers.totals import Bound, ChunkedTotals, Outputs

    torch.manual_seed(0)
    fused, chunked, bound = FusedTotals(), ChunkedTotals(), Bound(1e-3, 1e-3, outlier_factor=10.0)
    nan, inf = float("nan"), float("inf")
    dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    compared = 0
    cases = ((0, 1, 0, 0), (1, 1, 0, 1), (1, 0, 1, 1), (0, 1, 1, 1), (1, 0, 0, 0))
    for dtype, n, (special, has_wide, against, has_poison) in itertools.product(dtypes, (1, 700), cases):
        wide = torch.randn(n, dtype=torch.float64)
        reference = wide.to(dtype)
        got = (wide + 1e-3 * torch.randn(n).double()).to(dtype)
        poison = torch.full((), nan if special else 7.0, dtype=dtype)
        if special:
            for start, value in enumerate((nan, inf, -inf, 0.0)):
                wide[start::17] = reference[start::17] = value
            got[::7], got[3::29], got[::17], got[1::17] = nan, inf, nan, inf
        got[: max(1, n // 50)] = poison
        outputs = Outputs(got, reference, wide if has_wide else reference, has_wide, poison if has_poison else None)
        for ours, theirs in (
            (fused.expected(outputs), chunked.expected(outputs)),
            *zip(*(each.compared(outputs, bound, 0.1, against_reference=against) for each in (fused, chunked))),
        ):
            for name, a, b in zip(ours._fields, ours, theirs, strict=True):
                assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12), (dtype, n, special, has_wide, against, name, a, b)
                compared += 1
    print(compared)
"""


def test_one_pass_counts_what_torch_counts():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout) == 4 * 2 * 5 * 20
