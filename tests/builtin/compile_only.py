"""Compile built-in kernels for GPUs that need not be there; prints one JSON line per case.

Run as a script: in a process where Triton interprets, or where a driver was replaced, nothing is compiled. Argument 1 is
a JSON list of cases with `task`, `kernel`, `pointers` (types by name without `_ptr`), `constants` and `target`.
"""

import importlib.util
import json
import sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import adaexplore_mcp

FOLDER = Path(adaexplore_mcp.__file__).parent / "builtin"
FLOATS = {"epsilon", "scale"}


def load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compile_kernel(*, task, kernel, pointers, constants, options, target):
    function = getattr(load(FOLDER / task / "kernel.py"), kernel)
    function = getattr(function, "fn", function) if hasattr(function, "configs") else function
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    signature, aligned = {}, {}
    for position, name in enumerate(function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name.endswith("_ptr"):
            signature[name] = f"*{pointers[name.removesuffix('_ptr')]}"
            aligned[position,] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
            if (
                name not in FLOATS
            ):  # as sizes in use are, and without it no load is wide enough to be pipelined
                aligned[position,] = [["tt.divisibility", 16]]
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    return {"shared": compiled.metadata.shared, "cubin": len(compiled.asm["cubin"])}


if __name__ == "__main__":
    for case in json.loads(sys.argv[1]):
        print(json.dumps(compile_kernel(**case)), flush=True)  # noqa: T201 - the result
