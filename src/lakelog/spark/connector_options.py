"""Options of Spark's Kafka connector that have no effect here, and refused options.

A query that moves from `format("kafka")` keeps its options. Options for the connector's Java
clients that change neither records nor positions have no effect. An option that would change them
is refused with the reason.
"""

from __future__ import annotations

_PLAIN_LISTENERS = "listeners have no encryption or authentication"
_JAVA_CLASS = "it names a Java class, and lakelog reads and writes without Java clients"
_NO_MEMBER = "a query assigns its partitions itself and never joins a group"
_BINARY = "keys and values are binary columns; convert them with DataFrame functions"

_REFUSED = {
    "kafka.auto.offset.reset": (
        "a query keeps its own position. Set startingOffsets for its first start, and "
        "failOnDataLoss for offsets that no longer exist"
    ),
    "kafka.enable.auto.commit": (
        "a query commits its progress in its checkpoint. lakelog.spark.publish_progress(spark) "
        "also commits it as a consumer group"
    ),
    "kafka.group.instance.id": _NO_MEMBER,
    "kafka.interceptor.classes": _JAVA_CLASS,
    "kafka.key.deserializer": _BINARY,
    "kafka.key.serializer": _BINARY,
    "kafka.metric.reporters": _JAVA_CLASS,
    "kafka.partitioner.class": _JAVA_CLASS + ". Set the column partition",
    "kafka.transactional.id": "the sink chooses the ids of its transactions",
    "kafka.value.deserializer": _BINARY,
    "kafka.value.serializer": _BINARY,
}
_REFUSED_UNLESS = {
    "kafka.exclude.internal.topics": (
        "true",
        "a pattern never matches internal topics; name them with subscribe",
    ),
    "kafka.security.protocol": ("plaintext", _PLAIN_LISTENERS),
}
"""Options with the only value that is accepted, and the reason for refusing others."""
_REFUSED_PREFIXES = {
    "kafka.sasl.": _PLAIN_LISTENERS,
    "kafka.security.": _PLAIN_LISTENERS,
    "kafka.ssl.": _PLAIN_LISTENERS,
}

WITHOUT_EFFECT = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafka.allow.auto.create.topics",
        "kafka.auto.commit.interval.ms",
        "kafka.batch.size",
        "kafka.buffer.memory",
        "kafka.check.crcs",
        "kafka.client.dns.lookup",
        "kafka.client.rack",
        "kafka.connections.max.idle.ms",
        "kafka.default.api.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.enable.idempotence",
        "kafka.enable.metrics.push",
        "kafka.exclude.internal.topics",
        "kafka.fetch.max.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.min.bytes",
        "kafka.group.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.heartbeat.interval.ms",
        "kafka.isolation.level",
        "kafka.linger.ms",
        "kafka.max.block.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.partition.fetch.bytes",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.max.age.ms",
        "kafka.metadata.recovery.strategy",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.partition.assignment.strategy",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.request.timeout.ms",
        "kafka.retries",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.security.protocol",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
        "kafka.socket.connection.setup.timeout.max.ms",
        "kafka.socket.connection.setup.timeout.ms",
        "kafkaconsumer.polltimeoutms",
    }
)
"""Options in lower case that change neither records nor positions. The source applies some."""


def refusal(name: str, value: str) -> str:
    """Return why an option is refused, or an empty text. `name` is in lower case."""
    if name in _REFUSED_UNLESS:
        accepted, reason = _REFUSED_UNLESS[name]
        return "" if value.strip().lower() == accepted else reason
    reasons = (why for prefix, why in _REFUSED_PREFIXES.items() if name.startswith(prefix))
    return _REFUSED.get(name) or next(reasons, "")
