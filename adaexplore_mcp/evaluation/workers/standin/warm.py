"""Do in a parent process, once, what every child would otherwise do first."""

import torch

from .standin import StandIn

__all__ = ["warm_up"]


def warm_up() -> None:
    """Use a stand-in once with real and once with fake tensors; the process stays single-threaded.

    The first fake tensor of a process imports torch's compiler and sympy, 1 to 3 s, and rebinds `torch.manual_seed`:
    take snapshots of torch after this.
    """
    for fake in (False, True):
        with StandIn(fake=fake), torch.no_grad():
            module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.Flatten(), torch.nn.Linear(2, 2))
            module.cuda().half().float()(torch.ones(1, 1, 1, 1, device="cuda")).softmax(-1)
