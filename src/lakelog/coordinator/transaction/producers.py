"""Requests of producers: InitProducerId, AddPartitionsToTxn, EndTxn and verification (KIP-890).

Rejected requests raise `KafkaError`, or are answered through their `reply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.transaction.commit_sets import refuse_sink
from lakelog.coordinator.transaction.endings import Endings
from lakelog.coordinator.transaction.ids import Decision, TransactionalIds
from lakelog.coordinator.transaction.producer_reply import ProducerReply
from lakelog.coordinator.transaction.sinks import Sinks
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


class Producers:
    """Decisions about the producers of a shard's transactional ids."""

    def __init__(self, ids: TransactionalIds, endings: Endings, sinks: Sinks) -> None:
        self._ids = ids
        self._endings = endings
        self._sinks = sinks

    def initialise(
        self,
        now: Now,
        transactional_id: str,
        expected: Producer | None,
        timeout_ms: int,
        new_producer_id: int,
        reply: Callable[[ProducerReply], None],
        reserve: Callable[[], None],
    ) -> Decision:
        """Decide InitProducerId: fence other producers of the id, and abort their transaction.

        Args:
            expected: producer id and epoch that the client holds, to continue with them (KIP-360).
            timeout_ms: transaction timeout.
            new_producer_id: as for `end`.
            reserve: as for `end`.

        Raises `KafkaError` with CONCURRENT_TRANSACTIONS, PRODUCER_FENCED or POLICY_VIOLATION.
        """
        current, is_settled, is_old = self._ids.find(transactional_id)
        if not is_settled:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current is None:
            self._ids.check_room()
        elif current.part is not None:
            refuse_sink()
        if new_producer_id == NO_PRODUCER_ID and needs_producer_id(
            current, expected, may_be_old=is_old
        ):
            reserve()
            return Result()
        step = initialised(
            current, expected, timeout_ms, now.wall_ms, new_producer_id, may_be_old=is_old
        )

        def committed(now: Now) -> Decision | None:
            if not step.state.is_ending:
                reply(ProducerReply(ErrorCode.NONE, step.producer_id, step.producer_epoch))
                return None
            reply(ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS))
            return self._endings.write_markers(transactional_id, now)

        def failed(_: Now, code: ErrorCode) -> None:
            reply(ProducerReply(code))

        return self._ids.step(now, transactional_id, step, committed, failed, by_client=True)

    def add_partitions(
        self,
        now: Now,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        version: TransactionVersion,
        reply: Callable[[ErrorCode], None],
    ) -> Decision:
        """Decide AddPartitionsToTxn: the partitions join the transaction, which may begin.

        Raises `KafkaError` with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS or POLICY_VIOLATION.
        """
        known = self._ids.find_adding(transactional_id)
        step = with_partitions(known, producer, partitions, version, now.wall_ms)
        if step.part is not None:
            self._sinks.check_writable(transactional_id)
        if step is known.current and step is self._ids.transactions[transactional_id]:
            reply(ErrorCode.NONE)
            return Result()
        return self._ids.step(now, transactional_id, step, reply=reply, by_client=True)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it is in the producer's transaction (KIP-890).

        Raises `KafkaError` if the producer does not hold the transactional id.
        """
        current = check_producer(self._ids.transactions.get(transactional_id), producer)
        return verified(current, partitions)

    def end(
        self,
        now: Now,
        transactional_id: str,
        end: End,
        next_producer_id: int,
        reply: Callable[[ProducerReply], None],
        reserve: Callable[[], None],
    ) -> Decision:
        """Decide EndTxn. The reply comes with the committed decision; the markers follow.

        Args:
            next_producer_id: id reserved for this request, or `NO_PRODUCER_ID`.
            reserve: called if the decision needs a producer id and has none. Nothing is decided
                then; the caller calls again with a reserved id.

        Raises `KafkaError` with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE or
        CONCURRENT_TRANSACTIONS.
        """
        known = self._ids.find(transactional_id)
        part = None if known.current is None else known.current.part
        # Only a commit set commits a child, and a sink has no transaction.
        if part is not None and (end.commit or isinstance(part, Sink)):
            refuse_sink()
        step, producer = ended(known, end, now.wall_ms, next_producer_id)
        if producer is None:
            reserve()
            return Result()
        accepted = ProducerReply(ErrorCode.NONE, *producer)
        if step is None:
            reply(accepted)
            return Result()

        def committed(now: Now) -> Decision | None:
            reply(accepted)
            return self._endings.write_markers(transactional_id, now)

        def failed(_: Now, code: ErrorCode) -> None:
            reply(ProducerReply(code))

        return self._ids.step(now, transactional_id, step, committed, failed)
