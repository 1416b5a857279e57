"""Say what went wrong with a call: the one place that makes a `ToolError`.

Its text is for the agent: what was wrong, with the value, and the next call to make. The SDK passes on the text of
no other exception.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from adaexplore_mcp.errors import RequestError
from adaexplore_mcp.services.messages import failure_of, nearest, not_found, shortened

__all__ = ["check_arguments", "check_tool", "invalid_arguments", "tool_error"]

Schema = Mapping[str, Any]


def tool_error(error: Exception, tool: str) -> ToolError:
    """Return what the agent reads of an exception that ended a call."""
    problem, next_step = failure_of(error, tool)
    return ToolError(f"{problem} {next_step}".strip())


def check_tool(name: str, known: Sequence[str]) -> None:
    """Refuse a tool that does not exist.

    Raises:
        NotFoundError: Names the nearest, and all of them.
    """
    if name not in known:
        raise not_found("tool", name, known, f"Tools: {', '.join(known)}.")


def check_arguments(tool: str, schema: Schema, about: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that a tool does not take; the SDK would ignore them.

    Args:
        tool: Its name.
        schema: Its input schema, without references.
        about: One sentence on what it is for.
        arguments: As they came.

    Raises:
        RequestError: Names the nearest arguments, all valid ones, and those that are missing.
    """
    valid = schema.get("properties", {})
    unknown = [name for name in arguments if name not in valid]
    if not unknown:
        return
    missing = [name for name in schema.get("required", []) if name not in arguments]
    need = f" It needs {', '.join(missing)}." if missing else ""
    listed = ", ".join(shortened(name) for name in unknown[:5])
    raise RequestError(
        f"{tool} takes no argument {listed}.{_meant(unknown[:5], valid)}",
        f"It takes {', '.join(sorted(valid)) or 'none'}.{need} {about}",
    )


def invalid_arguments(error: ValidationError, tool: str, schema: Schema) -> RequestError:
    """Put the SDK's complaint about arguments into one line.

    Args:
        error: What pydantic said.
        tool: The tool's name.
        schema: Its input schema, without references.
    """
    complaints = [_complaint(dict(item), schema) for item in error.errors(include_url=False)]
    shown = list(dict.fromkeys(complaints))[:3]
    more = f"; and {len(complaints) - len(shown)} more" if len(complaints) > len(shown) else ""
    return RequestError(f"{tool}: {'; '.join(shown)}{more}.", "Correct that and call again.")


def _complaint(item: Mapping[str, Any], schema: Schema) -> str:
    """Name one argument, its value and what is allowed."""
    location = item["loc"]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    here = _schema_at(schema, location)
    if item["type"] == "missing":
        about = str(here.get("description", "")).rstrip(".")
        return f"{name} is missing ({about})" if about else f"{name} is missing"
    if item["type"] == "extra_forbidden":
        siblings = _schema_at(schema, location[:-1]).get("properties", {})
        return f"there is no {shortened(name)}; it takes {', '.join(sorted(siblings))}{_meant([str(location[-1])], siblings)}"
    return f"{shortened(name)} cannot be {shortened(item['input'], 60)}: {_allowed(item, schema)}"


def _allowed(item: Mapping[str, Any], schema: Schema) -> str:
    """Say what a value must be."""
    said = str(item["msg"])
    if item["type"] == "string_pattern_mismatch":
        # A regular expression is for machines; the description says the same in words.
        return str(_schema_at(schema, item["loc"][:1]).get("description", said))
    if said.startswith("Input should be "):
        return f"must be {said.removeprefix('Input should be ')}"
    return said.removeprefix("Value error, ")


def _schema_at(schema: Schema, location: Iterable[Any]) -> Schema:
    """Follow the place of an error into a schema as far as it goes."""
    here = schema
    for part in location:
        if isinstance(part, int):
            here = here.get("items", {})
        elif part in here.get("properties", {}):
            here = here["properties"][part]
        elif isinstance(here.get("additionalProperties"), dict):
            here = here["additionalProperties"]
        else:
            return {}
    return here


def _meant(names: Iterable[str], known: Iterable[str]) -> str:
    """Ask for those known names that are most like given ones; empty where none is."""
    alike = list(dict.fromkeys(each for name in names for each in nearest(name, known, 1)))
    return f" Did you mean {' and '.join(alike)}?" if alike else ""
