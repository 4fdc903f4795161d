"""Our own readers of committed records, of what confluent-kafka's transactions leave in a log."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from broker_process import LAKELOG
from clients.adapters.patient import own_admin
from clients.adapters.transactions import COMMITTED, TIMEOUT_S, UNCOMMITTED, ConfluentTransactional
from lakelog.client import cluster
from lakelog.client.admin import Admin
from lakelog.client.consumer import Consumer, PartitionReader
from lakelog.client.errors import ClientError, OffsetOutOfRangeError
from lakelog.client.offsets import LATEST
from lakelog.records.record import decode_records
from waiting import eventually

_LIMIT = 1 << 20


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"committed-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, 1)
    return name


@pytest.fixture
def producer(bootstrap: str, topic: str) -> Iterator[ConfluentTransactional]:
    """Has written a committed, an aborted, a committed and an aborted transaction of 3 records."""
    with closing(ConfluentTransactional(bootstrap, topic)) as producer:
        producer.init()
        for outcome in ("kept 1", "lost 1", "kept 2", "lost 2"):
            producer.begin()
            for number in range(3):
                producer.send(topic, b"%s.%d" % (outcome.encode(), number))
            producer.commit() if outcome.startswith("kept") else producer.abort()
        yield producer


KEPT = [b"kept %d.%d" % (run, number) for run in (1, 2) for number in range(3)]
END = 16
"""Four transactions of three records and a marker."""


def consume(bootstrap: str, *words: str) -> list[bytes]:
    done = subprocess.run(
        [LAKELOG, "consume", *words, "-b", bootstrap],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_consumer_skips_aborted_records(
    bootstrap: str, topic: str, producer: ConfluentTransactional
) -> None:
    key = (topic, 0)
    with Consumer(bootstrap, isolation_level=COMMITTED) as consumer:
        consumer.assign([key])
        consumer.seek(key, 0)
        found: list[bytes | None] = []

        def has_six() -> bool:
            found.extend(record.value for record in consumer.poll(0.2))
            return len(found) >= 6

        eventually(has_six)
        assert found == KEPT
        eventually(lambda: consumer.poll(0.1) or consumer.position(key) == END)

        producer.begin()
        producer.send(topic, b"open")
        producer.send(topic, b"open")
        consumer.seek(key, LATEST)
        assert consumer.position(key) == END, "the end is where the open transaction begins"
        assert consumer.poll(0.2) == []
        producer.commit()
        rows = eventually(lambda: consumer.poll(0.2))
        assert [row.value for row in rows] == [b"open", b"open"]


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
def test_ranges_of_a_partition(
    bootstrap: str, topic: str, producer: ConfluentTransactional, level: str
) -> None:
    """Every range, also ranges that begin or end within aborted records."""
    producer.begin()
    producer.send(topic, b"open")
    with PartitionReader(bootstrap, read_committed=level == COMMITTED) as reader:

        def read(start: int, end: int | None) -> list[bytes | None]:
            return [
                record.value
                for header, batch in reader.read(topic, 0, start, end)
                if not header.is_control
                for record in decode_records(batch, header, _LIMIT)
                if record.offset >= start and (end is None or record.offset < end)
            ]

        whole = read(0, None)
        written = [
            b"%s %d.%d" % (word, run, n)
            for run in (1, 2)
            for word in (b"kept", b"lost")
            for n in range(3)
        ]
        assert whole == (KEPT if level == COMMITTED else [*written, b"open"])
        by_offset = dict(zip((o for o in range(END) if o % 4 != 3), written, strict=True))
        for start in range(END):
            for end in range(start, END + 1):
                expected = [by_offset[o] for o in range(start, end) if o in by_offset]
                if level == COMMITTED:
                    expected = [value for value in expected if value in KEPT]
                assert read(start, end) == expected, (start, end)
    producer.abort()


def test_a_range_waits_for_its_transactions_and_not_for_offsets_that_are_not_there(
    bootstrap: str, topic: str, producer: ConfluentTransactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    retried: list[str] = []

    def commit(error: ClientError, after_s: float) -> None:
        retried.append(error.code.name)
        if len(retried) == 1:
            producer.commit()

    monkeypatch.setattr(cluster, "log_retry", commit)
    producer.begin()
    producer.send(topic, b"open")
    with PartitionReader(bootstrap, read_committed=True) as reader:
        assert [header.last_offset for header, _ in reader.read(topic, 0, END, END + 1)] == [END]
        assert set(retried) == {"OFFSET_NOT_AVAILABLE"}
        retried.clear()
        with pytest.raises(OffsetOutOfRangeError, match=rf"0 to {END + 2} \(exclusive\)"):
            list(reader.read(topic, 0, END, END + 3))
        assert retried == []


def test_the_command(bootstrap: str, topic: str, producer: ConfluentTransactional) -> None:
    words = (topic, "-o", "start", "-e")
    assert len(consume(bootstrap, *words)) == 12
    assert consume(bootstrap, *words, "--isolation-level", COMMITTED) == KEPT
    producer.begin()
    producer.send(topic, b"open")
    assert consume(bootstrap, *words, "--isolation", COMMITTED) == KEPT
    assert consume(bootstrap, topic, "-o", "-1", "-e", "--isolation", UNCOMMITTED) == [b"open"]
    producer.commit()


def test_a_groups_offsets_pass_markers_and_aborted_records(
    bootstrap: str, topic: str, producer: ConfluentTransactional
) -> None:
    words = (topic, "-g", topic, "-o", "start", "-e", "--isolation", COMMITTED)
    assert consume(bootstrap, *words) == KEPT
    key = (topic, 0)
    with Admin(bootstrap) as admin:
        # A coordinator that takes over repeats a marker that its predecessor may not have written.
        end = admin.list_offsets({key: LATEST})[key].offset
        assert {key: at.offset for key, at in admin.groups.offsets(topic).items()} == {key: end}
    assert end >= END
    producer.begin()
    producer.send(topic, b"more")
    producer.commit()
    assert consume(bootstrap, *words) == [b"more"]
