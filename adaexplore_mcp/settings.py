"""Settings of one server process: a flag wins over an environment variable, that over the default.

The variable of a setting is its name in capitals after `ADAEXPLORE_`: `ADAEXPLORE_HOME`, `ADAEXPLORE_TARGET`, …
A list of folders is separated as PATH is, one of GPUs by commas.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from adaexplore_mcp.errors import RequestError

FLAGS = {"roots": "root", "devices": "device"}
"""Settings whose flag has another name."""

__all__ = ["Settings", "load_settings"]

PREFIX = "ADAEXPLORE_"


def _share_of_memory() -> int:
    """Return a quarter of this machine's memory in MiB, between 1 GiB and 32 GiB: two processes run side by side."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return min(max(total // 4, 1024), 32_768)


class Settings(BaseModel):
    """Everything a server process is told from outside."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("adaexplore-mcp")))
    """Folder of the database; a local disk."""
    scratch: Path = Field(default_factory=lambda: Path(tempfile.gettempdir()) / f"adaexplore-{os.getuid()}")
    """Folder below which every server makes, and removes, a private folder for its workers."""
    roots: tuple[Path, ...] = Field(default_factory=lambda: (Path.cwd(),))
    """Folders from which tasks and kernels may be read by path."""
    worker_python: Path = Field(default_factory=lambda: Path(sys.executable))
    """Interpreter with torch and triton that runs the workers."""
    devices: tuple[str, ...] = ()
    """GPUs to use, by index or UUID; all by default, `none` for none."""
    target: Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"] = "sm_90"
    """What candidates are compiled for unless a call names another."""
    toolset: Literal["all", "core"] = "all"
    """core: only the tools that an optimizing agent needs."""
    max_wait: float = Field(default=45.0, ge=0, le=3600)
    """Largest wait_seconds a call may ask for."""
    parallel: int = Field(default_factory=lambda: max(2, (os.cpu_count() or 1) // 2), ge=1, le=256)
    """Evaluations at once."""
    memory_limit_mib: int = Field(default_factory=_share_of_memory, ge=512)
    """Memory one process of a candidate or a task, with its children, may take, in MiB."""
    keep_workers_s: float = Field(default=900.0, ge=0)
    """Idle time after which the warm worker processes are ended; 0 keeps them."""

    step_lease_s: float = Field(default=1800.0, ge=1, le=1e6)
    """Time after which a proposal that nobody answered is given out again."""

    @field_validator("home", "scratch", "worker_python", mode="after")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        # Not resolved: a virtual environment's python is a link whose own place matters.
        return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - Path.absolute keeps '..'

    @field_validator("roots", mode="before")
    @classmethod
    def _split(cls, roots: object) -> object:
        return tuple(filter(None, roots.split(os.pathsep))) if isinstance(roots, str) else roots

    @field_validator("devices", mode="before")
    @classmethod
    def _split_at_commas(cls, devices: object) -> object:
        given = (devices,) if isinstance(devices, str) else devices
        if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
            return devices
        return tuple(filter(None, (name.strip() for each in given for name in each.split(","))))

    @field_validator("roots", mode="after")
    @classmethod
    def _existing(cls, roots: tuple[Path, ...]) -> tuple[Path, ...]:
        for root in roots:
            if not root.expanduser().is_dir():
                msg = f"{str(root)!r} is not a folder"
                raise ValueError(msg)
        return tuple(root.expanduser().resolve() for root in roots)

    @property
    def database(self) -> Path:
        """Path of the SQLite file."""
        return self.home / "adaexplore.db"


def load_settings(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings of this process.

    Args:
        flags: Values given on the command line; None or absent means not given.
        environ: Environment to read, by default that of the process.

    Raises:
        RequestError: A value is not valid; names the setting and the value.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {
        name: environ[PREFIX + name.upper()]
        for name in Settings.model_fields
        if environ.get(PREFIX + name.upper())
    }
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise RequestError(
            f"Setting {name} cannot be {first['input']!r}: {first['msg'].removeprefix('Value error, ')}.",
            f"Change the flag --{FLAGS.get(name, name.replace('_', '-'))} or the variable {PREFIX}{name.upper()}.",
        ) from error
