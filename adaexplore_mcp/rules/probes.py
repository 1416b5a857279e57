"""Probes: minimal kernels that must fail in the way a rule says, and the rules they establish.

A probe is a whole candidate, `probe(x)` for one float32 vector, that differs from a kernel which compiles in nothing but the
construct in question. It is compiled only, never run. A rule whose probe compiles does not hold for that Triton.
"""

from dataclasses import dataclass, field

__all__ = ["PROBE_ENTRY", "STARTERS", "Starter", "probe_of"]

PROBE_ENTRY = "probe"

_FRAME = '''import torch
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
'''

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


@dataclass(frozen=True, slots=True)
class Starter:
    """A rule that comes with the product, and the probe that establishes it.

    Args:
        key: Fingerprint of the failure that the probe must have.
        text: The rule.
        probe: A candidate that must fail like that.
        names: Names that the rule lists; each was tried.
        holds: Versions of Triton under which the probe was seen to fail so.
        passes: Versions under which it compiled.
    """

    key: str
    text: str
    probe: str
    names: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    passes: tuple[str, ...] = field(default=())


MISSING = (
    "acos", "any", "asin", "astype", "atan", "atan2", "constant", "cosh", "div", "eq", "erfc", "expm1", "full_like", "gelu",
    "gt", "isfinite", "isinf", "isnan", "leaky_relu", "log10", "log1p", "logsumexp", "lt", "matmul", "mean", "mod", "mul",
    "neg", "ones", "ones_like", "pow", "power", "prod", "relu", "round", "sign", "silu", "sinh", "softplus", "sqr", "square",
    "std", "tan", "tanh", "transpose", "var",
)  # fmt: skip
"""Names that people expect in triton.language; each is looked up by the probe of names."""

_NAMES = framed("y = x\n" + "\n".join(f"y = tl.{name}(x)" for name in MISSING[:1]))

