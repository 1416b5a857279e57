"""The wheel as users get it: built from the sdist, installed beside a stranger's packages of the same names."""

import contextlib
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from processes import all_gone, descendants
from served import PATIENCE_S, environment, kernel, nothing_left, served

from adaexplore_mcp.tools import TOOLS

ROOT = Path(__file__).parents[1]
LINKED = ("tools", "memory_store", "prompts")
"""Folders at the top of the repository, which are no packages of that name once installed."""


def run(*command, **options):
    """Run a command that must succeed and return what it printed."""
    process = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    return process.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built as a release is: an sdist, and a wheel from that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    assert len(list(folder.glob("*.tar.gz"))) == 1
    (wheel,) = folder.glob("*.whl")
    return wheel


def stranger(folder):
    """Make a distribution of somebody else that owns our folders' names, and return its wheel."""
    name = "somebody_elses_tools"
    files = {f"{each}/__init__.py": "OWNER = 'somebody else'\n" for each in LINKED}
    about = f"{name}-1.0.dist-info"
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files[f"{about}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A fresh environment with both; what they depend on comes from the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet")
    run(*pip, "--disable-pip-version-check", "--no-compile", stranger(folder), wheel)
    (site,) = folder.glob("venv/lib/python3*/site-packages")
    # Afterwards, so that pip saw only the fresh environment. Files of the folders named here are found, but what
    # their own .pth files name is not: an editable installation of this project stays out.
    shared = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "shared.pth").write_text("\n".join(shared), encoding="utf-8")
    return folder / "venv"


def asked(installed, code, cwd):
    """Return what an expression is in the fresh environment."""
    command = (installed / "bin/python", "-c", f"import json; print(json.dumps({code}))")
    return json.loads(run(*command, cwd=cwd, env=environment(cwd)))


def test_every_file_of_the_package_is_in_the_wheel_under_one_name_and_nothing_else(wheel):
    expected = set()
    for folder, _, names in os.walk(ROOT / "adaexplore_mcp", followlinks=True):
        place = Path(folder).relative_to(ROOT)
        if "__pycache__" not in place.parts:
            expected |= {(place / name).as_posix() for name in names if not name.endswith(".pyc")}
    with zipfile.ZipFile(wheel) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        about = {entry.filename for entry in entries if ".dist-info/" in entry.filename}
        packed = {entry.filename for entry in entries} - about
        assert packed == expected
        assert {PurePosixPath(name).parts[0] for name in packed} == {"adaexplore_mcp"}
        for entry in entries:
            assert entry.external_attr >> 28 != 0o12, f"{entry.filename} is a link"
        assert any(name.endswith("/licenses/LICENSE") for name in about)
    for each in LINKED:
        assert any(name.startswith(f"adaexplore_mcp/{each}/") for name in packed)
    # What is no Python is forgotten most easily: what a model reads, and the built-in tasks.
    assert "adaexplore_mcp/prompts/instructions.md" in packed
    assert len([name for name in packed if name.endswith("/task.json")]) == 6


def test_packages_of_other_distributions_stay_their_owners(installed, tmp_path):
    imported = asked(installed, "__import__('adaexplore_mcp').__file__", tmp_path)
    assert Path(imported).is_relative_to(installed)
    for each in LINKED:
        assert asked(installed, f"__import__({each!r}).OWNER", tmp_path) == "somebody else"
        code = f"__import__('adaexplore_mcp.{each}', fromlist=['x']).__file__"
        assert Path(asked(installed, code, tmp_path)).parent == Path(imported).parent / each


def test_the_installed_command_judges_a_kernel_from_any_folder(installed, home, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tools.py").write_text("raise RuntimeError('the working folder is searched')\n")
    with served(home, command=[installed / "bin/adaexplore-mcp"], cwd=elsewhere) as server:
        assert len(server.ask("tools/list")["tools"]) == len(TOOLS)
        assert len(server.called("list_tasks")["tasks"]) == 6
        task_id = server.task()
        assert server.status(kernel(), task_id=task_id) == "correct"
        assert server.status(kernel("x - y"), task_id=task_id) == "incorrect"
        ours = descendants(server.process.pid)
        commands = []
        for process in ours:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                commands.append(Path(f"/proc/{process.pid}/cmdline").read_bytes())
        commands = [command for command in commands if command]  # none: it is about to be waited for
        assert commands
        assert all(bytes(installed) in command for command in commands)
        assert not any(bytes(ROOT / "adaexplore_mcp") in command for command in commands)
        server.process.stdin.close()
        assert server.wait() == 0
        all_gone(ours)
    nothing_left(home)


def test_the_installed_command_tells_its_version(installed, tmp_path):
    said = run(installed / "bin/adaexplore-mcp", "--version", cwd=tmp_path, env=environment(tmp_path))
    code = "__import__('importlib.metadata', fromlist=['x']).version('adaexplore-mcp')"
    assert said.strip() == asked(installed, code, tmp_path)
