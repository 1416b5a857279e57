"""Operators that code registers for CUDA. This file plays the candidate."""

import itertools

import pytest
import torch

from adaexplore_mcp.evaluation.workers.standin import NotHere, StandIn

CUDA = torch.device("cuda", 0)
NUMBERS = itertools.count()


@pytest.fixture(params=[False, True], ids=["real", "fake"])
def standin(request):
    with StandIn(own_paths=[__file__], fake=request.param) as standin:
        yield standin


def _twice(x):
    made = torch.empty(x.shape, device="cuda")
    assert x.is_cuda
    assert made.is_cuda
    return made.copy_(x * 2)


def _defined():
    library = torch.library.Library(f"standin{next(NUMBERS)}", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    return library, getattr(torch.ops, library.ns)


def _by_impl(kept):
    library, operators = _defined()
    library.impl("twice", _twice, "CUDA")
    kept.append(library)
    return operators.twice


def _by_a_decorator(kept):
    library, operators = _defined()
    torch.library.impl(library, "twice", "CUDA")(_twice)
    kept.append(library)
    return operators.twice


def _by_the_key_of_a_library(kept):
    library, operators = _defined()
    served = torch.library.Library(library.ns, "IMPL", "CUDA")
    served.impl("twice", _twice)
    kept += [library, served]
    return operators.twice


def _by_a_device(kept):
    library, operators = _defined()
    torch.library.impl(f"{library.ns}::twice", "cuda")(_twice)
    kept.append(library)
    return operators.twice


def _custom(device_types):
    def op(x: torch.Tensor) -> torch.Tensor:
        return _twice(x)

    name = f"standin{next(NUMBERS)}::twice"
    return torch.library.custom_op(name, op, mutates_args=(), device_types=device_types)


def _by_custom_op(kept):
    return _custom("cuda")


def _by_custom_op_for_any(kept):
    return _custom(None)


def _by_custom_op_with_shapes(kept):
    made = _custom("cuda")
    made.register_fake(lambda x: pytest.fail("fake tensors are for the kernel, which launches"))
    return made


@pytest.mark.parametrize(
    "register",
    [
        _by_impl,
        _by_a_decorator,
        _by_the_key_of_a_library,
        _by_a_device,
        _by_custom_op,
        _by_custom_op_for_any,
        _by_custom_op_with_shapes,
    ],
)
def test_an_operator_for_cuda_runs_on_tensors_of_the_device_and_sees_it(standin, register):
    kept = []
    y = register(kept)(torch.ones(3, device="cuda"))
    assert (y.device, tuple(y.shape)) == (CUDA, (3,))
    assert standin.fake or y.tolist() == [2.0] * 3


@pytest.mark.parametrize("first", ["CPU", "CUDA"])
def test_of_two_kernels_that_for_cuda_runs(standin, first):
    library, operators = _defined()
    kernels = {"CPU": lambda x: pytest.fail("a GPU was asked for"), "CUDA": _twice}
    for key in sorted(kernels, key=lambda key: key != first):
        library.impl("twice", kernels[key], key)
    assert operators.twice(torch.ones(3, device="cuda")).is_cuda


def test_an_operator_of_torch_itself_cannot_be_replaced_on_a_device_that_is_none(standin):
    library = torch.library.Library("aten", "IMPL")
    with pytest.raises(NotHere, match=r"aten::mul\.Tensor for CUDA is not available without a GPU"):
        library.impl("mul.Tensor", lambda x, y: x, "CUDA")
    assert torch.ones(1).mul(2).shape == (1,)
