"""Limits of changes to the settings of a running broker (KIP-226).

The rules come from Apache Kafka's `DynamicBrokerConfig`. A number of threads can at most double
or halve in one change. A value that locks out every client, including the client that could revert
it, is accepted at a start only.
"""

from __future__ import annotations

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError

THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
_NEEDED = ("log.cleaner.threads", "max.connections", "max.connection.creation.rate")
"""Keys that can be 0 at a start only."""


def check_running_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `ConfigError` unless a running broker can change from `before` to `after`."""
    check_needed(before, after)
    for name in THREAD_COUNTS:
        _check_count(name, before.get_int(name), after.get_int(name))


def check_needed(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `ConfigError` if a key becomes 0 that may be 0 at a start only."""
    for name in _NEEDED:
        if after.get_int(name) == 0 != before.get_int(name):
            raise ConfigError(
                name, "0", "only possible at the start of a broker; allowed: 1 or more"
            )


def _check_count(name: str, before: int, after: int) -> None:
    least, most = max(before // 2, 1), max(before * 2, 1)
    if after != before and not least <= after <= most:
        raise ConfigError(
            name,
            str(after),
            f"not allowed while the value is {before}; allowed: {least} to {most}, half to double "
            "the current value. Change it in several steps",
        )
