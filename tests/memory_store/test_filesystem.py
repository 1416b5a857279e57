from pathlib import Path

import pytest

from adaexplore_mcp.memory_store.filesystem import file_system_of, is_network

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:50 / /home rw,relatime - nfs4 filer:/home rw
31 27 0:51 / /mnt/my\\040share rw - cifs //server/share rw
32 30 8:1 / /home/local rw - xfs /dev/sda1 rw
33 27 0:52 / /over rw - nfs4 filer:/over rw
34 27 0:53 / /over rw - tmpfs tmpfs rw
a line that is not one
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/me/.local/share", "nfs4"),
        ("/home/local/me", "xfs"),
        ("/homework", "ext4"),
        ("/mnt/my share/x", "cifs"),
        ("/over/there", "tmpfs"),
    ],
)
def test_the_deepest_and_latest_mount_decides(folder, kind):
    assert file_system_of(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "gpfs", "ceph", "fuse.sshfs", "fuse.x"]
)
def test_a_network_file_system_is_known(kind):
    assert is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", ""])
def test_a_local_file_system_is_not_refused(kind):
    assert not is_network(kind)


def test_this_machine_tells_what_it_has():
    assert file_system_of(Path("/proc/self")) == "proc"
