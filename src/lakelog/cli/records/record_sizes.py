"""Size limits of a record, and what to change for a larger one.

Three limits bound a batch of one record: the producer's (here `REQUEST_BYTES_MAX`), the topic's
`max.message.bytes`, for which the broker's `message.max.bytes` is the default, and `segment.bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.connecting import starting
from lakelog.cli.failures import suggestion
from lakelog.cli.options import CommandSession

if TYPE_CHECKING:
    from lakelog.client.admin import Admin

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


class Target(NamedTuple):
    """The topic of a run, as it is before the first record.

    batch_bytes: the largest batch; a topic rejects all records of a larger one. creation: the note
    if the first record creates the topic, otherwise empty.
    """

    batch_bytes: int
    creation: str = ""


def find_target(session: CommandSession, topic: str) -> Target:
    """Return the topic's limits, and whether it exists.

    Waits for a broker like the producer does: `lakelog dev &` may not be ready yet. Raises
    `KafkaError` if no broker answers in time.
    """
    from lakelog.client.admin import Admin, ResourceType

    startup = starting(session, session.timeout_s)
    with Admin(session.brokers, timeout_s=session.timeout_s, startup=startup) as admin:
        try:
            entry = admin.configs.describe(ResourceType.TOPIC, topic).get(_KEY)
        except KafkaError as error:
            if error.code not in _UNKNOWN:
                raise
            is_new = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return Target(BATCH_BYTES_MAX, _creation(admin, topic) if is_new else "")
    limit = int(entry.value) if entry is not None and entry.value else BATCH_BYTES_MAX
    return Target(max(1, min(limit, BATCH_BYTES_MAX)))


def _creation(admin: Admin, topic: str) -> str:
    """Return the note about a topic that the first record creates."""
    similar = suggestion(topic, [listing.name for listing in admin.topics.list()])
    return f"created topic '{topic}', which did not exist" + (f"; {similar}" if similar else "")


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
