"""Tell whether a folder lies on a network file system, where SQLite's locks and shared memory do not hold."""

import re
from pathlib import Path, PurePosixPath

__all__ = ["file_system_of", "is_network"]

NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "mmfs",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
    }
)
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuseblk", "fuse.bindfs", "fuse.gocryptfs"})
MOUNTS = Path("/proc/self/mountinfo")


def is_network(file_system: str) -> bool:
    """Say whether a file system of this type may be shared between machines.

    An unknown FUSE file system counts as one: sshfs, rclone, s3fs, gcsfuse, juicefs and their like are many.
    """
    return file_system in NETWORK or (file_system.startswith("fuse") and file_system not in LOCAL_FUSE)


def file_system_of(folder: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds a folder, such as ext4; empty where it is not known.

    Args:
        folder: A resolved path; its last parts need not exist yet.
        mounts: Text in the form of /proc/self/mountinfo, by default that file.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return ""
    found, depth = "", -1
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        point = PurePosixPath(_unescape(fields[4]))
        # Among equals the last one wins: it was mounted over the others.
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = after.split()[0], len(point.parts)
    return found


def _unescape(field: str) -> str:
    """Undo the kernel's octal escapes of blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
