"""Linear layer with bias and exact GELU, in half precision."""

import torch
from torch import nn

TOKENS = 4096
IN_FEATURES = 4096
OUT_FEATURES = 16384
DTYPE = "float16"


class Model(nn.Module):
    """Takes x of shape (tokens, in_features), returns (tokens, out_features)."""

    def __init__(self, in_features, out_features, dtype):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=dtype)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(TOKENS, IN_FEATURES).to(getattr(torch, DTYPE))]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES, getattr(torch, DTYPE)]
