from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from lakelog.tables.iceberg.data_file import FolderUnwritableError, LocalFile, RemoteFile, data_file
from lakelog.tables.iceberg.warehouse import WarehouseFullError
from small_disk import SmallDisk


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The paths that were synced, with their sizes at that time."""
    found: list[tuple[str, int]] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        found.append(
            (str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size)
        )
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_a_file_is_durable_before_the_folder_that_names_it(
    tmp_path: Path, synced: list[tuple[str, int]]
) -> None:
    path = tmp_path / "new folder" / "a.parquet"
    with data_file(path.as_uri(), {}).writing() as file:
        file.write(b"rows")
    assert path.read_bytes() == b"rows"
    assert synced[0] == (str(path), 4)
    assert [where for where, _ in synced] == [str(path), str(path.parent)]


def test_the_location_is_a_uri_with_escapes(tmp_path: Path) -> None:
    path = tmp_path / "50% off #1.parquet"
    with data_file(path.as_uri(), {}).writing():
        pass
    assert path.exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"rows")
    with pytest.raises(FileExistsError), LocalFile(path.as_uri()).writing():
        pass
    assert path.read_bytes() == b"rows"


def test_a_file_is_not_synced_after_an_error(tmp_path: Path, synced: list[tuple[str, int]]) -> None:
    with pytest.raises(KeyError), LocalFile((tmp_path / "a").as_uri()).writing():
        raise KeyError
    assert synced == []


def test_removal_accepts_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    file = data_file(path.as_uri(), {})
    for _ in range(2):
        file.remove()
    assert not path.exists()


def test_a_file_in_a_store_is_written_and_removed_through_its_io(tmp_path: Path) -> None:
    """With the local files of PyIceberg in the place of a store."""
    path = tmp_path / "a"
    file = RemoteFile(path.as_uri(), {})
    with file.writing() as output:
        output.write(b"rows")
    assert path.read_bytes() == b"rows"
    for _ in range(2):
        file.remove()
    assert not path.exists()


def test_only_local_schemes_are_files_of_this_host() -> None:
    assert isinstance(data_file("file:///a/b", {}), LocalFile)
    assert isinstance(data_file("s3://lake/b", {}), RemoteFile)


def test_a_folder_that_this_host_cannot_write_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    file = LocalFile((tmp_path / "data" / "new" / "1.parquet").as_uri())
    named = (
        rf"^host {socket.gethostname()} cannot write to the warehouse folder {tmp_path}/data/new: "
    )
    with pytest.raises(FolderUnwritableError, match=named), file.writing():
        pass


def test_a_full_disk_is_named_with_its_folder(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 1 << 20) as disk:
        path = disk.seen_folder / "1.parquet"
        with (
            pytest.raises(WarehouseFullError, match=r"No space left on device\. Free space there"),
            LocalFile(path.as_uri()).writing() as file,
        ):
            file.write(bytes(4 << 20))
            file.flush()


def test_an_exceeded_quota_is_a_full_disk(tmp_path: Path) -> None:
    with (
        pytest.raises(WarehouseFullError, match=r"Disk quota exceeded\. Free space there"),
        LocalFile((tmp_path / "1.parquet").as_uri()).writing(),
    ):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_other_errors_of_the_caller_keep_their_type(tmp_path: Path) -> None:
    with (
        pytest.raises(ConnectionError, match="a broker"),
        LocalFile((tmp_path / "1.parquet").as_uri()).writing(),
    ):
        raise ConnectionError("a broker")
