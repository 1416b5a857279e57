"""Measure what one call of a reference costs: arithmetic, elements, bytes, and how rounding errors add up in it.

Works on real tensors and, in microseconds per operator and without memory, under `FakeTensorMode`.
"""

import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Fake tensors and FlopCounterMode import it at their first use: that takes over a second, rebinds torch.manual_seed, and
# fails while torch.cuda is replaced.
import torch._dynamo
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, shape_wrapper

from adaexplore_mcp.evaluation.workers.trees import leaves

__all__ = ["Cost", "distinct_bytes", "largest_grids", "library_work", "measure", "works"]

Shape = Sequence[int]
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call costs.

    Args:
        flops: Floating-point operations of matrix products, convolutions and attention, a multiply-add counted as two
            (torch FlopCounterMode, with formulas added for operators it leaves out).
        flop_operators: Names of the operators that they were counted for.
        elements: Elements of the inputs, and those written by all operators, views and allocations left out: a sum over
            a large input writes little and still takes long.
        largest: Elements of the largest tensor: input, parameter or result.
        operators: Times each operator was dispatched, most frequent first, views and allocations left out.
        input_bytes: Bytes of the inputs, each element of a storage once.
        parameter_bytes: The same of parameters and buffers.
        output_bytes: The same of the outputs.
        parameters: Elements of parameters and buffers, shared ones once.
        accumulation: K, the longest chain of additions that feeds one element of any operator's result: the inner size
            of a matrix product, input channels times kernel size of a convolution, elements in per element out of a
            reduction or normalisation, the length of a cumulative sum, the longer of head size and number of keys in
            attention. The maximum over operators, not the product along a path: rounding errors grow as sqrt(K)
            (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2.8), and the largest K dominates.
            At least 1.
        peak_bytes: Most bytes alive at once: inputs, parameters, and results until their last use. An estimate for
            "does not fit in memory": what an operator needs inside is not seen.
        to_host: Elements that operators copied from a GPU to the host.
        unneeded: FLOPs, as above, by operator whose result reaches no output and no input that is changed.
    """

    flops: int
    flop_operators: list[str]
    elements: int
    largest: int
    operators: dict[str, int]
    input_bytes: int
    parameter_bytes: int
    output_bytes: int
    parameters: int
    accumulation: int
    peak_bytes: int
    to_host: int
    unneeded: dict[str, int]

    @property
    def bytes(self) -> int:
        """Bytes that have to move: each input, parameter and output once."""
        return self.input_bytes + self.parameter_bytes + self.output_bytes


def measure(
    call: Callable[[], Any],
    *,
    inputs: Iterable[Tensor] = (),
    model: object = None,
    follow: bool = False,
) -> tuple[Any, Cost]:
    """Run a call once and return its value and its cost.

    The caller chooses the mode: nothing is computed inside `FakeTensorMode(allow_non_fake_inputs=True)`.

    Args:
        call: What to run; gradients should be off, else what they keep counts as alive.
        inputs: Tensors that the call reads, any shape and dtype.
        model: If a module, its parameters and buffers are counted.
        follow: Follow what every result rests on, for `Cost.unneeded`, which is empty otherwise.
    """
    given = list(inputs)
    state = list(_state(model)) if isinstance(model, nn.Module) else []
    watch = _Watch([*given, *state], follow=follow)
    counter = FlopCounterMode(display=False, custom_mapping=_FLOPS)
    # The counter on top takes composite operators apart; the watch below sees their parts.
    with watch, counter:
        value = call()
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - a subclass may compute when it is asked what it is
        outputs = [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]
        return value, Cost(
            flops=int(counter.get_total_flops()),
            flop_operators=sorted(
                {operator.__name__ for operator in counter.get_flop_counts().get("Global", {})}
            ),
            elements=watch.written + sum(tensor.numel() for tensor in given),
            largest=watch.largest,
            operators=dict(watch.operators.most_common()),
            input_bytes=distinct_bytes(given),
            parameter_bytes=distinct_bytes(state),
            output_bytes=distinct_bytes(outputs),
            parameters=sum(tensor.numel() for tensor in state),
            accumulation=watch.accumulation,
            peak_bytes=watch.peak_bytes,
            to_host=watch.to_host,
            unneeded=watch.unneeded([*outputs, *given, *state]),
        )


def library_work(cost: Cost) -> dict[str, Any]:
    """Return what torch did itself in a candidate's call, as `claims.CallFacts` reads it."""
    return {
        "operators": cost.operators,
        "library_flops": cost.flops,
        "library_operators": cost.flop_operators,
        "to_host": cost.to_host,
    }


def largest_grids(launches: Iterable[tuple[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Return by kernel the largest extent of its grids along each axis."""
    found: dict[str, list[int]] = {}
    for kernel, grid in launches:
        known = found.get(kernel, [0, 0, 0])
        found[kernel] = [max(extents) for extents in zip(known, grid, strict=True)]
    return found


def distinct_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes that tensors take, an element that several of them (or one of them twice) show once.

    An estimate where tensors interleave in one storage: at most the span they cover.
    """
    total = 0
    storages: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.layout is torch.strided:
            storages.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)  # noqa: SLF001 - its identity, also for fake ones
    for views in storages.values():
        spans = sorted((start, stop) for start, stop, _ in map(_extent, views) if stop > start)
        covered, end = 0, 0
        for start, stop in spans:
            covered += max(0, stop - max(start, end))
            end = max(end, stop)
        total += min(covered, sum(size for _, _, size in map(_extent, views)))
    return total


def _extent(tensor: Tensor) -> tuple[int, int, int]:
    """Return start and end in its storage and the size of its distinct elements, in bytes."""
    if tensor.numel() == 0:
        return 0, 0, 0
    moving = [
        (size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0
    ]
    span = 1 + sum((size - 1) * stride for size, stride in moving)
    width, start = tensor.element_size(), tensor.storage_offset()
    distinct = min(span, math.prod(size for size, _ in moving))
    return int(start * width), int((start + span) * width), int(distinct * width)


def _state(model: nn.Module) -> Iterable[Tensor]:
    yield from model.parameters()
    seen: set[int] = set()
    for buffer in model.buffers():
        if id(buffer) not in seen:
            seen.add(id(buffer))
            yield buffer


# --- watching operators ----------------------------------------------------------------------------------

# Writes nothing: hands out memory, or another view of it.
_NO_WORK = frozenset(
    {
        "_reshape_alias",
        "_unsafe_view",
        "alias",
        "detach",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "lift_fresh",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "set_",
    }
)


_TO_HOST = frozenset({"_local_scalar_dense", "_to_copy", "copy_"})
# Looks at the shape of what it is given.
_SHAPE_ONLY = frozenset({
    "full_like", "new_full", "new_ones", "new_zeros", "ones_like", "rand_like", "randn_like", "zeros_like",
})  # fmt: skip


def works(operator: Any) -> bool:  # noqa: ANN401 - an operator overload; torch gives it no public type
    """Tell whether an operator writes anything: the others ask for a device, hand out memory, or make a view."""
    return (
        operator.namespace != "prim"
        and not operator.is_view
        and operator.overloadpacket.__name__ not in _NO_WORK
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator that wrote something: which memory it read and wrote, and its FLOPs."""

    name: str
    flops: int
    reads: set[int]
    writes: set[int]


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """Counts what operators write, and follows the storages that are alive."""

    def __init__(self, given: Sequence[Tensor], *, follow: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.operators: Counter[str] = Counter()
        self.written = 0
        self.largest = max((tensor.numel() for tensor in given), default=0)
        self.accumulation = 1
        self.peak_bytes = 0
        self._alive_bytes = 0
        self._alive: dict[int, weakref.finalize[Any, Any]] = {}
        self.to_host = 0
        self._follow = follow
        self._steps: list[_Step] = []
        self._numbers: dict[int, int] = {}
        self._serial = itertools.count()
        for tensor in given:
            self._note(tensor)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator overload; torch gives it no public type
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.namespace == "prim":
            return result
        outputs = _tensors(result)
        if name in _TO_HOST:
            source = args[1] if name == "copy_" else args[0]
            there = name == "_local_scalar_dense" or all(tensor.device.type == "cpu" for tensor in outputs)
            if isinstance(source, Tensor) and source.is_cuda and there:
                self.to_host += source.numel()
        for tensor in outputs:
            self._note(tensor)
        if works(func):
            self.operators[name] += 1
            self.written += sum(tensor.numel() for tensor in outputs)
            self.largest = max(self.largest, *(tensor.numel() for tensor in outputs), 0)
            named = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}  # noqa: SLF001 - its only form
            named |= kwargs or {}
            self.accumulation = max(self.accumulation, _chain(name, named, outputs))
            if self._follow and len(self._steps) < MAX_STEPS:
                self._steps.append(self._step(func, args, kwargs or {}, named, result))
        return result

    def unneeded(self, kept: Iterable[Tensor]) -> dict[str, int]:
        """Return FLOPs by operator that wrote nothing on which some tensors rest."""
        if len(self._steps) >= MAX_STEPS:
            return {}
        needed, found = self._memory_of(kept), Counter[str]()
        for step in reversed(self._steps):
            if step.writes & needed:
                needed |= step.reads
            elif step.flops:
                found[step.name] += step.flops
        return dict(found)

    def _step(
        self,
        operator: Any,  # noqa: ANN401 - an operator overload; torch gives it no public type
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        named: Mapping[str, Any],
        result: Any,  # noqa: ANN401 - whatever the operator returned
    ) -> _Step:
        written = [
            named[argument.name]
            for argument in operator._schema.arguments  # noqa: SLF001 - its only form
            if argument.alias_info is not None and argument.alias_info.is_write and argument.name in named
        ]
        formula = _FORMULAS.get(operator.overloadpacket)
        return _Step(
            name=operator.overloadpacket.__name__,
            flops=int(formula(*args, **kwargs, out_val=result)) if formula else 0,
            reads=set()
            if operator.overloadpacket.__name__ in _SHAPE_ONLY
            else self._memory_of(_tensors(tuple(named.values()))),
            writes=self._memory_of([*_tensors(result), *_tensors(tuple(written))]),
        )

    def _memory_of(self, tensors: Iterable[Tensor]) -> set[int]:
        """Return a number for the memory of each tensor; what is freed and used again is another one."""
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - a subclass may answer for another tensor
            strided = [tensor for tensor in tensors if tensor.layout is torch.strided]
            for tensor in strided:
                self._note(tensor)
            keys = [tensor.untyped_storage()._cdata for tensor in strided]  # noqa: SLF001 - its identity
        return {self._numbers[key] for key in keys if key in self._numbers}

    def _note(self, tensor: Tensor) -> None:
        """Count a tensor's storage as alive until it is freed."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - its identity, also for fake ones
        if key in self._alive:
            return
        self._numbers[key] = next(self._serial)
        size = storage.nbytes()
        self._alive[key] = weakref.finalize(storage, self._freed, key, size)
        self._alive[key].atexit = False
        self._alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._alive_bytes)

    def _freed(self, key: int, size: int) -> None:
        self._alive_bytes -= size
        del self._alive[key], self._numbers[key]


def _tensors(value: object) -> list[Tensor]:
    """Return the tensors of an operator's result: one, or several in a sequence."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


# --- chains of additions ---------------------------------------------------------------------------------


def _chain(name: str, named: Mapping[str, Any], outputs: Sequence[Tensor]) -> int:
    """Return how many terms are added up for one element of an operator's result; 1 where none are.

    Args:
        name: The operator, without its overload.
        named: Its arguments by the names of its schema.
        outputs: The tensors it returned.
    """
    given = _tensors(tuple(named.values()))
    if name not in _CHAINS or not given or not outputs or not outputs[0].numel():
        return 1
    return max(1, _CHAINS[name](named, given, outputs[0]))


def _inner(named: Mapping[str, Any], given: Sequence[Tensor], _: Tensor) -> int:
    """Matrix products: the size that both operands share, the last one of the left operand."""
    left = next((named[key] for key in ("mat1", "batch1", "mat") if key in named), given[0])
    return int(left.shape[-1])


def _taps(named: Mapping[str, Any], given: Sequence[Tensor], _: Tensor) -> int:
    """Convolutions: input channels of a group times kernel size; for a transposed one with stride an upper bound."""
    weight = named.get("weight", given[-1])
    if named.get("transposed"):
        return int(weight.shape[0] // named["groups"] * math.prod(weight.shape[2:]))
    return math.prod(weight.shape[1:])


def _keys(named: Mapping[str, Any], given: Sequence[Tensor], _: Tensor) -> int:
    """Attention: query times key adds over the head size, weights times value over the keys."""
    query, key = named.get("query", given[0]), named.get("key", given[1])
    return max(int(query.shape[-1]), int(key.shape[-2]))


def _along(named: Mapping[str, Any], given: Sequence[Tensor], _: Tensor) -> int:
    """Softmax, cumulative sums and scatters: the length of what is added along `dim`."""
    source = named.get("src", named.get("source", given[0]))
    return int(source.shape[named["dim"]]) if source.dim() else 1


def _window(named: Mapping[str, Any], _: Sequence[Tensor], __: Tensor) -> int:
    return math.prod(int(size) for size in named["kernel_size"])


def _normalized(named: Mapping[str, Any], _: Sequence[Tensor], __: Tensor) -> int:
    return math.prod(int(size) for size in named["normalized_shape"])


def _group(named: Mapping[str, Any], given: Sequence[Tensor], _: Tensor) -> int:
    return given[0].numel() // (int(given[0].shape[0]) * int(named["group"]))


def _channel(named: Mapping[str, Any], given: Sequence[Tensor], _: Tensor) -> int:
    """Batch normalisation: all elements of a channel when it computes its own statistics."""
    return given[0].numel() // int(given[0].shape[1]) if named.get("training", True) else 1


def _gates(_: Mapping[str, Any], given: Sequence[Tensor], __: Tensor) -> int:
    """Recurrent layers: inputs and hidden state of one step."""
    weights = [tensor for tensor in given[1:] if tensor.dim() == 2]
    return sum(int(tensor.shape[-1]) for tensor in weights[:2])


def _ratio(_: Mapping[str, Any], given: Sequence[Tensor], output: Tensor) -> int:
    """Reductions: elements in per element out."""
    return given[0].numel() // output.numel()


_CHAINS: dict[str, Callable[[Mapping[str, Any], Sequence[Tensor], Tensor], int]] = {
    name: chain
    for chain, names in {
        _inner: (
            "mm addmm _addmm_activation bmm baddbmm addbmm mv addmv dot vdot linear _int_mm _scaled_mm _cdist_forward "
            "_trilinear"
        ),
        _taps: "convolution _convolution",
        _keys: (
            "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
        ),
        _along: (
            "_softmax _log_softmax _safe_softmax cumsum cumsum_ cumprod cumprod_ logcumsumexp index_add index_add_ "
            "scatter_add scatter_add_"
        ),
        _window: "avg_pool2d avg_pool3d",
        _normalized: "native_layer_norm _fused_rms_norm",
        _group: "native_group_norm",
        _channel: "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm",
        _gates: "mkldnn_rnn_layer _cudnn_rnn",
        _ratio: (
            "sum nansum mean prod var std var_mean std_mean norm linalg_vector_norm logsumexp trace "
            "_adaptive_avg_pool2d _adaptive_avg_pool3d nll_loss_forward nll_loss2d_forward mse_loss l1_loss huber_loss "
            "smooth_l1_loss binary_cross_entropy soft_margin_loss"
        ),
    }.items()
    for name in names.split()
}


# --- formulas that FlopCounterMode lacks -----------------------------------------------------------------


def _vector(matrix: Shape, *_: object, **__: object) -> int:
    """Matrix or vector times vector."""
    return 2 * math.prod(matrix)


def _vector_added(_bias: Shape, matrix: Shape, *_: object, **__: object) -> int:
    return 2 * math.prod(matrix)


def _matrix(left: Shape, right: Shape, *_: object, **__: object) -> int:
    return 2 * math.prod(left) * right[-1]


def _attention(query: Shape, key: Shape, value: Shape, *_: object, **__: object) -> int:
    """Both products, masked parts included, as torch counts it on a GPU."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrent(steps: Shape, of_input: Shape, of_hidden: Shape, *_: object, **__: object) -> int:
    """One layer: `steps` is (time, batch, inputs), the weights are (gates, inputs) and (gates, hidden)."""
    return 2 * math.prod(steps[:-1]) * (math.prod(of_input) + math.prod(of_hidden))


_aten = torch.ops.aten
_FLOPS: dict[Any, Callable[..., int]] = {
    _aten.mv: _vector,
    _aten.dot: _vector,
    _aten.vdot: _vector,
    _aten.addmv: _vector_added,
    _aten._int_mm: _matrix,  # noqa: SLF001 - an operator's name
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,  # noqa: SLF001 - an operator's name
    _aten.mkldnn_rnn_layer: _recurrent,
}
_FORMULAS: dict[Any, Callable[..., int]] = flop_registry | {
    operator: shape_wrapper(formula)  # type: ignore[no-untyped-call]
    for operator, formula in _FLOPS.items()
}
