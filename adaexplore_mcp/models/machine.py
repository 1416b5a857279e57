"""The machine: what it can judge, and what is wrong with it."""

from typing import Literal

from adaexplore_mcp.models.values import Value

__all__ = [
    "Check",
    "Device",
    "DeviceState",
]


class Check(Value):
    """One line of the doctor's table."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str = ""
    """What was found."""
    remedy: str = ""
    """What to do about it; empty when ok."""


class DeviceState(Value):
    """One GPU."""

    label: str
    """How it is named in calls, such as cuda:0."""
    name: str
    uuid: str = ""
    arch: str = ""
    driver: str = ""
    memory_mib: int = 0
    free_mib: int | None = None
    running: int = 0
    """Evaluations of this server on it."""
    waiting: int = 0
    others: list[str] = []
    """Other processes on it."""
    lock: str = ""
    """What keeps servers apart that time on it."""


class Device(Value):
    """What this machine can judge, and what it cannot."""

    summary: str
    gpu: str = ""
    """Name of the GPU, empty without one."""
    devices: list[DeviceState] = []
    """The GPUs that are used."""
    target: str = ""
    """Default compilation target."""
    targets: list[str] = []
    isolation: str = ""
    layers: dict[str, str] = {}
    """Sandbox layers: in use, or why not."""
    versions: dict[str, str] = {}
    cannot: list[str] = []
    """What cannot be done here, in plain words."""
    running: int = 0
    """Evaluations of this server in progress."""
