"""Find torch's documented operators with their signatures, by introspection.

What a function takes stands in its signature, or, where it is compiled, in the first line of its documentation. What an
operator is for is read off its module or its parameters.
"""

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - as tasks name it
from torch import nn

from adaexplore_mcp.evaluation.synthesis_arguments import FIRST, unknown_parameter
from adaexplore_mcp.evaluation.synthesis_site import EMBEDDING, Operator, Parameter

__all__ = ["documented", "left_out"]

RANDOM = ("dropout", "rrelu", "gumbel", "bernoulli", "multinomial", "binomial", "rand", "fractional")
NO_KERNELS = (
    *(
        "histc",
        "hash_tensor",
        "parse_ir",
        "nextafter",
        "as_strided",
        "nonzero_static",
        "combinations",
        "to_dlpack",
    ),
    *(
        "cholesky",
        "svd",
        "qr",
        "lu",
        "lu_solve",
        "geqrf",
        "orgqr",
        "ormqr",
        "inverse",
        "pinverse",
        "det",
        "logdet",
    ),
    *(
        "slogdet",
        "triangular_solve",
        "matrix_exp",
        "matrix_power",
        "lobpcg",
        "pca_lowrank",
        "svd_lowrank",
        "lstsq",
    ),
    *(
        "eig",
        "symeig",
        "cholesky_inverse",
        "cholesky_solve",
        "stft",
        "istft",
        "block_diag",
        "corrcoef",
        "cov",
    ),
)
"""No kernel that an agent would write: factorisations, transforms, statistics of few numbers, tools."""
MODULE_FAMILIES = {
    "activation": "activation",
    "batchnorm": "normalization",
    "instancenorm": "normalization",
    "normalization": "normalization",
    "conv": "convolution",
    "linear": "linear",
    "loss": "loss",
    "padding": "padding",
    "pooling": "pooling",
    "distance": "distance",
    "upsampling": "resampling",
    "pixelshuffle": "resampling",
    "channelshuffle": "layout",
    "flatten": "layout",
    "fold": "layout",
    "rnn": "recurrent",
    "sparse": EMBEDDING,
}
"""By the file of torch.nn.modules in which a module stands."""
LAYOUT = frozenset(
    (
        "flip",
        "roll",
        "permute",
        "transpose",
        "swapaxes",
        "swapdims",
        "movedim",
        "moveaxis",
        "rot90",
        "narrow_copy",
        "fliplr",
        "flipud",
        "tril",
        "triu",
        "diag_embed",
        "unfold",
        "fold",
        "channel_shuffle",
        "native_channel_shuffle",
        "flatten",
        "ravel",
        "diagonal",
        "diag",
        "squeeze",
        "unsqueeze",
        "repeat_interleave",
        "tile",
    )
)
SCANS = frozenset(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "diff", "cumulative_trapezoid"))
SOFTMAX = frozenset(("softmax", "softmin", "log_softmax", "Softmax", "Softmin", "LogSoftmax", "Softmax2d"))
INDEXING = frozenset(
    ("gather", "index_select", "take", "take_along_dim", "sort", "msort", "topk", "kthvalue")
)
PRODUCTS = frozenset(
    (
        "matmul",
        "mm",
        "bmm",
        "mv",
        "addmm",
        "addbmm",
        "baddbmm",
        "addmv",
        "addr",
        "outer",
        "ger",
        "inner",
        "dot",
        "vdot",
        "kron",
    )
)
ATTENTION = frozenset(("scaled_dot_product_attention", "MultiheadAttention"))
WRITTEN_LINES = 3
"""Of a documentation, over which a signature may go."""
BINARY = frozenset(("other", "tensor1", "end"))


def documented() -> list[Operator]:
    """Return every operator that can be drawn, in a fixed order."""
    return [operator for operator, reason in _all() if not reason]


def left_out() -> dict[str, str]:
    """Return, by name, why a documented function or module is not drawn."""
    return {operator.name: reason for operator, reason in _all() if reason}


def _all() -> Iterator[tuple[Operator, str]]:
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = (("nn", nn), ("F", F), ("torch", torch))
        for prefix, module in places:
            for name in sorted(set(dir(module))):
                value = getattr(module, name)
                operator = _operator(prefix, name, value)
                if operator is not None and operator.name not in seen:
                    seen.add(operator.name)
                    yield operator, _reason(operator, value)


def _operator(prefix: str, name: str, value: Any) -> Operator | None:  # noqa: ANN401 - whatever torch has there
    """Describe a function or module; None where it is no operator on a tensor, or nobody documented it."""
    if name.startswith("_") or name.endswith("_") or not callable(value) or not _documentation(value):
        return None
    if inspect.isclass(value):
        if prefix != "nn" or not issubclass(value, nn.Module) or name == "Module":
            return None
        parameters = _signature(value.__init__) or _written_signature(value)
        forward = _signature(value.forward)
        if parameters is None or forward is None:
            return None
        # What is written of a constructor leaves out self, what is read off it does not.
        parameters = parameters[1:] if parameters[0].name == "self" else parameters
        forward = forward[1:]
        if name.endswith("Cell"):
            forward = [Parameter(each.name, each.required or each.name == "hx") for each in forward]
    else:
        if prefix == "torch" and hasattr(F, name):
            return None  # known as the function of torch.nn.functional
        parameters, forward = _signature(value), None
        if parameters is None:
            return None
    taken = parameters if forward is None else forward
    if not taken or taken[0].name not in FIRST:
        return None
    return Operator(
        f"{prefix}.{name}",
        _family(name, value, taken),
        tuple(parameters),
        None if forward is None else tuple(forward),
    )


def _signature(function: object) -> list[Parameter] | None:
    """Return the parameters of a function; None where nothing tells them."""
    try:
        found = inspect.signature(cast("Callable[..., Any]", function))
    except (ValueError, TypeError):
        return _written_signature(function)
    kinds = {each.kind for each in found.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
        return _written_signature(function)
    return [Parameter(each.name, each.default is each.empty) for each in found.parameters.values()]


def _written_signature(function: object) -> list[Parameter] | None:
    """Read the first lines of a documentation: `name(input, dim, *, out=None) -> Tensor`."""
    lines = _documentation(function).splitlines()
    for count in range(1, WRITTEN_LINES + 1):
        text = " ".join(line.strip() for line in lines[:count]).partition("->")[0].strip().rstrip(":")
        try:
            (definition,) = ast.parse(f"def {text}: pass").body
        except (SyntaxError, ValueError):
            continue
        if not isinstance(definition, ast.FunctionDef) or definition.args.vararg or definition.args.kwarg:
            return None
        arguments = definition.args
        places = [*arguments.posonlyargs, *arguments.args]
        required = len(places) - len(arguments.defaults)
        found = [Parameter(each.arg, position < required) for position, each in enumerate(places)]
        return found + [
            Parameter(each.arg, required=default is None and each.arg != "out")
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if not _is_optional(each)
        ]
    return None


def _is_optional(argument: ast.arg) -> bool:
    """Tell whether a parameter may be left out by what is written of its type."""
    return argument.annotation is not None and ast.unparse(argument.annotation).startswith("Optional")


def _reason(operator: Operator, value: object) -> str:
    name = operator.plain
    if any(part in name.lower() for part in RANDOM) or name in {"normal", "poisson"}:
        return "random"
    if name == "SyncBatchNorm":
        return "needs several processes"
    if name.startswith("Lazy"):
        return "has no shape before its first call"
    if name.endswith("Base"):
        return "begins other modules"
    if name.endswith("_like"):
        return "makes a new tensor"
    if name in NO_KERNELS:
        return "no operation of a kernel"
    if (
        name.endswith(("_copy", "_scatter"))
        or "quant" in name.lower()
        or name.startswith(("q_", "sparse", "sym_"))
    ):
        return "about storage"
    if "deprecated" in _documentation(value).lower()[:300]:
        return "deprecated"
    unknown = unknown_parameter(operator)
    return f"takes {unknown}" if unknown else ""


def _family(name: str, value: object, taken: Sequence[Parameter]) -> str:
    parameters = {each.name for each in taken}
    for names, family in (
        (LAYOUT, "layout"),
        (SCANS, "scan"),
        (SOFTMAX, "softmax"),
        (INDEXING, "indexing"),
        (PRODUCTS, "product"),
        (ATTENTION, "attention"),
        (frozenset(("embedding", "embedding_bag")), EMBEDDING),
    ):
        if name in names:
            return family
    if inspect.isclass(value):
        return MODULE_FAMILIES.get(value.__module__.rpartition(".")[2], "other")
    by_word = (
        ("conv", "convolution"),
        ("pool", "pooling"),
        ("norm", "normalization"),
        ("loss", "loss"),
        ("entropy", "loss"),
        ("kl_div", "loss"),
        ("distance", "distance"),
        ("cosine_similarity", "distance"),
        ("cdist", "distance"),
        ("pixel", "resampling"),
        ("interpolate", "resampling"),
    )
    for word, family in by_word:
        if word in name:
            return family
    return _by_parameters(name, value, parameters)


def _by_parameters(name: str, value: object, parameters: set[str]) -> str:
    if name == "pad":
        return "padding"
    if name in {"linear", "bilinear"}:
        return "linear"
    if parameters & BINARY:
        return "binary"
    if "keepdim" in parameters or {"input", "dim"} == parameters - {"out", "dtype"}:
        return "reduction"
    if getattr(value, "__module__", "") == F.__name__ or "inplace" in parameters or hasattr(F, name):
        return "activation"
    return "elementwise" if parameters <= {"input", "out", "eps", "min", "max"} else "other"


def _documentation(value: object) -> str:
    text = getattr(value, "__doc__", None)
    return text.strip() if isinstance(text, str) else ""
