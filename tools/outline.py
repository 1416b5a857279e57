"""Write an answer as text that a person and a model read with ease: every fact of it, nothing else.

It works on the data of any answer, so that the text cannot fall behind the structured content.
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["outline"]

INDENT = "  "
LINE = 110


def outline(data: Mapping[str, Any]) -> str:
    """Return an answer as lines: what happened, the next step, then one entry per field; a long text comes last.

    Args:
        data: JSON-ready data of an answer.
    """
    rest = {
        key: value for key, value in data.items() if key not in {"status", "summary", "next_step", "text"}
    }
    head = ": ".join(str(data[key]) for key in ("status", "summary") if data.get(key))
    lines = [head] if head else []
    if data.get("next_step"):
        lines.append(f"Next: {data['next_step']}")
    for key, value in rest.items():
        lines += _entry(key, value)
    if "text" in data:
        lines += ["", str(data["text"])]
    return "\n".join(lines)


def _entry(key: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """Yield the lines of one field."""
    match value:
        case dict() if _is_outcome(value):
            yield f"{key}:"
            yield from (INDENT + line for line in outline(value).splitlines())
        case dict():
            inline = _inline(value)
            yield f"{key}: {inline}" if inline else f"{key}:"
            for name, item in value.items():
                if not _fits(item):
                    yield from (INDENT + line for line in _entry(name, item))
        case list() if value and not all(_is_word(item) for item in value):
            yield f"{key}:"
            for item in value:
                first, *others = _entry("-", item)
                yield first.replace("-: ", "- ", 1)
                # The fields of a group are indented already.
                yield from others if isinstance(item, dict) else (INDENT + line for line in others)
        case str() if "\n" in value:
            yield f"{key}:"
            yield from (INDENT + line for line in value.splitlines())
        case _:
            yield f"{key}: {_scalar(value)}"


def _is_word(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Tell what may stand in a row from sentences and groups, which get lines of their own."""
    return " " not in value and _fits(value) if isinstance(value, str) else _fits(value)


def _is_outcome(value: Mapping[str, Any]) -> bool:
    """Tell a whole answer, such as the result of a job, from a group of fields."""
    return "summary" in value


def _fits(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Say whether a value may stand in a line with others."""
    match value:
        case str():
            return len(value) <= LINE and "\n" not in value
        case list():
            return all(isinstance(item, int | float | str) and _is_word(item) for item in value)
        case dict():
            return False
    return True


def _inline(value: Mapping[str, Any]) -> str:
    """Return the short fields of a group as one line."""
    return ", ".join(f"{name}={_scalar(item)}" for name, item in value.items() if _fits(item))


def _scalar(value: Any) -> str:  # noqa: ANN401 - any JSON value
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list():
            return f"[{', '.join(map(_scalar, value))}]"
    return str(value)
