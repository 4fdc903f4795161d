"""The metadata log over stores that work, are late, lose sessions, and have unknown outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from doubles.faulty_store import FaultyStore
from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import plan_fence, plan_producer_ids, plan_register_broker
from lakelog.metadata.controller.topics import NewTopic, TopicResult, plan_create_topics
from lakelog.metadata.errors import (
    MetadataCorrupt,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import (
    ConfigRecord,
    Record,
    ResourceType,
    TopicRemoved,
    encode_records,
)
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    AppendOutcome,
    Change,
    ControllerTerm,
    LogRead,
    MetadataBatch,
)
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock, SystemRandom


class MetadataLogs:
    def __init__(self, path: Path) -> None:
        self.path = path / "metadata.db"
        self.tasks = AsyncioTasks(asyncio.get_running_loop())

    def embedded(self, *, shared: bool = False) -> EmbeddedStore:
        return EmbeddedStore(self.path, SystemClock(), shared=shared)

    def log(self, store: EmbeddedStore | FaultyStore, broker_id: int = 1) -> MetadataLog:
        return MetadataLog(store, self.tasks, SystemRandom(), broker_id=broker_id)


class Follower:
    """Calls `warned` before the new image is visible, and `informed` after that."""

    def __init__(
        self,
        informed: Callable[[MetadataImage, MetadataImage, tuple[Record, ...]], object],
        warned: Callable[[MetadataImage, MetadataImage, tuple[Record, ...]], object] | None = None,
    ) -> None:
        self._told = informed
        self._warned = warned

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        if self._warned is not None:
            self._warned(old, new, records)
        await asyncio.sleep(0)

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        self._told(old, new, records)
        await asyncio.sleep(0)


def _play(path: Path, scenario: Callable[[MetadataLogs], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        logs = MetadataLogs(path)
        try:
            await asyncio.wait_for(scenario(logs), 120)
        finally:
            logs.tasks.close()

    asyncio.run(whole())


def _set(key: str, value: str = "v") -> Callable[[MetadataImage], Plan[int]]:
    """A plan that answers how many settings there were."""

    def plan(image: MetadataImage) -> Plan[int]:
        before = len(image.configs(ResourceType.BROKER, ""))
        return Plan((ConfigRecord(ResourceType.BROKER, "", key, value),), before)

    return plan


def _ids(image: MetadataImage) -> Plan[range]:
    return plan_producer_ids(image, 1)


def test_subscribers_hear_first_and_a_restart_replays(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        heard: list[tuple[int, int, tuple[Record, ...]]] = []
        log = logs.log(logs.embedded())
        await log.open(create=True)
        log.subscribe(Follower(lambda old, new, records: heard.append((old.end, new.end, records))))
        assert await log.submit(_ids) == range(1000)
        assert [(old, new, len(records)) for old, new, records in heard] == [(0, 1, 1)]
        image = log.image
        await log.close()

        again = logs.log(logs.embedded())
        await again.open(create=False)
        assert again.image == image
        assert await again.submit(_ids) == range(1000, 2000)
        await again.close()

    _play(tmp_path, scenario)


def test_plans_that_wait_share_an_entry_and_see_one_another(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        results = await asyncio.gather(*(log.submit(_set(f"k{n}")) for n in range(50)))
        assert results == list(range(50))
        assert log.image.end <= 2
        await log.close()

    _play(tmp_path, scenario)


def test_a_plan_that_fails_fails_alone(tmp_path: Path) -> None:
    def refuse(image: MetadataImage) -> Plan[int]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "no")

    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        one, other = await asyncio.gather(
            log.submit(refuse), log.submit(_set("k")), return_exceptions=True
        )
        assert isinstance(one, KafkaError)
        assert one.code is ErrorCode.INVALID_CONFIG
        assert other == 0
        await log.close()

    _play(tmp_path, scenario)


def test_a_plan_with_a_wrong_record_fails_alone_and_writes_nothing(tmp_path: Path) -> None:
    def wrong(image: MetadataImage) -> Plan[int]:
        return Plan((TopicRemoved(b"u" * 16),), 0)

    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        one, other = await asyncio.gather(
            log.submit(wrong), log.submit(_set("k")), return_exceptions=True
        )
        assert isinstance(one, MetadataCorrupt)
        assert other == 0
        assert log.image.end == 1
        await log.close()

    _play(tmp_path, scenario)


def test_plans_that_fail_among_others_split_no_entry(tmp_path: Path) -> None:
    def refuse(image: MetadataImage) -> Plan[int]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "no")

    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        plans = (refuse if n % 2 else _set(f"k{n}") for n in range(50))
        results = await asyncio.gather(*map(log.submit, plans), return_exceptions=True)
        assert results[0::2] == list(range(25))
        assert all(isinstance(result, KafkaError) for result in results[1::2])
        assert log.image.end <= 2
        await log.close()

    _play(tmp_path, scenario)


def test_a_plan_may_fill_an_entry(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        capacity = BATCH_BYTES_MAX
        capacity -= (
            len(encode_records(_set("k", "v" * capacity)(log.image).records)) - BATCH_BYTES_MAX
        )
        await log.submit(_set("k", "v" * capacity))
        assert log.image.configs(ResourceType.BROKER, "")["k"] == "v" * capacity
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            await log.submit(_set("k", "v" * (capacity + 1)))
        await log.close()

    _play(tmp_path, scenario)


def test_large_plans_are_split_over_entries_and_too_large_ones_refused(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        half = "v" * (BATCH_BYTES_MAX * 2 // 3)
        await asyncio.gather(*(log.submit(_set(f"k{n}", half)) for n in range(3)))
        assert log.image.end == 3
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            await log.submit(_set("k", "v" * BATCH_BYTES_MAX))
        await log.close()

    _play(tmp_path, scenario)


def test_closing_finishes_submitted_plans_and_rejects_later_ones(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        asked = asyncio.create_task(log.submit(_ids))
        await asyncio.sleep(0)
        await log.close()
        assert await asked == range(1000)
        with pytest.raises(KafkaError):
            await log.submit(_ids)

    _play(tmp_path, scenario)


def test_a_caller_that_goes_away_leaves_the_log_working(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        asked = asyncio.create_task(log.submit(_ids))
        await asyncio.sleep(0)
        asked.cancel()
        assert await log.submit(_ids) == range(1000, 2000)
        await log.close()

    _play(tmp_path, scenario)


def test_a_snapshot_bounds_the_replay(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        await asyncio.gather(*(log.submit(_set(f"k{n % 7}", str(n))) for n in range(1100)))
        await log.submit(_ids)
        image = log.image
        await log.close()

        store = logs.embedded()
        await store.open(create=False)
        read = await store.read(0)
        await store.close()
        assert read.snapshot is not None
        assert read.snapshot.end + len(read.entries) == image.end
        assert len(read.snapshot.payload) < 1000

        again = logs.log(logs.embedded())
        await again.open(create=False)
        assert again.image == image
        await again.close()

    _play(tmp_path, scenario)


def test_closing_waits_for_the_snapshot_that_a_submitted_plan_makes_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog.metadata.snapshots._COST_MIN", 1)

    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        asked = asyncio.create_task(log.submit(_ids))
        await asyncio.sleep(0)
        await log.close()
        assert await asked == range(1000)
        store = logs.embedded()
        await store.open(create=False)
        assert (await store.read(0)).snapshot is not None
        await store.close()

    _play(tmp_path, scenario)


def test_a_snapshot_waits_until_replaying_costs_twice_as_much(tmp_path: Path) -> None:
    topics = [NewTopic(f"t{number}", 1, 1) for number in range(700)]

    def create(image: MetadataImage) -> Plan[list[TopicResult]]:
        broker = BrokerConfig({})
        return plan_create_topics(image, topics, broker=broker, random=SeededRandom(1))

    async def scenario(logs: MetadataLogs) -> None:
        store = logs.embedded()
        log = logs.log(store)
        await log.open(create=True)
        await log.submit(lambda image: plan_register_broker(image, 1, b"i" * 16))
        await log.submit(create)
        await log.close()
        store = logs.embedded()
        await store.open(create=False)
        assert (await store.read(0)).snapshot is None
        await store.close()

    _play(tmp_path, scenario)


def test_a_snapshot_is_due_once_replaying_costs_the_minimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog.metadata.snapshots._COST_MIN", 3)

    async def end_of_snapshot(logs: MetadataLogs, changes: int) -> int | None:
        logs.path = tmp_path / f"{changes}.db"
        log = logs.log(logs.embedded())
        await log.open(create=True)
        for number in range(changes):
            await log.submit(_set(f"k{number}"))
        await log.close()
        store = logs.embedded()
        await store.open(create=False)
        snapshot = (await store.read(0)).snapshot
        await store.close()
        return None if snapshot is None else snapshot.end

    async def scenario(logs: MetadataLogs) -> None:
        assert await end_of_snapshot(logs, 2) is None
        assert await end_of_snapshot(logs, 3) == 3

    _play(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(12))
def test_no_block_is_allocated_twice_after_unknown_outcomes(tmp_path: Path, seed: int) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        store = FaultyStore(
            logs.embedded(), SeededRandom(seed), unknown_percent=50, unavailable_percent=2
        )
        log = logs.log(store)
        while True:
            try:
                await log.open(create=True)
                break
            except Exception:  # noqa: BLE001 - injected; a fresh broker process would retry
                log = logs.log(store)
        answers: list[range | BaseException] = []
        for _ in range(6):
            answers += await asyncio.gather(
                *(log.submit(_ids) for _ in range(3)), return_exceptions=True
            )
        given = [answer for answer in answers if isinstance(answer, range)]
        failures = [answer for answer in answers if not isinstance(answer, range)]
        codes = {error.code for error in failures if isinstance(error, KafkaError)}
        assert codes <= {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR}
        assert len(codes) > 0 or not failures
        assert len({block.start for block in given}) == len(given)
        await log.close()

        again = logs.log(logs.embedded())
        await again.open(create=False)
        assert all(block.stop <= again.image.next_producer_id for block in given)
        known = set(range(0, again.image.next_producer_id, 1000))
        assert {block.start for block in given} <= known
        if not failures:
            assert len(known) == len(given)
        await again.close()

    _play(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_controller_that_lost_its_session_does_no_harm(tmp_path: Path, seed: int) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        first_store = FaultyStore(logs.embedded(shared=True), SeededRandom(seed))
        first = logs.log(first_store, 1)
        await first.open(create=True)
        second = logs.log(logs.embedded(shared=True), 2)
        await second.open(create=False)
        await first.submit(lambda image: plan_register_broker(image, 1, first.incarnation_id))
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await second.submit(_ids)

        await first_store.lose_session()
        assert await second.submit(_ids) == range(1000)
        await first_store.restore_session()
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await first.submit(_ids)

        await second.close()
        assert await first.submit(_ids) == range(1000, 2000)
        assert first.image.brokers[1].epoch == 1
        await first.close()

    _play(tmp_path, scenario)


def test_another_brokers_change_arrives_by_itself(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        first = logs.log(logs.embedded(shared=True), 1)
        await first.open(create=True)
        second = logs.log(logs.embedded(shared=True), 2)
        await second.open(create=False)
        heard = asyncio.Event()
        second.subscribe(Follower(lambda old, new, records: heard.set()))
        await first.submit(_ids)
        await heard.wait()
        assert second.image.next_producer_id == 1000
        await first.close()
        await second.close()

    _play(tmp_path, scenario)


def test_a_broker_stands_for_election_when_the_controller_has_died(tmp_path: Path) -> None:
    """Without a change to write: other brokers need a controller before the next change."""

    async def scenario(logs: MetadataLogs) -> None:
        first = logs.log(logs.embedded(shared=True), 1)
        await first.open(create=True)
        second = logs.log(logs.embedded(shared=True), 2)
        await second.open(create=False)
        watcher = logs.embedded(shared=True)
        changes: asyncio.Queue[Change] = asyncio.Queue()
        watcher.watch(changes.put_nowait)
        await watcher.open(create=False)
        assert await watcher.controller() == ControllerTerm(1, 1, first.incarnation_id)
        await first.close()
        while (term := await watcher.controller()).broker_id != 2:
            await changes.get()
        assert term.epoch == 2
        await second.close()
        await watcher.close()

    _play(tmp_path, scenario)


class CountingStore(FaultyStore):
    """Counts appends; `broken` makes reads fail, and `on_read` is called within each."""

    appends = 0
    broken = False

    def on_read(self) -> None:
        pass

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        self.appends += 1
        return await super().append(batch, expected_end)

    async def read(self, from_index: int) -> LogRead:
        self.on_read()
        if self.broken:
            raise MetadataUnavailable("planted")
        return await super().read(from_index)


class Elections(logging.Handler):
    """The terms that this process has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: asyncio.Queue[tuple[object, object]] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        if record.event == "controller_elected":  # type: ignore[attr-defined]
            fields = record.fields  # type: ignore[attr-defined]
            self.queue.put_nowait((fields["controller"], fields["epoch"]))


def test_a_controller_that_does_not_answer_is_replaced_unless_it_serves(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        first, second = (logs.log(logs.embedded(shared=True), each) for each in (1, 2))
        await first.open(create=True)
        first.serve()
        await first.submit(lambda image: plan_register_broker(image, 1, first.incarnation_id))
        await second.open(create=False)
        second.doubt()
        await second.refresh()
        assert second.controller_id == 1, "it serves"
        await first.submit(lambda image: plan_fence(image, {1: 1}))
        await second.refresh()
        assert second.controller_id == 2
        await first.close()
        await second.close()

    _play(tmp_path, scenario)


class Witnessing:
    """Witnesses of a broker that may miss the controller, or be cut off itself."""

    may = True
    missed_epoch = -1

    def may_lead(self, live: Mapping[int, bytes]) -> bool:
        return self.may

    def seen_s(self, controller_id: int) -> float:
        return -5.0


def test_a_serving_controller_that_most_brokers_miss_is_replaced(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        first, second = (logs.log(logs.embedded(shared=True), each) for each in (1, 2))
        await first.open(create=True)
        first.serve()
        await first.submit(lambda image: plan_register_broker(image, 1, first.incarnation_id))
        await second.open(create=False)
        second.serve()
        epoch, witnesses = second.term.epoch, Witnessing()
        second.use_witnesses(witnesses)
        terms: list[int] = []
        second.watch_brokers(lambda: terms.append(second.term.epoch))
        second.watch_brokers(lambda: terms.append(second.controller_id))
        for missed, may in ((-1, True), (epoch - 1, True), (epoch, False)):
            witnesses.missed_epoch, witnesses.may = missed, may
            second.review()
            await second.catch_up()
            assert (second.controller_id, second.term.epoch) == (1, epoch)
        witnesses.may = True
        second.review()
        await second.catch_up()
        assert (second.controller_id, second.term.epoch) == (2, epoch + 1)
        assert terms[-2:] == [epoch + 1, 2], "all callbacks learn of it"
        first.review()
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await first.submit(_ids)
        assert first.controller_id == 2, "the former controller does not take the term back"
        await first.close()
        await second.close()

    _play(tmp_path, scenario)


def test_a_controller_that_reaches_too_few_brokers_resigns_and_does_not_stand(
    tmp_path: Path,
) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        first = logs.log(logs.embedded(shared=True), 1)
        await first.open(create=True)
        isolated = Witnessing()
        isolated.may = False
        first.use_witnesses(isolated)
        assert first.contact_s == -5.0 < first.heartbeat_s
        for _ in range(2):
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                await first.refresh()
                await first.submit(_ids)
            assert first.term == ControllerTerm(-1, 2)
        isolated.may = True
        first.review()
        await first.refresh()
        assert (first.controller_id, first.term.epoch) == (1, 3)
        await first.submit(_ids)
        await first.close()

    _play(tmp_path, scenario)


def test_a_starting_broker_leaves_the_term_to_a_serving_one(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        first, second = (logs.log(logs.embedded(shared=True), each) for each in (1, 2))
        await first.open(create=True)
        first.serve()
        await first.submit(lambda image: plan_register_broker(image, 1, first.incarnation_id))
        stores = logs.embedded(shared=True)
        await stores.open(create=False)
        await stores.register_broker(3, b"3" * 16)
        assert (await stores.elect(past=1)).broker_id == 3
        with patch.object(EmbeddedStore, "elect", side_effect=AssertionError):
            await second.open(create=False)
        assert second.controller_id == 3
        await stores.close()
        await second.close()
        await first.close()

    _play(tmp_path, scenario)


@pytest.fixture
def elections() -> Iterator[Elections]:
    handler, logger = Elections(), logging.getLogger("lakelog.metadata.log")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_a_superseded_controller_knows_it_before_it_appends(
    tmp_path: Path, elections: Elections
) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        store = CountingStore(logs.embedded(shared=True), SeededRandom(1), unknown_percent=0)
        first = logs.log(store, 1)
        await first.open(create=True)
        second = logs.log(logs.embedded(shared=True), 2)
        await second.open(create=False)
        await store.lose_session()
        assert await elections.queue.get() == (2, 2), "logged by the second"
        await store.restore_session()
        assert await elections.queue.get() == (2, 2), "logged by the first"
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await first.submit(_ids)
        assert store.appends == 0
        await first.close()
        await second.close()

    _play(tmp_path, scenario)


def test_a_change_that_could_not_be_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog.metadata.log._RETRY_S", 0.0)

    async def scenario(logs: MetadataLogs) -> None:
        first = logs.log(logs.embedded(shared=True), 1)
        await first.open(create=True)
        store = CountingStore(logs.embedded(shared=True), SeededRandom(1), unknown_percent=0)
        second = logs.log(store, 2)
        await second.open(create=False)
        followed, tried = asyncio.Event(), asyncio.Semaphore(0)
        second.subscribe(Follower(lambda old, new, records: followed.set()))
        store.broken, store.on_read = True, tried.release  # type: ignore[method-assign]
        await first.submit(_ids)
        for _ in range(3):
            await tried.acquire()
        store.broken = False
        await followed.wait()
        assert second.image.next_producer_id == 1000
        await first.close()
        await second.close()

    _play(tmp_path, scenario)


class LostStore:
    """A store that fails to read while it has an error."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.error: MetadataError | None = None
        self.reads: asyncio.Queue[int] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, from_index: int) -> LogRead:
        self.reads.put_nowait(from_index)
        if self.error is not None:
            raise self.error
        return await self._store.read(from_index)


def test_a_store_out_of_reach_is_reported_once_and_asked_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("lakelog.metadata.log._RETRY_S", 0.01)
    monkeypatch.setattr("lakelog.metadata.log._RETRY_S_MAX", 0.02)

    async def scenario(logs: MetadataLogs) -> None:
        store = LostStore(logs.embedded())
        log = MetadataLog(cast("Any", store), logs.tasks, SystemRandom(), broker_id=1)
        await log.open(create=True)
        store.error = MetadataUnavailable("out of reach")
        with pytest.raises(KafkaError, match="out of reach"):
            await log.refresh()
        for _ in range(6):
            await store.reads.get()
        assert caplog.text.count("out of reach") == 1
        store.error = None
        await log.refresh()
        assert caplog.text.count("recovered") == 1
        assert await log.submit(_ids) == range(1000)
        await log.close()

    _play(tmp_path, scenario)


def test_to_catch_up_is_one_read_and_no_election(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        store = LostStore(logs.embedded())
        log = MetadataLog(cast("Any", store), logs.tasks, SystemRandom(), broker_id=1)
        await log.open(create=True)
        reads = store.reads.qsize()
        with patch.object(store, "elect", side_effect=AssertionError, create=True):
            await log.catch_up()
        assert store.reads.qsize() == reads + 1
        store.error = MetadataUnavailable("out of reach")
        with pytest.raises(KafkaError):
            await log.catch_up()
        store.error = None
        await log.close()

    _play(tmp_path, scenario)


def test_a_store_that_is_another_one_is_reported_and_never_asked_again(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        store = LostStore(logs.embedded())
        log = MetadataLog(cast("Any", store), logs.tasks, SystemRandom(), broker_id=1)
        await log.open(create=True)
        failures: list[MetadataError] = []
        log.watch_failure(failures.append)
        store.error = MetadataCorrupt("another log")
        with pytest.raises(KafkaError, match="another log"):
            await log.refresh()
        reads, store.error = store.reads.qsize(), None
        with pytest.raises(KafkaError, match="another log"):
            await log.submit(_ids)
        assert [str(failure) for failure in failures] == ["another log"]
        assert store.reads.qsize() == reads
        await log.close()

    _play(tmp_path, scenario)


def test_changes_reported_during_the_start_wait_for_its_end(tmp_path: Path) -> None:
    """Two readers at once would apply the same entries twice."""

    async def scenario(logs: MetadataLogs) -> None:
        first = logs.log(logs.embedded(shared=True), 1)
        await first.open(create=True)
        await first.submit(_ids)
        store = CountingStore(logs.embedded(shared=True), SeededRandom(1), unknown_percent=0)
        reads: list[str] = []
        reported: asyncio.Queue[Change] = asyncio.Queue()
        store.watch(reported.put_nowait)

        async def read(from_index: int) -> LogRead:
            reads.append("begin")
            found = await FaultyStore.read(store, from_index)
            if len(reads) == 1:
                await reported.get()  # the store's first report: all may have changed
                await first.submit(_ids)
            reads.append("end")
            return found

        store.read = read  # type: ignore[method-assign]
        second = logs.log(store, 2)
        followed = asyncio.Event()

        def follow(old: object, new: MetadataImage, records: object) -> None:
            if new.end == 2:
                followed.set()

        second.subscribe(Follower(follow))
        await second.open(create=False)
        await followed.wait()
        assert reads[:4] == ["begin", "end"] * 2
        assert second.image == first.image
        await first.close()
        await second.close()

    _play(tmp_path, scenario)


@pytest.mark.parametrize("early", [True, False])
def test_a_failing_subscriber_leaves_no_caller_waiting(tmp_path: Path, early: bool) -> None:
    failing = True

    def fail(old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]) -> None:
        if failing:
            raise ZeroDivisionError

    def pass_over(old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]) -> None:
        pass

    async def scenario(logs: MetadataLogs) -> None:
        nonlocal failing
        log = logs.log(logs.embedded())
        await log.open(create=True)
        log.subscribe(Follower(pass_over, fail) if early else Follower(fail))
        results = await asyncio.gather(log.submit(_ids), log.submit(_ids), return_exceptions=True)
        assert all(isinstance(result, ZeroDivisionError) for result in results)
        failing = False
        assert await log.submit(_ids) == range(2000, 3000), "both had been written"
        await log.close()

    _play(tmp_path, scenario)


def test_a_change_is_visible_after_the_subscribers_have_prepared(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        log = logs.log(logs.embedded())
        await log.open(create=True)
        seen: list[tuple[str, int, int]] = []

        def note(when: str) -> Callable[[MetadataImage, MetadataImage, tuple[Record, ...]], None]:
            return lambda old, new, records: seen.append((when, log.image.end, new.end))

        log.subscribe(Follower(note("follow"), note("prepare")))
        await log.submit(_ids)
        assert seen == [("prepare", 0, 1), ("follow", 1, 1)]
        await log.close()

    _play(tmp_path, scenario)


class FullStore:
    """A store that finds no space for appends while `is_full`."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.is_full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        if self.is_full:
            raise MetadataFull("no space")
        return await self._store.append(batch, expected_end)


class Reserve:
    """A `Space` whose reserve is freed for the first that asks."""

    def __init__(self, store: FullStore) -> None:
        self._store = store
        self.is_held = True
        self.times_full = 0

    def check_reserve(self) -> None:
        if not self.is_held:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the rest is kept")

    def note_full(self) -> None:
        self.times_full += 1

    async def free_reserve(self) -> bool:
        freed, self.is_held = self.is_held, False
        if freed:
            self._store.is_full = False
        return freed


def test_a_change_that_frees_space_uses_the_reserve_and_no_other_does(tmp_path: Path) -> None:
    async def scenario(logs: MetadataLogs) -> None:
        store = FullStore(logs.embedded())
        reserve = Reserve(store)
        any_store: Any = store
        log = MetadataLog(any_store, logs.tasks, SystemRandom(), broker_id=1, space=reserve)
        await log.open(create=True)
        store.is_full = True
        with pytest.raises(KafkaError, match="no space"):
            await log.submit(_setting("a"))
        assert reserve.is_held, "the reserve is for selected records only"
        together = (log.submit(_setting("b")), log.submit(_setting("c"), from_reserve=True))
        refused, done = await asyncio.gather(*together, return_exceptions=True)
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert done == "c"
        with pytest.raises(KafkaError, match="the rest is kept"):
            await log.submit(_setting("d"))
        assert await log.submit(lambda image: Plan((), "read")) == "read"
        assert await log.submit(_setting("e"), from_reserve=True) == "e"
        store.is_full = True
        with pytest.raises(KafkaError, match="no space"):
            await log.submit(_setting("f"), from_reserve=True)
        assert reserve.times_full == 3
        assert set(log.image.configs(ResourceType.TOPIC, "t")) == {"c", "e"}
        await log.close()

    _play(tmp_path, scenario)


def _setting(key: str) -> Callable[[MetadataImage], Plan[str]]:
    return lambda image: Plan((ConfigRecord(ResourceType.TOPIC, "t", key, "1"),), key)
