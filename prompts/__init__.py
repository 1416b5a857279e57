"""What a model reads: Markdown templates and the one function that renders them."""

import string
from pathlib import Path

__all__ = ["render"]

FOLDER = Path(__file__).parent


def render(name: str, **fields: str) -> str:
    """Fill a template; `$field` stands for a field, `$$` for a dollar sign.

    Args:
        name: Of the template, without the folder and `.md`.
        fields: Exactly those that the template names.

    Raises:
        ValueError: A field is missing, or one is given that the template does not name.
    """
    template = string.Template((FOLDER / f"{name}.md").read_text(encoding="utf-8").strip())
    wanted = set(template.get_identifiers())
    if wanted != fields.keys():
        missing, unused = sorted(wanted - fields.keys()), sorted(fields.keys() - wanted)
        msg = f"template {name}: fields missing: {missing}, unused: {unused}"
        raise ValueError(msg)
    return template.substitute(fields)
