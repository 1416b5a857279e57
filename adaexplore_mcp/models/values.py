"""What all values that cross the boundary share."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

__all__ = [
    "FiniteFloat",
    "Parameter",
    "Value",
    "json_safe",
]


def _finite(value: float | None) -> float | None:
    """Turn NaN and infinities into None: neither exists in JSON."""
    return value if value is None or math.isfinite(value) else None


FiniteFloat = Annotated[float | None, AfterValidator(_finite)]
"""A float that JSON can carry; None where there is no finite value."""


class Value(BaseModel):
    """Base of all values: immutable, closed, documented by its attribute docstrings."""

    # Validators are built at the first use of a class: the first tools/list would wait 20 ms for all of them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def to_wire(self) -> dict[str, Any]:
        """Return data that JSON can carry, without the fields that still hold their default."""
        data: dict[str, Any] = json_safe(self.model_dump(mode="json", exclude_defaults=True))
        return data


def json_safe(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return JSON data with None for NaN and infinities, and without lone surrogates, which no JSON text can carry."""
    match value:
        case float():
            return _finite(value)
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case dict():
            return {json_safe(key): json_safe(item) for key, item in value.items()}
        case list() | tuple():
            return [json_safe(item) for item in value]
    return value


class Parameter(Value):
    """Base of what callers send: its attribute docstrings become the schema they see."""

    # Not for every value: pydantic reads the source of each class for them, 2 ms at import.
    model_config = ConfigDict(use_attribute_docstrings=True)
