"""Say what this machine can do."""

from adaexplore_mcp.tools.answers import Answer, answer
from adaexplore_mcp.tools.parameters import Ctx, services_of

__all__ = ["get_device"]


async def get_device(ctx: Ctx) -> Answer:
    """Report the GPU, compile targets, versions, isolation, and what cannot be judged on this machine."""
    services = services_of(ctx)
    device = await services.evaluations.device()
    return answer(device.model_copy(update={"running": services.jobs.in_progress}).to_wire())
