"""A transactional producer of single frames, which can be as late, double or wrong as a test wants.

It speaks transaction version 0: it adds partitions itself, and its epoch stays as it is.
"""

from __future__ import annotations

from typing import Any

from broker_process import eventually
from lakelog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from lakelog.protocol.end_txn import EndTxnRequest
from lakelog.protocol.find_coordinator import FindCoordinatorRequest
from lakelog.protocol.init_producer_id import InitProducerIdRequest
from wire_client import WireClient, batch_of, produce_request

ADD_VERSION = 3
PRODUCE_VERSION = 11
END_VERSION = 4
_TRANSACTION = 1


class WireProducer:
    """`transactional_id` at the broker behind `client`."""

    def __init__(self, client: WireClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        eventually(self._find, what="the coordinator")
        answer = client.call(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
            4,
        )
        assert answer.error_code == 0, answer
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
        (answered,) = self.client.call(request, ADD_VERSION).results_by_topic_v3_and_below
        (result,) = answered.results_by_partition
        assert result.partition_error_code == 0, result

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
        request = self.request(topic, *values, partition=partition)
        return self.client.call(request, PRODUCE_VERSION).responses[0].partition_responses[0]

    def begin(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Adds the partition and sends; the first offset."""
        self.add(topic, partition)
        answer = self.send(topic, *values, partition=partition)
        assert answer.error_code == 0, answer
        offset: int = answer.base_offset
        return offset

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        code = self.client.call(request, END_VERSION).error_code
        assert code == 0, code
