"""Cross-entropy loss per token, as at the end of a language model in training."""

import torch

TOKENS = 8192
VOCABULARY = 50257
IGNORED = -100


def cross_entropy(logits, targets, ignored):
    """Return the loss of each token, float32 of shape (tokens,); 0 where the target is `ignored`.

    logits is float32 of shape (tokens, vocabulary), targets int64 of (tokens,).
    """
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=ignored, reduction="none")


def make_inputs(workload, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    tokens, vocabulary = workload["TOKENS"], workload["VOCABULARY"]
    logits = 2 * torch.randn((tokens, vocabulary), generator=generator, device=device)
    targets = torch.randint(0, vocabulary, (tokens,), generator=generator, device=device)
    padding = torch.rand(tokens, generator=generator, device=device) < 0.1
    return [logits, targets.masked_fill(padding, workload["IGNORED"]), workload["IGNORED"]]
