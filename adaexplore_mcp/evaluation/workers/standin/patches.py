"""Replace attributes for a while and put every one of them back exactly as it was."""

from collections.abc import Callable
from typing import Any

__all__ = ["Patches"]

_ABSENT = object()
Undo = Callable[[], None]


class Patches:
    """Attributes replaced on modules and classes, and items in dicts, undone in reverse order.

    An attribute that its owner only inherited is removed again, not left behind as a copy.
    """

    def __init__(self) -> None:
        self._undo: list[Undo] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:  # noqa: ANN401 - any attribute of any module
        """Set `owner.name` to `value` and return what stood there, or None."""
        held = vars(owner).get(name, _ABSENT)
        if held is _ABSENT:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, held))
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        return before

    def replace_item(self, mapping: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 - any item
        """Set `mapping[key]` to `value`."""
        held = mapping.get(key, _ABSENT)
        if held is _ABSENT:
            self._undo.append(lambda: mapping.pop(key, None) and None)
        else:
            self._undo.append(lambda: mapping.update({key: held}))
        mapping[key] = value

    def replace_existing(self, owner: Any, name: str, value: Any) -> Any:  # noqa: ANN401 - as `replace`
        """Do as `replace` where this version of torch has the attribute; otherwise leave it missing."""
        return self.replace(owner, name, value) if hasattr(owner, name) else None

    def undo(self) -> None:
        """Put everything back; safe to call twice."""
        while self._undo:
            self._undo.pop()()
