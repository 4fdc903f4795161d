"""A cached request of a connection for one partition, of either API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from lakelog.protocol.api import Api
from lakelog.replica.fetch_session import PartitionKey
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import CachedRequest, RepeatResult, RequestHeader
from lakelog.server.requests.context import Context

NAMES_MAX = 1024
"""Characters of names in a request that is cached."""
_TAGS = b"\x00\x00\x00"

K = TypeVar("K", bound=RequestHeader)


class CachedPartitionRequest(ABC, Generic[K]):
    """A `CachedRequest` of one partition, which it holds for as long as the connection is admitted.

    Args:
        key: the fields that are equal in all repetitions.
        partition_key: the partition, by the topic's name or id as in the request.
    """

    __slots__ = (
        "_broker",
        "_connection",
        "_partition",
        "_responses",
        "_tail",
        "api",
        "key",
        "note",
        "partition_key",
    )

    def __init__(
        self, broker: Broker, context: Context, key: K, partition_key: PartitionKey
    ) -> None:
        self.api: Api = context.api
        self.key = key
        self.partition_key = partition_key
        self.note = broker.requests.durations(context.api).note
        self._broker = broker
        self._connection = context.connection
        self._responses = context.connection.responses
        self._partition: Partition | None = None
        """Set once the request is prepared."""
        self._tail = _TAGS if context.version >= self.api.flexible_from else b""
        """Follows the records: the empty tagged fields of partition, topic and message."""

    def prepare(self, partition: Partition) -> None:
        """Make the templates of request and response; later calls have no effect."""
        if self._partition is None:
            self._make_templates()
            # Last: `answer` takes a partition for the sign that the templates exist.
            self._partition = partition

    @abstractmethod
    def _make_templates(self) -> None: ...

    @abstractmethod
    def answer(self, view: memoryview, start: int, end: int, most: int) -> RepeatResult: ...


def cache_partition_request(
    kind: type[CachedPartitionRequest[K]],
    broker: Broker,
    last: CachedRequest | None,
    context: Context,
    key: K,
    partition_key: PartitionKey,
    *names: str,
) -> CachedRequest | None:
    """Return the cached request to compare the next request with; the second equal one prepares it.

    A request that comes only once gets no templates. Return None if its names have more than
    `NAMES_MAX` characters, which bounds the memory of connections.
    """
    if len(context.client_id) + sum(map(len, names)) > NAMES_MAX:
        return None
    if not isinstance(last, kind) or last.key != key:
        return kind(broker, context, key, partition_key)
    partition = broker.partitions.get(*partition_key)
    if partition is not None:
        last.prepare(partition)
    return last
