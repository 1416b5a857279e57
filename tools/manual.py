"""Tools as a person reads them on the command line, from the schema that clients are given."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill, indent
from typing import Any

from mcp.types import Tool

__all__ = ["index", "page"]

WIDTH = 100


def index(tools: Sequence[Tool]) -> str:
    """Return the tools with a line each."""
    width = max(len(tool.name) for tool in tools)
    return "\n".join(f"  {tool.name:<{width}}  {_first_line(tool)}" for tool in tools)


def page(tool: Tool) -> str:
    """Return what a tool is for and what it takes: name, type, default and description of each parameter."""
    about = "\n\n".join(fill(part, WIDTH) for part in (tool.description or "").split("\n\n"))
    parameters = "\n".join(_parameters(tool.input_schema, "  ")) or "  none"
    return f"{tool.name}\n\n{about}\n\nparameters:\n{parameters}"


def _first_line(tool: Tool) -> str:
    return (tool.description or "").partition("\n")[0]


def _parameters(schema: Mapping[str, Any], margin: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, each in schema.get("properties", {}).items():
        told = [_type(each), "required" if name in required else _default(each), *_limits(each)]
        yield f"{margin}{name}: {', '.join(told)}"
        if about := each.get("description"):
            yield indent(fill(about, WIDTH - len(margin) - 4), f"{margin}    ")
        yield from _parameters(_inside(each), f"{margin}    ")


def _inside(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object whose fields a caller has to know: the value's own, or that of its items or values."""
    if "properties" in schema:
        return schema
    inner = schema.get("items") or schema.get("additionalProperties")
    return _inside(inner) if isinstance(inner, Mapping) else {}


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return _one_of(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if kinds := schema.get("anyOf") or schema.get("oneOf"):
        return _one_of(_type(kind) for kind in kinds)
    match schema.get("type"):
        case "array":
            return f"array of {_type(schema.get('items', {}))}"
        case "object" if isinstance(values := schema.get("additionalProperties"), Mapping):
            return f"object of {_type(values)} by name"
        case kind:
            return str(kind or "anything")


def _one_of(kinds: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(kinds))


def _default(schema: Mapping[str, Any]) -> str:
    """Return the default; schemas leave out those that are empty."""
    return (
        f"default {json.dumps(schema['default'], ensure_ascii=False)}" if "default" in schema else "optional"
    )


def _limits(schema: Mapping[str, Any]) -> list[str]:
    named = (("minimum", "at least"), ("maximum", "at most"), ("exclusiveMinimum", "more than"), ("exclusiveMaximum", "less than"))  # fmt: skip
    return [f"{words} {schema[name]:g}" for name, words in named if name in schema]
