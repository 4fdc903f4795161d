"""The broker keys of compaction: the resources of its helper processes, and the topics' defaults.

Names, defaults and bounds follow `CleanerConfig` and `AbstractKafkaConfig` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.config.key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    at_least,
    between,
    dynamic_key,
)
from lakelog.base.config.keys.topics import DAY_MS, LONG_MAX

_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_MAP_BYTES_MIN = 1 << 20


CLEANER_KEYS = (
    ConfigKey(
        "log.cleaner.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether topics with cleanup.policy=compact are compacted.",
    ),
    dynamic_key(
        "log.cleaner.threads",
        _INT,
        1,
        "Maximum number of helper processes that compact at the same time; at most 32 are used.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "Interval, in milliseconds, between checks for logs to compact.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 << 20,
        "Memory, in bytes, for the keys of the logs being compacted, shared by the helper "
        "processes; a key takes 200 bytes.",
        at_least(_MAP_BYTES_MIN),
    ),
    dynamic_key(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "Share of log.cleaner.dedupe.buffer.size that may be filled; a log with more keys is "
        "compacted in several passes.",
        between(0, 1),
    ),
    dynamic_key(
        "log.cleaner.io.buffer.size",
        _INT,
        512 << 10,
        "Memory, in bytes, for reading segments, shared by the helper processes.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        "1.7976931348623157E308",
        "Maximum number of bytes that all helper processes together read and write per second.",
    ),
    dynamic_key(
        "log.cleaner.delete.retention.ms",
        _LONG,
        DAY_MS,
        "Default of the topic key delete.retention.ms: time, in milliseconds, for which a "
        "compacted topic keeps tombstones.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "Default of the topic key min.compaction.lag.ms: age, in milliseconds, below which a "
        "record is not removed by compaction.",
        at_least(0),
    ),
    dynamic_key(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "Default of the topic key max.compaction.lag.ms: age, in milliseconds, at which a record "
        "becomes due for compaction.",
        at_least(1),
    ),
    dynamic_key(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Default of the topic key min.cleanable.dirty.ratio: share of a log that must be "
        "uncompacted before it is compacted again.",
        between(0, 1),
    ),
)


def check_cleaner_keys(get_int: Callable[[str], int]) -> None:
    """Raise `ConfigError` unless each helper has more than 1 MiB for keys, as Kafka requires."""
    size, threads = get_int("log.cleaner.dedupe.buffer.size"), get_int("log.cleaner.threads")
    if size // max(threads, 1) <= _MAP_BYTES_MIN:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            str(size),
            f"not allowed with log.cleaner.threads={threads}; allowed: more than 1 MiB for each",
        )
