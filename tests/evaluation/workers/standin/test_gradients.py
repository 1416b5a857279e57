"""What a backward pass is told of the device. This file plays the candidate."""

import pytest
import torch

from adaexplore_mcp.evaluation.workers.standin import StandIn

CUDA = torch.device("cuda", 0)


class Scaled(torch.autograd.Function):
    """A product whose backward pass asks where its tensors are."""

    seen: list[torch.Tensor]

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.twice = x * 2
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        made = torch.empty(dy.shape, dtype=dy.dtype, device="cuda")
        like = torch.zeros(3, device=dy.device)
        fresh = torch.empty_like(dy)
        halved = dy * torch.tensor(0.5)
        Scaled.seen = [dy, x, w, ctx.twice, made, like, fresh, halved]
        Scaled.places = [each.device for each in Scaled.seen]
        assert dy.is_cuda
        assert not dy.is_cpu
        assert dy.get_device() == 0
        assert dy.type() == "torch.cuda.FloatTensor"
        assert not torch.zeros(2).is_cuda
        return dy * w, dy * x


@pytest.fixture(params=[False, True], ids=["real", "fake"])
def standin(request):
    with StandIn(own_paths=[__file__], fake=request.param) as standin:
        yield standin


def _by_sum(y, x):
    y.sum().backward()
    return x.grad


def _by_grad(y, x):
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return gradient


def _by_backward(y, x):
    torch.autograd.backward([y], [torch.ones_like(y)])
    return x.grad


@pytest.mark.parametrize("run", [_by_sum, _by_grad, _by_backward])
def test_a_backward_pass_makes_tensors_on_the_device_and_is_given_such(standin, run):
    x = torch.ones(4, device="cuda", requires_grad=True)
    w = torch.nn.Parameter(torch.full((4,), 2.0, device="cuda"))
    gradient = run(Scaled.apply(x, w), x)
    assert Scaled.places == [CUDA] * len(Scaled.places)
    assert gradient.device == CUDA
    if not standin.fake:
        assert gradient.tolist() == [2.0] * 4
        assert Scaled.seen[4].isnan().all()
        assert Scaled.seen[6].isnan().all()


def test_hooks_see_the_device_too(standin):
    seen = []
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = x * 2
    y.register_hook(lambda dy: seen.append((dy.device, torch.ones(1, device="cuda").device)))
    y.sum().backward()
    assert seen == [(CUDA, CUDA)]


def test_a_backward_pass_in_host_memory_stays_there(standin):
    seen = []
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    y.register_hook(lambda dy: seen.append(dy.is_cuda))
    y.sum().backward()
    assert seen == [False]
    assert not x.grad.is_cuda


def test_what_fails_in_a_backward_pass_leaves_the_device_as_it_was(standin):
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = x * 2
    y.register_hook(lambda dy: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert torch.ones(1, device="cuda").is_cuda
    assert len(torch.overrides._get_current_function_mode_stack()) == 1
