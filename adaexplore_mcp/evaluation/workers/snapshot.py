"""Import a task's sources from real files, under their own names, and only while they are in use.

The files lie below a folder that the caller chose, so that `inspect`, `linecache` and `triton.jit` find their text.
Nothing stays importable outside `Snapshot.active`, and no compiled file is read or written: two versions of a source
within one second and of one length would be taken for each other.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["PROVIDED", "Snapshot"]

PROVIDED = sys.stdlib_module_names | {"numpy", "torch", "triton"}
"""Top-level modules that a task's files never stand in for."""


class Snapshot(importlib.abc.MetaPathFinder):
    """The sources of one task as importable modules.

    Args:
        folder: Where the files are written; created if missing.
        files: By relative path, the text.
    """

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder.resolve()
        self._names = {path.split("/")[0].removesuffix(".py") for path in files} - PROVIDED
        self._modules: dict[str, ModuleType] = {}
        self._hidden: dict[str, ModuleType] = {}
        self._depth = 0
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())

    def holds(self, module: str) -> bool:
        """Tell whether a module's top-level package is one of this snapshot."""
        return module.partition(".")[0] in self._names

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make the modules importable; they hide others of the same names. May be nested."""
        self._depth += 1
        if self._depth == 1:
            # A part of a package is there only where the package is.
            self._hidden = {} if self._names.isdisjoint(sys.modules) else self._taken()
            sys.modules.update(self._modules)
            sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                sys.meta_path.remove(self)
                self._modules = self._taken()
                sys.modules.update(self._hidden)

    def load(self, module: str) -> ModuleType:
        """Import a module; must be active."""
        return importlib.import_module(module)

    def run_after(self, module: ModuleType, text: str) -> ModuleType:
        """Run a text in a new module that sees the names of another one; must be active.

        The new module is called like the other with `__extra` appended, and its file lies in the snapshot's folder.
        """
        name = f"{module.__name__}__extra"
        path = self.folder / f"{name}.py"
        path.write_bytes(text.encode())
        extra = ModuleType(name)
        extra.__dict__.update({key: value for key, value in vars(module).items() if not _is_special(key)})
        extra.__file__ = str(path)
        extra.__package__ = module.__package__
        self._names.add(name.partition(".")[0])
        sys.modules[name] = extra
        exec(compile(text, path, "exec", dont_inherit=True), extra.__dict__)  # noqa: S102 - running it is the purpose
        return extra

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module among the files; other names are left to the next finder."""
        del target
        if not self.holds(fullname):
            return None
        for place in [str(self.folder)] if path is None else path:
            # A new finder each time: a kept one answers from a listing that may be older than the files.
            spec = importlib.machinery.FileFinder(place, (_Source, [".py"])).find_spec(fullname)
            if spec is not None:
                return spec
        return None

    def _taken(self) -> dict[str, ModuleType]:
        """Take this snapshot's names out of the table of modules and return them."""
        likely = tuple(self._names)  # of thousands of modules few begin so
        return {
            name: sys.modules.pop(name)
            for name in list(sys.modules)
            if name.startswith(likely) and self.holds(name)
        }


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Source(importlib.abc.SourceLoader):
    """Compiles a file as UTF-8, whatever encoding it declares, and keeps nothing on disk."""

    def __init__(self, fullname: str, path: str) -> None:
        del fullname
        self._path = path

    def get_filename(self, fullname: str) -> str:
        del fullname
        return self._path

    def get_data(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def get_code(self, fullname: str) -> CodeType:
        # From text: compiling bytes would obey a declared encoding.
        del fullname
        text = self.get_data(self._path).decode("utf-8")
        return compile(text, self._path, "exec", dont_inherit=True)
