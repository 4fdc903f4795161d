"""`meta.properties` of a data folder and `partition.metadata` of a log.

    meta.properties          partition.metadata
    version=1                version: 0
    cluster.id=<id>          topic_id: <22 characters>
    node.id=<number>
    directory.id=<22 characters>
    # crc32c=<8 hexadecimal digits, of the lines above>

Source: `MetaProperties` and `PartitionMetadataFile` of `org.apache.kafka`.
"""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.records import crc

_CHECKSUM = b"# crc32c="
META_PROPERTIES = "meta.properties"


class MetaProperties(NamedTuple):
    """Cluster and node that own a data folder, and its own id."""

    cluster_id: str
    node_id: int
    directory_id: bytes


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Return the content of `meta.properties`, Kafka's format and a checksum in a comment."""
    body = (
        "version=1\n"
        f"cluster.id={meta.cluster_id}\n"
        f"node.id={meta.node_id}\n"
        f"directory.id={encode_uuid(meta.directory_id)}\n"
    ).encode()
    return body + _CHECKSUM + b"%08x\n" % crc.crc32c(body)


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Return the properties. Raises `ValueError` with the reason.

    Files of Apache Kafka and of older versions have no checksum.
    """
    body, mark, checksum = data.partition(_CHECKSUM)
    if mark and checksum != b"%08x\n" % crc.crc32c(body):
        raise ValueError("its checksum does not match")
    values = {}
    for line in body.decode("ascii").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", "!")):
            values[key.strip()] = value.strip()
    if values.get("version") != "1":
        raise ValueError(f"version {values.get('version')!r} is not known")
    try:
        return MetaProperties(
            values["cluster.id"], int(values["node.id"]), decode_uuid(values["directory.id"])
        )
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Return the content of `partition.metadata`, in Kafka's format (KIP-516)."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """Return the topic id. Raises `ValueError` with the reason."""
    lines = data.decode("ascii").splitlines()
    if len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise ValueError("it is not two lines with version 0 and a topic id")
    return decode_uuid(lines[1].removeprefix("topic_id: "))
