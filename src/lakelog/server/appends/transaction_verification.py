"""Whether the batches of a transactional Produce request belong to a transaction (KIP-890).

A batch that begins its producer's transaction in a partition may be written only if the
transaction's coordinator knows of that partition; otherwise the transaction would never be ended
there. Clients from Produce 12 on have the broker add the partition (transaction version 2); older
clients add it themselves.

The answer of the coordinator is about one transaction. A marker that is written before the batch
ends that transaction, or a former one, and voids the verification. Then the coordinator is asked
again: the batch may be written if the present transaction of the producer includes the partition,
and that transaction will be ended there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest
from lakelog.records.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    HEADER,
    HEADER_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.storage.producers.beginnings import Verification

TOPIC_IDS_SINCE = 13
"""The version of Produce from which on topics have ids instead of names (KIP-516)."""
ADDS_SINCE = 12
_ABORTABLE_SINCE = 11
_TRIED_AGAIN_BY_CLIENTS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

TopicPartition = tuple[str, int]
_Key = tuple[str | bytes, int]


class Coordinator(Protocol):
    """The transaction coordinators of the cluster."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Return a code for each partition: NONE if it is in the transaction or has been added."""
        ...


class ProduceCheck:
    """The verification of one request: the question to the coordinator, and its verdict.

    While the coordinator is `asked`, records lie in buffers of their own: the receive buffer is
    reused once the handler returns.

    Raises `KafkaError` (INVALID_PRODUCER_ID_MAPPING) for batches of more than one producer.
    """

    __slots__ = (
        "_asks",
        "_begun",
        "_failures",
        "_partitions",
        "_producer",
        "_transactional_id",
        "_verified",
        "_version",
        "asked",
        "codes",
    )

    def __init__(
        self,
        partitions: PartitionRegistry,
        request: ProduceRequest,
        version: int,
        now_ms: int,
        *,
        asks: bool = True,
    ) -> None:
        """
        asks: whether the coordinator may be asked; otherwise `asked` is empty.
        now_ms: milliseconds since the epoch.
        """
        assert request.transactional_id is not None
        self._asks = asks
        self._partitions = partitions
        self._version = version
        self._transactional_id = request.transactional_id
        self._producer = (-1, -1)
        self.asked: dict[_Key, TopicPartition] = {}
        """The partitions in which a batch begins its producer's transaction."""
        self.codes: Mapping[TopicPartition, ErrorCode] = {}
        """The coordinator's verdict on these partitions; empty if it need not be asked."""
        self._verified: dict[_Key, Verification] = {}
        self._failures: dict[_Key, KafkaError] = {}
        self._begun: dict[_Key, Partition] = {}
        batches = list(_transactional(request, version))
        producers = {producer for _, producer, _ in batches}
        if len(producers) > 1:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "a transactional request has batches of more than one producer",
            )
        for key, producer, sequence in batches:
            self._producer = producer
            self._begin(key, sequence, now_ms)
        if not asks:
            self.asked.clear()
        if self.asked:
            for topic in request.topic_data:
                for entry in topic.partition_data:
                    entry.records = None if entry.records is None else bytearray(entry.records)

    def _begin(self, key: _Key, sequence: int, now_ms: int) -> None:
        try:
            partition = self._partitions.leader(*key)
            verification = partition.start_verification(
                *self._producer, sequence, now_ms, supports_epoch_bump=self._version >= ADDS_SINCE
            )
        except KafkaError as error:
            # The other partitions of the request are independent of this one.
            self._failures[key] = error
            return
        self._begun[key] = partition
        if verification is not None:
            self._verified[key] = verification
            self.asked[key] = partition.topic, partition.index

    def ask(self, coordinator: Coordinator) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Have the coordinator verify the partitions, and add them for Produce 12 (KIP-890).

        The caller sets `codes` to the result.
        """
        return self._ask(coordinator, list(self.asked.values()))

    async def repeat(
        self, coordinator: Coordinator, topic: str | bytes, entry: PartitionProduceData, now_ms: int
    ) -> Verification | None:
        """Verify one batch again whose verification was voided; return as `verification`.

        now_ms: milliseconds since the epoch.

        Raises `KafkaError` as `verification`.
        """
        assert entry.records is not None, "it was verified before"
        key = topic, entry.index
        del self._verified[key]
        self._begin(key, HEADER.unpack_from(entry.records)[BASE_SEQUENCE], now_ms)
        if self._asks and key in self._verified:
            self.codes = {**self.codes, **await self._ask(coordinator, [self.asked[key]])}
        return self.verification(*key)

    def _ask(
        self, coordinator: Coordinator, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        return coordinator.verify(
            self._transactional_id,
            *self._producer,
            partitions,
            add=self._version >= ADDS_SINCE,
        )

    def target(
        self, topic: str | bytes, entry: PartitionProduceData
    ) -> tuple[Partition, Verification | None]:
        """Return the partition for a batch and the verification for `Partition.append`, if any.

        The partition was led when the check began. It may have another role by now, or be retired:
        `Partition.append` checks that.

        Raises `KafkaError` as `verification`, and as `PartitionRegistry.leader` for a batch that is
        not transactional.
        """
        index = entry.index
        begun = self._begun.get((topic, index))
        try:
            verification = self.verification(topic, index)
        except KafkaError as rejected:
            if begun is not None:
                begun.await_rejected(entry.records or b"", rejected)
            raise
        # Not looked up again: the verification is of this partition's log. A partition of a new
        # topic with the same name has another log, and must not accept it.
        return begun or self._partitions.leader(topic, index), verification

    def verification(self, topic: str | bytes, index: int) -> Verification | None:
        """Return the verification for `Partition.append`, None if the batch needs none.

        Raises `KafkaError` as `rejection`, or as `Partition.start_verification`.
        """
        key = (topic, index)
        failure = self._failures.get(key)
        if failure is not None:
            raise failure
        code = self.codes[self.asked[key]] if self.codes and key in self.asked else ErrorCode.NONE
        if code is not ErrorCode.NONE:
            raise rejection(code, self._version)
        return self._verified.get(key)


def _transactional(
    request: ProduceRequest, version: int
) -> Iterator[tuple[_Key, tuple[int, int], int]]:
    """Partition, producer and base sequence of each transactional batch."""
    for topic in request.topic_data:
        name = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name
        for entry in topic.partition_data:
            if entry.records is None or len(entry.records) < HEADER_SIZE:
                continue
            fields = HEADER.unpack_from(entry.records)
            producer_id, epoch = fields[PRODUCER_ID], fields[PRODUCER_EPOCH]
            if fields[ATTRIBUTES] & TRANSACTIONAL and producer_id >= 0:
                yield (name, entry.index), (producer_id, epoch), fields[BASE_SEQUENCE]


def rejection(code: ErrorCode, version: int) -> KafkaError:
    """Return the error for the coordinator's verdict, in a code that the version understands.

    Every client retries NOT_ENOUGH_REPLICAS without requesting metadata first. Kafka's
    `ReplicaManager` and `AddPartitionsToTxnManager` convert codes in the same way.
    """
    if code in _TRIED_AGAIN_BY_CLIENTS or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE
    ):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be verified now: {code.name}"
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version >= _ABORTABLE_SINCE:
        return KafkaError(code, "the partition is not in the transaction")
    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition is not in the transaction")
    return KafkaError(code)
