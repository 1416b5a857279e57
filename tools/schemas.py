"""Make the schemas of tools fit every host: no references, no titles, nothing that a strict client drops.

Hosts drop a tool, or a whole server, for a `$ref`, for an array without `items`, or for `anyOf` at the root. The same
schema costs every conversation its tokens, so what says nothing is left out.
"""

from collections.abc import Mapping
from typing import Any

from adaexplore_mcp.settings import Settings

__all__ = ["bounded", "published"]

Schema = dict[str, Any]

UNTOLD = {"maxLength", "minLength", "maxItems", "maxProperties", "pattern"}
"""Limits that an honest call does not meet, or that its description words better; enforced all the same."""
UNTOLD_INSIDE = UNTOLD | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
"""The same for fields of objects inside an argument."""


def published(schema: Mapping[str, Any]) -> Schema:
    """Return a schema with references replaced by what they refer to.

    Args:
        schema: As pydantic makes it; not recursive.
    """
    root = {key: value for key, value in schema.items() if key not in {"$defs", "description"}}
    return _plain(root, schema.get("$defs", {}), depth=0)


def bounded(schema: Schema, settings: Settings) -> Schema:
    """Return a published input schema with the limits that this server sets.

    Args:
        schema: Of one tool.
        settings: Of this process.
    """
    properties = dict(schema.get("properties", {}))
    if wait := properties.get("wait_seconds"):
        most = settings.max_wait
        properties["wait_seconds"] = wait | {"maximum": most, "default": min(wait["default"], most)}
    return schema | ({"properties": properties} if properties else {})


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Schema:
    """Return one schema object and those inside it without references and titles."""
    if reference := schema.get("$ref"):
        target = definitions[str(reference).removeprefix("#/$defs/")]
        # What stands beside a reference says what this use of it is for; the type's own docstring does not.
        schema = {
            **target,
            "description": "",
            **{key: value for key, value in schema.items() if key != "$ref"},
        }
    result: Schema = {}
    for key, value in schema.items():
        if key in {"title", "default", "description"} and value in ("", [], {}):
            continue  # empty where it is not given: no host needs to be told
        match key, value:
            case ("title", str()) | ("default", dict()):  # an object's fields have their own
                continue
            case ("additionalProperties", bool()):
                continue
            case (name, _) if name in (UNTOLD if depth < 2 else UNTOLD_INSIDE):
                continue
            case ("description", str()):
                result[key] = " ".join(value.split())
            case ("properties", dict()):
                result[key] = {name: _plain(item, definitions, depth + 1) for name, item in value.items()}
            case ("items" | "additionalProperties", dict()):
                result[key] = _plain(value, definitions, depth + 1)
            case ("anyOf" | "oneOf" | "allOf", list()):
                kinds = [_plain(item, definitions, depth + 1) for item in value]
                # An integer is a number.
                result[key] = [
                    kind for kind in kinds if kind != {"type": "integer"} or {"type": "number"} not in kinds
                ]
            case _:
                result[key] = value
    return result
