"""What a GPU is, in the words of `targets.Target`: for compiling ahead as the device itself would."""

from typing import Any

import torch

from adaexplore_mcp.evaluation.workers.cuda.driver import attribute

__all__ = ["device_properties"]

ATTRIBUTES = {
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_multiprocessor": 39,
    "shared_bytes_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "shared_bytes_per_block_optin": 97,
    "blocks_per_multiprocessor": 106,
}
"""Of CUdevice_attribute (cuda.h): CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE and so on."""


def device_properties() -> dict[str, Any]:
    """Return the fields of a `Target` for the current device; CUDA has been started."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": f"sm_{properties.major}{properties.minor}",
        "capability": [properties.major, properties.minor],
        "board": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        **{name: attribute(number) for name, number in ATTRIBUTES.items()},
    }
