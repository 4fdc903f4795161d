"""All declared APIs, with the stable version ranges of Apache Kafka 4.4.

It imports every family of APIs: only the broker needs that, which serves them all.
"""

from __future__ import annotations

from itertools import chain

from lakelog.protocol import (
    brokers,
    cluster,
    configs,
    connections,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    replicas,
    topics,
    transactions,
)

_DECLARED = sorted(
    chain(
        brokers.APIS,
        cluster.APIS,
        configs.APIS,
        connections.APIS,
        fetch.APIS,
        groups.APIS,
        metadata.APIS,
        offsets.APIS,
        produce.APIS,
        replicas.APIS,
        topics.APIS,
        transactions.APIS,
    ),
    key=lambda api: api.key,
)

APIS = {api.key: api for api in _DECLARED}
"""By key, in the order of keys."""

assert len(APIS) == len(_DECLARED), "two APIs have the same key"
