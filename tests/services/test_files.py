import os

import pytest

from adaexplore_mcp.errors import NotFoundError, RequestError
from adaexplore_mcp.services.files import allowed_folder, allowed_path, read_file
from adaexplore_mcp.services.messages import shortened


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "ops.py").write_bytes(b"\xff source")
    (tmp_path / "secret.py").write_text("not yours")
    return root.resolve()


def test_a_file_is_found_by_absolute_and_by_relative_path(root):
    assert allowed_path(str(root / "pkg/ops.py"), [root]) == root / "pkg/ops.py"
    assert allowed_path("pkg/ops.py", [root]) == root / "pkg/ops.py"
    assert read_file(root / "pkg/ops.py", [root]) == b"\xff source"


def test_a_relative_path_is_looked_for_in_every_root(root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert allowed_path("pkg/ops.py", [other.resolve(), root]) == root / "pkg/ops.py"


@pytest.mark.parametrize(
    "path", ["../secret.py", "pkg/../../secret.py", "/etc/passwd", "/", "..", "../nothing_here"]
)
def test_a_path_out_of_the_roots_is_refused_whether_or_not_it_exists(root, path):
    with pytest.raises(RequestError, match=r"outside the folders.*--root") as caught:
        allowed_path(path, [root])
    assert str(root) in str(caught.value)


def test_a_link_out_of_the_roots_is_refused(root, tmp_path):
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    (root / "folder").symlink_to(tmp_path)
    for path in ("link.py", "folder/secret.py"):
        with pytest.raises(RequestError, match="outside the folders"):
            allowed_path(path, [root])


def test_a_link_inside_the_roots_is_followed(root):
    (root / "link.py").symlink_to("pkg/ops.py")
    assert allowed_path("link.py", [root]) == root / "pkg/ops.py"


def test_a_link_put_in_place_after_the_check_is_not_followed(root, tmp_path):
    file = allowed_path("pkg/ops.py", [root])
    file.unlink()
    file.symlink_to(tmp_path / "secret.py")
    with pytest.raises(RequestError, match="cannot be read"):
        read_file(file, [root])


def test_a_folder_swapped_for_a_link_after_the_check_is_not_followed(root, tmp_path):
    (root / "pkg" / "secret.py").write_text("mine")
    file = allowed_path("pkg/secret.py", [root])
    (root / "pkg").rename(root / "moved")
    (root / "pkg").symlink_to(tmp_path)
    with pytest.raises(RequestError, match="leads outside"):
        read_file(file, [root])


@pytest.mark.parametrize(
    "path", ["pkg/opps.py", "nothing", "a\0b", "x" * 5000, "~nobody_of_this_name/x", "pkg/ops.py/x"]
)
def test_a_missing_file_is_an_error_with_a_short_value(root, path):
    with pytest.raises(NotFoundError) as caught:
        allowed_path(path, [root])
    assert len(str(caught.value)) < 600


def test_the_nearest_file_name_is_offered(root):
    with pytest.raises(NotFoundError, match=r"there is 'ops\.py' in that folder"):
        allowed_path("pkg/opss.py", [root])


def test_a_loop_of_links_is_an_error(root):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(NotFoundError):
        allowed_path("a", [root])


def test_only_regular_files_are_read(root):
    os.mkfifo(root / "fifo")
    for name in ("fifo", "pkg"):
        with pytest.raises(RequestError):
            read_file(allowed_path(name, [root]), [root])


def test_a_device_is_not_read(tmp_path):
    with pytest.raises(RequestError, match="not a regular file"):
        read_file(allowed_path("/dev/zero", [tmp_path.__class__("/dev")]), [tmp_path.__class__("/dev")])


def test_a_large_file_is_refused(root):
    (root / "large.py").write_bytes(b"#" * 1_048_577)
    with pytest.raises(RequestError, match="larger than 1024 KiB"):
        read_file(root / "large.py", [root])
    (root / "large.py").write_bytes(b"#" * 1_048_576)
    assert len(read_file(root / "large.py", [root])) == 1_048_576


def test_a_folder_must_be_one(root):
    assert allowed_folder("pkg", [root]) == root / "pkg"
    with pytest.raises(RequestError, match="is not a folder"):
        allowed_folder("pkg/ops.py", [root])


def test_a_value_in_a_message_is_one_short_line():
    assert shortened("a\nb") == r"'a\nb'"
    assert len(shortened("x" * 5000)) < 110
    assert "5000 characters" in shortened("x" * 5000)
