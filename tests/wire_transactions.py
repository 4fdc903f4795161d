"""A transactional producer of single frames, which can be as late, double or wrong as a test wants.

With transaction version 0 it adds partitions itself and keeps its epoch; with version 2 (KIP-890)
the broker adds them, and each transaction has an epoch of its own.
"""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from waiting import eventually
from wire_client import WireClient, batch_of, produce_request

ADD_VERSION = 3
PRODUCE_VERSION = 11
END_VERSION = 4
_TRANSACTION = 1
_NOT_READY = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def _done(answer: Any) -> Any:
    """The answer, unless the coordinator is not ready for it."""
    assert answer.error_code in (0, *_NOT_READY), answer
    return answer if answer.error_code == 0 else None


class WireProducer:
    """`transactional_id` at the broker behind `client`, of a transaction version."""

    def __init__(self, client: WireClient, transactional_id: str, version: int = 0) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.produce_version = 12 if version == 2 else PRODUCE_VERSION
        self._end_version = 5 if version == 2 else END_VERSION
        eventually(self._find, what="the coordinator")
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = eventually(lambda: _done(client.call(request, 4)), what="a producer id")
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch
        self._sequences: dict[tuple[str, int], int] = {}

    def _find(self) -> bool:
        request = FindCoordinatorRequest(
            key_type=_TRANSACTION, coordinator_keys=[self.transactional_id]
        )
        (found,) = self.client.call(request, 4).coordinators
        return bool(found.error_code == 0)

    def add(self, topic: str, partition: int = 0) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        eventually(lambda: self._is_added(request), what="the end of the transaction before")

    def _is_added(self, request: AddPartitionsToTxnRequest) -> bool:
        (answered,) = self.client.call(request, ADD_VERSION).results_by_topic_v3_and_below
        (result,) = answered.results_by_partition
        code = result.partition_error_code
        assert code in (0, ErrorCode.CONCURRENT_TRANSACTIONS), result
        return bool(code == 0)

    def request(self, topic: str, *values: bytes, partition: int = 0) -> Any:
        """The next batch of the partition; counted as sent."""
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        batch = batch_of(
            *values, producer=(self.producer_id, self.epoch, sequence), transactional=True
        )
        return produce_request(topic, batch, partition=partition, transaction=self.transactional_id)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> Any:
        """The partition's part of the response."""
        return self._answer(self.request(topic, *values, partition=partition))

    def _answer(self, request: Any) -> Any:
        response = self.client.call(request, self.produce_version)
        return response.responses[0].partition_responses[0]

    def begin(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Adds the partition if that is not for the broker to do, and sends; the first offset."""
        if self.produce_version == PRODUCE_VERSION:
            self.add(topic, partition)
        request = self.request(topic, *values, partition=partition)
        answer = eventually(lambda: _done(self._answer(request)), what="the first batch")
        offset: int = answer.base_offset
        return offset

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> None:
        answer = self.client.call(self.end_request(commit=commit), self._end_version)
        assert answer.error_code == 0, answer
        if answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
