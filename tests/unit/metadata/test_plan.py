"""Losses of records that name many topics.

Groups of submitted plans.
"""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.features import METADATA_VERSION
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan, Planner, PlanQueue, SubmittedPlan, divided
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerLost,
    BrokerRecord,
    ConfigRecord,
    FeatureRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    encode_record,
)
from lakelog.metadata.store.api import BATCH_BYTES_MAX, UnreservedSpace

ENTRY_BYTES_MAX = 300
TOPICS = tuple(bytes([number]) * 16 for number in range(1, 21))
KEPT = TOPICS[:15]


def _cluster(level: int = 2) -> MetadataImage:
    """Three brokers, of which the first is fenced, with 20 topics of two partitions."""
    records: list[Record] = [
        FeatureRecord(METADATA_VERSION, 2),
        *(BrokerRecord(n, bytes([n]) * 16, 1, (), None, bytes([n]) * 16) for n in (1, 2, 3)),
    ]
    for number, topic_id in enumerate(TOPICS):
        records.append(TopicRecord(f"t{number}", topic_id))
        records += [PartitionRecord(topic_id, p, (1, 2, 3), (1, 2, 3), 1, 0, 0) for p in (0, 1)]
    records += [
        ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "3"),
        BrokerFenced(1, 1),
        FeatureRecord(METADATA_VERSION, level),
    ]
    return MetadataImage().apply_all(records, 1)


def _joined(kept: tuple[bytes, ...]) -> tuple[Record, ...]:
    return BrokerRecord(1, b"n" * 16, 2, (), None), BrokerLost(1, 2, True, kept)


def test_a_loss_that_is_too_large_becomes_the_states_that_it_leads_to() -> None:
    image = _cluster()
    records = _joined(KEPT)
    smaller = divided(image, records, ENTRY_BYTES_MAX)
    assert max(len(encode_record(record)) for record in smaller) < ENTRY_BYTES_MAX
    assert smaller[0] == records[0]
    changed = {record.topic_id for record in smaller[1:] if isinstance(record, PartitionRecord)}
    assert changed == set(TOPICS[15:])
    assert len(smaller) == 1 + 2 * 5
    assert image.apply_all(smaller, 2) == image.apply_all(records, 2)


def test_a_loss_that_fits_an_entry_stays_one_record() -> None:
    records = _joined(KEPT[:2])
    assert divided(_cluster(), records, ENTRY_BYTES_MAX) == records


@pytest.mark.parametrize("capacity", range(300, 330))
def test_without_transactions_a_loss_names_as_many_topics_as_one_entry_has_room_for(
    capacity: int,
) -> None:
    image = _cluster(level=1)
    broker, lost = divided(image, _joined(KEPT), capacity)
    assert isinstance(lost, BrokerLost)
    size = len(encode_record(broker)) + len(encode_record(lost))
    assert capacity - len(',"AAAAAAAAAAAAAAAAAAAAAA"') < size <= capacity
    assert lost.kept_topics == KEPT[: len(lost.kept_topics)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_loss_names_no_topics_without_any_room(count: int) -> None:
    assert divided(_cluster(level=1), _joined(KEPT[:count]), 0) == _joined(())


def test_a_loss_with_too_many_states_names_fewer_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.metadata.transactions.TRANSACTION_BYTES_MAX", 700)
    broker, lost = divided(_cluster(), _joined(KEPT), ENTRY_BYTES_MAX)
    assert broker == _joined(KEPT)[0]
    assert isinstance(lost, BrokerLost)
    assert 0 < len(lost.kept_topics) < len(KEPT)


LEVEL_2 = MetadataImage().apply(FeatureRecord(METADATA_VERSION, 2))


def _set(key: str, value: str = "1") -> Planner[str]:
    record = ConfigRecord(ResourceType.BROKER, "", key, value)
    return lambda image: Plan((record,), key)


def _queue(*plans: Planner[str], from_reserve: bool = False) -> PlanQueue:
    queue = PlanQueue(UnreservedSpace(), BATCH_BYTES_MAX)
    for plan in plans:
        queue.add(SubmittedPlan(plan, Future(), from_reserve))
    return queue


def test_each_plan_of_a_group_sees_the_changes_of_the_plans_before_it() -> None:
    seen: list[int] = []

    def looking(image: MetadataImage) -> Plan[str]:
        seen.append(len(image.to_records()))
        return _set("second")(image)

    group = _queue(_set("first"), looking).next_group(MetadataImage())
    assert seen == [len(MetadataImage().to_records()) + 1]
    assert [result for _, result, _ in group.completed] == ["first", "second"]
    assert len(group.records) == 2 and group.entries[-1].image.end == 1


def test_a_plan_that_fails_leaves_no_record_and_the_others_in_the_group() -> None:
    def failing(image: MetadataImage) -> Plan[str]:
        raise KafkaError(ErrorCode.INVALID_CONFIG)

    group = _queue(_set("a"), failing, _set("b")).next_group(MetadataImage())
    assert [error is None for _, _, error in group.completed] == [True, False, True]
    assert len(group.records) == 2


def test_a_plan_that_does_not_fit_begins_the_next_group() -> None:
    value = "x" * (BATCH_BYTES_MAX * 2 // 3)
    queue = _queue(_set("a", value), _set("b", value))
    first = queue.next_group(MetadataImage())
    assert [result for _, result, _ in first.completed] == ["a"]
    second = queue.next_group(first.entries[-1].image)
    assert [result for _, result, _ in second.completed] == ["b"]
    assert not queue


def _settings(count: int) -> tuple[ConfigRecord, ...]:
    value = "x" * (BATCH_BYTES_MAX // 3)
    return tuple(ConfigRecord(ResourceType.BROKER, "", f"k{n}", value) for n in range(count))


def test_a_plan_that_is_larger_than_an_entry_is_a_group_of_several_entries() -> None:
    def large(image: MetadataImage) -> Plan[str]:
        return Plan(_settings(7), "large")

    queue = _queue(_set("a"), large, _set("b"))
    start = queue.next_group(LEVEL_2).entries[-1].image
    group = queue.next_group(start)
    assert [result for _, result, _ in group.completed] == ["large"]
    assert len(group.entries) == 4
    configs = [len(entry.image.configs(ResourceType.BROKER, "")) for entry in group.entries]
    assert configs == [1, 1, 1, 8]
    assert [entry.image.end for entry in group.entries] == [2, 3, 4, 5]
    assert queue.next_group(group.entries[-1].image).entries[-1].image.end == 6


def test_a_large_plan_needs_the_level_with_transactions() -> None:
    group = _queue(lambda image: Plan(_settings(7), "")).next_group(MetadataImage())
    ((_, _, error),) = group.completed
    assert isinstance(error, KafkaError) and error.code is ErrorCode.POLICY_VIOLATION
    assert "finalize lakelog.metadata.version=2" in error.message


def test_a_plan_with_a_record_above_the_finalized_level_is_a_bug() -> None:
    record = FeatureRecord("transaction.version", 1)
    group = _queue(lambda image: Plan((record,), "")).next_group(MetadataImage())
    ((_, _, error),) = group.completed
    assert isinstance(error, AssertionError)
    assert not group.entries


def test_a_group_without_records_does_not_abort_a_pending_transaction() -> None:
    image = MetadataImage(pending=_settings(1))
    assert not _queue(lambda image: Plan((), "")).next_group(image).entries
    assert len(_queue(_set("a")).next_group(image).entries) == 2


def test_a_plan_above_the_limit_of_all_entries_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.metadata.transactions.TRANSACTION_BYTES_MAX", BATCH_BYTES_MAX * 2)
    group = _queue(lambda image: Plan(_settings(7), ""), _set("b")).next_group(LEVEL_2)
    (_, _, error), (_, result, _) = group.completed
    assert isinstance(error, KafkaError) and error.code is ErrorCode.POLICY_VIOLATION
    assert result == "b"


def test_a_plan_with_a_record_that_fits_no_entry_fails_alone() -> None:
    group = _queue(_set("a", "x" * BATCH_BYTES_MAX), _set("b")).next_group(MetadataImage())
    (_, _, error), (_, result, _) = group.completed
    assert isinstance(error, KafkaError) and error.code is ErrorCode.POLICY_VIOLATION
    assert result == "b"


def test_a_registration_that_keeps_more_topics_than_an_entry_names_is_not_refused() -> None:
    """After a power failure of all hosts no broker could start."""
    image = LEVEL_2.apply(BrokerRecord(1, b"o" * 16, 1, (), None)).apply(BrokerFenced(1, 1))
    kept = tuple(number.to_bytes(16, "big") for number in range(BATCH_BYTES_MAX // 20))
    broker = BrokerRecord(1, b"n" * 16, 2, (), None)
    joined = Plan((broker, BrokerLost(1, 2, True, kept)), "joined")
    group = _queue(lambda image: joined).next_group(image)
    assert [(result, error) for _, result, error in group.completed] == [("joined", None)]
    assert group.records == [broker]
    assert group.entries[-1].image.broker_epoch(1) == 2
    below = image.apply(FeatureRecord(METADATA_VERSION, 1))
    group = _queue(lambda image: joined).next_group(below)
    assert [(result, error) for _, result, error in group.completed] == [("joined", None)]
    assert len(group.entries) == 1


def test_plans_that_are_put_back_are_planned_first_and_in_their_order() -> None:
    queue = _queue(_set("a"), _set("b"))
    lost = queue.next_group(MetadataImage())
    queue.add(SubmittedPlan(_set("c"), Future(), False))
    queue.put_back(lost.plans)
    group = queue.next_group(MetadataImage())
    assert [result for _, result, _ in group.completed] == ["a", "b", "c"]


class _FullSpace(UnreservedSpace):
    def check_reserve(self) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("from_reserve", [False, True])
def test_only_an_entitled_plan_passes_while_the_space_is_reserved(from_reserve: bool) -> None:
    queue = PlanQueue(_FullSpace(), BATCH_BYTES_MAX)
    queue.add(SubmittedPlan(_set("a"), Future(), from_reserve))
    group = queue.next_group(MetadataImage())
    assert bool(group.records) is from_reserve
    ((_, _, error),) = group.completed
    assert (error is None) is from_reserve


def test_a_failure_settles_all_waiting_plans_but_not_cancelled_ones() -> None:
    queue = _queue()
    futures: list[Future[str]] = [Future(), Future()]
    for future in futures:
        queue.add(SubmittedPlan(_set("a"), future, False))
    futures[0].cancel()
    queue.fail(ValueError("the store failed"))
    assert futures[0].cancelled()
    assert isinstance(futures[1].exception(), ValueError)
    assert not queue
