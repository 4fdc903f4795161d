from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.local_cluster.folder import ClusterFolder


def code_of(path: Path) -> str:
    with pytest.raises(CliError) as caught, ClusterFolder(path).held():
        pass
    return caught.value.code


def test_one_process_holds_the_folder(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "new" / "folder")
    with folder.held():
        assert code_of(folder.path) == "LL0701"
    with folder.held():
        pass
    assert folder.broker(2) == folder.path / "broker-2"


def test_the_folder_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    assert code_of(tmp_path) == "LL0703"


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert code_of(tmp_path / "file") == "LL0703"


def test_the_brokers_of_a_folder_are_known_by_their_folders(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path)
    for name in ("broker-2", "broker-10", "broker-x", "zookeeper"):
        (tmp_path / name).mkdir()
    assert folder.node_ids() == {2, 10}
