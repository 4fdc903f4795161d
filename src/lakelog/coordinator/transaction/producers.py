"""Requests of producers: InitProducerId, AddPartitionsToTxn, EndTxn and verification (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.transaction.ids import Decision
from lakelog.coordinator.transaction.requests import NewProducerId, Request
from lakelog.coordinator.transaction.shard import TransactionShard
from lakelog.coordinator.transaction.sink.commit_sets import refuse_sink
from lakelog.coordinator.transaction.state import (
    NO_PRODUCER_ID,
    Sink,
    TopicPartition,
    TransactionVersion,
)
from lakelog.coordinator.transaction.transitions import (
    End,
    Producer,
    check_producer,
    ended,
    initialised,
    needs_producer_id,
    verified,
    with_partitions,
)
from lakelog.protocol.transactions import EndTxnResponse

_FENCED_SINCE = 2


class ProducerReply(NamedTuple):
    """An error code, and without an error the producer id and epoch to continue with."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


def fenced_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return `code` for AddPartitionsToTxn, AddOffsetsToTxn or EndTxn of a version.

    PRODUCER_FENCED exists since version 2 (KIP-588); older clients get INVALID_PRODUCER_EPOCH.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


@dataclass(slots=True, kw_only=True, eq=False)
class InitialiseProducer(Request):
    """InitProducerId: fence other producers of the id, and abort their transaction.

    expected: producer id and epoch that the client holds, to continue with them (KIP-360).
    timeout_ms: transaction timeout.
    """

    expected: Producer | None
    timeout_ms: int

    def decide(self, shard: TransactionShard, now: Now) -> Decision:
        """Raise `KafkaError` with CONCURRENT_TRANSACTIONS, PRODUCER_FENCED or POLICY_VIOLATION."""
        current, is_complete, is_old = shard.ids.find(self.key)
        if not is_complete:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current is None:
            shard.ids.check_capacity()
        elif current.part is not None:
            refuse_sink()
        if self.producer_id == NO_PRODUCER_ID and needs_producer_id(
            current, self.expected, may_be_old=is_old
        ):
            return Result(need=NewProducerId())
        step = initialised(
            current,
            self.expected,
            self.timeout_ms,
            now.wall_ms,
            self.producer_id,
            may_be_old=is_old,
        )
        assert step.producer_id != NO_PRODUCER_ID, "two producers would share an identity"
        reply = ProducerReply(ErrorCode.NONE, step.producer_id, step.producer_epoch)
        if step.state.is_ending:
            reply = ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS)
        return shard.ids.step(now, self.key, step, reply, by_client=True)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(ProducerReply(code))


@dataclass(slots=True, kw_only=True, eq=False)
class AddPartitions(Request):
    """AddPartitionsToTxn: the partitions join the transaction, which may begin.

    by_partition: whether the reply has a code for each partition.
    """

    producer: Producer
    partitions: list[TopicPartition]
    version: TransactionVersion
    by_partition: bool = False

    def decide(self, shard: TransactionShard, now: Now) -> Decision:
        """Raise `KafkaError` for a request that must not write, or does not fit.

        The code is INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS or
        POLICY_VIOLATION.
        """
        reply = self._reply(ErrorCode.NONE)
        id_state = shard.ids.find_adding(self.key)
        step = with_partitions(id_state, self.producer, self.partitions, self.version, now.wall_ms)
        if step.part is not None:
            shard.sinks.check_writable(self.key)
        if step is id_state.current and step is shard.transactions[self.key]:
            return Result(reply=reply)
        return shard.ids.step(now, self.key, step, reply, by_client=True)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(self._reply(code))

    def _reply(self, code: ErrorCode) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(self.partitions, code) if self.by_partition else code


@dataclass(slots=True, kw_only=True, eq=False)
class EndTransaction(Request):
    """EndTxn. The reply comes with the committed decision; the markers follow.

    version: of the request, which the response depends on.
    """

    end: End
    version: int

    def decide(self, shard: TransactionShard, now: Now) -> Decision:
        """Raise `KafkaError` for a request of another producer, or out of order.

        The code is INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE or
        CONCURRENT_TRANSACTIONS.
        """
        id_state = shard.ids.find(self.key)
        part = None if id_state.current is None else id_state.current.part
        # Only a commit set commits a child, and a sink has no transaction.
        if part is not None and (self.end.commit or isinstance(part, Sink)):
            refuse_sink()
        step, producer = ended(id_state, self.end, now.wall_ms, self.producer_id)
        if producer is None:
            return Result(need=NewProducerId())
        reply = EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
        if step is None:
            return Result(reply=reply)
        return shard.ids.step(now, self.key, step, reply)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(EndTxnResponse(error_code=fenced_code(code, self.version)))


def verify(
    shard: TransactionShard,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition whether it is in the producer's transaction (KIP-890).

    Raises `KafkaError` if the producer does not hold the transactional id.
    """
    current = check_producer(shard.transactions.get(transactional_id), producer)
    return verified(current, partitions)
