"""How far a topic's table has its records, as the brokers know it.

The archive job publishes the ends of its table as the topic key `table.archived.offsets`. Topic
configuration is part of the cluster's metadata, so leaders and followers apply the same floor, also
after a failover. A broker with old metadata has a lower floor and keeps more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from lakelog.base.config.log_config import LogConfig


def archive_floor(config: LogConfig, partition: int) -> int | None:
    """Return the first offset of a partition that retention must keep; `None` without a table."""
    if not config.table_enable:
        return None
    return _parsed(config.table_archived_offsets).get(partition, 0)


@lru_cache(maxsize=64)
def _parsed(ends: tuple[str, ...]) -> Mapping[int, int]:
    # All partitions of a topic share one list: each parsing it would be quadratic.
    pairs = (item.split(":") for item in ends)
    return {int(partition): int(offset) for partition, offset in pairs}
