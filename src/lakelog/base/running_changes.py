"""How far a broker's settings may move at once while it runs (KIP-226).

The rules of Apache Kafka's `DynamicBrokerConfig`: a thread count at most doubles or halves, and a
value that shuts out every client, and with it the one that could change it back, is for a start
alone.
"""

from __future__ import annotations

from lakelog.base.broker_config import BrokerConfig
from lakelog.base.config import ConfigError

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
"""Keys that may be 0 at a start only."""


def check_running_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raises `ConfigError` unless a running broker may go from the first settings to the second."""
    check_needed(before, after)
    for name in THREAD_COUNTS:
        _check_count(name, before.get_int(name), after.get_int(name))


def check_needed(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raises `ConfigError` if a key becomes 0 that may be 0 at a start only."""
    for name in _NEEDED:
        if after.get_int(name) == 0 != before.get_int(name):
            raise ConfigError(name, "0", "only possible when a broker starts; allowed: 1 or more")


def _check_count(name: str, before: int, after: int) -> None:
    least, most = max(before // 2, 1), max(before * 2, 1)
    if after != before and not least <= after <= most:
        raise ConfigError(
            name,
            str(after),
            f"not allowed while it is {before}; allowed: {least} to {most}, half to double the "
            "current value. Change it in several steps",
        )
