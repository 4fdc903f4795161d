"""The transactional producer: consumers see all records of a transaction, or none.

```python
with TransactionalProducer("localhost:9092", "billing-1") as producer:
    with producer.transaction():
        producer.send("invoices", invoice)
        producer.send_offsets("billing", {("orders", 0): 42}, consumer.membership)
```

A transactional id belongs to one producer at a time. A newer producer fences the older one and
aborts its transaction. Requires a broker with `transaction.version` 2 (KIP-890), as lakelog and
Apache Kafka 4 have.

A `JoinedProducer` writes into a transaction which another process began and will end.

```python
owner.begin()                                     # a TransactionalProducer, in the driver
with JoinedProducer("localhost:9092", "sink-1", owner.share()) as producer:    # in each task
    producer.send("orders", b"v", partition=0)
owner.commit()
```

All processes share one producer id and epoch, and a broker numbers the records of a producer per
partition. Therefore **one process at a time may write to a partition**, and only once in a
transaction: a second one begins at sequence 0 again, and its batches may pass as repetitions of the
first one's. The broker cannot detect that; the caller must prevent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import TRANSACTION, Cluster
from lakelog.client.committed import Committed, Membership
from lakelog.client.errors import ClientError, UnsupportedError, check
from lakelog.client.offsets import TopicPartition
from lakelog.client.producer.api import Producer
from lakelog.protocol import offsets as messages
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_BUMPING_END = 5
_COMMIT_WITH_NAMES = 5


class ProducerState(Enum):
    """The state of the present transaction."""

    NEW = auto()
    READY = auto()
    OPEN = auto()
    ABORT_ONLY = auto()
    """A part of the transaction failed; it can only be aborted."""


class BoundProducer(Producer):
    """A `Producer` whose records belong to a transaction; it rejects them outside of one."""

    def send(self, *arguments: Any, **fields: Any) -> Any:
        """Same as `Producer.send`, within a transaction only.

        Raises `ClientError` with INVALID_TXN_STATE outside a transaction, and with PRODUCER_FENCED
        after a fatal error.
        """
        self._expect_open()
        return super().send(*arguments, **fields)

    def send_values(self, *arguments: Any, **fields: Any) -> None:
        """Same as `Producer.send_values`, within a transaction only.

        Raises as `send`.
        """
        self._expect_open()
        super().send_values(*arguments, **fields)

    def send_table(self, *arguments: Any, **fields: Any) -> Any:
        """Same as `Producer.send_table`, within a transaction only.

        Raises as `send`.
        """
        self._expect_open()
        return super().send_table(*arguments, **fields)

    def abort(self) -> None:
        """Drop all buffered records and abort the transaction, if there is one."""
        raise NotImplementedError

    def close(self, timeout_s: float | None = None) -> None:
        """Abort an open transaction, then end the thread and the connections.

        timeout_s: limit of the flush in seconds. Raises the errors of `abort` and `Producer.close`.
        """
        try:
            if not self._is_closed and self._sender.fatal is None:
                # Otherwise the open transaction would hold back read-committed consumers until it
                # times out.
                self.abort()
        finally:
            super().close(timeout_s)

    def _expect_open(self) -> None:
        raise NotImplementedError

    def _expect_usable(self) -> None:
        if self._sender.fatal is not None:
            raise ClientError(ErrorCode.PRODUCER_FENCED, self._sender.fatal)

    def _flush_all(self) -> None:
        """Wait until all records are acknowledged. Raises the first failure of the transaction."""
        self.flush()
        if self._accumulator.first_failure is not None:
            raise self._accumulator.first_failure

    def _drop_records(self) -> None:
        """Drop buffered records, and wait until no batch is in flight."""

        def is_empty() -> bool:
            # Repeated at each change, because a retried batch returns to the waiting ones.
            self._accumulator.drop_waiting(
                ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted"
            )
            return self._accumulator.is_idle

        with self._lock:
            self._lock.wait_for(is_empty)
            self._accumulator.take_failure()


class TransactionalProducer(BoundProducer):
    """A `Producer` whose records belong to transactions. One thread begins and ends them.

    transaction_timeout_ms: the broker aborts a transaction that is open for longer, and fences this
    producer.
    settings: of `Producer`, without `acks` and `idempotent`.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        **settings: Any,
    ) -> None:
        if not transactional_id:
            raise ValueError("a transactional id must not be empty")
        super().__init__(bootstrap, transactional_id=transactional_id, **settings)
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._state = ProducerState.NEW
        self._identity = (-1, -1)
        self._has_other_parts = False
        """Whether the transaction may have parts other than the records of this producer."""

    def share(self) -> tuple[int, int]:
        """Return producer id and epoch of the present transaction, for a `JoinedProducer`."""
        self._has_other_parts = True
        return self._identity

    def begin(self) -> None:
        """Begin a transaction.

        The first call fences other producers with the same id, and waits until their open
        transaction has been aborted. Raises PRODUCER_FENCED if a newer producer has the id, and
        `UnsupportedError`.
        """
        self._expect(ProducerState.NEW, ProducerState.READY)
        if self._state is ProducerState.NEW:
            with self._topic_lock:
                self._identity = _initialised(
                    self._cluster, self._transactional_id, self._transaction_timeout_ms
                )
        with self._lock:
            self._sender.begin_transaction(*self._identity)
        self._has_other_parts = False
        self._state = ProducerState.OPEN

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | Committed],
        member: Membership | None = None,
    ) -> None:
        """Commit offsets of a group with the transaction; an offset is that of the next record.

        member: the consumer's `membership`, so that a consumer that has lost its partitions cannot
        commit (KIP-447). Raises ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID; the
        transaction can then only be aborted.
        """
        self._expect(ProducerState.OPEN)
        rows = {
            key: value if isinstance(value, Committed) else Committed(value)
            for key, value in offsets.items()
        }
        if not rows:
            return
        request = self._offsets(group, rows, member or Membership())
        self._has_other_parts = True

        def work() -> None:
            response = self._cluster.ask_coordinator(
                group, request, messages.TxnOffsetCommitResponse, newest=_COMMIT_WITH_NAMES
            )
            for topic in response.topics:
                for row in topic.partitions:
                    where = f"offset of {topic.name}-{row.partition_index} for group {group!r}"
                    check(row.error_code, where)

        try:
            with self._topic_lock:
                self._cluster.retrying_coordinator(group, work)
        except ClientError:
            self._state = ProducerState.ABORT_ONLY
            raise

    def _offsets(
        self, group: str, rows: Mapping[TopicPartition, Committed], member: Membership
    ) -> messages.TxnOffsetCommitRequest:
        topics: dict[str, messages.TxnOffsetCommitRequestTopic] = {}
        for (name, partition), committed in rows.items():
            topic = topics.setdefault(name, messages.TxnOffsetCommitRequestTopic(name=name))
            topic.partitions.append(
                messages.TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return messages.TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        )

    def commit(self) -> None:
        """Send all buffered records and commit the transaction.

        A transaction without records and offsets ends without a request to the coordinator.
        Raises the first failure if a record could not be written; call `abort` then. If it raises
        `UnreachableError` or `TimeoutError`, the outcome is unknown; `commit` may be called again.
        """
        self._expect(ProducerState.OPEN)
        try:
            # All records must be acknowledged before EndTxn: the marker follows them in each log.
            self._flush_all()
        except ClientError:
            self._state = ProducerState.ABORT_ONLY
            raise
        self._end(commit=True)

    def abort(self) -> None:
        """Drop all buffered records and abort the transaction, if there is one.

        Waits until no batch is in flight. Raises `ClientError` if the coordinator does not abort
        it; the broker then does so after `transaction_timeout_ms`.
        """
        if self._state in (ProducerState.NEW, ProducerState.READY):
            return
        self._drop_records()
        self._end(commit=False)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction; commit it after the block, or abort it if the block raises.

        Raises the errors of `begin` and `commit`.
        """
        self.begin()
        try:
            yield
        except BaseException as error:
            try:
                self.abort()
            except ClientError as failure:
                error.add_note(f"aborting the transaction: {failure}")
            raise
        self.commit()

    def leave(self) -> None:
        """End the thread and the connections, and leave an open transaction undecided.

        For a `commit` whose outcome is unknown: the coordinator may have decided it already. An
        open transaction ends by its timeout, or when the next producer with this id begins.
        """
        Producer.close(self)

    def _end(self, *, commit: bool) -> None:
        # A coordinator rejects the commit of a transaction without partitions (KIP-890), and has
        # not seen this epoch, which the next transaction can use.
        if not self._has_other_parts and not self._accumulator.has_sent:
            self._state = ProducerState.READY
            return
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )

        def work() -> EndTxnResponse:
            response = self._cluster.ask_coordinator(
                self._transactional_id, request, EndTxnResponse, key_type=TRANSACTION
            )
            check(response.error_code, f"end of a transaction of {self._transactional_id!r}")
            return response

        with self._topic_lock:
            done = self._cluster.retrying_coordinator(self._transactional_id, work, TRANSACTION)
        self._identity = done.producer_id, done.producer_epoch
        self._state = ProducerState.READY

    def _expect_open(self) -> None:
        self._expect(ProducerState.OPEN)

    def _expect(self, *states: ProducerState) -> None:
        self._expect_usable()
        if self._state not in states:
            what = {
                ProducerState.NEW: "no transaction has begun",
                ProducerState.READY: "no transaction has begun",
                ProducerState.OPEN: "a transaction has begun",
                ProducerState.ABORT_ONLY: "the transaction has failed and can only be aborted",
            }
            raise ClientError(ErrorCode.INVALID_TXN_STATE, what[self._state])


def _initialised(cluster: Cluster, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    def work() -> InitProducerIdResponse:
        node = cluster.coordinator(transactional_id, TRANSACTION).node_id
        if cluster.connection(node).version(EndTxnRequest, None) < _BUMPING_END:
            raise UnsupportedError("the broker does not support transaction.version 2 (KIP-890)")
        response = cluster.ask_coordinator(
            transactional_id, request, InitProducerIdResponse, key_type=TRANSACTION
        )
        check(response.error_code, f"transactional id {transactional_id!r}")
        return response

    producer = cluster.retrying_coordinator(transactional_id, work, TRANSACTION)
    return producer.producer_id, producer.producer_epoch


class JoinedProducer(Producer):
    """A `Producer` within the transaction of another process; `close` does not end it.

    identity: producer id and epoch of the transaction. settings: of `Producer`, without `acks` and
    `idempotent`. After the transaction has ended, or a newer producer has its id, `flush` raises
    `NotWrittenError` or `OutcomeUnknownError` with PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        identity: tuple[int, int],
        **settings: Any,
    ) -> None:
        super().__init__(bootstrap, transactional_id=transactional_id, **settings)
        with self._lock:
            self._sender.begin_transaction(*identity)
