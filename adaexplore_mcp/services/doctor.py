"""Examine an installation, and say for each finding what to do."""

from typing import Literal

from adaexplore_mcp.errors import AdaExploreError, StoreError
from adaexplore_mcp.models import Check
from adaexplore_mcp.services.container import Services

__all__ = ["examine"]


async def examine(services: Services) -> list[Check]:
    """Return every check of this installation: those of the workers, then the database and the roots."""
    return [*await _workers(services), await _database(services), _roots(services)]


async def _workers(services: Services) -> list[Check]:
    try:
        device = await services.evaluations.device()
        cannot = f" Cannot: {'; '.join(device.cannot)}." if device.cannot else ""
        state: Literal["ok", "fail"] = "ok" if device.isolation else "fail"
        machine = Check(name="machine", state=state, detail=f"{device.summary}{cannot}")
        return [machine, *await services.evaluations.checks()]
    except AdaExploreError as error:
        return [
            Check(
                name="workers",
                state="fail",
                detail=str(error),
                remedy="Set --worker-python to an interpreter that has torch and triton.",
            )
        ]


async def _database(services: Services) -> Check:
    try:
        holds = await services.store.check()
    except StoreError as error:
        return Check(
            name="database", state="fail", detail=str(error), remedy="Do as it says, then ask again."
        )
    return Check(name="database", state="ok", detail=f"{services.store.path}: {holds}")


def _roots(services: Services) -> Check:
    roots = services.settings.roots
    detail = ", ".join(map(str, roots))
    if any(len(root.parts) == 1 for root in roots):
        return Check(
            name="roots",
            state="warn",
            detail=f"{detail}: every file that this user may read can be named by a client",
            remedy="Start the server with --root FOLDER for each folder of kernels.",
        )
    return Check(name="roots", state="ok", detail=detail)
