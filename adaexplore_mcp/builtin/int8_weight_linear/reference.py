"""Linear layer whose weights are stored as int8 with one scale per output row."""

import torch

TOKENS = 16
IN_FEATURES = 4096
OUT_FEATURES = 11008
DTYPE = "float16"


def int8_weight_linear(x, weight, scale):
    """Return x @ (weight * scale).T.

    x has shape (tokens, in_features), weight is int8 of (out_features, in_features), scale has (out_features,) and the
    dtype of x.
    """
    dequantised = weight.to(x.dtype) * scale[:, None]
    return torch.nn.functional.linear(x, dequantised)


def make_inputs(workload, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    tokens, inner, outer = workload["TOKENS"], workload["IN_FEATURES"], workload["OUT_FEATURES"]
    dtype = getattr(torch, workload["DTYPE"])
    x = torch.randn((tokens, inner), generator=generator, device=device).to(dtype)
    weight = torch.randint(-127, 128, (outer, inner), generator=generator, device=device).to(torch.int8)
    # As quantising rows of a weight with a standard deviation near 1 / sqrt(in_features) gives them.
    scale = (0.5 + torch.rand(outer, generator=generator, device=device)) / (73 * inner**0.5)
    return [x, weight, scale.to(dtype)]
