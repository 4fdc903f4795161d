"""The two small files that name the owner of a folder and the topic of a log."""

from __future__ import annotations

import pytest

from lakelog.base.uuids import encode_uuid
from lakelog.storage.folder.properties import (
    MetaProperties,
    decode_meta_properties,
    decode_partition_metadata,
    encode_meta_properties,
    encode_partition_metadata,
)

ID = bytes(range(16))
META = MetaProperties("cluster", 3, ID)


def test_files_are_read_as_they_were_written() -> None:
    assert decode_meta_properties(encode_meta_properties(META)) == META
    assert decode_partition_metadata(encode_partition_metadata(ID)) == ID


def test_a_file_of_apache_kafka_has_no_checksum() -> None:
    data = f"#Wed\nnode.id=3\ndirectory.id={encode_uuid(ID)}\nversion=1\ncluster.id=cluster\n"
    assert decode_meta_properties(data.encode()) == META


@pytest.mark.parametrize("line", [b"cluster.id", b"node.id", b"directory.id"])
def test_each_property_is_needed(line: bytes) -> None:
    body = encode_meta_properties(META).partition(b"#")[0]
    with pytest.raises(ValueError, match="missing"):
        decode_meta_properties(body.replace(line, b"other"))


def test_a_changed_byte_is_noticed() -> None:
    with pytest.raises(ValueError, match="checksum"):
        decode_meta_properties(encode_meta_properties(META).replace(b"=3", b"=4"))


@pytest.mark.parametrize(
    "data", [b"", b"version: 1\ntopic_id: x", b"version: 0", b"version: 0\nid: x"]
)
def test_other_content_is_no_partition_metadata(data: bytes) -> None:
    with pytest.raises(ValueError, match="two lines"):
        decode_partition_metadata(data)
