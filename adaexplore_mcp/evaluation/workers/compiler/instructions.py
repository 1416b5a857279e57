"""What a compiled kernel is made of, read from its PTX: how wide it loads, and with what it computes."""

import re

__all__ = ["instructions"]

ACCESS = re.compile(
    r"\b(?P<kind>ld|st)\.(?:\w+\.)*global(?:[.:]{1,2}\w+)*?(?:\.v(?P<lanes>[248]))?\.[bfsu](?P<bits>\d+)"
)
"""A load or store of global memory (PTX ISA, "Data Movement and Conversion Instructions")."""
COUNTED = {
    "tensor_core": re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)\b"),
    "async_copies": re.compile(r"\bcp\.async\.(?!commit|wait)\w+"),
    "shared_single": re.compile(r"\bld\.(?:\w+\.)*shared(?:::\w+)?\.[bfsu](?:8|16|32)\b"),
    "atomics": re.compile(r"\b(?:atom|red)\.(?:\w+\.)*global\b"),
    "fp64": re.compile(r"\b(?:add|mul|fma|sub|div)\.(?:\w+\.)*f64\b"),
    "divisions": re.compile(r"\bdiv\.(?:\w+\.)*f32\b"),
}


def instructions(ptx: str) -> dict[str, int]:
    """Return counts by kind, of what stands in the code and not of what runs: `load_32` is a load of 32 bits per thread.

    Kinds without any are left out.
    """
    counts: dict[str, int] = {}
    for found in ACCESS.finditer(ptx):
        bits = int(found["bits"]) * int(found["lanes"] or 1)
        kind = "load" if found["kind"] == "ld" else "store"
        counts[f"{kind}_{bits}"] = counts.get(f"{kind}_{bits}", 0) + 1
    for kind, pattern in COUNTED.items():
        if number := len(pattern.findall(ptx)):
            counts[kind] = number
    return counts
