"""Start CUDA in a confined process, in the same state for references and candidates."""

import os

import torch

from adaexplore_mcp.evaluation.workers.cuda import memory

__all__ = ["restore_flags", "start", "start_if_room", "tf32_is_on", "use_device"]

OUT_OF_MEMORY = "out of memory"


def use_device(uuid: str) -> None:
    """Choose the GPU of this process; before anything has touched CUDA."""
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


def start() -> None:
    """Start CUDA, make a context, and set what decides about numbers.

    Raises:
        RuntimeError: CUDA does not start here.
    """
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own
    torch.empty(1, device="cuda").fill_(1)
    torch.cuda.synchronize()
    memory.granularity()
    restore_flags()


def start_if_room() -> str:
    """Start CUDA as `start` does; return what CUDA says where the GPU has too little memory for that, else nothing.

    Raises:
        RuntimeError: CUDA does not start here for another reason.
    """
    try:
        start()
    except RuntimeError as error:  # torch's OutOfMemoryError too; no stranger's code has run in this process
        if OUT_OF_MEMORY not in str(error):
            raise
        return str(error).splitlines()[0][:300]
    return ""


def tf32_is_on() -> bool:
    """Tell whether torch's own products and convolutions may use TF32 in this process now."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)
    except (
        RuntimeError
    ):  # set by the names that later versions have for it, which these then refuse to speak of
        return True


def restore_flags() -> None:
    """Set torch's global flags so that float32 is float32, and results do not depend on a search for algorithms."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
