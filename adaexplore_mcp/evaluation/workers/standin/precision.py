"""TF32 and autocast: arithmetic that a GPU would do in fewer bits, done in as few here.

TF32 keeps 10 bits of a float's mantissa. Where the code allowed it for torch's own matrix products or convolutions,
their fp32 operands are rounded so before the product, which is where a tensor core loses them; sums stay fp32. Products
inside fused functions (`nn.MultiheadAttention`, recurrent layers, attention) are not reached.

Autocast for `cuda` is silently off on a build without CUDA, which would be a pass in fp32 of code that computes in half
precision. It becomes the CPU's autocast of the same dtype, and the functions that CUDA's autocast runs in fp32 and the
CPU's does not (torch's documentation, "Automatic Mixed Precision", op-specific behaviour) are given fp32.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it

from .fakes import is_fake
from .ledger import Ledger
from .patches import Patches
from .tags import tag_of
from .versions import tf32_switches

__all__ = ["Autocast", "Tf32", "round_to_tf32"]

DROPPED_BITS = 13  # of fp32's 23 mantissa bits TF32 keeps 10


def round_to_tf32(values: torch.Tensor) -> torch.Tensor:
    """Return fp32 values of any shape rounded to TF32's 10 mantissa bits, halves away from zero (`cvt.rna.tf32`)."""
    bits = values.contiguous().view(torch.int32)
    rounded = (bits + (1 << (DROPPED_BITS - 1))) & ~((1 << DROPPED_BITS) - 1)
    return torch.where(torch.isfinite(values), rounded.view(torch.float32), values)


# For each function the positions of the operands that a tensor core multiplies; None: all tensors.
MATRIX_OPERANDS: dict[Callable[..., Any], tuple[int, ...] | None] = {
    torch.mm: None,
    torch.bmm: None,
    torch.mv: None,
    torch.matmul: None,
    torch.Tensor.mm: None,
    torch.Tensor.bmm: None,
    torch.Tensor.mv: None,
    torch.Tensor.matmul: None,
    torch.Tensor.__matmul__: None,
    torch.Tensor.__rmatmul__: None,
    torch.einsum: None,
    torch.tensordot: None,
    torch.chain_matmul: None,
    torch.linalg.multi_dot: None,
    F.linear: (0, 1),
    torch.addmm: (1, 2),
    torch.addmv: (1, 2),
    torch.baddbmm: (1, 2),
    torch.addbmm: (1, 2),
    torch.Tensor.addmm: (1, 2),
    torch.Tensor.addmm_: (1, 2),
    torch.Tensor.addmv: (1, 2),
    torch.Tensor.baddbmm: (1, 2),
    torch.Tensor.baddbmm_: (1, 2),
    torch.Tensor.addbmm: (1, 2),
}
CONVOLUTION_OPERANDS: dict[Callable[..., Any], tuple[int, ...] | None] = dict.fromkeys(
    (
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
        torch.conv_transpose1d,
        torch.conv_transpose2d,
        torch.conv_transpose3d,
        torch.convolution,
    ),
    (0, 1),
)
KEYWORD_OPERANDS = frozenset({"input", "weight", "mat1", "mat2", "batch1", "batch2", "mat", "vec", "other"})
_BIAS_KEYWORD = "input"  # of `addmm` and its kin it is the addend


class Tf32:
    """Follow what the code allows, imitate it, and put the settings back.

    TF32 starts off for products and convolutions alike: on our side fp32 is fp32. (torch leaves it on for cuDNN.)
    """

    MATMUL_NOTE: ClassVar[str] = (
        "allows TF32 in torch's own matrix products; imitated by rounding their fp32 operands"
    )
    CONVOLUTION_NOTE: ClassVar[str] = (
        "allows TF32 in torch's convolutions; imitated by rounding their fp32 operands"
    )

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._switches = tf32_switches()
        self._before = (False, True)
        self._named_precision = ""

    def start(self, patches: Patches) -> None:
        """Turn TF32 off and listen to `torch.set_float32_matmul_precision`."""
        self._before = (self._switches.matmul(), self._switches.convolution())
        self._switches.allow(matmul=False, convolution=False)
        get = torch.get_float32_matmul_precision

        def set_precision(precision: str) -> None:
            # torch's own would also let the CPU's products use bfloat16 ("medium"), which no GPU does.
            if precision not in {"highest", "high", "medium"}:
                msg = f"invalid float32 matmul precision {precision!r}: 'highest', 'high' or 'medium'"
                raise RuntimeError(msg)
            self._ledger.answers["set_float32_matmul_precision"] += 1
            self._named_precision = precision
            self._switches.allow_matmul(allowed=precision != "highest")

        def get_precision() -> str:
            precision = get()
            return "medium" if (precision, self._named_precision) == ("high", "medium") else precision

        patches.replace(torch, "set_float32_matmul_precision", set_precision)
        patches.replace(torch, "get_float32_matmul_precision", get_precision)

    def stop(self) -> None:
        """Note what the code had allowed and restore what was set before."""
        if self._switches.matmul():
            self._ledger.note(self.MATMUL_NOTE)
        if self._switches.convolution():
            self._ledger.note(self.CONVOLUTION_NOTE)
        matmul, convolution = self._before
        self._switches.allow(matmul=matmul, convolution=convolution)

    def matmul_operands(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a matrix product as a tensor core would see them."""
        if not self._switches.matmul() or torch.is_autocast_enabled("cpu"):
            return args, kwargs
        self._ledger.note(self.MATMUL_NOTE)
        return self._rounded(MATRIX_OPERANDS[func], args, kwargs)

    def convolution_operands(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a convolution as a tensor core would see them."""
        if not self._switches.convolution() or torch.is_autocast_enabled("cpu"):
            return args, kwargs
        self._ledger.note(self.CONVOLUTION_NOTE)
        return self._rounded(CONVOLUTION_OPERANDS[func], args, kwargs)

    def _rounded(
        self, positions: tuple[int, ...] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        addend_first = positions is not None and 0 not in positions
        rounded_args = tuple(
            _operand(value) if positions is None or position in positions else value
            for position, value in enumerate(args)
        )
        rounded_kwargs = {
            name: _operand(value)
            if name in KEYWORD_OPERANDS and not (addend_first and name == _BIAS_KEYWORD)
            else value
            for name, value in kwargs.items()
        }
        self._ledger.answers["TF32 operands"] += 1
        return rounded_args, rounded_kwargs


def _operand(value: Any) -> Any:  # noqa: ANN401 - any argument
    if isinstance(value, torch.Tensor):
        if value.dtype is torch.float32 and tag_of(value) is not False and not is_fake(value):
            rounded = round_to_tf32(value)
            rounded.__dict__.update(value.__dict__)
            return rounded
        return value
    if isinstance(value, (list, tuple)):
        return [_operand(item) for item in value]
    return value


# CUDA's autocast runs these in fp32; the CPU's leaves them in the dtype they are given.
_FUNCTIONS_IN_FP32 = (
    "acos asin cosh cdist cosine_similarity cumprod cumsum dist erfinv exp expm1 log log10 log1p log2 log_softmax"
    " logsumexp norm pdist pow prod reciprocal renorm rsqrt sinh softmax sum tan"
)
_METHODS_IN_FP32 = f"{_FUNCTIONS_IN_FP32} __pow__ __rpow__"
_LAYERS_IN_FP32 = (
    "binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity group_norm hinge_embedding_loss huber_loss"
    " kl_div l1_loss layer_norm log_softmax margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss"
    " nll_loss normalize poisson_nll_loss smooth_l1_loss soft_margin_loss softmax softmin softplus triplet_margin_loss"
)
RUNS_IN_FP32: frozenset[Callable[..., Any]] = frozenset(
    getattr(owner, name)
    for owner, names in (
        (torch, _FUNCTIONS_IN_FP32),
        (torch.Tensor, _METHODS_IN_FP32),
        (F, _LAYERS_IN_FP32),
    )
    for name in names.split()
    if hasattr(owner, name)
)


class Autocast:
    """Answer `autocast("cuda")` by the CPU's autocast of the same dtype."""

    NOTE: ClassVar[str] = "autocast for cuda was imitated by the CPU's autocast of the same dtype"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def start(self, patches: Patches) -> None:
        """Patch the autocast class, and what tells of its state, until `patches` are undone."""
        ledger = self._ledger
        init = torch.amp.autocast_mode.autocast.__init__
        enabled = torch.is_autocast_enabled
        dtype_of = torch.get_autocast_dtype
        default_dtype = [torch.float16]

        def autocast_init(
            this: torch.amp.autocast_mode.autocast,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            if device_type == "cuda":
                ledger.answers["autocast"] += 1
                ledger.note(self.NOTE)
                device_type, dtype = "cpu", dtype or default_dtype[0]
            init(this, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

        def is_enabled(device_type: str = "cuda") -> bool:
            return enabled("cpu" if device_type == "cuda" else device_type)

        def get_dtype(device_type: str = "cuda") -> torch.dtype:
            if device_type != "cuda":
                return dtype_of(device_type)
            return dtype_of("cpu") if enabled("cpu") else default_dtype[0]

        def set_gpu_dtype(dtype: torch.dtype) -> None:
            default_dtype[0] = dtype

        patches.replace(torch.amp.autocast_mode.autocast, "__init__", autocast_init)
        patches.replace(torch, "is_autocast_enabled", is_enabled)
        patches.replace(torch, "get_autocast_dtype", get_dtype)
        patches.replace_existing(torch, "get_autocast_gpu_dtype", get_dtype)
        patches.replace_existing(torch, "set_autocast_gpu_dtype", set_gpu_dtype)

    def in_fp32(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a function of `RUNS_IN_FP32` as CUDA's autocast would pass them."""
        if not torch.is_autocast_enabled("cpu"):
            return args, kwargs
        return tuple(_fp32(value) for value in args), {name: _fp32(value) for name, value in kwargs.items()}


def _fp32(value: Any) -> Any:  # noqa: ANN401 - any argument
    if isinstance(value, torch.Tensor) and value.dtype in {torch.float16, torch.bfloat16}:
        widened = value.float()
        widened.__dict__.update(value.__dict__)
        return widened
    return value
