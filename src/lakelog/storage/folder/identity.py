"""The owner of a data folder: `meta.properties`, which only a new folder may lack."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from lakelog.base.events import event
from lakelog.base.uuids import encode_uuid, random_uuid
from lakelog.runtime.api import Disk, Random
from lakelog.storage.errors import WrongDirectory
from lakelog.storage.files import read_if_exists
from lakelog.storage.folder.properties import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from lakelog.storage.names import parse_dir_name

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
        _logger.warning(
            "rewriting %s with a checksum",
            path,
            extra=event("file_rebuilt", path=path),
        )
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
