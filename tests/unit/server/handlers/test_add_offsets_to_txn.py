from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError, MetadataUnavailable
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.transactions import AddOffsetsToTxnRequest, DescribeTransactionsRequest
from lakelog.server.handlers import describe_transactions
from lakelog.server.handlers.add_offsets_to_txn import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, Producer, init_producer

E = ErrorCode


def ask(world: MemoryBroker, producer: Producer, version: int = 4) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    return world.ask(handle, request, version).error_code


def test_the_partition_of_the_group_becomes_part_of_the_transaction(
    coordinators: MemoryBroker,
) -> None:
    assert ask(coordinators, init_producer(coordinators)) == E.NONE
    request = DescribeTransactionsRequest(transactional_ids=["id"])
    (found,) = coordinators.ask(describe_transactions.handle, request, 0).transaction_states
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [
        ("__consumer_offsets", [0])
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_fenced_client_gets_the_code_of_its_version(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    fenced = init_producer(coordinators)
    init_producer(coordinators)
    assert ask(coordinators, fenced, version) == code


def test_an_unknown_producer_is_rejected(coordinators: MemoryBroker) -> None:
    assert ask(coordinators, Producer(99, 0)) == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (MetadataUnavailable("the store is gone"), E.NOT_COORDINATOR),
        (EntryOutcome.UNKNOWN, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_without_its_topic_there_is_no_group_coordinator(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.metadata.fault = fault
    assert ask(world, Producer(7, 0)) == code
