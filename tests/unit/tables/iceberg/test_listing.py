from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyiceberg.io import FileIO

from lakelog.tables.iceberg.listing import stored_files


def test_files_have_the_paths_of_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "data" / "day=1" / "a.parquet").write_bytes(b"123")
    (found,) = stored_files(cast("FileIO", None), f"{tmp_path.as_uri()}/data")
    assert (found.path, found.size) == (f"{tmp_path.as_uri()}/data/day=1/a.parquet", 3)
    assert list(stored_files(cast("FileIO", None), f"{tmp_path.as_uri()}/none")) == []


def test_a_store_without_a_list_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be listed"):
        list(stored_files(cast("FileIO", None), "s3://bucket/table"))
