"""What the stand-in raises: things that need a GPU, things that need real values, and what CUDA itself would raise.

Exception
├── NotHere           the code asked for a measurement, or for hardware, that this machine has not
├── NotFakeable       the code needs values or sizes that fake tensors do not have: run it again with real ones
└── RuntimeError
    └── DeviceMismatch    what CUDA raises when tensors in host memory meet tensors on the device
"""

__all__ = ["DeviceMismatch", "NotFakeable", "NotHere"]


class NotHere(Exception):  # noqa: N818 - reads as the sentence it is raised for
    """Code asked for what only a GPU can give; no answer would be honest."""


class NotFakeable(Exception):  # noqa: N818 - reads as the sentence it is raised for
    """Code asked a fake tensor for its values, or for a size that depends on them."""


class DeviceMismatch(RuntimeError):  # noqa: N818 - named after what it reports
    """Tensors in host memory met tensors on the device; a RuntimeError, as torch raises on a GPU machine."""
