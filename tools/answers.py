"""Turn a value into an answer: structured content that holds all of it, and text with the same facts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict

from adaexplore_mcp.models import json_safe
from adaexplore_mcp.tools.outline import outline
from adaexplore_mcp.tools.shortening import shorten

__all__ = [
    "Answer",
    "Head",
    "JobAnswer",
    "JobHead",
    "OutcomeAnswer",
    "OutcomeHead",
    "ResponseFormat",
    "answer",
]

ResponseFormat = Literal["concise", "detailed"]


class Head(BaseModel):
    """What every answer has; its schema is published with each tool, so it stays small."""

    model_config = ConfigDict(extra="allow")

    summary: str = ""


class JobHead(Head):
    """What an answer about an evaluation has beside that."""

    next_step: str = ""
    status: str = ""
    job_id: str = ""


class OutcomeHead(JobHead):
    """What the answer of an evaluation has beside that."""

    receipt_id: str = ""


Answer = Annotated[CallToolResult, Head]
"""Content of our own making, checked against the fields that are published."""
JobAnswer = Annotated[CallToolResult, JobHead]
"""The same, about an evaluation."""
OutcomeAnswer = Annotated[CallToolResult, OutcomeHead]
"""The same, of an evaluation."""


def answer(wire: Mapping[str, Any], response_format: ResponseFormat = "detailed") -> CallToolResult:
    """Return the result of a call.

    Some hosts show a model only the structured content, others only the text: each holds the whole answer.

    Args:
        wire: As `Value.to_wire` returns it.
        response_format: concise leaves out the less important where the answer would be long.
    """
    data = json_safe(dict(wire))
    if response_format == "concise":
        data = shorten(data)
    return CallToolResult(content=[TextContent(type="text", text=outline(data))], structured_content=data)
