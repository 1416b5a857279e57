"""Recurrent layers on fake tensors, in one step instead of one per element of the sequence.

torch decomposes `nn.GRU` and its kin over fake tensors into operations for each time step, 0.1 ms apiece: 40 s for a
sequence of 512. Here a layer is two products over the whole sequence, which have the same shapes, dtypes and number
of floating-point operations.
"""

from typing import Any

import torch

__all__ = ["recurrent_outputs"]

SEQUENCE_ARGUMENTS = 9


def recurrent_outputs(args: tuple[Any, ...]) -> tuple[torch.Tensor, ...] | None:
    """Return the outputs that torch's recurrent functions would give for fake tensors, or None for other calls.

    Args:
        args: input (T, B, I) or (B, T, I), the state (L, B, H) or a tuple of two, flat weights, has_biases, num_layers,
            dropout, train, bidirectional, batch_first. Packed sequences and LSTMs with projections are other calls.
    """
    if len(args) != SEQUENCE_ARGUMENTS or not isinstance(args[2], (list, tuple)):
        return None
    source, state, weights, has_biases, layers, _, _, bidirectional, batch_first = args
    states = tuple(state) if isinstance(state, (list, tuple)) else (state,)
    directions = 2 if bidirectional else 1
    per_layer = 4 if has_biases else 2
    if len(weights) != per_layer * layers * directions:
        return None
    sequence = source.transpose(0, 1) if batch_first else source
    steps, batch, hidden = sequence.shape[0], sequence.shape[1], states[0].shape[-1]
    for layer in range(layers):
        ways = []
        for direction in range(directions):
            first = (layer * directions + direction) * per_layer
            gates = torch.nn.functional.linear(sequence, weights[first])
            before = states[0][layer * directions + direction].expand(steps, batch, hidden)
            # Results rest on both products, on all states and on every weight, as those of the real layer do.
            gates = gates + torch.nn.functional.linear(before, weights[first + 1])
            if has_biases:
                gates = gates + weights[first + 2] + weights[first + 3]
            ways.append(gates[..., :hidden].contiguous())
        sequence = torch.cat(ways, dim=-1) if directions > 1 else ways[0]
    for each in states[1:]:
        sequence = sequence + each.flatten()[:1]
    output = sequence.transpose(0, 1) if batch_first else sequence
    return (output, *(each + sequence.flatten()[:1] for each in states))
