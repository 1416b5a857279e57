import os
import sys

import pytest

from adaexplore_mcp.evaluation.planning import package_root
from adaexplore_mcp.evaluation.workers import collect as module
from adaexplore_mcp.evaluation.workers.collect import collect
from adaexplore_mcp.evaluation.workers.content import TaskFault


def taken(path, import_root=None):
    return collect(path, import_root or package_root(path))


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def collected(root, files, entry, **options):
    write(root, files)
    return taken(root / entry, **options)


def fault(call):
    with pytest.raises(TaskFault) as caught:
        call()
    return caught.value


def test_a_single_file_is_a_task(tmp_path):
    result = collected(tmp_path, {"01-softmax.py": "import torch\n", "other.py": ""}, "01-softmax.py")
    assert result.files == {"01-softmax.py": "import torch\n"}
    assert (result.module, result.import_root) == ("01-softmax", tmp_path)


def test_the_root_is_the_nearest_folder_that_is_no_package(tmp_path):
    write(tmp_path, {"src/pkg/__init__.py": "", "src/pkg/sub/__init__.py": "", "src/pkg/sub/ops.py": ""})
    assert package_root(tmp_path / "src/pkg/sub/ops.py") == tmp_path / "src"
    result = taken(tmp_path / "src/pkg/sub/ops.py")
    assert result.module == "pkg.sub.ops"
    assert list(result.files) == ["pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/ops.py"]


def test_absolute_and_relative_imports_are_followed(tmp_path):
    files = {
        "pkg/__init__.py": "from .version import VERSION\n",
        "pkg/version.py": "VERSION = 1\n",
        "pkg/ops.py": "import pkg.a.b\nfrom . import c\nfrom .d import thing\nfrom pkg.e import f as g\n",
        "pkg/a/__init__.py": "",
        "pkg/a/b.py": "from ..h import x\n",
        "pkg/c.py": "",
        "pkg/d/__init__.py": "thing = 1\n",
        "pkg/e/__init__.py": "",
        "pkg/e/f.py": "",
        "pkg/h.py": "x = 1\n",
        "pkg/unused.py": "",
        "top.py": "",
    }
    result = collected(tmp_path, files, "pkg/ops.py")
    assert set(result.files) == set(files) - {"pkg/unused.py", "top.py"}
    assert result.files["pkg/version.py"] == "VERSION = 1\n"


def test_imports_inside_functions_are_followed_and_skipped_branches_not(tmp_path):
    source = (
        "from typing import TYPE_CHECKING\nimport typing\n"
        "def f():\n    try:\n        import lazy\n    except ImportError:\n        import fallback\n"
        "if TYPE_CHECKING:\n    import for_types\nelse:\n    import real\n"
        "if typing.TYPE_CHECKING:\n    import for_types\n"
        "if __name__ == '__main__':\n    import script\n"
    )
    names = ["lazy", "fallback", "for_types", "real", "script"]
    result = collected(tmp_path, {"ops.py": source} | {f"{name}.py": "" for name in names}, "ops.py")
    assert set(result.files) == {"ops.py", "lazy.py", "fallback.py", "real.py"}


def test_an_import_that_goes_round_ends(tmp_path):
    result = collected(tmp_path, {"a.py": "import b\n", "b.py": "import a\n"}, "a.py")
    assert set(result.files) == {"a.py", "b.py"}


def test_namespace_packages_work_with_a_root_given(tmp_path):
    files = {
        "space/part/ops.py": "from space.part import util\nfrom . import more\n",
        "space/part/util.py": "",
        "space/part/more.py": "",
    }
    result = collected(tmp_path, files, "space/part/ops.py", import_root=tmp_path)
    assert set(result.files) == set(files)
    assert result.module == "space.part.ops"


def test_a_package_may_be_the_entry(tmp_path):
    files = {"pkg/__init__.py": "from .ops import f\n", "pkg/ops.py": "f = 1\n"}
    assert collected(tmp_path, files, "pkg/__init__.py").module == "pkg"
    assert set(collected(tmp_path, files, "pkg/__init__.py").files) == set(files)


def test_a_package_goes_before_a_module_of_the_same_name(tmp_path):
    files = {"ops.py": "import both\n", "both.py": "", "both/__init__.py": ""}
    assert set(collected(tmp_path, files, "ops.py").files) == {"ops.py", "both/__init__.py"}


def test_installed_modules_are_not_looked_for_below_the_root(tmp_path):
    files = {
        "ops.py": "import torch\nimport json\nimport numpy.random\n",
        "torch.py": "",
        "json.py": "",
        "numpy/random.py": "",
    }
    assert set(collected(tmp_path, files, "ops.py").files) == {"ops.py"}


def test_nothing_is_executed(tmp_path):
    marker = tmp_path / "ran"
    collected(
        tmp_path, {"ops.py": f"open({str(marker)!r}, 'w')\nimport other\n", "other.py": "1 / 0\n"}, "ops.py"
    )
    assert not marker.exists()
    assert "other" not in sys.modules


def test_dots_in_the_path_of_the_entry_are_resolved(tmp_path):
    write(tmp_path, {"a/ops.py": "", "b/x.py": ""})
    assert taken(tmp_path / "b" / ".." / "a" / "ops.py").module == "ops"


@pytest.mark.parametrize(
    ("files", "entry", "told"),
    [
        ({}, "missing.py", "missing.py is no file"),
        ({"ops.txt": ""}, "ops.txt", "cannot be imported"),
        ({"conv.v2.py": ""}, "conv.v2.py", "cannot be imported"),
        ({"json.py": ""}, "json.py", "name of an installed module"),
        ({"ops.py": "from .. import far\n"}, "ops.py", "give an import_root further up"),
        ({"ops.py": "from . import near\n"}, "ops.py", "give an import_root further up"),
    ],
)
def test_what_cannot_be_taken_says_why(tmp_path, files, entry, told):
    error = fault(lambda: collected(tmp_path, files, entry))
    assert error.reason == "files"
    assert told in error.detail


def test_an_entry_outside_the_root_is_refused(tmp_path):
    write(tmp_path, {"a/ops.py": "", "b/x.py": ""})
    assert (
        "does not lie below import_root"
        in fault(lambda: collect(tmp_path / "a/ops.py", tmp_path / "b")).detail
    )


def test_errors_in_a_file_name_the_file_and_the_line(tmp_path):
    write(tmp_path, {"ops.py": "import bad\n", "bad.py": "x = 1\ny = = 2\n"})
    error = fault(lambda: taken(tmp_path / "ops.py"))
    assert (error.reason, error.line, error.detail) == ("syntax", 2, "bad.py: invalid syntax")
    (tmp_path / "bad.py").write_bytes(b"# ok\nx = '\xe9'\n")
    error = fault(lambda: taken(tmp_path / "ops.py"))
    assert (error.reason, error.line) == ("files", 2)
    assert "bad.py is not UTF-8" in error.detail
    (tmp_path / "bad.py").write_bytes(b"x = 1\0\n")
    assert fault(lambda: taken(tmp_path / "ops.py")).reason == "syntax"


def test_links_may_stay_inside_the_root_and_not_leave_it(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    write(root, {"ops.py": "import near\nimport linked\n", "real.py": "x = 1\n"})
    write(outside, {"secret.py": "password = 1\n", "pkg/__init__.py": ""})
    (root / "near.py").symlink_to(root / "real.py")
    (root / "linked.py").symlink_to(outside / "secret.py")
    error = fault(lambda: collect(root / "ops.py", root))
    assert "linked.py is a link that leads out of import_root" in error.detail
    (root / "linked.py").unlink()
    assert collect(root / "ops.py", root).files["near.py"] == "x = 1\n"
    (root / "linked").symlink_to(outside / "pkg")
    assert "leads out of" in fault(lambda: collect(root / "ops.py", root)).detail


def test_an_entry_that_is_a_link_out_of_the_root_is_refused(tmp_path):
    write(tmp_path, {"root/x.py": "", "secret.py": ""})
    (tmp_path / "root/ops.py").symlink_to(tmp_path / "secret.py")
    assert "leads out of" in fault(lambda: taken(tmp_path / "root/ops.py")).detail


def test_a_pipe_is_no_file(tmp_path):
    write(tmp_path, {"ops.py": "import pipe\n"})
    os.mkfifo(tmp_path / "pipe.py")
    assert "pipe.py is no file" in fault(lambda: taken(tmp_path / "ops.py")).detail


def test_the_number_of_files_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 3)
    files = {"ops.py": "import a, b, c\n", "a.py": "", "b.py": "", "c.py": ""}
    assert "more than 3 files" in fault(lambda: collected(tmp_path, files, "ops.py")).detail


def test_the_size_of_all_files_is_limited(tmp_path):
    files = {"ops.py": "import a, b\n", "a.py": "#" * (3 << 20), "b.py": "#" * (2 << 20)}
    error = fault(lambda: collected(tmp_path, files, "ops.py"))
    assert error.detail == "the task's files have more than 4 MiB; the last was b.py"


def test_what_was_collected_can_be_loaded(tmp_path):
    from adaexplore_mcp.evaluation.workers.content import TaskContent
    from adaexplore_mcp.evaluation.workers.task import load

    files = {
        "pkg/__init__.py": "",
        "pkg/config.py": "ROWS = 3\n",
        "pkg/ops.py": (
            "import torch\nfrom .config import ROWS\nfrom pkg.util import twice\n"
            "def op(x):\n    return twice(x)\n"
            "def make_inputs(workload, device, seed):\n    return [torch.ones(ROWS)]\n"
        ),
        "pkg/util.py": "def twice(x):\n    return x + x\n",
    }
    result = collected(tmp_path / "user", files, "pkg/ops.py")
    message = {"format": "function", "files": result.files, "module": result.module, "entry": "op"}
    task = load(TaskContent.from_wire(message), tmp_path / "worker")
    assert task.call(task.entry, task.inputs(0)).tolist() == [2, 2, 2]
