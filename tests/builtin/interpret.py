"""Run built-in kernels against their references in the corrected interpreter; prints one JSON line per case.

Run as a script, since TRITON_INTERPRET must be set before triton is imported: argument 1 is a JSON list of cases with
`task`, `sizes` and `strided` (spread the elements of every input two apart).
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch

import adaexplore_mcp
from adaexplore_mcp.evaluation.workers.interpreter import Interpreter

FOLDER = Path(adaexplore_mcp.__file__).parent / "builtin"


def load(path, **sizes):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    vars(module).update(sizes)
    return module


def spread(tensor):
    """Return an equal tensor whose elements are two apart."""
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 77, dtype=tensor.dtype)
    return wide[..., ::2].copy_(tensor)


def differences(got, expected):
    return float((got.double() - expected.double()).abs().max())


@torch.no_grad()
def run(interpreter, task, sizes, strided):
    about = json.loads((FOLDER / task / "task.json").read_text())
    reference, kernel = load(FOLDER / task / "reference.py", **sizes), load(FOLDER / task / "kernel.py")
    torch.manual_seed(0)
    if about["format"] == "kernelbench":
        expect, model = (
            reference.Model(*reference.get_init_inputs()),
            kernel.ModelNew(*reference.get_init_inputs()),
        )
        model.load_state_dict(expect.state_dict())
        given = reference.get_inputs()
    else:
        expect, model = getattr(reference, about["entry"]), getattr(kernel, about["entry"])
        workload = {name: value for name, value in vars(reference).items() if name.isupper()} | sizes
        given = reference.make_inputs(workload, "cpu", 1)
    arrange = spread if strided else torch.clone
    ours = [arrange(item) if isinstance(item, torch.Tensor) else item for item in given]
    expected = expect(*given)
    # tune: every autotune configuration runs, not the first one only.
    with interpreter.call(tune=True) as recorder:
        got = model(*ours)
    pairs = [(a, b) for a, b in zip(ours, given, strict=True) if isinstance(a, torch.Tensor)]
    return {
        "same_kind": (got.shape, got.dtype) == (expected.shape, expected.dtype),
        "error": differences(got, expected),
        "scale": float(expected.double().square().mean().sqrt()),
        "eps": torch.finfo(expected.dtype).eps,
        "findings": [f"{finding.kind}: {finding.detail}" for finding in recorder.findings],
        "inputs_error": max(differences(a, b) for a, b in pairs),
    }


if __name__ == "__main__":
    installed = Interpreter.install(90)
    for case in json.loads(sys.argv[1]):
        print(json.dumps(run(installed, **case)), flush=True)  # noqa: T201 - the result
