"""Rejects folders on network file systems: SQLite relies on local locks and shared memory."""

from __future__ import annotations

import os
from pathlib import Path

from lakelog.metadata.errors import MetadataUnsupported

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)
_NETWORK_FUSE = ("s3", "sshfs", "gluster", "ceph", "rclone", "gcsfuse", "blobfuse", "juicefs")


def refuse_network_file_system(folder: Path) -> None:
    """Raise `MetadataUnsupported` if `folder` is on a network file system.

    Where the list of mounts cannot be read, every folder is accepted.
    """
    try:
        device = folder.stat().st_dev
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    kind = file_system_type(mounts, f"{os.major(device)}:{os.minor(device)}")
    if kind is not None and _is_network(kind):
        raise MetadataUnsupported(
            f"{folder} is on a network file system ({kind}), which can lose or corrupt metadata; "
            "choose a folder on a local disk"
        )


def file_system_type(mounts: str, device: str) -> str | None:
    """Return the type of the file system on `device` ("MAJOR:MINOR"), or none if it is not mounted.

    `mounts` is the text of `/proc/<pid>/mountinfo` (proc(5)).
    """
    for line in mounts.splitlines():
        mount, separator, rest = line.partition(" - ")
        fields = mount.split()
        if separator and len(fields) > 2 and fields[2] == device:
            return rest.split()[0]
    return None


def _is_network(kind: str) -> bool:
    if kind.startswith("fuse."):
        return kind.removeprefix("fuse.").startswith(_NETWORK_FUSE)
    return kind in _NETWORK
