"""What an operator is called with: an argument for each parameter, by its name, that fits the value so far.

An operator that has a required parameter whose name is not known here is no operator that can be drawn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adaexplore_mcp.evaluation.synthesis_site import EDGES, Call, Operator, Parameter, Site

__all__ = ["FIRST", "fill", "unknown_parameter"]

VARIED = 0.35
"""How often an optional argument is given."""
FIRST = frozenset({"input", "x", "x1", "input1", "self", "tensor", "query", "anchor", "tensors", "y"})
"""Names of parameters that take the value so far."""

# What stands for a parameter: text, or None where nothing fits.
Filler = Callable[[Site], str | None]


def _dim(site: Site) -> str | None:
    if not site.rank:
        return None
    return str(site.axis - site.rank if site.rng.random() < 0.3 else site.axis)


def _divisor(site: Site) -> str | None:
    found = [n for n in range(2, site.channels + 1) if site.channels % n == 0 and n < 17]
    return str(site.pick(found)) if found else None


def _kernel(site: Site) -> str | None:
    fitting = [n for n in (2, 3, 3, 4, 5) if n <= max(site.spatial, site.shape[-1] if site.rank < 4 else 0)]
    return str(site.pick(fitting)) if fitting else None


def _new_width(site: Site) -> str | None:
    return site.sizes.add(site.pick(EDGES[2:16]))


def _normalized(site: Site) -> str | None:
    if site.rank < 2:
        return None
    last = site.sizes.text(site.shape[-1])
    return (
        f"({site.sizes.text(site.shape[-2])}, {last})"
        if site.rank > 2 and site.rng.random() < 0.3
        else f"({last},)"
    )


def _pads(site: Site) -> str | None:
    if site.rank < 2:
        return None
    sides = 2 * site.rng.randint(1, min(2, site.rank - 1))
    return f"({', '.join(str(site.rng.randint(0, 3)) for _ in range(sides))})"


def _permutation(site: Site) -> str | None:
    if site.rank < 2:
        return None
    order = list(range(site.rank))
    site.rng.shuffle(order)
    return f"({', '.join(map(str, order))})"


def _dims(site: Site) -> str | None:
    return _permutation(site) if site.operator == "permute" else f"({site.axis},)" if site.rank else None


def _other(site: Site) -> str | None:
    if site.operator == "matmul":
        return _mat2(site)
    if site.operator in {"inner", "dot", "vdot"}:
        return site.tensor(site.shape[-1:]) if site.rank else None
    if site.operator in {"kron", "cross", "dist"}:
        return site.tensor(site.shape) if math.prod(site.shape) < 4096 or site.operator == "dist" else None
    return site.partner()


def _mat2(site: Site) -> str | None:
    if site.rank < 2:
        return None
    if site.operator == "addmm":
        return _right(site)
    site.sizes.add(site.inner)
    batch = site.shape[:-2] if site.operator == "bmm" or site.rng.random() < 0.5 else ()
    return site.tensor([*batch, site.shape[-1], site.inner])


def _left(site: Site) -> str | None:  # (…, rows, inner) of a product that is added to the value so far
    site.sizes.add(site.inner)
    if site.operator == "addbmm":
        return site.tensor([4, site.shape[-2], site.inner]) if site.rank == 2 else None
    return site.tensor([*site.shape[:-1], site.inner]) if site.rank > 1 else None


def _right(site: Site) -> str | None:
    if site.operator == "addbmm":
        return site.tensor([4, site.inner, site.shape[-1]]) if site.rank == 2 else None
    return site.tensor([*site.shape[:-2], site.inner, site.shape[-1]]) if site.rank > 1 else None


def _vector(site: Site) -> str | None:
    if site.operator == "addmv":
        return site.tensor([site.inner])
    return site.tensor([site.shape[-1]]) if site.rank else None


def _index(site: Site) -> str | None:
    if not site.rank:
        return None
    limit = site.shape[site.axis]
    if site.operator == "index_select":
        return site.indices([site.pick(EDGES[3:14])], limit)
    if site.operator == "take":
        return site.indices([site.pick(EDGES[3:14]), 33], math.prod(site.shape))
    shape = list(site.shape)
    shape[site.axis] = max(1, limit - site.rng.randint(0, 2))
    return site.indices(shape, limit)


def _target(site: Site) -> str | None:
    name = site.operator.lower().replace("_", "").removesuffix("loss")
    if name in {"crossentropy", "nll", "multimargin"}:
        if site.rank < 2 or site.channels < 2:
            return None
        return site.indices([site.shape[0], *site.shape[2:]], site.channels)
    if name in {
        "bce",
        "bcewithlogits",
        "binarycrossentropy",
        "binarycrossentropywithlogits",
        "kldiv",
        "multilabelsoftmargin",
    }:
        return site.tensor(site.shape, "probability")
    if name in {"hingeembedding", "softmargin", "marginranking"}:
        return site.tensor(site.shape, "signs")
    if name == "cosineembedding":
        return site.tensor(site.shape[:1], "signs")
    return site.tensor(site.shape, "positive" if "poisson" in name else "normal")


def _weight(site: Site) -> str | None:
    width = site.pick(EDGES[2:14])
    if site.limit:
        site.sizes.add(width)
        return site.tensor([site.limit, width])
    if site.operator == "lerp":
        return "0.3"
    if site.operator == "linear":
        site.sizes.add(width)
        return site.tensor([width, site.shape[-1]]) if site.rank else None
    if site.operator.startswith("conv") and site.rank > 2:
        site.sizes.add(width)
        sides = [site.pick((1, 2, 3))] * (site.rank - 2)
        ends = [site.channels, width] if "transpose" in site.operator else [width, site.channels]
        return site.tensor([*ends, *sides])
    if site.operator == "prelu":
        return site.tensor([site.channels])
    if site.operator == "bilinear" and site.rank:
        return site.tensor([width, site.shape[-1], site.shape[-1]]) if site.shape[-1] < 65 else None
    return None


def _same(site: Site) -> str | None:
    return site.tensor(site.shape)


def _keys(site: Site) -> str | None:
    if site.operator == "MultiheadAttention":  # the length of the sequence stands first
        return site.tensor([site.inner, *site.shape[1:]])
    if site.rank < 3:
        return None
    return site.tensor([*site.shape[:-2], site.inner, site.shape[-1]])


def _heads(site: Site) -> str | None:
    found = [n for n in range(1, 9) if site.rank and site.shape[-1] % n == 0]
    return str(found[-1]) if found else None


def _hidden(site: Site) -> str | None:
    site.hidden = site.pick(EDGES[2:16])
    return site.sizes.add(site.hidden)


def _state(site: Site) -> str | None:
    """Return what a cell begins with: without it, half of its weights would make no difference."""
    shape = [*site.shape[:-1], site.hidden]
    return (
        f"({site.tensor(shape)}, {site.tensor(shape)})" if site.operator == "LSTMCell" else site.tensor(shape)
    )


def _mode(site: Site) -> str | None:
    return site.one_of("'sum'", "'max'") if site.limit else None


def _among(*texts: str) -> Filler:
    return lambda site: site.one_of(*texts)


def _count(site: Site) -> str | None:
    return str(site.rng.randint(1, site.shape[site.axis])) if site.rank else None


REQUIRED: Mapping[str, Filler] = {
    "dim": _dim,
    "axis": _dim,
    "dims": _dims,
    "dim0": lambda site: "0" if site.rank > 1 else None,
    "dim1": lambda site: "-1" if site.rank > 1 else None,
    "axis0": lambda site: "0" if site.rank > 1 else None,
    "axis1": lambda site: "-1" if site.rank > 1 else None,
    "source": lambda _: "0",
    "destination": lambda site: "-1" if site.rank > 1 else None,
    "kernel_size": _kernel,
    "num_features": lambda site: site.sizes.text(site.channels) if site.rank > 1 else None,
    "num_channels": lambda site: site.sizes.text(site.channels) if site.rank > 1 else None,
    "num_groups": _divisor,
    "groups": _divisor,
    "normalized_shape": _normalized,
    "in_features": lambda site: site.sizes.text(site.shape[-1]) if site.rank else None,
    "in1_features": lambda site: (
        site.sizes.text(site.shape[-1]) if site.rank and site.shape[-1] < 65 else None
    ),
    "in2_features": lambda site: (
        site.sizes.text(site.shape[-1]) if site.rank and site.shape[-1] < 65 else None
    ),
    "out_features": _new_width,
    "input_size": lambda site: site.sizes.text(site.shape[-1]) if site.rank else None,
    "hidden_size": _hidden,
    "hx": _state,
    "embed_dim": lambda site: site.sizes.text(site.shape[-1]) if site.rank else None,
    "num_heads": _heads,
    "num_embeddings": lambda site: site.sizes.text(site.limit) if site.limit else None,
    "embedding_dim": _new_width,
    "in_channels": lambda site: site.sizes.text(site.channels) if site.rank > 2 else None,
    "out_channels": _new_width,
    "output_size": _among("1", "2", "3", "5"),
    "upscale_factor": _among("2"),
    "downscale_factor": _among("2"),
    "scale_factor": _among("2", "3"),
    "size": _among("3", "5"),
    "padding": _among("1", "2", "3"),
    "pad": _pads,
    "value": _among("0.5", "-0.25", "0.0"),
    "p": _among("1.0", "2.0", "3.0"),
    "norm_type": _among("1.0", "2.0"),
    "maxnorm": _among("1.5"),
    "alpha": _among("0.5", "1.5"),
    "lambd": _among("0.3", "0.7"),
    "threshold": _among("0.1", "-0.3"),
    "exponent": _among("2", "3"),
    "k": _count,
    "shifts": _among("1", "3", "-2"),
    "repeats": _among("2", "3"),
    "q": _among("0.25", "0.5", "0.9"),
    "n": _among("1", "2"),
    "other": _other,
    "mat2": _mat2,
    "mat1": _left,
    "mat": lambda site: site.tensor([site.shape[0], site.inner]) if site.rank == 1 else None,
    "batch1": _left,
    "batch2": _right,
    "vec": _vector,
    "vec1": lambda site: site.tensor([site.shape[0]]) if site.rank == 2 else None,
    "vec2": lambda site: (
        site.tensor([site.pick((17, 33, 64))])
        if site.operator != "addr"
        else site.tensor([site.shape[-1]])
        if site.rank == 2
        else None
    ),
    "tensor": _same,
    "tensor1": lambda site: site.partner(),
    "tensor2": lambda site: site.tensor(site.shape, "positive"),
    "end": _same,
    "weight": _weight,
    "index": _index,
    "indices": _index,
    "input2": _same,
    "x2": _same,
    "positive": _same,
    "negative": _same,
    "key": _keys,
    "target": _target,
    "var": lambda site: site.tensor(site.shape, "positive"),
    "running_mean": _among("None"),
    "running_var": _among("None"),
    "min": _among("-0.7", "-0.2"),
    "max": _among("0.9", "0.4"),
}
"""By name of a parameter; also for optional ones where `OPTIONAL` has none."""

OPTIONAL: Mapping[str, Filler] = {
    "keepdim": _among("True"),
    "bias": _among("False"),
    "affine": _among("False"),
    "elementwise_affine": _among("False"),
    "stride": _among("1", "2"),
    "padding": _among("1"),
    "dilation": _among("2"),
    "ceil_mode": _among("True"),
    "count_include_pad": _among("False"),
    "negative_slope": _among("0.1", "0.2"),
    "beta": _among("0.5", "2.0"),
    "approximate": _among("'tanh'"),
    "reduction": _among("'sum'", "'none'"),
    "descending": _among("True"),
    "largest": _among("False"),
    "correction": _among("0"),
    "eps": _among("1e-3"),
    "diagonal": _among("1", "-1"),
    "label_smoothing": _among("0.1"),
    "output_padding": lambda _: None,
    "margin": _among("0.5"),
    "is_causal": _among("True"),
    "num_layers": _among("2"),
    "bidirectional": _among("True"),
    "batch_first": lambda site: "True" if site.operator != "MultiheadAttention" else None,
    "nonlinearity": _among("'relu'"),
    "mode": _mode,
    "min_val": _among("-0.5"),
    "max_val": _among("0.5"),
    **{name: REQUIRED[name] for name in ("dim", "dims", "alpha", "lambd", "value", "shifts", "p", "n")},
}
"""Optional parameters that are given at times; all others keep their default."""
FORCED: Mapping[str, Mapping[str, str]] = {
    "batch_norm": {"training": "True"},
    "Upsample": {"scale_factor": "2"},
    "UpsamplingBilinear2d": {"scale_factor": "2"},
    "UpsamplingNearest2d": {"scale_factor": "2"},
    "interpolate": {"scale_factor": "2"},
    "cross": {"dim": "-1"},
    "clamp": {"min": "-0.7", "max": "0.9"},
    "clip": {"min": "-0.4", "max": "1.1"},
    "nan_to_num": {"nan": "0.0"},
    "repeat_interleave": {"dim": "-1"},
    "quantile": {"dim": "-1"},
    "softmax": {"dim": "-1"},
    "softmin": {"dim": "-1"},
    "log_softmax": {"dim": "-1"},
    "Softmax": {"dim": "-1"},
    "Softmin": {"dim": "-1"},
    "LogSoftmax": {"dim": "-1"},
    "take_along_dim": {"dim": "$dim"},
    "MultiheadAttention": {"need_weights": "False", "is_causal": "False"},
    "renorm": {"p": "2.0"},
}
"""Optional parameters that an operator needs after all; $dim is the axis drawn."""
FILLED = REQUIRED.keys() | OPTIONAL.keys() | FIRST


def unknown_parameter(operator: Operator) -> str:
    """Return a required parameter for which nothing is known here; the empty string if there is none."""
    behind = [*operator.taken[1:], *(operator.parameters if operator.forward is not None else ())]
    return next((each.name for each in behind if each.required and each.name not in FILLED), "")


def fill(operator: Operator, site: Site) -> Call | str:
    """Return an operator with arguments that may fit, or in a few words why there are none."""
    module = ""
    if operator.forward is not None:
        arguments = _arguments(operator.parameters, site, operator)
        if arguments is None:
            return "no argument fits"
        cast = "" if site.dtype == "float32" else f".to(torch.{site.dtype})"
        module = f"{operator.name}({', '.join(arguments)}){cast}"
    taken = _arguments(operator.taken[1:], site, operator, call=True)
    if taken is None or (
        operator.plain in {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack"}
        and not site.rank
    ):
        return "no argument fits"
    first = "x" if operator.taken[0].name != "tensors" else f"[x, {site.tensor(site.shape)}]"
    head = "$module" if module else operator.name
    return Call(module, f"{head}({', '.join([first, *taken])})", tuple(site.inputs))


def _arguments(
    parameters: Sequence[Parameter], site: Site, operator: Operator, *, call: bool = False
) -> list[str] | None:
    """Return the texts of arguments, or None where a required one has none that fits."""
    forced: Mapping[str, Any] = FORCED.get(operator.plain, {})
    texts, key = [], ""
    named = False
    for parameter in parameters:
        name = parameter.name
        if name in forced:
            text: str | None = forced[name].replace("$dim", str(site.axis))
        elif parameter.required:
            if name == "value" and key:
                text = site.tensor(next(each.shape for each in site.inputs if each.name == key))
            else:
                text = REQUIRED.get(name, OPTIONAL.get(name, _none))(site)
            if text is None:
                return None
        elif name in OPTIONAL and site.rng.random() < VARIED and not (call and name in {"bias", "weight"}):
            text = OPTIONAL[name](site)
        else:
            text = None
        if text is None:
            named = True
            continue
        key = text if name == "key" else key
        # Positional as far as nothing was left out before.
        texts.append(text if parameter.required and not named else f"{name}={text}")
    return texts


def _none(_: Site) -> str | None:
    return None
