"""Repeated Fetch requests are answered byte for byte as a broker without templates does."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from lakelog.replica.partition import Partition
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_sink import CachedRequest
from lakelog.server.fast_path.fetch import CachedFetch, cache_request
from lakelog.server.fetches import pending
from lakelog.server.fetches.reading import ReadWait
from lakelog.server.upkeep.stored_checks import Failures, StoredChecks
from lakelog.storage.preparation import Preparation
from memory_broker import MemoryBroker
from storage_kit import make_batch
from twins import Client, Twins, decoded_connections, run


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    with decoded_connections(monkeypatch) as seen:
        yield seen


def test_fetch_in_every_version(tmp_path: Path, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 9)
        for size in (10, 100, 16_000, 40_000, 100_000, 50, 60, 70):
            twins.ask(producer.produce(producer.batch(size)))
        for version in range(4, 19):
            for committed in (False, True):
                for in_session in (False, True):
                    check_fetches(twins, version, committed, in_session, decoded)

    run(tmp_path, scenario)


def check_fetches(
    twins: Twins, version: int, committed: bool, in_session: bool, decoded: list[Connection]
) -> None:
    twins.connect()
    client = Client(twins, version)
    for offset in range(8):
        if not in_session:
            client.session = (0, -1)
        response = client.consume(client.fetch(offset, max_bytes=1, committed=committed))
        data = response.responses[0].partitions[0]
        assert struct.unpack_from(">q", data.records)[0] == offset
    assert not client.consume(client.fetch(8, committed=committed)).error_code
    assert decoded.count(twins.plain.connection) == 9
    if version >= 10:
        # The first of a session names none, and the one beyond the end has nothing to answer with.
        assert decoded.count(twins.quick.connection) == 3 + in_session


def test_a_fetch_that_is_another_after_all(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        twins.ask(b"".join(producer.produce(producer.batch(100)) for _ in range(9)))
        client = Client(twins, 16)
        for offset in range(4):
            client.consume(client.fetch(offset, max_bytes=1))
        assert client.consume(client.fetch(None)).responses[0].partitions[0].records[7] == 3
        client.consume(client.fetch(4, max_bytes=1))
        session_id, epoch = client.session
        for wrong in ((session_id, epoch - 1), (session_id, -1), (session_id, epoch)):
            client.session = wrong
            client.consume(client.fetch(5, max_bytes=1))

    run(tmp_path, scenario)


def test_a_fetch_that_has_to_wait_is_answered_by_a_repeated_produce(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer, consumer = Client(twins, 13), Client(twins, 16)
        for _ in range(3):
            twins.ask(producer.produce(producer.batch(100)))
        twins.connect()
        for _ in range(3):
            consumer.session = (0, -1)
            consumer.consume(consumer.fetch(0, min_bytes=500, max_wait_ms=60_000))
        consumer.session = (0, -1)
        assert not twins.ask(consumer.fetch(1, min_bytes=500, max_wait_ms=60_000))
        twins.return_to_earlier()
        twins.ask(producer.produce(producer.batch(400)))
        twins.return_to_earlier()
        assert twins.take_answer()

    run(tmp_path, scenario)


def test_a_session_that_another_connection_changes(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        twins.ask(b"".join(producer.produce(producer.batch(100)) for _ in range(9)))
        client = Client(twins, 16)
        for offset in range(4):
            client.consume(client.fetch(offset, max_bytes=400))
        twins.connect()
        other = Client(twins, 16)
        other.session = client.session
        other.consume(other.fetch(4, max_bytes=1))
        twins.return_to_earlier()
        client.session = other.session
        assert len(client.consume(client.fetch(5, max_bytes=400)).responses) == 1

    run(tmp_path, scenario)


WAIT_MS = 500
VERSIONS = (10, 11, 12, 13, 16, 18)


class Waiter(Client):
    """A consumer on connections of its own that asks again as soon as it is answered."""

    def __init__(
        self,
        twins: Twins,
        version: int = 16,
        *,
        in_session: bool = True,
        committed: bool = False,
        min_bytes: int = 1,
    ) -> None:
        super().__init__(twins, version)
        self.in_session = in_session
        self.committed = committed
        self.min_bytes = min_bytes
        self.offset = 0
        self.told = -1

    def wait(self) -> bytes:
        """Send a fetch, naming the partition only if necessary; return an immediate response."""
        if not self.in_session:
            self.session = (0, -1)
        offset = None if self.session[0] and self.told == self.offset else self.offset
        self.told = self.offset
        frame = self.fetch(
            offset, min_bytes=self.min_bytes, committed=self.committed, max_wait_ms=WAIT_MS
        )
        answer = self.twins.ask(frame)
        if answer:
            self.take(answer)
        return answer

    def take(self, answer: bytes) -> int:
        """Advance behind the records of a response; return their size in bytes."""
        found = [data for topic in self.read(answer).responses for data in topic.partitions]
        records = b"".join(bytes(data.records or b"") for data in found)
        self.offset += records.count(b"key")
        return len(records)


def produce(twins: Twins, producer: Client, size: int = 100) -> None:
    """On the other connections."""
    twins.return_to_earlier()
    twins.ask(producer.produce(producer.batch(size)))
    twins.return_to_earlier()


def expire(twins: Twins) -> None:
    for broker in twins.both:
        broker.clock.now_ms += WAIT_MS
        broker.server.broker.purgatory._tick()


def after_waits(twins: Twins, count: int) -> Waiter:
    """A waiter whose fetches timed out so often, on a connection of its own."""
    twins.connect()
    waiter = Waiter(twins)
    for _ in range(count):
        assert not waiter.wait()
        expire(twins)
        waiter.take(twins.take_answer())
    return waiter


def partitions(twins: Twins) -> list[Partition]:
    return [broker.server.broker.partitions.leader("orders", 0) for broker in twins.both]


def check(twins: Twins) -> None:
    for broker, partition in zip(twins.both, partitions(twins), strict=True):
        broker.server.broker.purgatory.check(partition.key)


def waiting(twins: Twins) -> int:
    (count,) = {len(broker.server.broker.purgatory) for broker in twins.both}
    return count


@pytest.mark.parametrize("version", VERSIONS)
def test_in_every_version(tmp_path: Path, version: int, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        for in_session in (False, True):
            for committed in (False, True):
                twins.connect()
                waiter = Waiter(twins, version, in_session=in_session, committed=committed)
                waiter.offset = sum(producer.sequence)
                for number in range(12):
                    while waiter.wait():
                        pass
                    if number % 3 == 2:
                        expire(twins)
                    else:
                        produce(twins, producer, 100 if number % 2 else 40_000)
                    answer = twins.take_answer()
                    assert (waiter.take(answer) > 0) is (number % 3 != 2)
                asked = decoded.count(twins.plain.connection)
                assert asked >= 12
                assert decoded.count(twins.quick.connection) <= 4

    run(tmp_path, scenario)


def test_an_idle_session_that_never_names_its_partition_again(
    tmp_path: Path, decoded: list[Connection]
) -> None:
    def scenario(twins: Twins) -> None:
        twins.connect()
        waiter = Waiter(twins)
        waiter.wait()
        for _ in range(10):
            expire(twins)
            waiter.take(twins.take_answer())
            assert not waiter.wait()
        assert decoded.count(twins.plain.connection) == 11
        assert decoded.count(twins.quick.connection) == 3
        produce(twins, Client(twins, 13))
        assert waiter.take(twins.take_answer())

    run(tmp_path, scenario)


@pytest.mark.parametrize("in_session", [False, True])
def test_less_than_min_bytes_is_returned_at_the_deadline(tmp_path: Path, in_session: bool) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        twins.connect()
        waiter = Waiter(twins, in_session=in_session, min_bytes=500)
        for _ in range(5):
            assert not waiter.wait()
            produce(twins, producer)
            assert not twins.take_answer()
            expire(twins)
            assert waiter.take(twins.take_answer())
            assert not waiter.wait()
            produce(twins, producer)
            produce(twins, producer, 400)
            assert waiter.take(twins.take_answer()) > 500

    run(tmp_path, scenario)


def test_an_aborted_transaction_is_returned_to_a_waiting_fetch(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        twins.connect()
        waiter = Waiter(twins, committed=True)
        for number in range(8):
            assert not waiter.wait()
            now = twins.quick.clock.now_ms
            for partition in partitions(twins):
                ticket = partition.start_verification(9, 0, number, now, supports_epoch_bump=False)
                batch = make_batch(1, producer=(9, 0, number), transactional=True)
                partition.append(batch, now, verification=ticket)
            check(twins)
            assert not twins.take_answer()
            for partition in partitions(twins):
                partition.append_marker(9, 0, number % 2 == 0, 0, now, transaction_version=1)
            check(twins)
            assert waiter.take(twins.take_answer())
            waiter.offset = partitions(twins)[0].log.log_end_offset

    run(tmp_path, scenario)


@pytest.mark.parametrize("in_session", [False, True])
def test_a_failed_partition_is_returned_to_a_waiting_fetch(
    tmp_path: Path, in_session: bool
) -> None:
    def scenario(twins: Twins) -> None:
        twins.connect()
        waiter = Waiter(twins, in_session=in_session)
        for _ in range(5):
            assert not waiter.wait()
            expire(twins)
            waiter.take(twins.take_answer())
        assert not waiter.wait()
        for partition in partitions(twins):
            partition.take_offline("planted")
        (topic,) = waiter.read(twins.take_answer()).responses
        assert topic.partitions[0].error_code
        assert waiter.wait()

    run(tmp_path, scenario)


def test_a_fetch_that_fails_after_a_check_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise its client would wait forever: the fetch is not tried again."""
    due: list[Callable[[Failures], object]] = []
    tried: set[Partition] = set()

    def read(partition: Partition, *_: object, **__: object) -> ReadWait:
        if partition in tried:
            raise MemoryError("planted")
        tried.add(partition)
        return ReadWait(cast("Preparation", object()))

    monkeypatch.setattr(pending, "read", read)
    monkeypatch.setattr(StoredChecks, "run", lambda _, needed, then: due.append(then))

    def scenario(twins: Twins) -> None:
        assert not twins.ask(Client(twins, 16).fetch(0, max_wait_ms=WAIT_MS))
        for on_checked in due:
            on_checked({})
        for broker in twins.both:
            assert broker.connection.closed
            assert not broker.connection.pending

    run(tmp_path, scenario)
    assert "planted" in caplog.text


def test_a_client_disconnects_while_its_fetch_waits(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        waiter = after_waits(twins, 6)
        assert not waiter.wait()
        assert waiting(twins) == 1
        for broker in twins.both:
            broker.connection.close()
        assert waiting(twins) == 0

    run(tmp_path, scenario)


def test_another_connection_takes_the_session_of_a_waiting_fetch(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        producer = Client(twins, 13)
        waiter = after_waits(twins, 6)
        assert not waiter.wait()
        twins.return_to_earlier()
        session_id, epoch = waiter.session
        other = Client(twins, 16)
        other.session = session_id, epoch + 1
        twins.ask(other.fetch(0, max_wait_ms=0))
        twins.ask(producer.produce(producer.batch(100)))
        twins.return_to_earlier()
        assert waiter.take(twins.take_answer())
        assert waiter.wait(), "the epoch is not the one awaited"

    run(tmp_path, scenario)


def test_fetches_that_waited_are_counted_once_and_as_such(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        after_waits(twins, 7)
        for broker in twins.both:
            broker.server.broker.requests.fold()
            parts = dict(broker.server.broker.requests.seen())["Fetch"]
            assert [part.count for part in parts] == [0, 7]
            assert parts[1].sum_s == pytest.approx(7 * WAIT_MS / 1000)

    run(tmp_path, scenario)


def test_a_wait_leaves_nothing_to_the_collector(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        twins.connect()
        waiter = Waiter(twins, in_session=False)
        for number in range(30):
            if number == 10:
                gc.collect()
                gc.disable()
            assert not waiter.wait()
            expire(twins)
            waiter.take(twins.take_answer())
        assert gc.collect() < 20

    try:
        run(tmp_path, scenario)
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(4))
def test_any_history(tmp_path: Path, seed: int, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        chance = random.Random(seed)
        producer, waiter = Client(twins, 13), Waiter(twins)
        twins.connect()
        for _ in range(200):
            if chance.random() < 0.05:
                in_session, committed = chance.random() < 0.7, chance.random() < 0.5
                waiter = Waiter(twins, chance.choice(VERSIONS), in_session=in_session)
                waiter.committed, waiter.min_bytes = committed, chance.choice((0, 1, 1, 300))
            if chance.random() < 0.05:
                waiter.offset = chance.randrange(-1, sum(producer.sequence) + 2)
            if not waiter.wait():
                for _ in range(chance.randrange(3)):
                    produce(twins, producer, chance.choice((1, 100, 500, 40_000)))
                if answer := twins.take_answer():
                    waiter.take(answer)
                else:
                    expire(twins)
                    waiter.take(twins.take_answer())
            waiter.session = chance.choices((waiter.session, (0, 0), (3, 3)), (40, 1, 1))[0]
        assert decoded.count(twins.quick.connection) < decoded.count(twins.plain.connection)

    run(tmp_path, scenario)


VERSION = 18


def learned(
    broker: MemoryBroker, request: FetchRequest, version: int = VERSION
) -> CachedRequest | None:
    topic_id = broker.create("t")
    for topic in request.topics:
        topic.topic_id, topic.topic = topic_id, "t"
    context, received, _ = broker._receive(request, version)
    return cache_request(broker.broker, None, context, received)


def of_partitions(*numbers: int, replica: int = -1) -> FetchRequest:
    topic = FetchTopic(partitions=[FetchPartition(partition=number) for number in numbers])
    state = ReplicaState(replica_id=replica, replica_epoch=4 if replica >= 0 else -1)
    return FetchRequest(topics=[topic], replica_state=state)


def test_one_partition_of_a_consumer_and_of_a_follower() -> None:
    for replica in (-1, 2):
        with MemoryBroker() as broker:
            cached_request = learned(broker, of_partitions(0, replica=replica))
            assert isinstance(cached_request, CachedFetch)
            assert cached_request.key.replica_id == replica


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (of_partitions(0, 1), VERSION),
        (FetchRequest(topics=of_partitions(0).topics, replica_id=2), 12),
        (FetchRequest(topics=of_partitions(0).topics), 9),
        (
            FetchRequest(
                topics=of_partitions(0).topics,
                forgotten_topics_data=[ForgottenTopic(partitions=[1])],
            ),
            VERSION,
        ),
        (FetchRequest(session_id=7, session_epoch=1), VERSION),
    ],
    ids=["two partitions", "an old follower", "before zstd", "a forgotten one", "no session"],
)
def test_no_other_request_is_cached(request_: FetchRequest, version: int) -> None:
    with MemoryBroker() as broker:
        assert learned(broker, request_, version) is None
