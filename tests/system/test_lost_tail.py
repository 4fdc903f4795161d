"""A consumer that has read what a crash then took: it must not skip what comes in its place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from broker_process import BrokerProcess, eventually
from clients.adapters.confluent import Confluent
from clients.reading import poll_count
from lakelog.records.batch import iter_batches
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

            broker.kill()
            log = broker.data / "t-0" / f"{0:020}.log"
            content = log.read_bytes()
            log.write_bytes(content[: sum(len(batch) for _, batch in _first(content, 5))])
            broker.restart()
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


def _first(content: bytes, count: int) -> list[tuple[object, memoryview]]:
    return list(iter_batches(memoryview(content)))[:count]
