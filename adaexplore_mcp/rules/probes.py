"""Probes: minimal kernels that must fail in the way a rule says, and the rules they establish.

A probe is a whole candidate, `probe(x)` for one float32 vector, that differs from a kernel which compiles in nothing but the
construct in question. It is compiled only, never run. A rule whose probe compiles does not hold for that Triton.
"""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PRESENT", "PROBE_ENTRY", "STARTERS", "Starter", "names_probe", "probe_of"]

PROBE_ENTRY = "probe"

_FRAME = """import torch
import triton
import triton.language as tl

{before}
{decorator}@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
{body}
    tl.store(y_ptr + o, y, mask=o < n)


def probe(x):
    y = torch.empty_like(x)
    {launch}
    return y
"""

LAUNCH = "kernel[(1,)](x, y, x.numel(), BLOCK=128)"


def framed(body: str = "y = x", *, before: str = "", launch: str = LAUNCH, decorator: str = "") -> str:
    """Return a candidate that compiles but for what is put into it.

    Args:
        body: Statements that make `y` of the block `x`.
        before: Statements of the module.
        launch: The call that launches the kernel.
        decorator: A line above `@triton.jit`.
    """
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    above = f"{decorator}\n" if decorator else ""
    return _FRAME.format(before=before, body=indented, launch=launch, decorator=above)


TRIED = ("3.4.0", "3.6.0", "3.9.0")
"""Versions of Triton with which every probe was run."""


@dataclass(frozen=True, slots=True)
class Starter:
    """A rule that comes with the product, and the probe that establishes it.

    Args:
        key: Fingerprint of the failure that the probe must have.
        probe: A candidate that must fail like that.
        text: The rule, for beliefs that are no kind of failure.
        names: Names that the rule lists.
        holds: Versions of Triton under which the probe was seen to fail so.
        compiles: Versions under which it was seen to compile.
    """

    key: str
    probe: str
    text: str = ""
    names: tuple[str, ...] = ()
    holds: tuple[str, ...] = TRIED
    compiles: tuple[str, ...] = ()


MISSING = (
    "tanh", "pow", "log1p", "silu", "relu", "gelu", "mean", "astype", "constant", "any", "isnan", "ones", "matmul",
    "expm1", "round", "sign", "full_like", "acos", "asin", "atan", "atan2", "cosh", "div", "eq", "erfc", "gt",
    "isfinite", "isinf", "leaky_relu", "log10", "logsumexp", "lt", "mod", "neg", "ones_like", "power", "prod", "sinh",
    "softplus", "sqr", "square", "std", "tan", "transpose", "var",
)  # fmt: skip
"""Names that people expect in triton.language, most expected first."""


_LOOP = "y = x\nfor i in range(4):\n    "
_TUNED = (
    "@triton.autotune(configs=[triton.Config({{'BLOCK': 64}}), triton.Config({{'BLOCK': 128}})], key=['{}'])"
)
_TILE = "a = tl.zeros(({}), tl.float16)\nb = tl.zeros(({}), tl.{})\nc = tl.dot(a, b)\ny = x + tl.sum(c)"


def _belief(name: str, text: str, body: str) -> Starter:
    """Return the probe of what other collections of rules say and no supported Triton confirms."""
    return Starter(f"belief:{name}", framed(body), text=text, holds=(), compiles=TRIED)


STARTERS: tuple[Starter, ...] = (
    Starter("name_missing:triton.language", framed("y = tl.tanh(x)"), names=MISSING),
    Starter(
        "attribute_missing:block",
        framed("y = x.astype(tl.float32)"),
        names=("astype", "size", "at", "float", "clone", "item"),
    ),
    Starter("not_callable:dtype", framed("y = tl.float32(x)")),
    Starter("index_block:block", framed("y = x + x[0]")),
    Starter("item_assignment:block", framed("x[0] = 1.0\ny = x"), holds=("3.6.0", "3.9.0")),
    Starter(
        "attribute_assignment:attribute",
        framed("x.a = 1\ny = x"),
        holds=("3.6.0", "3.9.0"),
        compiles=("3.4.0",),
    ),
    Starter("unsupported_node:break", framed(f"{_LOOP}break")),
    Starter("unsupported_node:continue", framed(f"{_LOOP}continue")),
    Starter("unsupported_node:return_in_loop", framed(f"{_LOOP}return")),
    Starter("unsupported_node:lambda", framed("f = lambda a: a\ny = f(x)")),
    Starter(
        "unsupported_node:nested_function",
        framed("def f(a):\n    return a\ny = f(x)"),
        holds=("3.4.0", "3.9.0"),
    ),
    Starter("unsupported_node:dict", framed("a = {'a': 1}\ny = x")),
    Starter("unsupported_node:try", framed("try:\n    y = x\nexcept Exception:\n    y = x")),
    Starter("unsupported_node:raise", framed("raise ValueError('x')\ny = x")),
    Starter("unsupported_node:delete", framed("y = x\ndel x")),
    Starter("foreign_function:functions of torch", framed("y = torch.exp(x)")),
    Starter("foreign_function:functions of np", framed("y = np.exp(x)", before="import numpy as np\n")),
    Starter(
        "foreign_function:a function that is not @triton.jit",
        framed("y = f(x)", before="def f(a):\n    return a\n"),
        holds=("3.6.0", "3.9.0"),
    ),
    Starter("plain_global:global", framed("y = x + EPS", before="EPS: tl.constexpr = 1e-5\n")),
    Starter("undefined_name:kernel", framed("if n > 3:\n    z = x\ny = z")),
    Starter("loop_type:loop", framed("a = 0.0\nfor i in range(0, n):\n    a += x\ny = x + a")),
    Starter("branch_type:if", framed("if n > 3:\n    z = x\nelse:\n    z = 0.0\ny = x + z")),
    Starter("block_condition:condition", framed("if x > 0:\n    x = x + 1\ny = x")),
    Starter("arange_power:tl.arange", framed("k = tl.arange(0, 96)\ny = x + tl.sum(k)")),
    Starter("arange_constexpr:tl.arange", framed("k = tl.arange(0, n)\ny = x")),
    Starter("shape_power:block", framed("k = tl.zeros((96,), tl.float32)\ny = x + tl.sum(k)")),
    Starter("shape_constexpr:block", framed("k = tl.zeros((n,), tl.float32)\ny = x")),
    Starter("numel_limit:block", framed("k = tl.zeros((2097152,), tl.float32)\ny = x + tl.sum(k)")),
    Starter("incompatible_shapes:block", framed("y = x + tl.zeros((64,), tl.float32)")),
    Starter("reshape_size:tl.reshape", framed("y = tl.reshape(x, (64,))")),
    Starter("pointer_arithmetic:pointer", framed("y = tl.load(x_ptr * 2 + o)")),
    Starter("python_conversion:float", framed("y = x + float(x)")),
    Starter("python_conversion:int", framed("y = x + int(x)")),
    Starter("python_conversion:len", framed("y = x + len(x)")),
    Starter("elementwise_dtype:tl.exp", framed("y = x + tl.exp(o)")),
    Starter("no_pointer:pointer", framed("y = tl.load(o)")),
    Starter("invalid_axis:axis", framed("y = x + tl.sum(x, axis=1)")),
    Starter("loop_bounds:for", framed("y = x\nfor i in range(0.5):\n    y += x")),
    Starter(
        "static_range_constexpr:tl.static_range", framed("y = x\nfor i in tl.static_range(n):\n    y += x")
    ),
    Starter("load_other:tl.load", framed("y = tl.load(x_ptr + o, other=0.0)")),
    Starter("scalar_pointer:pointer", framed("y = x\ntl.store(y_ptr, x)")),
    Starter("dot_size:tl.dot", framed(_TILE.format("8, 8", "8, 8", "float16"))),
    Starter("dot_rank:tl.dot", framed("c = tl.dot(x, x)\ny = x")),
    Starter("dot_inner:tl.dot", framed(_TILE.format("16, 32", "16, 32", "float16"))),
    Starter("dot_dtype:tl.dot", framed(_TILE.format("16, 16", "16, 16", "float32"))),
    Starter("call_keyword:tl.sum", framed("y = x + tl.sum(x, axis=0, mask=o < n)"), names=("mask", "axes")),
    Starter("call_keyword:tl.load", framed("y = tl.load(x_ptr + o, dtype=tl.float32)"), names=("dtype",)),
    Starter("call_keyword:tl.store", framed("y = x\ntl.store(y_ptr + o, y, other=0.0)"), names=("other",)),
    Starter(
        "call_keyword:tl.arange", framed("k = tl.arange(0, BLOCK, dtype=tl.int32)\ny = x"), names=("dtype",)
    ),
    Starter("call_keyword:tl.max", framed("y = x + tl.max(x, axis=0, initial=0.0)"), names=("initial",)),
    Starter("launch_missing:launch", framed(launch="kernel[(1,)](x, y, BLOCK=128)")),
    Starter("launch_twice:launch", framed(launch="kernel[(1,)](x, y, x.numel(), 128, BLOCK=128)")),
    Starter(
        "launch_keyword:launch",
        framed(launch="kernel[(1,)](x, y, x.numel(), BLOCK=128, meta=1)"),
        names=("meta",),
    ),
    Starter("launch_grid:grid", framed(launch="kernel[1](x, y, x.numel(), BLOCK=128)")),
    Starter("called_without_grid:launch", framed(launch="kernel(x, y, x.numel(), BLOCK=128)")),
    Starter(
        "num_warps_power:num_warps", framed(launch="kernel[(1,)](x, y, x.numel(), BLOCK=128, num_warps=3)")
    ),
    Starter("host_tensor:launch", framed(launch="kernel[(1,)](x.cpu(), y, x.numel(), BLOCK=128)")),
    Starter("autotune_conflict:triton.autotune", framed(decorator=_TUNED.format("n"))),
    Starter(
        "autotune_key:triton.autotune",
        framed(decorator=_TUNED.format("rows"), launch="kernel[(1,)](x, y, x.numel())"),
        holds=("3.9.0",),
        compiles=("3.4.0", "3.6.0"),
    ),
    # What people believe, and what no longer holds.
    Starter(
        "unsupported_node:listcomp",
        framed("a = [x * i for i in (1, 2)]\ny = a[0]"),
        holds=("3.4.0",),
        compiles=("3.6.0", "3.9.0"),
    ),
    Starter(
        "unsupported_node:chained_comparison",
        framed("y = tl.where(0 < n < 9, x, 0.0)"),
        holds=("3.4.0", "3.6.0"),
        compiles=("3.9.0",),
    ),
    Starter(
        "unsupported_node:chained_boolean",
        framed("if n == 1 or n == 2 or n == 3:\n    x = x + 1\ny = x"),
        holds=(),
        compiles=TRIED,
    ),
    _belief("sum_method", "You cannot call the sum method of a block in a Triton kernel.", "y = x + x.sum()"),
    _belief("sum_dtype", "You cannot pass dtype to tl.sum.", "y = x + tl.sum(x, axis=0, dtype=tl.float32)"),
    _belief(
        "load_without_other",
        "You cannot call tl.load with a mask and without other.",
        "y = tl.load(x_ptr + o, mask=o < n)",
    ),
    _belief(
        "while_runtime",
        "You cannot use a while loop whose bound is known at run time only in a Triton kernel.",
        "i = 0\ny = x\nwhile i < n:\n    y += x\n    i += 1",
    ),
)
"""Every rule with a probe, most frequent mistakes first among equals. Those that hold for no version shipped are given out for none, and not warned of."""

_BY_KEY = {starter.key: starter for starter in STARTERS}


def probe_of(key: str) -> str:
    """Return the probe of a rule, or the empty string."""
    return _BY_KEY[key].probe if key in _BY_KEY else ""


PRESENT = "present: "
"""Begins what the candidate of `names_probe` raises."""


def names_probe(names: Iterable[str]) -> str:
    """Return a candidate whose host code raises with those of some names that exist in triton.language."""
    asked = repr(tuple(names))
    return f"""import functools

import triton.language as tl


def there(name):
    try:
        functools.reduce(getattr, name.split("."), tl)
    except AttributeError:
        return False
    return True


def probe(x):
    raise LookupError("{PRESENT}" + ",".join(name for name in {asked} if there(name)))
"""
