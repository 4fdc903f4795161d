"""The chain covers everything in an entry, and its mark survives restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubles.randomness import SeededRandom
from doubles.zookeeper import SimulatedEnsemble
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.controller.brokers import (
    plan_cluster_id,
    plan_producer_ids,
    plan_register_broker,
)
from lakelog.metadata.controller.topics import NewTopic, plan_create_topics
from lakelog.metadata.errors import MetadataCorrupt, MetadataNotEmpty
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ConfigRecord, ResourceType, encode_records
from lakelog.metadata.store.api import EntryOutcome, MetadataBatch, MovableStore
from lakelog.metadata.store.chain import (
    Mark,
    MarkFile,
    Marks,
    MemoryMarks,
    MetadataInUse,
    copy_log,
    first_link,
    image_of,
    next_link,
)
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock

BATCH = MetadataBatch(b"w" * 16, 3, 4, b"payload")


@pytest.mark.parametrize(
    ("index", "batch"),
    [
        (8, BATCH),
        (7, BATCH._replace(writer_id=b"v" * 16)),
        (7, BATCH._replace(serial=4)),
        (7, BATCH._replace(controller_epoch=5)),
        (7, BATCH._replace(payload=b"payloae")),
    ],
)
def test_the_chain_depends_on_every_field(index: int, batch: MetadataBatch) -> None:
    chain = first_link(b"l" * 16)
    assert next_link(chain, index, batch) != next_link(chain, 7, BATCH)
    assert next_link(first_link(b"m" * 16), 7, BATCH) != next_link(chain, 7, BATCH)


def test_a_mark_is_read_back_and_replaced(tmp_path: Path) -> None:
    marks = MarkFile(tmp_path / "metadata.mark")
    assert marks.read() is None
    for end in (5, 6):
        mark = Mark(b"l" * 16, end, b"c" * 16)
        asyncio.run(marks.write(mark))
        assert marks.read() == mark
    assert (tmp_path / "metadata.mark").stat().st_size == 48


@pytest.mark.parametrize("position", [0, 20, 39, 41])
def test_a_damaged_mark_is_ignored(
    tmp_path: Path, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metadata.mark"
    asyncio.run(MarkFile(path).write(Mark(b"l" * 16, 5, b"c" * 16)))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert MarkFile(path).read() is None
    assert "metadata.mark is damaged" in caplog.text


WRITER = b"writer-aaaaaaaaa"


def _file(path: Path, marks: Marks | None = None) -> MovableStore:
    return EmbeddedStore(path, SystemClock(), marks=marks)


class Ensemble:
    """A simulated ensemble with at most one log."""

    def __init__(self) -> None:
        self._ensemble = SimulatedEnsemble(SeededRandom(7))

    def store(self, marks: Marks | None = None) -> MovableStore:
        return ZooKeeperStore(
            self._ensemble.session(),
            "/kafka/lakelog",
            marks or MemoryMarks(),
            SystemClock(),
            SeededRandom(8),
        )


def _plans(steps: list[int]) -> list[Plan[Any]]:
    """Return the changes of a cluster's life, each on the image after the ones before."""
    image, plans, random = MetadataImage(), list[Plan[Any]](), SeededRandom(1)
    config = BrokerConfig.from_mapping({})[0]
    for number, step in enumerate([0, 1, *steps]):
        plan: Plan[Any]
        match step:
            case 0:
                plan = plan_cluster_id(image, None, "cluster-a")
            case 1:
                plan = plan_register_broker(image, 1, bytes([number]) * 16)
            case 2:
                plan = plan_producer_ids(image, 1)
            case 3:
                topics = [NewTopic(f"t{number}", 3, 1)]
                plan = plan_create_topics(image, topics, broker=config, random=random)
            case _:
                key = f"k{number % 3}"
                plan = Plan((ConfigRecord(ResourceType.BROKER, "", key, str(number)),), None)
        image = image.apply_all(plan.records, image.end + 1)
        plans.append(plan)
    return plans


async def _fill(store: MovableStore, plans: list[Plan[Any]], terms: int = 1) -> MetadataImage:
    await store.open(create=True)
    await store.register_broker(1, b"1" * 16)
    for _ in range(terms):
        term = await store.elect()
    for index, plan in enumerate(plans):
        batch = MetadataBatch(WRITER, index + 1, term.epoch, encode_records(plan.records))
        assert (await store.append(batch, index)).outcome is EntryOutcome.DONE
    image = image_of(await store.read(0))
    await store.close()
    return image


async def _copy(source: MovableStore, target: MovableStore) -> None:
    await source.open(create=False)
    try:
        await copy_log(source, target)
    finally:
        await target.close()
        await source.close()


async def _read(store: MovableStore) -> tuple[MetadataImage, int]:
    await store.open(create=False)
    found = image_of(await store.read(0)), (await store.controller()).epoch
    await store.close()
    return found


@pytest.mark.long
@settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.integers(2, 4), max_size=12), st.integers(1, 3))
def test_there_and_back_keeps_the_image_the_epoch_and_the_marks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], terms: int
) -> None:
    path = tmp_path_factory.mktemp("move")

    async def work() -> None:
        marks, plans = MemoryMarks(), _plans(steps)
        image = await _fill(_file(path / "a.db", marks), plans, terms)
        ensemble = Ensemble()
        await _copy(_file(path / "a.db"), ensemble.store())
        assert await _read(ensemble.store(marks)) == (image, terms)
        await _copy(ensemble.store(), _file(path / "b.db"))
        assert await _read(_file(path / "b.db", marks)) == (image, terms)
        # The log continues, and the store that it left is refused.
        store = _file(path / "b.db", marks)
        await store.open(create=False)
        await store.register_broker(1, b"1" * 16)
        term = await store.elect()
        assert term.epoch == terms + 1
        batch = MetadataBatch(WRITER, 99, term.epoch, b"")
        assert (await store.append(batch, image.end)).outcome is EntryOutcome.DONE
        await store.close()
        for old in (_file(path / "a.db", marks), ensemble.store(marks)):
            with pytest.raises(MetadataCorrupt, match="was seen before"):
                await old.open(create=False)
            await old.close()

    asyncio.run(work())


def test_a_log_is_not_moved_under_a_live_broker(tmp_path: Path) -> None:
    async def work() -> None:
        await _fill(_file(tmp_path / "a.db"), _plans([]))
        live = _file(tmp_path / "a.db")
        await live.open(create=False)
        await live.register_broker(7, b"7" * 16)
        with pytest.raises(MetadataInUse, match="node ids: 7"):
            await _copy(_file(tmp_path / "a.db"), _file(tmp_path / "b.db"))
        assert not (tmp_path / "b.db").exists()
        await live.close()

    asyncio.run(work())


def test_no_log_is_overwritten(tmp_path: Path) -> None:
    async def work() -> None:
        ensemble = Ensemble()
        await _fill(_file(tmp_path / "a.db"), _plans([3]))
        image = await _fill(_file(tmp_path / "b.db"), _plans([2]))
        with pytest.raises(MetadataNotEmpty, match=r"b\.db exists already"):
            await _copy(_file(tmp_path / "a.db"), _file(tmp_path / "b.db"))
        assert (await _read(_file(tmp_path / "b.db")))[0] == image
        await _copy(_file(tmp_path / "a.db"), ensemble.store())
        with pytest.raises(MetadataNotEmpty, match="exists already in ZooKeeper"):
            await _copy(_file(tmp_path / "b.db"), ensemble.store())

    asyncio.run(work())
