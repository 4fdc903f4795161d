from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.folder import ClusterFolder


def code_of(path: Path, *, zookeeper: bool) -> str:
    with pytest.raises(CliError) as caught, ClusterFolder(path).held(zookeeper=zookeeper):
        pass
    return caught.value.code


def test_one_process_holds_the_folder(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "new" / "folder")
    with folder.held(zookeeper=False):
        assert code_of(folder.path, zookeeper=False) == "LL0701"
    with folder.held(zookeeper=False):
        pass
    assert folder.broker(2) == folder.path / "broker-2"


def test_the_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    assert code_of(tmp_path, zookeeper=False) == "LL0703"


def test_a_cluster_keeps_its_kind_of_metadata_store(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    folder.metadata.touch()
    assert code_of(tmp_path, zookeeper=True) == "LL0703"
    folder.metadata.unlink()
    folder.zookeeper.mkdir()
    assert code_of(tmp_path, zookeeper=False) == "LL0703"
