"""The broker keys of compaction: what its helpers may use, and the topics' defaults.

Names, defaults and bounds follow `CleanerConfig` and `AbstractKafkaConfig` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.config.key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    UpdateMode,
    Validator,
    at_least,
    between,
)
from lakelog.base.config.keys.topics import DAY_MS, LONG_MAX

_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_MAP_BYTES_MIN = 1 << 20


def _dynamic(
    name: str, kind: ConfigType, default: object, doc: str, bound: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, str(default), doc, bound, UpdateMode.CLUSTER_WIDE)


CLEANER_KEYS = (
    ConfigKey(
        "log.cleaner.enable", ConfigType.BOOLEAN, "true", "Whether compacted topics are compacted."
    ),
    _dynamic(
        "log.cleaner.threads",
        _INT,
        1,
        "Helper processes that may compact at once; more than 32 are taken for 32.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "Time between two looks for logs to compact.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 << 20,
        "Memory for the keys of the logs being compacted, shared by the helpers; 200 bytes a key.",
        at_least(_MAP_BYTES_MIN),
    ),
    _dynamic(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "Share of that memory that is filled before a log is compacted in parts.",
        between(0, 1),
    ),
    _dynamic(
        "log.cleaner.io.buffer.size", _INT, 512 << 10, "Memory for reading, shared.", at_least(0)
    ),
    _dynamic(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        "1.7976931348623157E308",
        "Bytes that all helpers together may read and write in a second.",
    ),
    _dynamic(
        "log.cleaner.delete.retention.ms",
        _LONG,
        DAY_MS,
        "Time for which a compacted topic keeps the markers of deleted keys.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "Age below which a record is not compacted away.",
        at_least(0),
    ),
    _dynamic(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "Age at which a record becomes due for compaction.",
        at_least(1),
    ),
    _dynamic(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Share of a log that must be uncompacted before it is compacted again.",
        between(0, 1),
    ),
)


def check_cleaner_keys(get_int: Callable[[str], int]) -> None:
    """Raises `ConfigError` unless each helper has more than 1 MiB for keys, as Kafka requires."""
    size, threads = get_int("log.cleaner.dedupe.buffer.size"), get_int("log.cleaner.threads")
    if size // max(threads, 1) <= _MAP_BYTES_MIN:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            str(size),
            f"not allowed with log.cleaner.threads={threads}; allowed: more than 1 MiB for each",
        )
