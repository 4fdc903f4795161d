"""Changes of several entries: whole or not at all, on every broker and in both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from doubles.faulty_store import FaultyStore
from doubles.randomness import SeededRandom
from doubles.zookeeper import SimulatedEnsemble
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.controller.brokers import plan_register_broker
from lakelog.metadata.controller.topics import NewTopic, TopicResult, plan_create_topics
from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.features import METADATA_VERSION
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import (
    AbortTransaction,
    BeginTransaction,
    ConfigRecord,
    EndTransaction,
    FeatureRecord,
    Record,
    ResourceType,
    decode_records,
    encode_record,
)
from lakelog.metadata.store.api import AppendOutcome, MetadataBatch, MetadataStore
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.metadata.transactions import entries_of, fits, taking_effect
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock, SystemRandom
from waiting import until

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
