"""Bad requests about transactions, and about the records and epochs below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.case import Case, Difference, World, made

NAME = "conformance-transaction"
LONG_MS = 2**31 - 1
Build = Callable[[World], Any]


def _producer(world: World, epoch: int | None, producer: int | None) -> dict[str, int]:
    known = world.transaction
    return {
        "producer_id": known[0] if producer is None else producer,
        "producer_epoch": known[1] if epoch is None else epoch,
    }


def _end(name: str = NAME, *, epoch: int | None = None, producer: int | None = None) -> Build:
    return lambda world: made(
        "transactions",
        "EndTxnRequest",
        transactional_id=name,
        committed=True,
        **_producer(world, epoch, producer),
    )


def _offsets(name: str = NAME, *, epoch: int | None = None, group: str = "g") -> Build:
    return lambda world: made(
        "transactions",
        "AddOffsetsToTxnRequest",
        transactional_id=name,
        group_id=group,
        **_producer(world, epoch, None),
    )


def _add(
    name: str = NAME, *, epoch: int | None = None, topic: str = "conformance", partition: int = 0
) -> Build:
    """As a client adds; versions to 3."""

    def build(world: World) -> Any:
        producer = _producer(world, epoch, None)
        topics = [
            made(
                "transactions",
                "AddPartitionsToTxnTopic",
                name=topic,
                partitions=[partition],
            )
        ]
        return made(
            "transactions",
            "AddPartitionsToTxnRequest",
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer["producer_id"],
            v3_and_below_producer_epoch=producer["producer_epoch"],
            v3_and_below_topics=topics,
        )

    return build


def _commit(
    name: str = NAME,
    *,
    group: str = "conformance-txn-group",
    epoch: int | None = None,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    partition: int = 0,
    beside: int | None = None,
) -> Build:
    def build(world: World) -> Any:
        entries = [
            made(
                "offsets",
                "TxnOffsetCommitRequestPartition",
                partition_index=index,
                committed_offset=1,
                committed_metadata="",
            )
            for index in (partition, beside)
            if index is not None
        ]
        topic = made(
            "offsets",
            "TxnOffsetCommitRequestTopic",
            name=world.topic,
            topic_id=world.topic_id,
            partitions=entries,
        )
        return made(
            "offsets",
            "TxnOffsetCommitRequest",
            transactional_id=name,
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            topics=[topic],
            **_producer(world, epoch, None),
        )

    return build


def _init(
    name: str = "conformance-other", timeout_ms: int = 60_000, held: tuple[int, int] = (-1, -1)
) -> Build:
    return lambda world: made(
        "transactions",
        "InitProducerIdRequest",
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=held[0],
        producer_epoch=held[1],
    )


TRANSACTIONS = [
    *(
        Case("EndTxn", name, build, (0, 4))
        for name, build in (
            ("nothing is open", _end()),
            ("unknown transaction", _end("no-such-transaction")),
            ("empty name", _end("")),
            ("older epoch", _end(epoch=-1)),
            ("epoch from the future", _end(epoch=99)),
            ("other producer", _end(producer=12_345_678)),
        )
    ),
    Case("EndTxn", "epoch from the future", _end(epoch=99), (5, 5)),
    Case("EndTxn", "unknown transaction", _end("no-such-transaction"), (5, 5)),
    *(
        Case("AddOffsetsToTxn", name, build)
        for name, build in (
            ("unknown transaction", _offsets("no-such-transaction")),
            ("empty name", _offsets("")),
            ("epoch from the future", _offsets(epoch=99)),
            ("older epoch", _offsets(epoch=-1)),
        )
    ),
    *(
        Case("AddPartitionsToTxn", name, build, (0, 3))
        for name, build in (
            ("unknown transaction", _add("no-such-transaction")),
            ("empty name", _add("")),
            ("epoch from the future", _add(epoch=99)),
            ("unknown topic", _add(topic="no-such-topic")),
            ("unknown partition", _add(partition=9)),
        )
    ),
    *(
        Case("TxnOffsetCommit", name, build, (3, 99))
        for name, build in (
            ("unknown member", _commit(group="conformance-group", member="nobody", generation=1)),
            (
                "generation from the future",
                lambda w: _commit(group=w.group, member=w.member, generation=99)(w),
            ),
            (
                "other member of an instance",
                lambda w: _commit(
                    group=w.static_group, member="nobody", generation=1, instance=w.instance
                )(w),
            ),
        )
    ),
    *(
        Case("TxnOffsetCommit", name, build)
        for name, build in (
            ("empty group", _commit(group="")),
            ("unknown partition", _commit(partition=9)),
            ("unknown partition of no group", _commit(group="", partition=9)),
            ("unknown partition, no transaction", _commit("no-such-transaction", partition=9)),
            ("a known one too", _commit("no-such-transaction", partition=9, beside=0)),
            ("no transaction", _commit("no-such-transaction")),
        )
    ),
]

_PRODUCERS = [
    Case("InitProducerId", "transaction: timeout too long", _init(timeout_ms=LONG_MS)),
    Case("InitProducerId", "transaction: no timeout", _init(timeout_ms=0)),
    Case("InitProducerId", "transaction: negative timeout", _init(timeout_ms=-1)),
    Case(
        "InitProducerId", "transaction: identity of another", _init(NAME, held=(12_345, 3)), (3, 99)
    ),
    Case(
        "FindCoordinator",
        "of a transaction without a name",
        lambda w: made(
            "groups", "FindCoordinatorRequest", key="", key_type=1, coordinator_keys=[""]
        ),
        (1, 99),
    ),
]
PRODUCERS = [case._replace(needs="EndTxn") for case in _PRODUCERS]


def _producers(topic: str, partition: int) -> Build:
    def build(world: World) -> Any:
        entry = made("transactions", "TopicRequest", name=topic, partition_indexes=[partition])
        return made("transactions", "DescribeProducersRequest", topics=[entry])

    return build


def _markers(
    topic: str = "conformance",
    partition: int = 0,
    *,
    epoch: int = 0,
    producer: int | None = None,
    coordinator: int = 0,
) -> Build:
    def build(world: World) -> Any:
        entry = made(
            "transactions",
            "WritableTxnMarkerTopic",
            name=topic,
            partition_indexes=[partition],
        )
        marker = made(
            "transactions",
            "WritableTxnMarker",
            producer_id=world.producer_id + 50 if producer is None else producer,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[entry],
            coordinator_epoch=coordinator,
        )
        return made("transactions", "WriteTxnMarkersRequest", markers=[marker])

    return build


def _describe(*names: str) -> Build:
    return lambda world: made(
        "transactions", "DescribeTransactionsRequest", transactional_ids=list(names)
    )


def _list(**filters: Any) -> Build:
    return lambda world: made("transactions", "ListTransactionsRequest", **filters)


ADMINISTRATION = [
    Case("DescribeProducers", "accepted", _producers("conformance", 0)),
    Case("DescribeProducers", "unknown topic", _producers("no-such-topic", 0)),
    Case("DescribeProducers", "unknown partition", _producers("conformance", 9)),
    Case("DescribeProducers", "topic that cannot be", _producers("a b", 0)),
    Case("DescribeProducers", "topic without a name", _producers("", 0)),
    Case("WriteTxnMarkers", "unknown topic", _markers("no-such-topic")),
    Case("WriteTxnMarkers", "unknown partition", _markers(partition=9)),
    Case("WriteTxnMarkers", "no epoch", _markers(epoch=-1)),
    Case("WriteTxnMarkers", "no epoch, unknown topic", _markers("no-such-topic", epoch=-1)),
    Case("WriteTxnMarkers", "negative epoch", _markers(epoch=-2)),
    Case("WriteTxnMarkers", "negative epoch, unknown topic", _markers("no-such-topic", epoch=-2)),
    Case("WriteTxnMarkers", "negative coordinator epoch", _markers(coordinator=-1)),
    Case("WriteTxnMarkers", "no producer", _markers(producer=-1)),
    Case(
        "WriteTxnMarkers",
        "negative producer",
        _markers(producer=-2),
        differs=Difference("INVALID_REQUEST", "NONE", "a marker of no producer is of no use"),
    ),
    Case("DescribeTransactions", "accepted", _describe(NAME)),
    Case("DescribeTransactions", "none", _describe()),
    Case("DescribeTransactions", "unknown transaction", _describe("no-such-transaction")),
    Case("DescribeTransactions", "empty name", _describe("")),
    Case("ListTransactions", "all", _list()),
    Case("ListTransactions", "unknown state", _list(state_filters=["Odd"])),
    Case("ListTransactions", "pattern that is none", _list(transactional_id_pattern="("), (2, 2)),
]


def _delete_records(offset: int, *, topic: str = "conformance", partition: int = 1) -> Build:
    """Of the partition that has no records."""

    def build(world: World) -> Any:
        entry = made("topics", "DeleteRecordsPartition", partition_index=partition, offset=offset)
        topics = made("topics", "DeleteRecordsTopic", name=topic, partitions=[entry])
        return made("topics", "DeleteRecordsRequest", topics=[topics], timeout_ms=5_000)

    return build


def _epoch_end(
    epoch: int, *, current: int = -1, topic: str = "conformance", partition: int = 0
) -> Build:
    def build(world: World) -> Any:
        entry = made(
            "fetch",
            "OffsetForLeaderPartition",
            partition=partition,
            current_leader_epoch=current,
            leader_epoch=epoch,
        )
        topics = made("fetch", "OffsetForLeaderTopic", topic=topic, partitions=[entry])
        return made("fetch", "OffsetForLeaderEpochRequest", topics=[topics])

    return build


RECORDS = [
    *(
        Case("DeleteRecords", name, build)
        for name, build in (
            ("to the end of an empty partition", _delete_records(-1)),
            ("beyond the end", _delete_records(99)),
            ("negative offset", _delete_records(-2)),
            ("unknown topic", _delete_records(0, topic="no-such-topic")),
            ("unknown partition", _delete_records(0, partition=9)),
            (
                "of a compacted topic",
                _delete_records(0, topic="conformance-compacted", partition=0),
            ),
            ("no topics", lambda w: made("topics", "DeleteRecordsRequest", topics=[])),
        )
    ),
    *(
        Case("OffsetForLeaderEpoch", name, build)
        for name, build in (
            ("accepted", _epoch_end(0)),
            ("epoch from the future", _epoch_end(999)),
            ("negative epoch", _epoch_end(-1)),
            ("current epoch from the future", _epoch_end(0, current=999)),
            ("unknown topic", _epoch_end(0, topic="no-such-topic")),
            ("unknown partition", _epoch_end(0, partition=9)),
        )
    ),
]

CASES = [*TRANSACTIONS, *PRODUCERS, *ADMINISTRATION, *RECORDS]
