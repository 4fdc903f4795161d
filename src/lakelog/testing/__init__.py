"""Real brokers for the tests of programs that use Kafka: `with lakelog.testing.broker()`.

`__all__` is the public part, described in docs/testing.md; the rest may change at any time.

The names are imported at their first use: the broker's process has no use for any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.testing.brokers import Broker, BrokerError, Cluster, broker, cluster

__all__ = ["Broker", "BrokerError", "Cluster", "broker", "cluster"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakelog.testing import brokers

    return getattr(brokers, name)
