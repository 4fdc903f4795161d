"""A consumer that has read records lost in a crash must not skip their replacements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from clients.adapters.confluent import Confluent
from clients.reading import poll_count
from lakelog.client.cluster import Cluster
from lakelog.client.consumer import Consumer
from lakelog.client.errors import LogTruncatedError
from lakelog.client.offsets import LATEST, EpochEnd, epoch_ends, list_offsets
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.records.batch import iter_batches
from lost_tail import lose_tail
from waiting import eventually
from wire_client import (
    FETCH_VERSION,
    FOREVER_MS,
    WireClient,
    batch_of,
    create_topic,
    produce,
    stored_batches,
)


def test_kip_320_a_reader_beyond_a_lost_tail_skips_nothing(tmp_path: Path) -> None:
    """Its position is within the log again, but of an epoch that ended before (KIP-279)."""
    with BrokerProcess(tmp_path / "data") as broker:
        with WireClient(broker.bootstrap) as wire:
            create_topic(wire, "t")
            for number in range(10):
                produce(wire, "t", batch_of(b"old %d" % number))
        with closing(Confluent(broker.bootstrap).consumer()) as consumer:
            consumer.assign("t", (0,))
            poll_count(consumer, 10)

            lose_tail(broker, "t", 0, batches_kept=5)
            new = [b"new %d" % number for number in range(8)]
            with WireClient(broker.bootstrap) as wire:
                for value in new:
                    produce(wire, "t", batch_of(value))

            seen: list[bytes | None] = []

            def has_come() -> bool:
                seen.extend(record.value for record in consumer.poll(0.2))
                return new[-1] in seen

            eventually(has_come, what="the newest record was read")
            assert [value for value in seen if value in new] == new


def test_where_an_epoch_ended_is_asked_of_the_leader(tmp_path: Path) -> None:
    """`latest` gives the epoch to ask about; after the cut it ends where the log was cut."""
    key = ("t", 0)
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        with WireClient(broker.bootstrap) as wire:
            create_topic(wire, "t")
            for number in range(10):
                produce(wire, "t", batch_of(b"old %d" % number))
        read = list_offsets(cluster, {key: LATEST})[key]
        assert epoch_ends(cluster, {key: read.leader_epoch}) == {
            key: EpochEnd(read.leader_epoch, 10)
        }

        lose_tail(broker, "t", 0, batches_kept=5)
        with WireClient(broker.bootstrap) as wire:
            for number in range(8):
                produce(wire, "t", batch_of(b"new %d" % number))

        assert epoch_ends(cluster, {key: read.leader_epoch}) == {
            key: EpochEnd(read.leader_epoch, 5)
        }
        grown = list_offsets(cluster, {key: LATEST})[key]
        assert (grown.offset, grown.leader_epoch > read.leader_epoch) == (13, True)
        assert epoch_ends(cluster, {key: grown.leader_epoch})[key].end_offset == 13


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_fetch_with_its_last_epoch_gets_the_offset_of_divergence(
    tmp_path: Path, isolation: int
) -> None:
    """At once, even if it could wait; repeatedly in a fetch session, until the client truncates."""
    with BrokerProcess(tmp_path / "data") as broker:
        with WireClient(broker.bootstrap) as wire:
            create_topic(wire, "t")
            for number in range(10):
                produce(wire, "t", batch_of(b"old %d" % number))
            [*_, (header, _)] = stored_batches(broker.bootstrap, "t")
        lose_tail(broker, "t", 0, batches_kept=5)
        with WireClient(broker.bootstrap) as wire:
            for number in range(8):
                produce(wire, "t", batch_of(b"new %d" % number))

            def ask(offset: int, epoch: int, session: tuple[int, int]) -> FetchResponse:
                row = FetchPartition(
                    fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20
                )
                response: FetchResponse = wire.call(
                    FetchRequest(
                        max_wait_ms=FOREVER_MS,
                        min_bytes=1,
                        isolation_level=isolation,
                        session_id=session[0],
                        session_epoch=session[1],
                        topics=[FetchTopic(topic="t", partitions=[row])],
                    ),
                    FETCH_VERSION,
                )
                return response

            old = header.partition_leader_epoch
            for offset in (10, 13):
                [row] = ask(offset, old, (0, -1)).responses[0].partitions
                assert (row.error_code, len(row.records)) == (0, 0)
                assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (old, 5)
            session = ask(10, old, (0, 0)).session_id
            for epoch in (1, 2):
                [row] = ask(10, old, (session, epoch)).responses[0].partitions
                assert row.diverging_epoch.end_offset == 5
            [row] = ask(5, old, (session, 3)).responses[0].partitions
            assert row.diverging_epoch.end_offset == -1
            [(first, _), *_] = iter_batches(row.records)
            assert first.base_offset == 5
            [row] = ask(6, first.partition_leader_epoch, (session, 4)).responses[0].partitions
            assert len(row.records) > 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With a topic `t` of one partition and ten records, each a batch."""
    with BrokerProcess(tmp_path / "data") as process:
        with WireClient(process.bootstrap) as wire:
            create_topic(wire, "t")
            for number in range(10):
                produce(wire, "t", batch_of(b"old %d" % number))
        yield process


def cut_and_grow(broker: BrokerProcess) -> list[bytes]:
    """Half of the ten records go, eight others come: the partition ends at 13 then."""
    lose_tail(broker, "t", 0, batches_kept=5)
    new = [b"new %d" % number for number in range(8)]
    with WireClient(broker.bootstrap) as wire:
        for value in new:
            produce(wire, "t", batch_of(value))
    return new


def poll_until(consumer: Consumer, last: bytes, seen: list[bytes | None]) -> None:
    def has_come() -> bool:
        seen.extend(record.value for record in consumer.poll(0.2))
        return last in seen

    eventually(has_come, what=f"{last!r} was read")


def lose_track(consumer: Consumer) -> LogTruncatedError:
    """The error that `poll` ends with; nothing of the new records comes before it."""
    with pytest.raises(LogTruncatedError) as error:
        poll_until(consumer, b"new 7", [])
    return error.value


def test_our_consumer_says_that_the_log_was_cut_below_it(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    def reading(reset: str) -> Consumer:
        consumer = Consumer(broker.bootstrap, auto_offset_reset=reset)
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 0)
        poll_until(consumer, b"old 9", [])
        return consumer

    with reading("none") as strict, reading("latest") as tolerant:
        new = cut_and_grow(broker)
        error = lose_track(strict)
        assert (error.offset, error.diverged_at) == (10, 5)
        assert "t-0 was cut at offset 5" in error.message
        seen: list[bytes | None] = []
        poll_until(tolerant, new[-1], seen)
    assert seen == new, "nothing is skipped or repeated"
    assert "t-0 was cut at offset 5" in caplog.text


def test_committed_offsets_know_their_epoch(broker: BrokerProcess) -> None:
    with Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        poll_until(consumer, b"old 9", [])
        consumer.commit()
        committed = consumer.committed([("t", 0)])["t", 0]
        assert (committed.offset, committed.leader_epoch >= 0) == (10, True)
    new = cut_and_grow(broker)

    with Consumer(broker.bootstrap, group="g", auto_offset_reset="none") as consumer:
        consumer.assign([("t", 0)])
        assert lose_track(consumer).diverged_at == 5
    with Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        seen: list[bytes | None] = []
        poll_until(consumer, new[-1], seen)
        assert seen == new


def test_a_consumer_that_began_at_the_end_gets_new_records_below_that_offset(
    broker: BrokerProcess,
) -> None:
    with Consumer(broker.bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([("t", 0)])
        assert consumer.position(("t", 0)) == 10
        new = cut_and_grow(broker)
        seen: list[bytes | None] = []
        poll_until(consumer, new[-1], seen)
        assert seen == new


def test_a_restart_of_the_broker_is_no_loss(broker: BrokerProcess) -> None:
    """The leader's epoch rises, and is still that of no record when it is asked about."""
    with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), LATEST)
        for number in range(3):
            broker.kill()
            broker.restart()
            assert consumer.poll(0.5) == []
            with WireClient(broker.bootstrap) as wire:
                produce(wire, "t", batch_of(b"more %d" % number))
            seen: list[bytes | None] = []
            poll_until(consumer, b"more %d" % number, seen)
            assert seen == [b"more %d" % number]
