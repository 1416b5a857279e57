"""The GPUs of this machine as NVML sees them: which there are, which the server may use, and who is on them now.

Imports no torch and starts no CUDA. NVML numbers GPUs by their place on the bus, CUDA by speed unless CUDA_DEVICE_ORDER
is PCI_BUS_ID: only a UUID means the same GPU to both, and indices in CUDA_VISIBLE_DEVICES are read here by place. GPUs
that MIG has split are left out: their parts have names of their own. NVML may have to wake a sleeping GPU, which takes
seconds: call from a thread.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from adaexplore_mcp.errors import RequestError

__all__ = ["Condition", "Gpu", "Occupant", "Usage", "condition", "find", "matching", "usage"]

NONE = "none"
THROTTLES = {
    0x02: "clocks are fixed by an application",
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Of nvmlClocksThrottleReasons (nvml.h), in words."""
MIG_ENABLED = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Args:
        index: NVML's number for it.
        uuid: Its name for good: `GPU-` and 36 characters.
        name: Its product name.
        memory_bytes: All of its memory; 0 if it does not say.
        capability: Compute capability, major and minor.
        minor: Number of its device node; -1 if unknown.
        driver: Version of the driver.
        exclusive: Whether its compute mode lets one process at most use it.
        position: Its place among those that `find` gave.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    capability: tuple[int, int]
    minor: int = -1
    driver: str = ""
    exclusive: bool = False
    position: int = 0

    @property
    def node(self) -> str:
        """Path of its device node; empty if unknown."""
        return f"/dev/nvidia{self.minor}" if self.minor >= 0 else ""

    @property
    def arch(self) -> str:
        """What kernels for it are compiled for, such as sm_90."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def label(self) -> str:
        """Its name within this server, such as cuda:0."""
        return f"cuda:{self.position}"


class Occupant(NamedTuple):
    """A process that computes on a GPU.

    Args:
        pid: As the driver knows it: inside a container that may be another number than the container's own.
        used_bytes: GPU memory it holds; None if unknown.
    """

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class Usage:
    """What is in use of a GPU; None where the driver does not say.

    Args:
        used_bytes: GPU memory in use by anybody, the driver's own share included.
        free_bytes: The rest.
        others: Processes on the GPU that are not ours.
    """

    used_bytes: int | None = None
    free_bytes: int | None = None
    others: tuple[Occupant, ...] | None = None


@dataclass(frozen=True)
class Condition:
    """How a GPU is at one moment; None where the driver does not say.

    Args:
        sm_mhz: Clock of its multiprocessors.
        memory_mhz: Clock of its memory.
        celsius: Temperature of its chip.
        watts: Power it draws.
        throttled: Why its clock is held down, in words; idling is no reason.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    celsius: int | None = None
    watts: float | None = None
    throttled: tuple[str, ...] = ()


def find(choice: Sequence[str] = ()) -> list[Gpu]:
    """Return the GPUs to use, in the order of the choice; none where there is no GPU or no driver.

    Args:
        choice: `none`; or NVML's indices (`0`, `cuda:0`) and UUIDs or their beginnings, whatever CUDA_VISIBLE_DEVICES
            says; or nothing for all that CUDA_VISIBLE_DEVICES allows.

    Raises:
        RequestError: The choice names what is not there.
    """
    if list(choice) == [NONE]:
        return []
    present, split = _present()
    if choice:
        chosen = _chosen(choice, present, split)
    else:
        chosen = _visible(os.environ.get("CUDA_VISIBLE_DEVICES"), present)
    whole = [gpu for gpu in chosen if gpu.uuid not in split]
    return [replace(gpu, position=position) for position, gpu in enumerate(whole)]


def matching(name: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return those GPUs that an index, a UUID or its beginning means; more than one if it is ambiguous."""
    if name.startswith("GPU-"):
        return [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    return [gpu for gpu in gpus if str(gpu.index) == name]


def usage(gpu: Gpu, own: Collection[int] = ()) -> Usage:
    """Ask the driver what is in use of a GPU; never raises.

    Args:
        gpu: One that `find` gave.
        own: Ids of our processes, which are left out.
    """
    with _nvml() as nvml:
        if nvml is None or (handle := _asked(nvml, nvml.nvmlDeviceGetHandleByUUID, gpu.uuid)) is None:
            return Usage()
        memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
        # By version: the one without gives way to whatever the library's newest is, which an older driver lacks.
        processes = _asked(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
        return Usage(
            None if memory is None else int(memory.used),
            None if memory is None else int(memory.free),
            None
            if processes is None
            else tuple(
                Occupant(
                    int(process.pid), None if process.usedGpuMemory is None else int(process.usedGpuMemory)
                )
                for process in processes
                if process.pid not in own
            ),
        )


def condition(gpu: Gpu) -> Condition:
    """Ask the driver for a GPU's clocks, temperature and power, and what holds it down; never raises."""
    with _nvml() as nvml:
        if nvml is None or (handle := _asked(nvml, nvml.nvmlDeviceGetHandleByUUID, gpu.uuid)) is None:
            return Condition()
        power = _asked(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
        reasons = _asked(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        return Condition(
            _asked(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            _asked(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            _asked(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            None if power is None else power / 1000,
            tuple(words for bit, words in THROTTLES.items() if reasons & bit),
        )


def _chosen(choice: Sequence[str], present: Sequence[Gpu], split: Collection[str]) -> list[Gpu]:
    """Return the GPUs that the user named, each once."""
    chosen: list[Gpu] = []
    for name in choice:
        found = matching(name.removeprefix("cuda:"), present)
        if len(found) != 1 or found[0].uuid in split:
            whole = [f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in present if gpu.uuid not in split]
            there = f"There are: {', '.join(whole)}." if whole else "No GPU can be used here."
            next_step = f"Change --device; `--device {NONE}` uses no GPU."
            raise RequestError(f"{_refused(name, len(found))} {there}", next_step)
        if found[0] not in chosen:
            chosen.append(found[0])
    return chosen


def _refused(name: str, count: int) -> str:
    """Say why a name that means so many GPUs cannot be used."""
    if name == NONE:
        return f"{NONE!r} cannot stand beside other GPUs."
    if count == 0:
        return f"There is no GPU {name!r}."
    if count > 1:
        return f"{name!r} means {count} GPUs."
    return f"GPU {name!r} is split by MIG, which is not supported."


def _visible(variable: str | None, present: list[Gpu]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES allows, read as CUDA reads it."""
    if variable is None:
        return present
    chosen: list[Gpu] = []
    for name in variable.split(","):
        found = matching(name.strip(), present)
        if len(found) != 1:  # CUDA takes what stands before the first that it does not know
            break
        if found[0] in chosen:  # and nothing at all where one is repeated
            return []
        chosen.append(found[0])
    return chosen


def _present() -> tuple[list[Gpu], set[str]]:
    """Return all GPUs that answer, and the UUIDs of those split by MIG."""
    present: list[Gpu] = []
    split: set[str] = set()
    with _nvml() as nvml:
        if nvml is None:
            return present, split
        driver = str(_asked(nvml, nvml.nvmlSystemGetDriverVersion) or "")
        for index in range(_asked(nvml, nvml.nvmlDeviceGetCount) or 0):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                gpu = _described(nvml, handle, index, driver)
            except nvml.NVMLError as error:  # closed to us, or fallen off the bus: the others still work
                logger.warning("GPU %d is left out: %s", index, error)
                continue
            present.append(gpu)
            mode = _asked(nvml, nvml.nvmlDeviceGetMigMode, handle)
            if mode is not None and mode[0] == MIG_ENABLED:
                split.add(gpu.uuid)
    return present, split


def _described(nvml: Any, handle: object, index: int, driver: str) -> Gpu:  # noqa: ANN401 - an untyped module
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    node = _asked(nvml, nvml.nvmlDeviceGetMinorNumber, handle)
    mode = _asked(nvml, nvml.nvmlDeviceGetComputeMode, handle)
    return Gpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=0 if memory is None else int(memory.total),
        capability=(int(major), int(minor)),
        minor=-1 if node is None else int(node),
        driver=driver,
        exclusive=mode in {nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, nvml.NVML_COMPUTEMODE_PROHIBITED},
    )


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """Open NVML for a while; None where there is none, or no driver that answers it."""
    import pynvml  # noqa: PLC0415 - only where GPUs are looked for

    nvml = pynvml
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        nvml = None
    except nvml.NVMLError as error:
        logger.warning("No GPU is used, since the driver does not answer: %s", error)
        nvml = None
    try:
        yield nvml
    finally:
        if nvml is not None:
            _asked(nvml, nvml.nvmlShutdown)


def _asked(nvml: Any, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - an untyped module
    """Return NVML's answer; None where this GPU or this driver has none."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None
