"""Parameters that several tools share, and what they mean for the services."""

from typing import Annotated

from mcp.server.mcpserver import Context
from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.services import Notify, Services
from adaexplore_mcp.tools.answers import ResponseFormat

__all__ = [
    "DEFAULT_WAIT_S",
    "MAX_TEXT",
    "Ctx",
    "Format",
    "Wait",
    "encoded",
    "notifier",
    "services_of",
    "wait_of",
]

Ctx = Context[Services]

DEFAULT_WAIT_S = 30.0
MAX_TEXT = 1 << 20
"""Characters of source text in one argument."""

Wait = Annotated[
    float, Field(ge=0, le=3600, description="Seconds to wait; then the call answers with a job_id.")
]
"""How long the caller waits; settings.max_wait is the published maximum."""
Format = ResponseFormat
"""concise keeps an answer below 600 tokens; the instructions say so once for all tools."""


def services_of(ctx: Ctx) -> Services:
    """Return what the lifespan of the server made."""
    return ctx.request_context.lifespan_context


def wait_of(services: Services, wait_seconds: float) -> float:
    """Return how long a call may wait, in seconds.

    Raises:
        RequestError: More than this server allows; the default is always allowed.
    """
    allowed = services.settings.max_wait
    if wait_seconds > max(allowed, DEFAULT_WAIT_S):
        raise RequestError(
            f"wait_seconds cannot be {wait_seconds:g}: at most {allowed:g} on this server.",
            "Ask again with less and follow the job with job_status, or start the server with --max-wait.",
        )
    return min(wait_seconds, allowed)


def notifier(ctx: Ctx) -> Notify:
    """Return what tells the caller of this request how far it is; does nothing where nobody asked."""

    async def notify(progress: float, message: str, /) -> None:
        await ctx.report_progress(progress, None, message)

    return notify


def encoded(text: str, name: str) -> bytes:
    """Return source text as bytes.

    Raises:
        RequestError: It holds lone surrogates, which are no text.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{name} is not valid Unicode at character {error.start}.", f"Send it as a file: {name}_path."
        ) from error
