from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.tables.iceberg.warehouse import Warehouse, is_remote, open_warehouse


def test_a_folder_has_its_catalog_itself(tmp_path: Path) -> None:
    house = tmp_path / "house"
    for location in (str(house), house.as_uri()):
        assert open_warehouse(location) == Warehouse(house.as_uri(), house)
    assert house.is_dir()
    assert list(house.iterdir()) == []


def test_a_path_that_pyiceberg_cannot_write_to_is_refused(tmp_path: Path) -> None:
    house = tmp_path / "a house"
    for location in (str(house), house.as_uri()):
        with pytest.raises(ValueError, match=r"a house' has a space or another character"):
            open_warehouse(location)
    assert not house.exists()


def test_the_catalog_may_be_elsewhere(tmp_path: Path) -> None:
    warehouse = open_warehouse(str(tmp_path / "tables"), str(tmp_path / "catalog"))
    assert warehouse.catalog == {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog/catalog.db",
        "warehouse": f"file://{tmp_path}/tables",
    }
    assert (tmp_path / "catalog").is_dir()


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "abfs", "abfss", "hdfs"])
def test_tables_elsewhere_need_a_folder_for_the_catalog(tmp_path: Path, scheme: str) -> None:
    location = f"{scheme}://lake/house/"
    assert is_remote(location)
    with pytest.raises(ValueError, match="needs a local folder"):
        open_warehouse(location)
    assert open_warehouse(location, str(tmp_path)) == Warehouse(location[:-1], tmp_path)


def test_a_uri_that_nothing_writes_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'ftp://lake/house'.*one of s3://, "):
        open_warehouse("ftp://lake/house", str(tmp_path))


@pytest.mark.parametrize("where", ["file", "file/below", "/proc"])
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot write to the warehouse folder /"):
        open_warehouse(str(tmp_path / where))
    with pytest.raises(ValueError, match="cannot write to the warehouse folder /"):
        open_warehouse(str(tmp_path), str(tmp_path / where))
