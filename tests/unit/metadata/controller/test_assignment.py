from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.assignment import (
    PARTITIONS_PER_REQUEST_MAX,
    Reassignment,
    check_capacity,
    check_manual,
    choose_replicas,
    new_partitions,
    place_replicas,
    plan_reassignments,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, BrokerReadOnly, BrokerRecord, PartitionRecord

TOPIC = b"t" * 16


def test_assigned_replicas_are_returned_in_the_order_of_partitions(image: MetadataImage) -> None:
    assert check_manual(image, {5: [2, 1], 4: [1, 3]}, 4) == [(1, 3), (2, 1)]


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ({0: [1], 2: [1]}, "without gaps"),
        ({1: [1]}, "without gaps"),
        ({0: []}, "partition 0 has no replicas"),
        ({0: [1], 1: [2, 2]}, "partition 1 names a broker twice"),
        ({0: [1], 1: [1, 2]}, "different numbers"),
        ({0: [1, 9]}, "broker 9 is not registered"),
    ],
)
def test_a_wrong_assignment_is_rejected_with_the_reason(
    image: MetadataImage, assignments: dict[int, list[int]], problem: str
) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        check_manual(image, assignments)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_there_must_be_as_many_brokers_as_replicas(image: MetadataImage) -> None:
    assert all(len(set(replicas)) == 3 for replicas in choose_replicas(image, 4, 3, 0))
    with pytest.raises(KafkaError, match=r"replication factor 4 exceeds .* 3"):
        choose_replicas(image, 1, 4, 0)


def test_a_request_is_limited_to_one_entry_of_the_log() -> None:
    check_capacity(PARTITIONS_PER_REQUEST_MAX)
    with pytest.raises(KafkaError, match="at most 10000 partitions; use several requests"):
        check_capacity(PARTITIONS_PER_REQUEST_MAX + 1)


def test_the_first_replica_leads_a_new_partition() -> None:
    assert new_partitions(MetadataImage(), TOPIC, [(2, 1)], 7) == [
        PartitionRecord(TOPIC, 7, (2, 1), (2, 1), 2, 0, 0)
    ]


def fenced(*node_ids: int) -> MetadataImage:
    """Return an image of brokers 1 to 3, of which these are fenced."""
    brokers = [BrokerRecord(each, bytes(16), 1, (), None) for each in (1, 2, 3)]
    return MetadataImage().apply_all(
        [*brokers, *(BrokerFenced(node_id, 1) for node_id in node_ids)], 1
    )


def test_a_fenced_broker_neither_leads_nor_is_in_sync() -> None:
    (partition,) = new_partitions(fenced(2), TOPIC, [(2, 1, 3)])
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 1, 3), (1, 3), 1)
    with pytest.raises(KafkaError, match="all replicas of partition 0 are fenced"):
        check_manual(fenced(2), {0: [2]})


def test_a_fenced_broker_is_not_chosen_while_others_suffice() -> None:
    assert {each for chosen in choose_replicas(fenced(2), 4, 2, 0) for each in chosen} == {1, 3}


def test_a_topic_that_is_created_while_a_broker_restarts_has_a_replica_on_it() -> None:
    """As in Apache Kafka (KRaft), which counts registered brokers."""
    assert choose_replicas(fenced(2), 2, 3, 0) == [(1, 3, 2), (3, 1, 2)]
    assert choose_replicas(fenced(2, 3), 2, 2, 0) == [(1, 2), (1, 3)]
    with pytest.raises(KafkaError, match="number of brokers, 3; choose a lower factor"):
        choose_replicas(fenced(2), 1, 4, 0)


def test_new_partitions_avoid_a_broker_that_cannot_write() -> None:
    image = fenced().apply(BrokerReadOnly(2, 1))
    assert {each for chosen in choose_replicas(image, 4, 2, 0) for each in chosen} == {1, 3}
    assert choose_replicas(image, 1, 3, 0) == [(1, 3, 2)]
    (partition,) = new_partitions(image, TOPIC, [(2, 1, 3)])
    assert (partition.isr, partition.leader) == ((1, 3), 1)
    with pytest.raises(KafkaError, match="are fenced, read-only"):
        check_manual(image, {0: [2]})


def test_no_topic_is_created_while_all_brokers_are_fenced() -> None:
    with pytest.raises(KafkaError, match="all brokers are fenced") as caught:
        choose_replicas(fenced(1, 2, 3), 1, 1, 0)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_unreached_broker_counts_as_fenced() -> None:
    """A partition with such replicas alone would have no leader if their hosts lost power."""
    image, unreached = fenced(), frozenset({2, 3})
    assert choose_replicas(image, 2, 2, 0, unreached) == [(1, 2), (1, 3)]
    (partition,) = new_partitions(image, TOPIC, [(2, 1, 3)], unreached=unreached)
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 1, 3), (1,), 1)
    with pytest.raises(KafkaError, match=r"all replicas of partition 1 are .* not reached yet"):
        check_manual(image, {0: [1, 2], 1: [2, 3]}, unreached=unreached)
    with pytest.raises(KafkaError, match="not reached yet; try again when one is online"):
        choose_replicas(image, 1, 1, 0, frozenset({1, 2, 3}))


_BROKERS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([None, "a", "b", "c"])),
    min_size=1,
    max_size=8,
    unique_by=lambda keyed: keyed[0],
)


@given(_BROKERS, st.integers(1, 30), st.data())
def test_replicas_are_distinct_and_leaders_spread(
    brokers: list[tuple[int, str | None]], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place_replicas(brokers, partitions, factor, data.draw(st.integers(0, 9)))
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(b, 0) for b, _ in brokers) <= 1


@given(_BROKERS, st.integers(1, 30), st.data())
def test_racks_differ_as_long_as_there_are_enough(
    brokers: list[tuple[int, str | None]], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    racks = dict(brokers)
    named = {rack for rack in racks.values() if rack is not None}
    if None in racks.values() or len(named) < factor:
        return
    for replicas in place_replicas(brokers, partitions, factor, 0):
        assert len({racks[broker] for broker in replicas}) == factor


def _reassign(
    image: MetadataImage, replicas: Sequence[int] | None, *, partition: int = 0, change: bool = True
) -> tuple[MetadataImage, ErrorCode]:
    move = Reassignment("orders", partition, replicas)
    plan = plan_reassignments(image, [move], allow_replication_factor_change=change)
    (result,) = plan.result
    return image.apply_all(plan.records, image.end), result.error


def test_a_move_to_the_same_brokers_is_done_at_once(image: MetadataImage) -> None:
    assert _reassign(image, [1, 2]) == (image, ErrorCode.NONE)
    after, error = _reassign(image, [2, 1])
    assert error is ErrorCode.NONE
    topic = after.topic("orders")
    assert topic is not None
    partition = topic.partitions[0]
    assert (partition.replicas, partition.leader, partition.partition_epoch) == ((2, 1), 1, 1)


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9], [2, 3]])
def test_replicas_that_cannot_be(image: MetadataImage, replicas: list[int]) -> None:
    assert _reassign(image, replicas) == (image, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def test_the_number_of_replicas_may_be_kept(image: MetadataImage) -> None:
    assert _reassign(image, [1], change=False)[1] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert _reassign(image, [2, 1], change=False)[1] is ErrorCode.NONE


def test_nothing_is_there_to_cancel(image: MetadataImage) -> None:
    assert _reassign(image, None)[1] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    unknown = _reassign(image, None, partition=9)[1]
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_named_twice_is_rejected_both_times(image: MetadataImage) -> None:
    moves = [Reassignment("orders", 0, replicas) for replicas in ([2, 1], [1, 2])]
    plan = plan_reassignments(image, moves)
    assert [each.error for each in plan.result] == [ErrorCode.INVALID_REQUEST] * 2
    assert plan.records == ()
