"""Size limits of a record, and what to change for a larger one.

Three limits bound a batch of one record: the producer's (here `REQUEST_BYTES_MAX`), the topic's
`max.message.bytes`, for which the broker's `message.max.bytes` is the default, and `segment.bytes`.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.connecting import starting
from lakelog.cli.options import Session

BATCH_BYTES_MAX = 128 << 10
REQUEST_BYTES_MAX = 99 << 20
"""The limit of one request; a broker's is 100 MiB by default (socket.request.max.bytes)."""

_BATCH_OVERHEAD = 61 + 32
"""The size of a batch's header, and of the lengths and deltas of its only record."""
_KEY = "max.message.bytes"
_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the first record may create the topic
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)


def topic_batch_bytes(session: Session, topic: str) -> int:
    """Return the maximum size of a batch: a topic rejects all records of a larger one.

    Waits for a broker like the producer does: `lakelog dev &` may not be ready yet. Return the
    limit in bytes. Raises `KafkaError` if no broker answers in time.
    """
    from lakelog.client.admin import Admin, ResourceType

    startup = starting(session, session.timeout_s)
    with Admin(session.brokers, timeout_s=session.timeout_s, startup=startup) as admin:
        try:
            entry = admin.configs.describe(ResourceType.TOPIC, topic).get(_KEY)
        except KafkaError as error:
            if error.code not in _UNKNOWN:
                raise
            return BATCH_BYTES_MAX
    limit = int(entry.value) if entry is not None and entry.value else BATCH_BYTES_MAX
    return max(1, min(limit, BATCH_BYTES_MAX))


def size_hint(error: KafkaError, topic: str, record_bytes: int) -> str:
    """Return the advice for a record that was rejected for its size, or an empty text.

    record_bytes: the size of the record in bytes.
    """
    needed_bytes = record_bytes + _BATCH_OVERHEAD
    if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
        return f"use lakelog topic alter {topic} --config segment.bytes=N with a larger N"
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return ""
    if needed_bytes > REQUEST_BYTES_MAX:
        return f"lakelog produce sends at most {REQUEST_BYTES_MAX} bytes in one request"
    return f"run lakelog topic alter {topic} --config {_KEY}={needed_bytes} to allow it"
