from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakelog.metadata.errors import MetadataUnsupported
from lakelog.metadata.store import filesystem
from lakelog.metadata.store.filesystem import file_system_type, refuse_network_file_system

MOUNTS = """\
22 28 0:20 / /proc rw shared:14 - proc proc rw
28 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
40 28 0:35 / /mnt/share rw - nfs4 server:/share rw,vers=4.2
"""


@pytest.mark.parametrize(
    ("device", "kind"), [("254:0", "ext4"), ("0:35", "nfs4"), ("9:9", None), ("/", None)]
)
def test_the_type_is_that_of_the_device(device: str, kind: str | None) -> None:
    assert file_system_type(MOUNTS, device) == kind


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("ext4", False),
        ("fuse.mergerfs", False),
    ],
)
def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 {os.major(device)}:{os.minor(device)} / / rw - {kind} x rw\n")
    monkeypatch.setattr(filesystem, "_MOUNTS", mounts)
    if refused:
        with pytest.raises(MetadataUnsupported, match=kind):
            refuse_network_file_system(tmp_path)
    else:
        refuse_network_file_system(tmp_path)


def test_unreadable_mounts_refuse_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "_MOUNTS", tmp_path / "none")
    refuse_network_file_system(tmp_path)
