"""Whose a data folder is, and which topic a log's directory belongs to.

`meta.properties` names the owner of the folder; only a new folder may lack it.

    meta.properties          partition.metadata
    version=1                version: 0
    cluster.id=<id>          topic_id: <22 characters>
    node.id=<number>
    directory.id=<22 characters>
    # crc32c=<8 hexadecimal digits, of the lines above>

Two topic ids never look alike. So an id in `partition.metadata` that nearly equals that of the
topic named by the directory is that id, damaged. To treat it as the id of another topic would hide
the log.

Source: `MetaProperties` and `PartitionMetadataFile` of `org.apache.kafka`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lakelog.base.events import event
from lakelog.base.uuids import decode_uuid, encode_uuid, random_uuid
from lakelog.records import crc
from lakelog.runtime.api import Disk, Random
from lakelog.storage.checkpoint import KnownLog
from lakelog.storage.errors import CorruptLog, WrongDirectory
from lakelog.storage.files import PARTITION_METADATA, log_rebuild, parse_dir_name, read_if_exists

_logger = logging.getLogger(__name__)
_OWN = re.compile(r"\.lock|\.lakelog.*|lost\+found|boot-id|disk-reserve|metadata\..*|warehouse")
"""Files that a new data folder may have before its `meta.properties`."""
_NAMED_MAX = 3


def load_identity(
    disk: Disk, folder: Path, random: Random, cluster_id: str | None, node_id: int
) -> MetaProperties:
    """Return the folder's identity; write it to a new folder. Raises `WrongDirectory`.

    With a `cluster_id` of `None`, the folder's is used, or a new one. Raises `OSError` too.
    """
    path = folder / META_PROPERTIES
    data = read_if_exists(disk, path)
    if data is None:
        return _format(disk, folder, random, cluster_id, node_id)
    try:
        meta = decode_meta_properties(data)
    except ValueError as error:
        raise WrongDirectory(f"{path} cannot be used: {error}") from error
    if meta.node_id != node_id:
        raise WrongDirectory(f"{path} belongs to node {meta.node_id}, this is node {node_id}")
    if cluster_id not in (None, meta.cluster_id):
        raise WrongDirectory(
            f"{path} belongs to cluster {meta.cluster_id}, and the metadata store to cluster "
            f"{cluster_id}; use a new data folder, or the store of the folder's cluster"
        )
    if data != encode_meta_properties(meta):
        log_rebuild("rewriting %s with a checksum", path)
        disk.write_atomic(path, encode_meta_properties(meta))
    return meta


def _format(
    disk: Disk, folder: Path, random: Random, cluster_id: str | None, node_id: int
) -> MetaProperties:
    logs = [name for name in disk.list(folder) if parse_dir_name(name)]
    if logs:
        raise WrongDirectory(
            f"{folder} has logs ({logs[0]}) but no {META_PROPERTIES}: put it back, or use another "
            "folder if these are files of another program"
        )
    _warn_of_foreign(disk, folder)
    meta = MetaProperties(
        cluster_id or encode_uuid(random_uuid(random)), node_id, random_uuid(random)
    )
    disk.write_atomic(folder / META_PROPERTIES, encode_meta_properties(meta))
    return meta


def _warn_of_foreign(disk: Disk, folder: Path) -> None:
    """Log the files that a new folder has already; the broker leaves them alone."""
    names = sorted(name for name in disk.list(folder) if not _OWN.fullmatch(name))
    if names:
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        _logger.warning(
            "%s becomes the data folder, although it has other files: %s%s; they stay",
            folder,
            ", ".join(names[:_NAMED_MAX]),
            more,
            extra=event("foreign_files", path=folder, count=len(names)),
        )


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


TopicIdOf = Callable[[str], bytes | None]
"""The present id of a topic by its name."""
_DIFFERENT_MAX = 4
"""Of 22 characters; two random ids differ in nearly all."""


def no_topic(_: str) -> bytes | None:
    """Return `None` for every name: no topic exists."""
    return None


def topic_id_in(disk: Disk, folder: Path, recorded: bytes | None, present: bytes | None) -> bytes:
    """Return the topic id of the log in `folder`; rewrite the file if it was damaged.

    `recorded` is the id in `known-logs`, `present` that of the existing topic of this name. Raises
    `CorruptLog` if these do not decide it, and `OSError`.
    """
    path = folder / PARTITION_METADATA
    data = read_if_exists(disk, path)
    try:
        saved = decode_partition_metadata(data) if data is not None else None
        reason = "the file is missing"
    except ValueError as error:
        saved, reason = None, str(error)
    right = saved
    if present is not None and saved != present and (saved is None or _are_alike(saved, present)):
        right = present if present == recorded or saved is not None else None
    if right is None:
        raise CorruptLog(path, 0, reason)
    if right != saved:
        log_rebuild("%s is damaged; rebuilding it", path)
        disk.write_atomic(path, encode_partition_metadata(right))
    return right


def is_lost(disk: Disk, folder: Path, checkpoint: KnownLog, present: bytes | None) -> bool:
    """Return whether a power failure has emptied the file of a log without durable records.

    The first flush syncs the file too. The records may also belong to an older topic of this name
    whose deletion was lost as well, so the log is not assigned to `present`.
    """
    data = read_if_exists(disk, folder / PARTITION_METADATA)
    is_emptied = data is not None and not data.strip(b"\0")
    return is_emptied and present is not None and checkpoint.as_of(present).recovery_point == 0


def _are_alike(one: bytes, other: bytes) -> bool:
    pairs = zip(encode_uuid(one), encode_uuid(other), strict=True)
    return sum(a != b for a, b in pairs) <= _DIFFERENT_MAX
