"""Follow and end evaluations that outlasted their call."""

from typing import Annotated

from pydantic import Field

from adaexplore_mcp.tools.answers import JobAnswer, answer
from adaexplore_mcp.tools.parameters import DEFAULT_WAIT_S, Ctx, Format, Wait, notifier, services_of, wait_of

__all__ = ["cancel_job", "job_status"]


async def job_status(
    ctx: Ctx,
    job_id: Annotated[str, Field(description="Without it the latest jobs are listed.")] = "",
    wait_seconds: Wait = DEFAULT_WAIT_S,
    response_format: Format = "concise",
) -> JobAnswer:
    """Wait for a job; gives its progress, or its tool's result."""
    services = services_of(ctx)
    wait_s = wait_of(services, wait_seconds)
    if not job_id:
        return answer((await services.jobs.recent()).to_wire(), response_format)
    view = await services.jobs.status(job_id, wait_s=wait_s, notify=notifier(ctx))
    return answer(view.to_wire(), response_format)


async def cancel_job(ctx: Ctx, job_id: str) -> JobAnswer:
    """End a running job and free all it holds."""
    return answer((await services_of(ctx).jobs.cancel(job_id)).to_wire(), "concise")
