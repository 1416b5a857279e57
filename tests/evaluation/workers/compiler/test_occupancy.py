import pytest

from adaexplore_mcp.evaluation.workers.compiler.occupancy import occupancy
from adaexplore_mcp.evaluation.workers.targets import TARGETS

KIB = 1024


@pytest.mark.parametrize(
    ("target", "block", "share", "limit"),
    [
        # 64 registers · 32 threads = 2,048 per warp: 32 of 64 warps.
        ("sm_90", (64, 128, 0), 0.5, "registers"),
        ("sm_90", (32, 1024, 0), 1.0, "threads"),
        ("sm_90", (16, 32, 0), 0.5, "blocks"),
        # 255 registers are given out as 256: 8 warps, two blocks of four.
        ("sm_90", (255, 128, 0), 0.125, "registers"),
        # 101 KiB of 228: two blocks of eight warps.
        ("sm_90", (32, 256, 100 * KIB), 0.25, "shared memory"),
        # 57 registers are given out as 64; warps in fours: 32, so one block of 20.
        ("sm_80", (57, 640, 0), 20 / 64, "registers"),
        ("sm_86", (32, 256, 0), 1.0, "threads"),
    ],
)
def test_what_fits_a_multiprocessor(target, block, share, limit):
    registers, threads, shared = block
    found = occupancy(TARGETS[target], registers, threads, shared)
    assert found.share == pytest.approx(share)
    assert found.limit == limit
