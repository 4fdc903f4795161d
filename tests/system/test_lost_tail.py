"""A consumer that has read what a crash then took: it must not skip what comes in its place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from broker_process import BrokerProcess, eventually
from clients.adapters.confluent import Confluent
from clients.reading import poll_count
from lakelog.client.cluster import Cluster
from lakelog.client.epochs import EpochEnd, epoch_ends
from lakelog.client.offsets import LATEST, list_offsets
from lost_tail import lose_tail
from wire_client import WireClient, batch_of, create_topic, produce


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
