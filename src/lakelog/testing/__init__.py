"""Real brokers for the tests of programs that use Kafka: `with lakelog.testing.broker()`.

`__all__` is the public part, described in docs/testing.md; the rest may change at any time.

Each name is imported when it is first used: the broker's process has no use for any of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.testing.broker_cluster import Cluster, cluster
    from lakelog.testing.broker_process import Broker, BrokerError, broker

__all__ = ["Broker", "BrokerError", "Cluster", "broker", "cluster"]

_OF_CLUSTER = ("Cluster", "cluster")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "broker_cluster" if name in _OF_CLUSTER else "broker_process"
    return getattr(import_module(f"{__name__}.{module}"), name)
