"""Residual add and RMSNorm as between the blocks of a language model, such as Llama."""

import torch

TOKENS = 8192
HIDDEN = 4096
EPSILON = 1e-6
DTYPE = "bfloat16"


def fused_add_rmsnorm(x, residual, weight, epsilon):
    """Add x to the residual in place and return the RMSNorm of the sum.

    x and residual have shape (tokens, hidden), weight has (hidden,). The sum is normalised as it is in float32, before
    it is rounded into the residual.
    """
    total = x.float() + residual.float()
    residual.copy_(total)
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + epsilon)
    return (total * scale * weight.float()).to(x.dtype)


def make_inputs(workload, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = (workload["TOKENS"], workload["HIDDEN"])
    dtype = getattr(torch, workload["DTYPE"])
    x = torch.randn(shape, generator=generator, device=device).to(dtype)
    residual = torch.randn(shape, generator=generator, device=device).to(dtype)
    weight = (1 + 0.1 * torch.randn(shape[1], generator=generator, device=device)).to(dtype)
    return [x, residual, weight, workload["EPSILON"]]
