import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaexplore_mcp.evaluation import scratch
from adaexplore_mcp.evaluation.scratch import ScratchError, ScratchFolder, remove_tree, sweep


def aged(folder):
    old = folder.stat().st_mtime - 10 * scratch.YOUNG_S
    os.utime(folder, (old, old))
    return folder


def test_a_folder_is_private_and_goes_when_it_is_closed(tmp_path):
    folder = ScratchFolder(tmp_path / "base")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "left").mkdir()
    folder.close()
    assert list((tmp_path / "base").iterdir()) == []


def test_what_a_killed_server_left_is_swept_and_a_living_one_is_not(tmp_path):
    code = (
        "import sys, pathlib, time; from adaexplore_mcp.evaluation.scratch import ScratchFolder;"
        "f = ScratchFolder(pathlib.Path(sys.argv[1])); print(f.path, flush=True); time.sleep(60)"
    )
    dead = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    left = dead.stdout.readline().strip()
    dead.kill()
    dead.wait()
    dead.stdout.close()
    living = ScratchFolder(tmp_path)
    for folder in tmp_path.iterdir():
        aged(folder)
    assert sweep(tmp_path) == 1
    assert not Path(left).exists()
    assert living.path.exists()
    living.close()


def test_a_young_folder_is_left_alone_since_its_server_may_not_have_locked_it_yet(tmp_path):
    (tmp_path / "young").mkdir()
    assert sweep(tmp_path) == 0
    assert (tmp_path / "young").exists()


def test_a_tree_is_removed_whatever_was_done_to_it(tmp_path):
    tree = tmp_path / "tree"
    deep = tree
    for _ in range(300):
        deep /= "d"
    deep.mkdir(parents=True)
    (tree / "locked").mkdir()
    (tree / "locked" / "file").write_text("x")
    (tree / "locked").chmod(0)
    remove_tree(tree)
    assert not tree.exists()


def test_a_base_that_is_a_link_or_someone_elses_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ScratchError, match="is a link"):
        ScratchFolder(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchError, match="cannot make"):
        ScratchFolder(tmp_path / "file" / "below")
