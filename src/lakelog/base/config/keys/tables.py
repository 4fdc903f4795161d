"""The topic keys of archives in Iceberg tables, which are unknown to Apache Kafka."""

from __future__ import annotations

import re

from lakelog.base.config.key import ConfigValue, Validator
from lakelog.base.config.rows import parse_keys

_NAME = re.compile(r"[A-Za-z0-9._-]{0,249}", re.ASCII)
_TERM = re.compile(r"partition|timestampType|topic|(year|month|day|hour)\(timestamp\)")
_TERMS = (
    "a comma-separated list of partition, timestampType, topic, year(timestamp), "
    "month(timestamp), day(timestamp), hour(timestamp)"
)
# Clients can read configurations, so credentials have no place there.
_REGISTRY = re.compile(r"https?://[^\s@?#/][^\s@?#]*", re.ASCII)
_ARCHIVED = re.compile(r"[0-9]{1,10}:[0-9]{1,19}", re.ASCII)


def _is_name(value: ConfigValue) -> bool:
    is_folder = value in (".", "..")
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and not is_folder


def _is_registry(value: ConfigValue) -> bool:
    return value == "" or (isinstance(value, str) and bool(_REGISTRY.fullmatch(value)))


def _are_archived_offsets(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and all(_ARCHIVED.fullmatch(item) for item in value)


def _are_terms(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and all(_TERM.fullmatch(item) for item in value)


_NAME_BOUND = Validator(_is_name, "up to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")

TABLE_KEYS = parse_keys(
    """
table.enable boolean false
    Whether an Iceberg table archives the topic. Retention and compaction then keep records that are
    not archived yet, and `format("lakelog")` reads archived offsets from the table.
table.name string ""
    Name of the topic's table in the namespace `lakelog`; empty: the topic's name.
table.value.format string none in:none|json|registry|registry-latest
    With `json` the archive job adds the fields of JSON values to the table, in the struct column
    `data`; what does not fit goes into the column `rescued`. With `registry` it adds the fields of
    the Avro schemas and JSON Schemas that the values name, with `registry-latest` of the newest
    version of TOPIC-value when the job starts.
table.schema.registry.url string ""
    URL of the schema registry that `registry` and `registry-latest` need. The archive job has its
    credentials in the environment: LAKELOG_SCHEMA_REGISTRY_USER_INFO.
table.partition_by list ""
    Partition spec of the topic's table when it is created, such as day(timestamp); empty: none,
    because the bounds of files skip offsets and times anyway.
table.errors string stop in:stop|dead-letter|skip
    How the archive treats a record that cannot be a row of the table: stop with an error,
    dead-letter (write it to the table NAME_dead_letters), or skip (count it). The job reads it at
    its start.
table.latest boolean false
    Whether a second table has the newest record of each key: `lakelog table sync` and `lakelog
    table refresh` derive it from the archive. A record with a null value removes the row of its
    key.
table.latest.name string ""
    Name of the table of newest records; empty: the name of the topic's table with the suffix
    `_latest`.
table.latest.buckets int 16 1..256
    Number of files of a new table of newest records, by the hash of the key. A refresh replaces the
    files in which keys have changed.
table.latest.interval.ms long 300000 1000..
    Least time, in milliseconds, between refreshes of the table of newest records by a job that
    continues with new records.
table.warehouse string ""
    Folder or URI of the topic's table. The archive job sets it.
table.catalog string ""
    Local folder of the catalog of the topic's table; empty: the warehouse. The archive job sets it.
table.archived.offsets list ""
    Set by the archive job: for each partition the first unarchived offset, such as 0:1200,1:0. With
    table.enable, retention keeps the records from there on; a partition without an entry keeps all.
""",
    {
        "table.name": _NAME_BOUND,
        "table.schema.registry.url": Validator(
            _is_registry, "empty, or a URL http://… or https://… without credentials"
        ),
        "table.partition_by": Validator(_are_terms, _TERMS),
        "table.latest.name": _NAME_BOUND,
        "table.archived.offsets": Validator(
            _are_archived_offsets, "a comma-separated list of PARTITION:OFFSET"
        ),
    },
)
