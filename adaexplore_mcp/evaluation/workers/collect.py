"""Find out which files of a user's package a task consists of, by reading them; nothing is executed.

Taken are the entry's file, everything it imports that lies below the import root, and what those files import. Not seen
are imports made at run time (`importlib.import_module`), compiled extensions and data files.
"""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adaexplore_mcp.evaluation.workers.content import TaskFault, absolute_name
from adaexplore_mcp.evaluation.workers.snapshot import PROVIDED

__all__ = ["MAX_BYTES", "MAX_FILES", "Collected", "collect"]

MAX_FILES = 400
MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Collected:
    """The sources of a task.

    Args:
        files: Relative path with `/` to text.
        module: Dotted name of the entry's module.
        import_root: Folder that the paths are relative to.
    """

    files: dict[str, str]
    module: str
    import_root: Path


def collect(entry: Path, import_root: Path) -> Collected:
    """Read the entry's file and all sources it needs.

    Args:
        entry: A Python file below the import root.
        import_root: Folder that absolute imports start from. Folders below it without `__init__.py` are namespace
            packages.

    Raises:
        TaskFault: reason files or syntax: a file lies outside the root, cannot be read, is no UTF-8 text or no Python, or
            there are more than 400 files or 4 MiB.
    """
    entry = _absolute(entry)
    root = _absolute(import_root)
    try:
        path = entry.relative_to(root)
    except ValueError as error:
        raise TaskFault("files", f"{entry} does not lie below import_root {root}") from error
    if path.suffix != ".py" or any("." in part for part in (*path.parts[:-1], path.stem)):
        raise TaskFault(
            "files", f"{path} cannot be imported: a path of names without dots that ends in .py can"
        )
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if module.partition(".")[0] in PROVIDED:
        raise TaskFault(
            "files", f"{path} has the name of an installed module; rename it or choose another import_root"
        )
    collector = _Collector(root)
    collector.run(module, path)
    return Collected(collector.files, module, root)


def _absolute(path: Path) -> Path:
    """Return an absolute path without `..`, links as they are: modules are named by how they are reached."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


class _Collector:
    """Reads files and follows their imports."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, str] = {}
        self._root = root
        self._real_root = root.resolve()
        self._bytes = 0
        self._pending: list[tuple[str, Path]] = []

    def run(self, module: str, path: Path) -> None:
        self._packages(module)
        self._add(module, path)
        while self._pending:
            name, file = self._pending.pop(0)
            for imported in self._imports(name, file):
                self._follow(imported)

    def _follow(self, module: str) -> None:
        """Take a module, if it lies below the root, and the packages around it."""
        if module.partition(".")[0] in PROVIDED:
            return
        base = Path(*module.split("."))
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if (self._root / path).exists():
                self._packages(module)
                self._add(module, path)
                return

    def _packages(self, module: str) -> None:
        """Take the `__init__.py` of each package around a module."""
        parts = module.split(".")
        for depth in range(1, len(parts)):
            path = Path(*parts[:depth], "__init__.py")
            if (self._root / path).exists():
                self._add(".".join(parts[:depth]), path)

    def _add(self, module: str, path: Path) -> None:
        key = path.as_posix()
        if key in self.files:
            return
        if len(self.files) >= MAX_FILES:
            raise TaskFault("files", f"the task needs more than {MAX_FILES} files; name a smaller entry")
        self.files[key] = self._read(path)
        self._pending.append((module, path))

    def _read(self, path: Path) -> str:
        real = (self._root / path).resolve()
        if not real.is_relative_to(self._real_root):
            raise TaskFault("files", f"{path} is a link that leads out of import_root {self._root}")
        if not real.is_file():
            raise TaskFault("files", f"{self._root / path} is no file")
        try:
            with real.open("rb") as file:
                content = file.read(MAX_BYTES - self._bytes + 1)
        except OSError as error:
            raise TaskFault("files", f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            raise TaskFault(
                "files", f"the task's files have more than {MAX_BYTES >> 20} MiB; the last was {path}"
            )
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise TaskFault("files", f"{path} is not UTF-8: {error.reason}", line) from error

    def _imports(self, module: str, path: Path) -> Iterator[str]:
        """Yield absolute names of what a file imports, and of what those may be modules of."""
        text = self.files[path.as_posix()]
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise TaskFault("syntax", f"{path}: {error.msg}", error.lineno or 0) from error
        except (ValueError, RecursionError) as error:  # a null character; nesting no parser takes
            raise TaskFault("syntax", f"{path}: {error}") from error
        for node in _executed(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    parts = alias.name.split(".")
                    yield from (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
            elif isinstance(node, ast.ImportFrom):
                source = absolute_name(
                    node.module or "", node.level, module, is_package=path.name == "__init__.py"
                )
                if source is None:
                    dots = "." * node.level
                    detail = (
                        f"{path} imports from {dots}{node.module or ''}, above import_root {self._root}; "
                    )
                    raise TaskFault("files", detail + "give an import_root further up", node.lineno)
                yield source
                yield from (f"{source}.{alias.name}" for alias in node.names if alias.name != "*")


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a syntax tree without the branches for type checkers and for running as a script."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and _is_skipped(node.test):
            pending.extend(node.orelse)
        else:
            pending.extend(ast.iter_child_nodes(node))


def _is_skipped(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(
            left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
        ):
            return True
    return False
