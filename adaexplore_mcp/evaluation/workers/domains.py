"""Draw new values for inputs and parameters that stay within what the task allows.

Everything is drawn from a generator that the caller seeds, in float32 or wider, and then cast: the same seed gives the
same values on a kind of device, whatever the dtype of the tensor.
"""

import re
from collections.abc import Container, Mapping

import torch
from torch import Tensor, nn

from adaexplore_mcp.evaluation.workers.content import TaskFault

__all__ = ["apply_domain", "looks_symmetric", "randomise_state"]

_INTEGERS = frozenset({
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
})  # fmt: skip
_SAMPLE = 1 << 16
_FEWEST = 16
_FEWEST_IN_A_ROW = 4


def apply_domain(name: str, tensor: Tensor, domain: str, generator: torch.Generator) -> Tensor:
    """Return new values within a domain, in a tensor of the same shape, dtype, strides and device.

    Args:
        name: The tensor's path, for the message.
        tensor: Any shape and strided layout, overlapping elements included; it is not changed.
        domain: keep: the tensor itself. normal: standard normal. nonnegative: the absolute value of that.
            probability: uniform in [0, 1); for booleans each with chance one half. index(N): uniform integers below N
            and not above the largest value now there, which keeps them valid at lowered sizes too.
        generator: On the CPU.

    Raises:
        TaskFault: reason domain, if the domain is unknown or means nothing for the dtype.
    """
    if domain == "keep" or tensor.numel() == 0:
        return tensor
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    # Drawn for the span of storage under the tensor, so that elements which overlap stay one element.
    drawn = _draw(name, tensor, domain, int(span), generator)
    return drawn.to(tensor.dtype).to(tensor.device).as_strided(tensor.shape, tensor.stride())


def _draw(name: str, tensor: Tensor, domain: str, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` values of a domain on the CPU, shape (count,)."""
    dtype = tensor.dtype
    index = re.fullmatch(r"index\(([1-9][0-9]*)\)", domain)
    if index is not None and (dtype in _INTEGERS or dtype == torch.bool):
        # Through Python: max is not implemented for every unsigned dtype, and bool has none to add one to.
        bound = min(int(index[1]), int(tensor.to(torch.int64).max()) + 1)
        return torch.randint(max(bound, 1), (count,), generator=generator)
    if domain == "probability" and dtype == torch.bool:
        return torch.randint(2, (count,), generator=generator)
    if domain == "nonnegative" and dtype in _INTEGERS:
        return torch.randint(max(1, int(tensor.to(torch.int64).max())) + 1, (count,), generator=generator)
    if dtype.is_floating_point or (dtype.is_complex and domain == "normal"):
        wide = _wide(dtype)
        if domain == "normal":
            return torch.randn(count, dtype=wide, generator=generator)
        if domain == "nonnegative":
            return torch.randn(count, dtype=wide, generator=generator).abs()
        if domain == "probability":
            return torch.rand(count, dtype=wide, generator=generator)
    raise TaskFault("domain", f"domain {domain!r} of {name} does not fit its dtype {dtype}")


def looks_symmetric(tensor: Tensor) -> bool:
    """Tell whether a tensor was drawn from a continuous distribution around zero.

    Only such an input may be scaled or negated without leaving what the task is about: many distinct finite values,
    either sign about equally often, a mean near zero, in no order: a table that is searched stays sorted. Below 16 elements
    nothing can be told, and the answer is no.

    Args:
        tensor: Any shape, dtype and layout; at most 65,536 of its elements are looked at.
    """
    if not tensor.dtype.is_floating_point or tensor.numel() < _FEWEST:
        return False
    flat = tensor.detach().reshape(-1)
    values = flat[:: -(-flat.numel() // _SAMPLE)].double().cpu()
    count = values.numel()
    if not bool(values.isfinite().all()):
        return False
    if _is_sorted(tensor):
        return False
    distinct = 1 + int((values.sort().values.diff() != 0).sum())
    if distinct <= min(64, count // 2):  # half dtypes have few distinct values, masks have two
        return False
    # Four standard errors, and 2 % for what a real distribution may lack in symmetry.
    allowed = 4 / count**0.5 + 0.02
    positive, negative = float((values > 0).double().mean()), float((values < 0).double().mean())
    balanced = positive > 0 and negative > 0 and abs(positive - negative) <= allowed
    return balanced and abs(float(values.mean())) <= allowed * float(values.std())


def _is_sorted(tensor: Tensor) -> bool:
    """Tell whether a tensor rises, or falls, along its last dimension in every row; at most 65,536 elements are looked at."""
    length = tensor.shape[-1]
    if length < _FEWEST_IN_A_ROW:
        return False
    rows = tensor.detach().reshape(-1, length)
    rows = rows[:: -(-rows.numel() // _SAMPLE)] if length <= _SAMPLE else rows[:1, :_SAMPLE]
    steps = rows.to(torch.float32).diff(dim=-1)
    return bool((steps >= 0).all()) or bool((steps <= 0).all())


def randomise_state(
    model: nn.Module, seed: int, domains: Mapping[str, str], names: Container[str] | None = None
) -> dict[str, Tensor]:
    """Give a model's parameters new values in place, and return them by name.

    Constructor values hide what a candidate leaves out: a weight of ones, a bias of zeros. A parameter that is
    constant, or has one element, becomes its value + 0.25 · normal; any other one normal with the mean and standard
    deviation it had, and standard normal / 8 where those are not finite (memory never written). So do the running
    statistics of normalisations; variances are multiplied by 0.5 to 1.5. Other buffers and integer parameters stay, unless a
    domain is declared for them.

    Args:
        model: Its floating parameters change; those that share memory still share it.
        seed: For a generator of its own; the global one is not touched.
        domains: By name as in `state_dict()`; other names are ignored.
        names: Leave all others as they are; None for all.

    Returns:
        Copies of the parameters meant, and of the buffers that changed, under each of their names; one copy per tensor.

    Raises:
        TaskFault: reason domain.
    """
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    statistics = _running_statistics(model)
    state |= {
        name: buffer
        for name, buffer in model.named_buffers(remove_duplicate=False)
        if name in domains or name in statistics
    }
    if names is not None:
        state = {name: tensor for name, tensor in state.items() if name in names}
    written: set[int] = set()
    with torch.no_grad():
        for name, tensor in state.items():
            if id(tensor) in written:
                continue
            written.add(id(tensor))
            if name in domains:
                tensor.copy_(apply_domain(name, tensor, domains[name], generator))
            elif statistics.get(name) == "variance":
                factors = 0.5 + torch.rand(tensor.shape, generator=generator)
                tensor.mul_(factors.to(tensor.dtype).to(tensor.device))
            elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                tensor.copy_(_like(tensor, generator))
    # Read after all writes: a parameter may be a view of another one's memory.
    copies = {id(tensor): tensor.detach().clone() for tensor in state.values()}
    return {name: copies[id(tensor)] for name, tensor in state.items()}


def _running_statistics(model: nn.Module) -> dict[str, str]:
    """Return mean or variance by name of the buffers of normalisations: what they hold may be anything such."""
    found: dict[str, str] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:  # noqa: SLF001 - the class of all of them
            dot = f"{prefix}." if prefix else ""
            found |= {f"{dot}running_mean": "mean", f"{dot}running_var": "variance"}
    return found


def _like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return values distributed as the tensor's are, shape as the tensor's, on its device."""
    wide = _wide(tensor.dtype)
    if tensor.is_cuda:  # where large weights take seconds on one core of the CPU
        seed = int(torch.randint(1 << 62, (), generator=generator))
        generator = torch.Generator(tensor.device).manual_seed(seed)
    noise = torch.randn(tensor.shape, dtype=wide, generator=generator, device=tensor.device)
    if tensor.numel() == 0:
        return noise
    now = tensor.detach().to(wide)
    first = now.reshape(-1)[0]
    if bool(first.isfinite()) and bool((now == first).all()):
        return first + 0.25 * noise
    mean, spread = now.mean(), now.std()
    if not bool(mean.isfinite()) or not bool(spread.isfinite()):
        return noise / 8
    return mean + spread * noise


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to draw in: at least single precision, which every generator supports."""
    if dtype in {torch.float64, torch.complex128}:
        return dtype
    return torch.complex64 if dtype.is_complex else torch.float32
