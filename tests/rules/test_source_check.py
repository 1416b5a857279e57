"""What is seen in source before anything runs, and what must not be seen in right kernels."""

import textwrap
from pathlib import Path

import pytest

from adaexplore_mcp.rules import STARTERS, VISIBLE, read

BUILTIN = Path(__file__).parents[2] / "adaexplore_mcp/builtin"
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"


def kernel(body, *, before="", launch="kernel[(1,)](x, x, 3, BLOCK=64)", decorator=""):
    return (
        f"{HEAD}{before}\n{decorator}\n@triton.jit\ndef kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
        f"{textwrap.indent(body, '    ')}\n\ndef op(x):\n    {launch}\n    return x\n"
    )


def keys(source):
    return {each.key for each in read(source).sightings}


@pytest.mark.parametrize(
    "starter",
    [each for each in STARTERS if each.key.partition(":")[0] in VISIBLE and each.holds],
    ids=lambda starter: starter.key,
)
def test_a_probe_is_seen_in_its_own_source(starter):
    unseen = {
        "foreign_function:a function that is not @triton.jit"
    }  # a name alone does not show what it stands for
    if starter.key not in unseen:
        assert starter.key in keys(starter.probe)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in BUILTIN.glob("*/kernel.py")))
def test_right_kernels_show_nothing_but_names(name):
    names = {key: set(starter.names) for starter in STARTERS for key in [starter.key]}
    source = (BUILTIN / name / "kernel.py").read_text(encoding="utf-8")
    assert [
        each for each in read(source).sightings if not each.name or each.name in names.get(each.key, ())
    ] == []


def test_a_sighting_names_its_line_and_what_stands_there():
    source = kernel("o = tl.arange(0, BLOCK)\nx = tl.load(x_ptr + o)\ny = tl.tanh(x)")
    (seen,) = [
        each
        for each in read(source).sightings
        if each.key == "name_missing:triton.language" and each.name == "tanh"
    ]
    assert source.splitlines()[seen.line - 1].strip() == "y = tl.tanh(x)"
    assert (seen.why, seen.kernel) == ("tl.tanh", "kernel")


@pytest.mark.parametrize(
    "body",
    [
        "y = x_ptr.shape[0]",
        "o = tl.arange(0, BLOCK)\ny = o[:, None] + o[None, :]",
        "a = (1, 2)\ny = a[0]",
        "y = -float('inf')",
        "for i in tl.static_range(4):\n    y = i",
        "acc = 0.0\nfor i in range(n):\n    acc += 1.0",
        "if n == 1 and BLOCK == 2:\n    return",
    ],
)
def test_what_compiles_is_not_seen(body):
    assert not keys(kernel(body)) - {"name_missing:triton.language", "attribute_missing:block"}


def test_a_kernel_that_is_launched_under_a_condition_only_is_not_warned_of():
    assert "unsupported_node:break" in keys(kernel("for i in range(3):\n    break"))
    conditional = "if x.is_meta:\n        kernel[(1,)](x, x, 3, BLOCK=64)"
    assert "unsupported_node:break" not in keys(kernel("for i in range(3):\n    break", launch=conditional))


def test_constructs_in_a_branch_are_marked_as_such():
    seen = read(kernel("if n > 3:\n    f = lambda a: a\ng = lambda a: a")).sightings
    assert [each.always for each in seen if each.key == "unsupported_node:lambda"] == [False, True]


@pytest.mark.parametrize(
    "source", [b"\xff\xfe\x00", b"def f(:\n", b"\0", "x = " + "(" * 3000, b"# -*- coding: nothing -*-\n"]
)
def test_what_is_no_python_shows_nothing(source):
    assert read(source).sightings == []


def test_what_kernels_use_is_listed():
    seen = read(kernel("o = tl.arange(0, BLOCK)\nfor i in range(n):\n    a = tl.dot(o[:, None], o[None, :])"))
    assert {"arange", "dot", "for", "[]"} <= seen.apis
    assert seen.kernels == {"kernel"}


def test_a_source_so_long_that_reading_it_takes_seconds_is_not_read():
    told = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.tanh(x)\n"
    assert read(told).apis
    assert not read(told + "a = 1\n" * 200_000).apis


HOST = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    y = tl.float16(1.0)


def launch(x):
{launch}


class ModelNew(torch.nn.Module):
    def forward(self, x):
{forward}
"""
SURE, CALL = "    kernel[(1,)](x, 3, BLOCK=4)", "        return launch(x)"


@pytest.mark.parametrize(
    ("launch", "forward", "warned"),
    [
        (SURE, CALL, True),
        (SURE, "        if x.numel() > 10:\n            return launch(x)\n        return x", False),
        (SURE, "        if x.numel() > 10:\n            return x * 2\n        return launch(x)", False),
        (SURE, "        if not x.is_cuda:\n            return x * 2\n        return launch(x)", True),
        (SURE, "        if x.is_cuda:\n            return launch(x)\n        return x", True),
        (SURE, "        if x.numel() == 0:\n            return x\n        return launch(x)", True),
        (f"    if x.numel() < 9:\n        return x + 1\n{SURE}", CALL, False),
        (f"    def grid(meta):\n        return (1,)\n{SURE}", CALL, True),
        (SURE, "        return x", False),
    ],
)
def test_a_kernel_that_may_never_be_launched_draws_no_warning(launch, forward, warned):
    seen = [each.key for each in read(HOST.format(launch=launch, forward=forward)).sightings]
    assert ("not_callable:dtype" in seen) is warned
