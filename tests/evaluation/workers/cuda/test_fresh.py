"""Wrapped makers of uninitialised tensors; in a process of its own, since they stay wrapped."""

import subprocess
import sys

SCRIPT = """
import torch
from adaexplore_mcp.evaluation.workers.cuda.fresh import Fresh

Fresh().install()


@torch.jit.script
def f(x):
    return torch.empty([2], dtype=torch.float32).zero_() + torch.empty_like(x).zero_() + x


assert f(torch.ones(2)).tolist() == [1.0, 1.0]
assert torch.empty(3).shape == (3,)
assert torch.ones(1).new_empty((2, 2)).shape == (2, 2)
"""


def test_torchscript_still_knows_what_is_wrapped(tmp_path):
    script = tmp_path / "script.py"  # TorchScript reads the source from its file
    script.write_text(SCRIPT, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-1500:]
