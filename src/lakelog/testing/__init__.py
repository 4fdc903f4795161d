"""Real brokers for the tests of programs that use Kafka: `with lakelog.testing.broker()`.

`__all__` is the public part, described in docs/testing.md; the rest may change at any time.
"""

from __future__ import annotations

from lakelog.testing.brokers import Broker, BrokerError, Cluster, broker, cluster

__all__ = ["Broker", "BrokerError", "Cluster", "broker", "cluster"]
