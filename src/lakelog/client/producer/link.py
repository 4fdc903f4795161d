"""Pipelines Produce requests to one broker and matches their responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, error_code
from lakelog.client.connection import Connection
from lakelog.client.producer.batch import ProducerBatch
from lakelog.client.view import ClusterView
from lakelog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NEWEST_WITH_NAMES = 12
"""The last version of Produce with topic names; later versions have topic ids only."""

_ANSWER_SLACK_S = 2.0


class Answer(NamedTuple):
    batch: ProducerBatch
    code: ErrorCode
    base_offset: int = -1
    append_time_ms: int = -1
    message: str = ""


class _Sent(NamedTuple):
    batches: dict[tuple[str | bytes, int], ProducerBatch]
    deadline_s: float


class Link:
    """The producer's connection to one broker."""

    def __init__(self, connection: Connection, acks: int, timeout_s: float) -> None:
        self._connection = connection
        self._acks = acks
        self._timeout_s = timeout_s
        self._sent: deque[_Sent] = deque()
        self.not_before_s = 0.0
        """The end of the present throttling by the broker (KIP-219)."""

    def fileno(self) -> int:
        """Return the socket's file descriptor, for a selector."""
        return self._connection.fileno()

    @property
    def in_flight(self) -> int:
        """Number of requests without a response yet."""
        return len(self._sent)

    @property
    def deadline_s(self) -> float | None:
        """When the oldest request times out (seconds, monotonic clock)."""
        return self._sent[0].deadline_s if self._sent else None

    def send(
        self,
        batches: Sequence[ProducerBatch],
        view: ClusterView,
        now_s: float,
        transactional_id: str | None = None,
    ) -> None:
        """Send one request. After a `ConnectionLostError`, `close` resolves its batches.

        Raises `UnsupportedError` if the broker has no common version of Produce. `now_s`: monotonic
        clock.
        """
        has_ids = all(view.topics[batch.queue.topic].has_id for batch in batches)
        newest = None if has_ids else NEWEST_WITH_NAMES
        # Topic ids arrived with version 13 (KIP-516); older responses name topics.
        by_id = self._connection.version(ProduceRequest, newest) > NEWEST_WITH_NAMES
        topics: dict[str, TopicProduceData] = {}
        sent: dict[tuple[str | bytes, int], ProducerBatch] = {}
        for batch in batches:
            name, partition = batch.queue.topic, batch.queue.partition
            topic_id = view.topics[name].topic_id
            row = topics.setdefault(name, TopicProduceData(name=name, topic_id=topic_id))
            row.partition_data.append(PartitionProduceData(index=partition, records=batch.encode()))
            sent[topic_id if by_id else name, partition] = batch
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=int(self._timeout_s * 1000),
            topic_data=list(topics.values()),
        )
        # Before the send: if it fails, `close` returns these batches.
        self._sent.append(_Sent(sent, now_s + self._timeout_s + _ANSWER_SLACK_S))
        self._connection.send(request, newest=newest, answered=self._acks != 0)

    def take_unanswered(self) -> list[ProducerBatch]:
        """Return the batches of requests with acks=0, which get no response."""
        return list(self._sent.pop().batches.values())

    def receive(self, now_s: float) -> list[Answer]:
        """Return the response that has arrived. Raises `ClientError` if the connection failed.

        now_s: seconds, monotonic clock; a throttle time of the broker begins then (KIP-219).
        """
        message = self._connection.receive(self._timeout_s)[1]
        assert isinstance(message, ProduceResponse)
        batches = self._sent.popleft().batches
        if message.throttle_time_ms > 0:
            self.not_before_s = now_s + message.throttle_time_ms / 1000
        answers = []
        for topic in message.responses:
            for row in topic.partition_responses:
                batch = batches.pop((topic.name, row.index), None)
                batch = batch or batches.pop((topic.topic_id, row.index), None)
                if batch is not None:
                    answers.append(_answer(batch, row))
        lacking = "the response lacks the partition"
        # Each batch must get a result, or its `Delivery` would wait for ever.
        answers += [
            Answer(batch, ErrorCode.UNKNOWN_SERVER_ERROR, message=lacking)
            for batch in batches.values()
        ]
        return answers

    def close(self) -> list[ProducerBatch]:
        """Close the connection; return the batches in flight, whose outcome is unknown."""
        self._connection.close()
        batches = [batch for sent in self._sent for batch in sent.batches.values()]
        self._sent.clear()
        return batches


def _answer(batch: ProducerBatch, row: PartitionProduceResponse) -> Answer:
    message = row.error_message or ""
    for record in row.record_errors[:1]:
        message += f" (record {record.batch_index}: {record.batch_index_error_message})"
    return Answer(
        batch, error_code(row.error_code), row.base_offset, row.log_append_time_ms, message
    )
