"""How large a record may be: what the topic takes, and what to change for one that is larger.

Three limits bound a batch of one record: the producer's (here `REQUEST_BYTES_MAX`), the topic's
`max.message.bytes`, for which the broker's `message.max.bytes` is the default, and `segment.bytes`.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.connecting import wait_for_broker
from lakelog.cli.options import Session

BATCH_BYTES_MAX = 128 << 10
REQUEST_BYTES_MAX = 99 << 20
"""Of one request; a broker takes 100 MiB unless its socket.request.max.bytes says otherwise."""

_BATCH_OVERHEAD = 61 + 32
"""Header of a batch, and lengths and differences of its only record."""
_KEY = "max.message.bytes"
_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # it may be created with its first record
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)


def topic_batch_bytes(session: Session, topic: str) -> int:
    """Size at which to close a batch: a topic that takes less would refuse all records in it.

    Waits for a broker as the producer does: `lakelog dev &` may not be ready yet.
    """
    from lakelog.client.admin import Admin, ResourceType

    with Admin(session.brokers, timeout_s=session.timeout_s) as admin:
        wait_for_broker(admin, session, session.timeout_s)
        try:
            entry = admin.configs.describe(ResourceType.TOPIC, topic).get(_KEY)
        except KafkaError as error:
            if error.code not in _UNKNOWN:
                raise
            return BATCH_BYTES_MAX
    limit = int(entry.value) if entry is not None and entry.value else BATCH_BYTES_MAX
    return max(1, min(limit, BATCH_BYTES_MAX))


def size_hint(error: KafkaError, topic: str, record_bytes: int) -> str:
    """What helps if a record of so many bytes was refused for its size; else nothing."""
    needed_bytes = record_bytes + _BATCH_OVERHEAD
    if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
        return f"lakelog topic alter {topic} --config segment.bytes=N with a larger N"
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return ""
    if needed_bytes > REQUEST_BYTES_MAX:
        return f"lakelog produce sends at most {REQUEST_BYTES_MAX} bytes in one request"
    return f"lakelog topic alter {topic} --config {_KEY}={needed_bytes} allows it"
