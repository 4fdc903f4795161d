"""Losses of records that name many topics.

Groups of submitted plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from doubles.faulty_store import FaultyStore
from doubles.randomness import SeededRandom
from doubles.zookeeper import SimulatedEnsemble
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import plan_register_broker
from lakelog.metadata.controller.topics import NewTopic, TopicResult, plan_create_topics
from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.features import METADATA_VERSION
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import (
    Plan,
    Planner,
    PlanQueue,
    SubmittedPlan,
    divided,
    entries_of,
    fits,
    taking_effect,
)
from lakelog.metadata.records import (
    AbortTransaction,
    BeginTransaction,
    BrokerFenced,
    BrokerLost,
    BrokerRecord,
    ConfigRecord,
    EndTransaction,
    FeatureRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    decode_records,
    encode_record,
)
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    AppendOutcome,
    MetadataBatch,
    MetadataStore,
    UnreservedSpace,
)
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock, SystemRandom
from waiting import until

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
    monkeypatch.setattr("lakelog.metadata.plan.TRANSACTION_BYTES_MAX", 700)
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
    monkeypatch.setattr("lakelog.metadata.plan.TRANSACTION_BYTES_MAX", BATCH_BYTES_MAX * 2)
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


_SESSION_S = 1.0
_BROKERS = (1_000_000_001, 1_000_000_002, 1_000_000_003)
_PARTITIONS = 10_000
_ENTRY_BYTES = 200


def _setting(n: int) -> ConfigRecord:
    return ConfigRecord(ResourceType.BROKER, "", f"key-{n}", "v")


def _planned(image: MetadataImage, count: int) -> list[list[Record]]:
    records = [_setting(n) for n in range(count)]
    lines = [encode_record(record) for record in records]
    changed = image._replace(pending=None).apply_all(records, image.end)
    entries = entries_of(image, records, lines, changed, _ENTRY_BYTES)
    for entry in entries:
        payload = tuple(decode_records(entry.payload))
        image = image.apply_all(payload, image.end + 1)
        assert len(entry.payload) <= _ENTRY_BYTES and image == entry.image
    return [decode_records(entry.payload) for entry in entries]


@pytest.mark.parametrize("count", range(1, 40))
def test_the_entries_of_a_change_of_any_size_lead_to_the_planned_image(count: int) -> None:
    entries = _planned(MetadataImage(), count)
    settings = [record for entry in entries for record in entry if type(record) is ConfigRecord]
    assert settings == [_setting(n) for n in range(count)]
    assert (type(entries[0][0]) is BeginTransaction) is (len(entries) > 1)
    assert (type(entries[-1][-1]) is EndTransaction) is (len(entries) > 1)


@pytest.mark.parametrize("count", [1, 20])
def test_a_pending_transaction_is_aborted_first(count: int) -> None:
    (abort, *rest) = _planned(MetadataImage(7, pending=(_setting(50),)), count)
    assert abort == [AbortTransaction()]
    assert len(rest) == len(_planned(MetadataImage(), count))


def test_a_record_that_fits_no_entry_beside_the_markers_cannot_be_part_of_a_transaction() -> None:
    assert fits([b"x" * _ENTRY_BYTES], _ENTRY_BYTES)
    assert not fits([b"x" * _ENTRY_BYTES, b"y"], _ENTRY_BYTES)


def test_records_take_effect_with_the_last_entry_only() -> None:
    begin, end, abort = BeginTransaction(), EndTransaction(), AbortTransaction()
    none = MetadataImage()
    pending = none.apply_all((begin, _setting(1)), 1)
    assert taking_effect(none, pending, (begin, _setting(1))) is None
    done = pending.apply_all((_setting(2), end), 2)
    assert taking_effect(pending, done, (_setting(2), end)) == (_setting(1), _setting(2))
    aborted = pending.apply_all((abort,), 2)
    assert taking_effect(pending, aborted, (abort,)) is None
    assert taking_effect(none, done, ()) == (), "a snapshot: the images are compared"
    assert taking_effect(none, none, (_setting(3),)) == (_setting(3),)


def test_a_snapshot_within_a_transaction_keeps_its_pending_records() -> None:
    image = MetadataImage().apply_all((_setting(1), BeginTransaction(), _setting(2)), 1)
    assert image.pending == (_setting(2),)
    assert MetadataImage().apply_all(image.to_records(), 1) == image


@pytest.mark.parametrize(
    "records",
    [
        (EndTransaction(),),
        (AbortTransaction(),),
        (BeginTransaction(), BeginTransaction(), EndTransaction()),
    ],
)
def test_markers_out_of_order_are_a_damaged_log(records: tuple[Record, ...]) -> None:
    with pytest.raises(MetadataCorrupt):
        MetadataImage().apply_all(records, 1)


class _Dying(FaultyStore):
    """The store of a controller that dies after some entries: it never hears of the next one."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner, SeededRandom(1), unknown_percent=0, delay_iterations_max=0)
        self.left: float = float("inf")
        self.died = asyncio.Event()

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        if not self.left:
            self.died.set()
            await asyncio.get_running_loop().create_future()
        self.left -= 1
        return await super().append(batch, expected_end)


_Stores = Callable[[Path], Callable[[], MetadataStore]]


def _embedded(path: Path) -> Callable[[], MetadataStore]:
    return lambda: EmbeddedStore(path / "metadata.db", SystemClock(), shared=True)


def _zookeeper(path: Path) -> Callable[[], MetadataStore]:
    ensemble = SimulatedEnsemble(SeededRandom(7))
    return lambda: ZooKeeperStore(
        ensemble.session(),
        "/lakelog",
        MemoryMarks(),
        SystemClock(),
        SystemRandom(),
        session_timeout_s=_SESSION_S,
    )


def _level_2(image: MetadataImage) -> Plan[None]:
    return Plan((FeatureRecord(METADATA_VERSION, 2),), None)


def _register(broker_id: int, incarnation: bytes, image: MetadataImage) -> Plan[int]:
    return plan_register_broker(image, broker_id, incarnation)


def _create(image: MetadataImage) -> Plan[list[TopicResult]]:
    topic = NewTopic("large", assignments=[(n, _BROKERS) for n in range(_PARTITIONS)])
    return plan_create_topics(image, [topic], broker=BrokerConfig({}), random=SeededRandom(3))


def _run(scenario: Callable[[AsyncioTasks], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(scenario(tasks), 120)
        finally:
            tasks.close()

    asyncio.run(whole())


@pytest.mark.long
@pytest.mark.parametrize("stores", [_embedded, _zookeeper])
def test_the_next_controller_resumes_a_change_whose_controller_died_between_two_entries(
    stores: _Stores, tmp_path: Path
) -> None:
    async def scenario(tasks: AsyncioTasks) -> None:
        handle = stores(tmp_path)
        dying = _Dying(handle())
        first = MetadataLog(dying, tasks, SystemRandom(), broker_id=1)
        second = MetadataLog(handle(), tasks, SystemRandom(), broker_id=2)
        await first.open(create=True)
        await second.open(create=False)
        await first.submit(_level_2)
        for number, broker_id in enumerate(_BROKERS, 1):
            incarnation = bytes([number]) * 16
            await first.submit(partial(_register, broker_id, incarnation))
        dying.left = 1
        lost = asyncio.ensure_future(first.submit(_create))
        await dying.died.wait()
        await dying.close()
        lost.cancel()
        await until(lambda: second.image.pending is not None)
        assert second.image.topic("large") is None and second.image == first.image
        begun = second.image.end

        await until(lambda: second.controller_id == 2)
        (result,) = await second.submit(_create)
        assert not result.error and result.partitions == _PARTITIONS
        image = second.image
        assert image.pending is None and image.end == begun + 3
        assert image.partition_count == _PARTITIONS

        third = MetadataLog(handle(), tasks, SystemRandom(), broker_id=3)
        await third.open(create=False)
        assert third.image == image
        await third.close()
        await second.close()

    _run(scenario)


def test_subscribers_get_a_change_of_several_entries_in_one_call(tmp_path: Path) -> None:
    async def scenario(tasks: AsyncioTasks) -> None:
        store = EmbeddedStore(tmp_path / "metadata.db", SystemClock())
        log = MetadataLog(store, tasks, SystemRandom(), broker_id=1)
        await log.open(create=True)
        await log.submit(_level_2)
        calls: list[tuple[str, int, int, int]] = []

        class Follower:
            async def prepare(
                self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
            ) -> None:
                calls.append(("prepare", old.end, new.end, len(records)))

            async def follow(
                self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
            ) -> None:
                calls.append(("follow", old.end, new.end, len(records)))

        log.subscribe(Follower())
        value = "x" * 400_000
        records = tuple(_setting(n)._replace(value=value) for n in range(5))
        await log.submit(lambda image: Plan(records, None))
        assert calls == [("prepare", 3, 4, 5), ("follow", 3, 4, 5)]
        await log.close()

    _run(scenario)
