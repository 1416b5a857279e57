"""Read long texts that were kept aside."""

import json
from typing import Annotated, Literal

from pydantic import Field

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.memory_store import EvaluationTable
from adaexplore_mcp.models import ArtifactPage
from adaexplore_mcp.services.messages import not_found
from adaexplore_mcp.tools.answers import Answer, answer
from adaexplore_mcp.tools.parameters import Ctx, services_of

__all__ = ["read_artifact"]

KINDS: dict[str, Literal["candidate", "receipt"]] = {"cand": "candidate", "rcpt": "receipt"}
"""By the beginning of a handle, what it names beside artifacts."""


async def read_artifact(
    ctx: Ctx,
    artifact_id: Annotated[str, Field(description="Or a task_id, candidate_id, receipt_id.")],
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=16_000)] = 8000,
) -> Answer:
    """Read a task, candidate, receipt, log or traceback that an answer names, in pages of characters."""
    services = services_of(ctx)
    if artifact_id.startswith("task_"):
        kind, text = "task", await services.tasks.source(artifact_id)
    else:
        kind, text = await _found(services.store.evaluations, artifact_id)
    size = len(text)
    if offset > size:
        raise RequestError(f"offset cannot be {offset}: the text ends at {size}.", "Begin at 0.")
    end = min(offset + limit, size)
    page = ArtifactPage(
        summary=f"Characters {offset} to {end} of {size} of {kind} {artifact_id}.",
        next_step=f"Call read_artifact with offset {end} for the rest." if end < size else "",
        artifact_id=artifact_id,
        kind=kind,
        size=size,
        offset=offset,
        has_more=end < size,
        next_offset=end if end < size else 0,
        text=text[offset:end],
    )
    return answer(page.to_wire())


async def _found(evaluations: EvaluationTable, handle: str) -> tuple[str, str]:
    """Return kind and text of what a handle names.

    Raises:
        NotFoundError: Nothing is kept under it; names the nearest.
    """
    kind = KINDS.get(handle.partition("_")[0], "artifact")
    match kind:
        case "candidate":
            if (source := await evaluations.candidate(handle)) is not None:
                return kind, source.decode(errors="backslashreplace")
        case "receipt":
            if (receipt := await evaluations.tell_receipt(handle)) is not None:
                told = {**receipt.receipt, "outcome": receipt.outcome.to_wire()}
                return kind, json.dumps(told, indent=1, ensure_ascii=False)
        case _:
            if (artifact := await evaluations.artifact(handle)) is not None:
                return artifact.kind, artifact.text
    latest = await evaluations.ids(kind)
    raise not_found(
        kind, handle, latest, "Use an artifact_id, receipt_id, candidate_id or task_id of an earlier answer."
    )
