"""The topic keys of archives in Iceberg tables; Apache Kafka does not have them."""

from __future__ import annotations

import re

from lakelog.base.config.key import ConfigKey, ConfigType, ConfigValue, Validator

_ARCHIVED = re.compile(r"[0-9]{1,10}:[0-9]{1,19}", re.ASCII)


def _are_archived_offsets(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and all(_ARCHIVED.fullmatch(item) for item in value)


TABLE_KEYS = (
    ConfigKey(
        "table.enable",
        ConfigType.BOOLEAN,
        "false",
        "Whether an Iceberg table archives the topic. Retention and compaction then keep records "
        "that are not archived yet.",
    ),
    ConfigKey(
        "table.archived.offsets",
        ConfigType.LIST,
        "",
        "Set by the archive job: for each partition the first unarchived offset, such as "
        "0:1200,1:0. With table.enable, retention keeps the records from there on; a partition "
        "without an entry keeps all.",
        Validator(_are_archived_offsets, "a comma-separated list of PARTITION:OFFSET"),
    ),
)
