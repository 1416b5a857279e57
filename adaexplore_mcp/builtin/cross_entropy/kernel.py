"""One program per token reads its logits once, keeping a running maximum and sum per lane."""

import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(
    logits_ptr,
    targets_ptr,
    loss_ptr,
    token_stride,
    class_stride,
    target_stride,
    vocabulary,
    ignored,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)  # token * vocabulary exceeds 32 bits
    row_ptr = logits_ptr + token * token_stride
    target = tl.load(targets_ptr + token * target_stride)
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        column = start + tl.arange(0, BLOCK)
        logits = tl.load(row_ptr + column * class_stride, mask=column < vocabulary, other=-float("inf"))
        new = tl.maximum(highest, logits)
        # While a lane has seen only -inf, it must not compute -inf - -inf.
        origin = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(highest - origin) + tl.exp(logits - origin)
        highest = new
    peak = tl.max(highest, axis=0)
    log_sum = peak + tl.log(tl.sum(total * tl.exp(highest - peak), axis=0))
    counted = target != ignored
    # An ignored target may be no index at all: it must not be read.
    chosen = tl.load(row_ptr + target * class_stride, mask=counted, other=0.0)
    tl.store(loss_ptr + token, tl.where(counted, log_sum - chosen, 0.0))


def cross_entropy(logits, targets, ignored):
    tokens, vocabulary = logits.shape
    loss = torch.empty(tokens, dtype=logits.dtype, device=logits.device)
    cross_entropy_kernel[(tokens,)](
        logits,
        targets,
        loss,
        logits.stride(0),
        logits.stride(1),
        targets.stride(0),
        vocabulary,
        ignored,
        BLOCK=min(4096, triton.next_power_of_2(vocabulary)),
        num_warps=8,
    )
    return loss
