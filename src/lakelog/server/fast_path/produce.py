"""Produce requests that append one batch after the other to the same partition.

Requests that were received together are appended together, and answered together. With `acks=all`
they wait together while other replicas copy their batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.errors import KafkaError
from lakelog.protocol.api import Api
from lakelog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from lakelog.replica.fetch_session import PartitionKey
from lakelog.replica.partition import Partition
from lakelog.replica.role import current_leader
from lakelog.server.appends.acknowledgement import (
    ACKS_ALL,
    Appended,
    check_entry,
    rejected_result,
    reply_when_settled,
)
from lakelog.server.appends.transaction_verification import TOPIC_IDS_SINCE
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import (
    ANSWERED,
    DECODED,
    WAITING,
    CachedRequest,
    RepeatResult,
)
from lakelog.server.fast_path.frames import ProduceFrames
from lakelog.server.fast_path.partition_request import (
    CachedPartitionRequest,
    cache_partition_request,
)
from lakelog.server.requests.context import Context
from lakelog.server.topics.topics import INTERNAL_TOPICS
from lakelog.storage.preparation import NotReady
from lakelog.storage.validation import SlowBatchError
from lakelog.wire.framing import FRAME_SIZE_BYTES, encode_request, encode_response
from lakelog.wire.template import Template

_BYTES = 2048
_REQUEST_BYTES = 256


def kept_bytes(requests: int) -> int:
    """Return an upper bound of the memory of so many requests that wait together."""
    return _BYTES + requests * _REQUEST_BYTES


class CoalescedRequests(NamedTuple):
    """Requests of one connection whose batches were appended with one write.

    `numbers` are their correlation ids, `sizes` their bytes, `offsets` the first ones of their
    batches; `end_offset` is exclusive, in `leader_epoch`.
    """

    partition: Partition
    leader_epoch: int
    log_start_offset: int
    numbers: list[int]
    sizes: list[int]
    offsets: list[int]
    end_offset: int

    @classmethod
    def of(
        cls, partition: Partition, numbers: list[int], sizes: list[int], offsets: list[int]
    ) -> CoalescedRequests:
        """Return the group that was just appended."""
        log = partition.log
        epoch, start, end = partition.leader_epoch, log.log_start_offset, log.log_end_offset
        return cls(partition, epoch, start, numbers, sizes, offsets, end)


class WaitingProduce:
    """A group until it is answered: as a whole when the last batch is committed.

    They have one place among the replies of their connection. The followers fetch their batches in
    one response, as a rule, so that no request waits for another one.

    Args:
        context: of the first request; the others have no place of their own.
        held: bytes of `RequestMemory` that it holds, see `kept_bytes`.
        committed: returns the responses of the group when all batches are committed.
        failed: returns the response of one request, given its number, its first offset and its
            error, or None if it was committed.
    """

    __slots__ = ("_broker", "_committed", "_context", "_failed", "_group", "_held")

    def __init__(
        self,
        broker: Broker,
        context: Context,
        group: CoalescedRequests,
        held: int,
        committed: Callable[[CoalescedRequests], bytes],
        failed: Callable[[CoalescedRequests, int, KafkaError | None], bytes],
    ) -> None:
        self._broker = broker
        self._context = context
        self._group = group
        self._committed = committed
        self._failed = failed
        self._held = held

    def wait(self, deadline: float) -> None:
        """Wait for the commit, or until `deadline` (monotonic clock, seconds)."""
        group, context, purgatory = self._group, self._context, self._broker.purgatory
        context.on_complete = self._on_complete
        context.connection.expect(context)
        last = Appended(group.partition, group.end_offset, group.leader_epoch)
        reply_when_settled(context, [last], self._complete, purgatory, deadline, self._release)

    def _complete(self) -> None:
        group = self._group
        if self._error(group.end_offset) is None:
            self._context.complete([self._committed(group)])
            return
        # Earlier batches than this one may be committed, and each has a response of its own.
        ends = (*group.offsets[1:], group.end_offset)
        answers = [self._failed(group, n, self._error(end)) for n, end in enumerate(ends)]
        self._context.complete([b"".join(answers)])

    def _error(self, end_offset: int) -> KafkaError | None:
        group = self._group
        try:
            Appended(group.partition, end_offset, group.leader_epoch).check()
        except KafkaError as error:
            return error
        return None

    def _on_complete(self, context: Context) -> None:
        self._release()
        for size in self._group.sizes:
            context.size_bytes = size
            self._broker.requests.on_late(context)

    def _release(self) -> None:
        held, self._held = self._held, 0
        self._broker.request_memory.give(self._context, held)


_VERSION_MIN = 7
"""Older requests must not contain zstd, and older responses have no log start offset."""
_LENGTH_AND_TAGS = 4
"""Bytes after the partition's index of a request without records."""
_WAITING_MAX = 16
"""Requests that wait together. A connection may have `connection._PENDING_MAX` such groups."""


class _Key(NamedTuple):
    """All fields of a request except the batch."""

    client_id: str
    version: int
    acks: int
    timeout_ms: int
    topic: str
    topic_id: bytes
    partition: int


def cache_request(
    broker: Broker, last: CachedRequest | None, context: Context, request: ProduceRequest
) -> CachedRequest | None:
    """As `cache_partition_request`; None for an internal topic."""
    key = _key(context, request)
    if key is None:
        return None
    (topic,) = request.topic_data
    by_id = key.version >= TOPIC_IDS_SINCE
    partition_key = (topic.topic_id if by_id else topic.name), key.partition
    partition = broker.partitions.get(*partition_key)
    if partition is not None and partition.topic in INTERNAL_TOPICS:
        return None
    return cache_partition_request(
        CachedProduce, broker, last, context, key, partition_key, key.topic
    )


def _key(context: Context, request: ProduceRequest) -> _Key | None:
    topics, version = request.topic_data, context.version
    if (
        len(topics) != 1
        or len(topics[0].partition_data) != 1
        or request.transactional_id is not None
        or request.acks not in (1, -1)
        or version < _VERSION_MIN
    ):
        return None
    topic = topics[0]
    return _Key(
        context.client_id,
        version,
        request.acks,
        request.timeout_ms,
        topic.name,
        topic.topic_id,
        topic.partition_data[0].index,
    )


class CachedProduce(CachedPartitionRequest[_Key]):
    """One batch for one partition, outside of any transaction, to be acknowledged."""

    __slots__ = ("_acks_all", "_frames", "_response", "_sampling")

    def __init__(
        self, broker: Broker, context: Context, key: _Key, partition_key: PartitionKey
    ) -> None:
        super().__init__(broker, context, key, partition_key)
        self._acks_all = key.acks == ACKS_ALL
        self._sampling = context.connection.sampling

    def _make_templates(self) -> None:
        api, key = self.api, self.key
        self._frames = ProduceFrames(_head(api, key), self._tail)
        self._response = Template(_response(api, key, 0), _response(api, key, -1), "iqqq")

    def answer(self, view: memoryview, start: int, end: int, most: int) -> RepeatResult:
        """As `CachedRequest.answer`. The error of a rejected batch is answered, not raised."""
        partition = self._partition
        if partition is None:
            return DECODED
        if self._acks_all and not partition.watermark.by_append:
            return self._append_and_wait(partition, view, start, end, most)
        # The response would overtake the responses to waiting requests: it bypasses the replies.
        if self._connection.pending:
            return DECODED
        numbers, batches, ends = self._frames.find(view, start, end, most)
        count = self._append(partition, numbers, batches) if batches else 0
        return (ANSWERED, count, ends[count - 1]) if count else DECODED

    def _append(self, partition: Partition, numbers: list[int], batches: list[memoryview]) -> int:
        """Append as many batches as possible and answer; return their number."""
        broker, sampling = self._broker, self._sampling
        if sampling.left <= 0:
            return self._append_sampled(partition, numbers, batches)
        try:
            offsets = partition.append_coalesced(
                batches, broker.clock.wall_ms(), acks_all=self._acks_all
            )
        except KafkaError:  # nothing is appended; the handler finds the error again
            return 0
        if not offsets:
            return int(self._append_one(partition, numbers[0], batches[0], sampled=False))
        count, log_start = len(offsets), partition.log.log_start_offset
        sampling.left -= count
        if count == 1:
            answer = self._response.pack(numbers[0], offsets[0], -1, log_start)
        else:
            columns = numbers[:count], offsets, [-1] * count, [log_start] * count
            answer = self._response.pack_rows(count, *columns)
        self._responses.send(answer)
        return count

    def _append_and_wait(
        self, partition: Partition, view: memoryview, start: int, end: int, most: int
    ) -> RepeatResult:
        """As `answer`, for batches that other replicas have to copy before they are committed."""
        broker, sampling, connection = self._broker, self._sampling, self._connection
        most = min(most, sampling.left, _WAITING_MAX)
        if most <= 0 or not partition.log.can_coalesce:  # the first is verified, or needs a flush
            return DECODED
        numbers, batches, ends = self._frames.find(view, start, end, most)
        if not batches:
            return DECODED
        context = Context(connection, self.api, self.key.version, numbers[0], self.key.client_id)
        held = kept_bytes(len(batches))
        if not broker.request_memory.try_take(context, held):
            return DECODED
        try:
            offsets = partition.append_coalesced(batches, broker.clock.wall_ms(), acks_all=True)
        except KafkaError:  # nothing is appended; the handler finds the error again
            offsets = []
        if not offsets:
            broker.request_memory.give(context, held)
            return DECODED
        count = len(offsets)
        sampling.left -= count
        starts = [start, *(frame_end + FRAME_SIZE_BYTES for frame_end in ends)]
        sizes = [stop - begin for begin, stop in zip(starts, ends[:count], strict=False)]
        group = CoalescedRequests.of(partition, numbers[:count], sizes, offsets)
        waiting = WaitingProduce(broker, context, group, held, self._committed, self._failed)
        context.begun = connection.last_active
        waiting.wait(connection.last_active + max(self.key.timeout_ms, 0) / 1000)
        return WAITING, count, ends[count - 1]

    def _committed(self, group: CoalescedRequests) -> bytes:
        """Return the responses of a group whose batches are all committed."""
        count = len(group.numbers)
        columns = group.numbers, group.offsets, [-1] * count, [group.log_start_offset] * count
        return self._response.pack_rows(count, *columns)

    def _failed(self, group: CoalescedRequests, position: int, error: KafkaError | None) -> bytes:
        """Return the response of one request of a group of which not all batches are committed."""
        key, number = self.key, group.numbers[position]
        if error is None:
            offset = group.offsets[position]
            return self._response.pack(number, offset, -1, group.log_start_offset)
        result = PartitionProduceResponse(
            index=key.partition,
            error_code=error.code,
            base_offset=group.offsets[position],
            log_start_offset=group.log_start_offset,
            error_message=error.message or None,
            current_leader=current_leader(error),
        )
        response = _of_one(key, result)
        leaders = (result.current_leader,)
        response.node_endpoints = self._broker.endpoints_of(self._connection, leaders)
        return b"".join(encode_response(self.api, key.version, number, response))

    def _append_sampled(
        self, partition: Partition, numbers: list[int], batches: list[memoryview]
    ) -> int:
        """As `_append`; the first of the batches is verified by itself."""
        if not self._append_one(partition, numbers[0], batches[0], sampled=True):
            return 0
        return 1 + (self._append(partition, numbers[1:], batches[1:]) if numbers[1:] else 0)

    def _append_one(
        self, partition: Partition, number: int, batch: memoryview, *, sampled: bool
    ) -> bool:
        """Append or reject one batch; return False if either would have to wait."""
        broker, key, sampling = self._broker, self.key, self._sampling
        # The response has to wait for a flush, which is the handler's way.
        if partition.watermark.by_flush:
            return False
        try:
            check_entry(partition, batch, key.version, None)
            base, _, append_time_ms, log_start, _ = partition.append(
                batch, broker.clock.wall_ms(), acks_all=key.acks == ACKS_ALL, sampled=sampled
            )
        except SlowBatchError:
            return False
        except NotReady as first:
            # The handler will need the same job, and makes its own: this one is never run.
            first.job.abandon()
            return False
        except KafkaError as error:
            self._reject(number, error)
            return True
        if sampled:
            sampling.note(batch, sampled=True)
        else:
            sampling.left -= 1
        self._responses.send(self._response.pack(number, base, append_time_ms, log_start))
        return True

    def _reject(self, number: int, error: KafkaError) -> None:
        """Answer with the error: the batch may have been patched, so it cannot be retried."""
        key = self.key
        self._broker.requests.errors[self.api.name, error.code] += 1
        context = Context(self._connection, self.api, key.version, number, key.client_id)
        self._connection.expect(context)
        context.reply(_of_one(key, rejected_result(key.partition, error)))


def _head(api: Api, key: _Key) -> bytes:
    """Encode a request from the API's key to the partition's index."""
    entry = PartitionProduceData(index=key.partition, records=b"")
    topic = TopicProduceData(name=key.topic, topic_id=key.topic_id, partition_data=[entry])
    message = ProduceRequest(acks=key.acks, timeout_ms=key.timeout_ms, topic_data=[topic])
    parts = encode_request(api, key.version, 0, key.client_id, message)
    return b"".join(parts)[FRAME_SIZE_BYTES:-_LENGTH_AND_TAGS]


def _response(api: Api, key: _Key, number: int) -> bytes:
    """Encode a response with `number` in every place that may differ."""
    result = PartitionProduceResponse(
        index=key.partition,
        base_offset=number,
        log_append_time_ms=number,
        log_start_offset=number,
    )
    return b"".join(encode_response(api, key.version, number, _of_one(key, result)))


def _of_one(key: _Key, result: PartitionProduceResponse) -> ProduceResponse:
    topic = TopicProduceResponse(
        name=key.topic, topic_id=key.topic_id, partition_responses=[result]
    )
    return ProduceResponse(responses=[topic])
