"""Kernels with one known fault each, and the tasks that they are for: the digest of a profile names the fault first.

`FAULTS` maps the name of a cause to the expression of the task's output, the expression of its inputs, and a candidate.
Plain data: a script without our package can run them too.
"""

import textwrap

__all__ = ["FAULTS", "HEALTHY", "candidate_of", "task_source"]

HEAD = "import torch\nfrom torch import nn\nimport triton\nimport triton.language as tl\n"


def task_source(forward, inputs):
    """Return a task's source."""
    return (
        f"import torch\nfrom torch import nn\nclass Model(nn.Module):\n    def forward(self, *xs):\n        return {forward}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )


def candidate_of(kernel, body):
    """Return a candidate's source from a kernel and the body of its forward."""
    forward = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"{HEAD}\n{textwrap.dedent(kernel)}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{forward}\n"


COPY = """
@triton.jit
def kernel(x_ptr, y_ptr, n, rows, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {load}
    tl.store(y_ptr + o, x + 1, mask=o < n)
"""
LAUNCH = """
y = torch.empty_like(x)
kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), x.shape[0], BLOCK=2048)
return y
"""
CONTIGUOUS = "x = tl.load(x_ptr + o, mask=o < n)"
TRANSPOSED = "x = tl.load(x_ptr + (o % rows) * rows + o // rows, mask=o < n)"
SUM = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * n + start + o, mask=start + o < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total))
"""
SUM_LAUNCH = "y = torch.empty(4, device=x.device)\nkernel[(4,)](x, y, x.shape[1], BLOCK=4096)\nreturn y"
PRODUCT = """
@triton.jit
def kernel(x_ptr, y_ptr, K, BM: tl.constexpr, BK: tl.constexpr):
    m, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK)
    n = tl.program_id(1) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(x_ptr + m[:, None] * K + (start + k)[None, :])
        b = tl.load(x_ptr + n[:, None] * K + (start + k)[None, :])
        acc = tl.dot(a, tl.trans(b), acc{options})
    tl.store(y_ptr + m[:, None] * 4096 + n[None, :], acc)
"""
PRODUCT_LAUNCH = """
y = torch.empty(4096, 4096, device=x.device)
kernel[(4096 // {block}, 4096 // {block})](x, y, 4096, BM={block}, BK=32, num_warps={warps})
return y
"""
STRIDED = """
@triton.jit
def kernel(x_ptr, y_ptr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    # Lane after lane reads 32 words further on: all of them from one bank of shared memory.
    at = tl.arange(0, BLOCK)
    o = tl.program_id(0) * BLOCK + at
    index = (at * 32) % BLOCK + at // (BLOCK // 32)
    x = tl.load(x_ptr + o)
    for _ in range(ROUNDS):
        x = tl.gather(x, index, 0) + 1
    tl.store(y_ptr + o, x)
"""
STRIDED_LAUNCH = """
y = torch.empty_like(x)
kernel[(x.numel() // 4096,)](x, y, ROUNDS=8, BLOCK=4096, num_warps=4)
return y
"""
STRIDED_TASK = (
    "__import__('functools').reduce(lambda x, _: x.reshape(-1, 128, 32).transpose(1, 2).reshape(xs[0].shape) + 1, "
    "range(8), xs[0])"
)
FLOAT_DETOUR = (
    "x = x.float()\n"
    + "\n".join(
        "y = torch.empty_like(x); kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), 1, BLOCK=2048); x = y"
        for _ in range(4)
    )
    + "\nreturn x.half()"
)
WIDE = "[torch.randn(1 << 13, 1 << 13)]"
MATRIX = ("xs[0] @ xs[0].T", "[torch.randn(4096, 4096)]")

FAULTS = {
    "narrow_access": ("xs[0].T + 1", WIDE, candidate_of(COPY.format(load=TRANSPOSED), LAUNCH)),
    "spilled_registers": (
        *MATRIX,
        candidate_of(PRODUCT.format(options=""), PRODUCT_LAUNCH.format(block=256, warps=4)),
    ),
    "tiny_grid": ("xs[0].sum(1)", "[torch.randn(4, 1 << 22)]", candidate_of(SUM, SUM_LAUNCH)),
    "bank_conflicts": (STRIDED_TASK, WIDE, candidate_of(STRIDED, STRIDED_LAUNCH)),
    "extra_traffic": (
        "xs[0] + 4",
        "[torch.randn(1 << 13, 1 << 13).half()]",
        candidate_of(COPY.format(load=CONTIGUOUS), FLOAT_DETOUR),
    ),
    "no_tensor_cores": (
        *MATRIX,
        candidate_of(
            PRODUCT.format(options=", input_precision='ieee'"), PRODUCT_LAUNCH.format(block=64, warps=8)
        ),
    ),
}
HEALTHY = ("xs[0] + 1", WIDE, candidate_of(COPY.format(load=CONTIGUOUS), LAUNCH))
