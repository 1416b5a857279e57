"""Read long texts that were kept aside."""

from typing import Annotated

from pydantic import Field

from adaexplore_mcp.errors import NotFoundError, RequestError
from adaexplore_mcp.models import ArtifactPage
from adaexplore_mcp.services.files import nearest, shortened
from adaexplore_mcp.tools.answers import Answer, answer
from adaexplore_mcp.tools.parameters import Ctx, services_of

__all__ = ["read_artifact"]


async def read_artifact(
    ctx: Ctx,
    artifact_id: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=16_000)] = 8000,
) -> Answer:
    """Read a log, traceback or PTX that an outcome names, in pages of characters."""
    evaluations = services_of(ctx).store.evaluations
    artifact = await evaluations.artifact(artifact_id)
    if artifact is None:
        alike = nearest(artifact_id, await evaluations.ids("artifact"))
        hint = f" Did you mean {' or '.join(alike)}?" if alike else ""
        raise NotFoundError(
            f"There is no artifact {shortened(artifact_id)}.{hint}",
            "Use an artifact_id that an outcome names.",
        )
    size = len(artifact.text)
    if offset > size:
        raise RequestError(f"offset cannot be {offset}: the text ends at {size}.", "Begin at 0.")
    end = min(offset + limit, size)
    page = ArtifactPage(
        summary=f"Characters {offset} to {end} of {size} of {artifact.kind} {artifact_id}.",
        next_step=f"Call read_artifact with offset {end} for the rest." if end < size else "",
        artifact_id=artifact_id,
        kind=artifact.kind,
        size=size,
        offset=offset,
        has_more=end < size,
        next_offset=end if end < size else 0,
        text=artifact.text[offset:end],
    )
    return answer(page.to_wire())
