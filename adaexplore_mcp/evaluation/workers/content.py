"""A task as it is sent to a worker: its source texts, the workload's sizes, and what makes it not a task.

Nothing is executed here; `task` runs what `TaskContent.prepare` returns.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from adaexplore_mcp.evaluation.workers import sizes
from adaexplore_mcp.evaluation.workers.sizes import Change, Scalar, SizeError

__all__ = ["FaultReason", "Prepared", "TaskContent", "TaskFault", "absolute_name"]

FaultReason = Literal[
    "content",  # the message does not describe a task
    "files",  # a file cannot be taken: outside the root, not UTF-8, too many
    "syntax",  # a source is not Python
    "import",  # running a source raises, or a module is missing
    "entry",  # the class or a function that the format asks for is missing or no callable
    "sizes",  # a workload names a constant that does not exist
    "construct",  # get_init_inputs or the class raises
    "init_arguments",  # constructor arguments that cannot be handed to a candidate's process
    "inputs",  # get_inputs or make_inputs raises, or gives what a call cannot take
    "call",  # the reference raises
    "outputs",  # the reference returns what cannot be compared
    "domain",  # a declared domain does not fit its tensor
    "out_of_memory",  # any of these steps ran out of memory
]


class TaskFault(Exception):  # noqa: N818 - it blames the task, as `fault` says; our own errors end in Error
    """What was given is not a task: its owner has to fix it, and no candidate is to blame.

    Args:
        reason: Which step failed.
        detail: What was wrong, with the offending value, for its owner to read.
        line: Line of the task's own source, counted from 1; 0 where none is known.
    """

    def __init__(self, reason: FaultReason, detail: str, line: int = 0) -> None:
        self.reason: FaultReason = reason
        self.detail = detail
        self.line = line
        super().__init__(detail)

    def to_wire(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {"reason": self.reason, "detail": self.detail, "line": self.line}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Source texts with sizes and lowered constants in place, ready to run.

    Args:
        files: By relative path, the text.
        extra: Text to run after the module, or empty.
        workload: What `make_inputs` of the function format receives.
    """

    files: dict[str, str]
    extra: str
    workload: dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class TaskContent:
    """Everything that fixes a task at one workload.

    Args:
        format: kernelbench: a class, `get_inputs()` and perhaps `get_init_inputs()`. function: a function and
            `make_inputs(workload, device, seed)`.
        files: Relative path with `/` to text: `task.py`, or the snapshot of a package.
        module: Dotted name of the module to import, such as `task` or `pkg.ops`.
        entry: The class or function to call.
        extra: Text that runs after the module and sees its names; its names win.
        sizes: The workload's overrides of size constants.
        edits: Lowered integer constants: by key, the value at these sizes and the lowered one.
    """

    format: Literal["kernelbench", "function"]
    files: dict[str, str]
    module: str
    entry: str
    extra: str = ""
    sizes: dict[str, Scalar] = field(default_factory=dict)
    edits: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, message: object) -> "TaskContent":
        """Validate what a server sent.

        Args:
            message: A dict with `format` and `files`, and perhaps the other fields; `module` defaults to `task`,
                `entry` of the kernelbench format to `Model`.

        Raises:
            TaskFault: reason content.
        """
        known = {"format", "files", "module", "entry", "extra", "sizes", "edits"}
        if not isinstance(message, dict) or not known >= message.keys() >= {"format", "files"}:
            raise _bad(f"a task is a dict of {', '.join(sorted(known))}; got {_shape_of(message)}")
        kind, files = message["format"], message["files"]
        if kind not in ("kernelbench", "function"):
            raise _bad(f"format is kernelbench or function, not {kind!r}")
        if not isinstance(files, dict) or not files:
            raise _bad("files is a dict of relative path to text, with at least one entry")
        for path, text in files.items():
            _check_file(path, text)
        module = message.get("module", "task")
        entry = message.get("entry") or ("Model" if kind == "kernelbench" else "")
        extra = message.get("extra") or ""
        if not isinstance(module, str) or not all(module.split(".")):
            raise _bad(f"module is a dotted name, not {module!r}")
        if not isinstance(entry, str) or not entry.isidentifier():
            raise _bad(f"entry is the name of a class or function, not {entry!r}")
        if not isinstance(extra, str) or not _is_text(extra):
            raise _bad("extra is not text that UTF-8 can hold")
        content = cls(
            format=kind,
            files={path: text.removeprefix("\ufeff") for path, text in files.items()},
            module=module,
            entry=entry,
            extra=extra,
            sizes=_checked_sizes(message.get("sizes") or {}),
            edits=_checked_edits(message.get("edits") or {}),
        )
        content.module_path  # noqa: B018 - raises if no file holds the module
        return content

    @property
    def module_path(self) -> str:
        """Relative path of the file that holds the module.

        Raises:
            TaskFault: reason content, if there is none.
        """
        path = _path_of(self.module, self.files)
        if path is None:
            raise _bad(
                f"no file holds module {self.module!r}; files are {', '.join(sorted(self.files)[:20])}"
            )
        return path

    def with_edits(self, edits: Mapping[str, tuple[int, int]]) -> "TaskContent":
        """Return the same task with other lowered constants."""
        return replace(self, edits=dict(edits))

    def integers(self) -> dict[str, int]:
        """Return the integer constants that may be lowered, by key, at this workload's sizes.

        A key is a constant's key in the entry's module; `extra:KEY`, `pkg/config.py:KEY` for names imported from
        there, and `workload:NAME` for a size that exists only in the workload.

        Raises:
            TaskFault: reason sizes or syntax.
        """
        files, extra, workload_only = self._at_own_sizes()
        found: dict[str, int] = {}
        for prefix, text, names in self._texts(files, extra):
            for constant in _find(text, prefix or self.module_path):
                lowerable = type(constant.value) is int and constant.kind != "derived"
                if lowerable and (names is None or constant.name in names):
                    found[prefix + constant.key] = int(constant.value)
        for name, value in workload_only.items():
            if type(value) is int:
                found[f"workload:{name}"] = value
        return found

    def constants(self) -> dict[str, Scalar]:
        """Return the size constants by name, at this workload's sizes, not lowered.

        Raises:
            TaskFault: reason sizes or syntax.
        """
        files, extra, workload_only = self._at_own_sizes()
        return self._constants(files, extra) | workload_only

    def unused_sizes(self) -> list[str]:
        """Return the workload's sizes that are no constant and that no text mentions: typing errors, most likely."""
        files, extra, workload_only = self._at_own_sizes()
        texts = "\n".join((*files.values(), extra))
        return [name for name in workload_only if not re.search(rf"\b{re.escape(name)}\b", texts)]

    def prepare(self) -> Prepared:
        """Put the sizes and the lowered constants into the texts.

        Raises:
            TaskFault: reason sizes or syntax.
        """
        files, extra, workload_only = self._at_own_sizes()
        by_file: dict[str, dict[str, Change]] = {}
        for full, (old, new) in self.edits.items():
            prefix, key = _split(full)
            if prefix == "workload:":
                if workload_only.get(key) != old:
                    raise TaskFault("sizes", f"the workload has no {key} of {old}")
                workload_only[key] = new
            else:
                by_file.setdefault(prefix, {})[key] = (old, new)
        for prefix, changes in by_file.items():
            path = prefix.removesuffix(":") or self.module_path
            try:
                if prefix == "extra:":
                    extra = sizes.replace(extra, changes)[0]
                elif path in files:
                    files[path] = sizes.replace(files[path], changes)[0]
                else:
                    raise TaskFault("sizes", f"no file {path!r} to lower constants in")
            except SizeError as error:
                raise TaskFault("sizes", f"{path}: {error}") from error
        return Prepared(files, extra, self._constants(files, extra) | workload_only)

    def candidate_changes(self) -> list[dict[str, Change]]:
        """Return what to change in a candidate's source: mappings for `sizes.replace`, one after the other, not strict.

        First the workload's sizes, then the lowered constants; a candidate's constants follow where they have the same
        name and hold the reference's value.
        """
        original = self._constants(self.files, self.extra)
        overrides: dict[str, Change] = {
            name: (original[name], value) for name, value in self.sizes.items() if name in original
        }
        lowered: dict[str, Change] = {}
        for full, change in self.edits.items():
            prefix, key = _split(full)
            if prefix != "workload:" and key.partition("#")[0] not in sizes.INPUT_FUNCTIONS:
                # The reference may assign a name twice; its last value is the one that counts.
                lowered[key.partition("@")[0]] = change
        return [overrides, lowered]

    # --- where constants live ----------------------------------------------------------------------------

    def _at_own_sizes(self) -> tuple[dict[str, str], str, dict[str, Scalar]]:
        """Apply the workload's sizes: return the files, the extra text, and the sizes that name no constant."""
        files, extra, rest = dict(self.files), self.extra, dict(self.sizes)
        for prefix, text, names in self._texts(files, extra):
            changes: dict[str, Change] = {
                constant.key: (constant.value, self.sizes[constant.name])
                for constant in _find(text, prefix or self.module_path)
                if constant.name in self.sizes and (names is None or constant.name in names)
            }
            changed = sizes.replace(text, changes)[0]
            if prefix == "extra:":
                extra = changed
            else:
                files[prefix.removesuffix(":") or self.module_path] = changed
            for key in changes:
                rest.pop(key.partition("@")[0], None)
        if rest and self.format == "kernelbench":
            known = sorted(self._constants(self.files, self.extra))
            valid = (
                f"its constants are {', '.join(known)}"
                if known
                else "it has no size constants at module level"
            )
            raise TaskFault("sizes", f"the reference has no constant {', '.join(sorted(rest))}; {valid}")
        return files, extra, rest

    def _constants(self, files: Mapping[str, str], extra: str) -> dict[str, Scalar]:
        """Return the constants that the entry sees, by name; those of the extra text win."""
        result: dict[str, Scalar] = {}
        for prefix, text, names in reversed(self._texts(files, extra)):
            found = {constant.name: constant.value for constant in _find(text, prefix or self.module_path)}
            result |= {
                name: value for name, value in found.items() if name and (names is None or name in names)
            }
        return result

    def _texts(self, files: Mapping[str, str], extra: str) -> list[tuple[str, str, frozenset[str] | None]]:
        """Return the texts that hold constants: prefix of their keys, text, and the names taken (None: all).

        The extra text comes first, then the entry's module, then modules from which that imports names.
        """
        path = self.module_path
        texts: list[tuple[str, str, frozenset[str] | None]] = [("", files[path], None)]
        if extra:
            texts.insert(0, ("extra:", extra, None))
        imported: dict[str, set[str]] = {}
        for text in (extra, files[path]):
            _find(text, path)  # raises what a text that is not Python raises
            for module, name in _imported_names(text, self.module, is_package=path.endswith("__init__.py")):
                source = _path_of(module, files)
                if source is not None and source != path:
                    imported.setdefault(source, set()).add(name)
        texts += [(f"{source}:", files[source], frozenset(names)) for source, names in imported.items()]
        return texts


# --- helpers ---------------------------------------------------------------------------------------------


def _bad(detail: str) -> TaskFault:
    return TaskFault("content", detail)


def _shape_of(message: object) -> str:
    """Describe a message that is none, without its texts."""
    if isinstance(message, dict):
        return f"one with {', '.join(sorted(map(repr, message))) or 'nothing'}"
    return type(message).__name__


def _is_text(text: str) -> bool:
    """Tell whether UTF-8 can hold a string: lone surrogates, which JSON allows, it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_file(path: object, text: object) -> None:
    """Refuse paths that could leave the folder, and texts that UTF-8 cannot hold."""
    if not isinstance(path, str) or not isinstance(text, str):
        raise _bad("files is a dict of relative path to text")
    parts = PurePosixPath(path).parts
    if (
        not parts
        or path != "/".join(parts)
        or ".." in parts
        or "\\" in path
        or "\0" in path
        or not _is_text(path)
    ):
        raise _bad(f"files has the path {path!r}; paths are relative, with / and without . and ..")
    if not path.endswith(".py"):
        raise _bad(f"files has {path!r}; only Python sources can be sent")
    if not _is_text(text):
        raise _bad(f"{path} holds characters that UTF-8 cannot hold")


def _checked_sizes(value: object) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise _bad("sizes is a dict of name to value")
    for name, size in value.items():
        if (
            not isinstance(name, str)
            or not name.isidentifier()
            or not isinstance(size, (int, float, str, bool))
        ):
            raise _bad(f"sizes has {name!r}: {size!r}; a size is a number, text or truth value with a name")
    return dict(value)


def _checked_edits(value: object) -> dict[str, tuple[int, int]]:
    if not isinstance(value, dict):
        raise _bad("edits is a dict of key to [old, new]")
    for key, change in value.items():
        pair = isinstance(change, (list, tuple)) and len(change) == 2 and all(type(n) is int for n in change)
        if not isinstance(key, str) or not pair:
            raise _bad(f"edits has {key!r}: {change!r}; an edit is [old, new], two integers")
    return {key: (change[0], change[1]) for key, change in value.items()}


def _find(text: str, path: str) -> tuple[sizes.Constant, ...]:
    """Find constants; a text that is not Python is the task's fault."""
    try:
        return sizes.find(text)
    except SyntaxError as error:
        raise TaskFault("syntax", f"{path.removesuffix(':')}: {error.msg}", error.lineno or 0) from error
    except (ValueError, RecursionError) as error:  # a null character; nesting no parser takes
        raise TaskFault("syntax", f"{path.removesuffix(':')}: {error}") from error


def _split(key: str) -> tuple[str, str]:
    """Split the key of an edit into its prefix, with the colon, and the constant's own key."""
    # An element's key may hold a colon inside quotes (`CONFIG['a:b']`), a prefix holds no bracket.
    head = key.partition("[")[0]
    prefix = head[: head.rindex(":") + 1] if ":" in head else ""
    return prefix, key.removeprefix(prefix)


def _path_of(module: str, files: Mapping[str, str]) -> str | None:
    """Return the file that holds a module, or None."""
    base = module.replace(".", "/")
    return next((path for path in (f"{base}/__init__.py", f"{base}.py") if path in files), None)


def _imported_names(text: str, module: str, *, is_package: bool) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of what a text imports by `from ... import` at its top level."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            source = absolute_name(node.module or "", node.level, module, is_package=is_package)
            if source:
                yield from ((source, alias.name) for alias in node.names)


def absolute_name(name: str, level: int, module: str, *, is_package: bool) -> str | None:
    """Return the absolute name of what a module imports, or None beyond its top-level package.

    Args:
        name: As written after the dots; may be empty.
        level: Number of leading dots.
        module: Dotted name of the importing module.
        is_package: Whether that is a package's `__init__.py`.
    """
    if level == 0:
        return name
    parts = module.split(".")
    keep = len(parts) - level + is_package
    return ".".join([*parts[:keep], *([name] if name else [])]) if keep > 0 else None
