"""The topic of a log's directory: `partition.metadata`, compared with other sources.

Two topic ids never look alike. So an id in the file that nearly equals that of the topic named by
the directory is that id, damaged. To treat it as the id of another topic would hide the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from lakelog.base.events import event
from lakelog.base.uuids import encode_uuid
from lakelog.runtime.api import Disk
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import read_if_exists
from lakelog.storage.folder.properties import decode_partition_metadata, encode_partition_metadata
from lakelog.storage.names import PARTITION_METADATA
from lakelog.storage.recovery.known_log import KnownLog

TopicIdOf = Callable[[str], bytes | None]
"""The present id of a topic by its name."""
_DIFFERENT_MAX = 4
"""Of 22 characters; two random ids differ in nearly all."""
_logger = logging.getLogger(__name__)


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
        _logger.warning(
            "%s is damaged; rebuilding it", path, extra=event("file_rebuilt", path=path)
        )
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
