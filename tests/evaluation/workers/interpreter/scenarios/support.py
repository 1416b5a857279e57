"""What the scenarios share: the installed interpreter, calls, and a way to skip."""

import torch
import triton

from adaexplore_mcp.evaluation.workers.interpreter import Interpreter

INTERPRETER = Interpreter.install(90)
TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


class Skipped(BaseException):
    """Raised where this version of Triton has no such feature; the host reports the test as skipped."""


def call(**options):
    return INTERPRETER.call(**options)


def same_bits(left, right):
    """Return whether two tensors agree bit by bit, any NaN being equal to any."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.is_floating_point:
        both_nan = left.float().isnan() & right.float().isnan()
        unsigned = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
        return bool(
            ((left.contiguous().view(unsigned) == right.contiguous().view(unsigned)) | both_nan).all()
        )
    return bool((left == right).all())


def expect(error_type, function):
    """Call a function and return the exception that it raises."""
    try:
        function()
    except error_type as error:
        return error
    msg = f"no {error_type.__name__} was raised"
    raise AssertionError(msg)
