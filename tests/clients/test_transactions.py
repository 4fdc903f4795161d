"""Transactions by each library: visibility of their records, and fencing of producers."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from clients.adapters.patient import leaving, own_admin
from clients.adapters.transactions import (
    COMMITTED,
    LIBRARIES,
    TIMEOUT_S,
    UNCOMMITTED,
    Reading,
    Transactional,
    read_all,
)
from lakelog.client.admin import Admin
from waiting import eventually

Make = Callable[..., Transactional]
SHORT_MS = 20_000
"""Timeout of a transaction that is to expire; a slow machine sends a record in this time."""


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def make_of(bootstrap: str) -> Iterator[Make]:
    """Makes producers of the libraries that it is called with, and closes them."""
    made: list[Transactional] = []

    def new(library: Any, transactional_id: str, **settings: Any) -> Transactional:
        made.append(library(bootstrap, transactional_id, **settings))
        return made[-1]

    yield new
    for producer in made:
        try:
            producer.close()
        except Exception as error:  # noqa: BLE001 - a fenced producer may raise again
            print(f"closing {producer.name}: {error!r}")


@pytest.fixture
def make(library: Any, make_of: Make) -> Make:
    """Makes producers of one library."""
    return partial(make_of, library)


def reading(library: Any, bootstrap: str, topic: str) -> Reading:
    """Return the only member of the group with the topic's name."""
    member: Reading = library.Reading(bootstrap, topic, topic, COMMITTED)
    return member


@pytest.fixture
def unique() -> str:
    return f"txn-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(bootstrap: str, unique: str) -> str:
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(unique, 2)
    return unique


@pytest.mark.moving
def test_committed_and_aborted(make: Make, bootstrap: str, topic: str) -> None:
    producer = make(topic)
    producer.init()
    for number in range(4):
        producer.begin()
        producer.send(topic, b"%d a" % number, 0)
        producer.send(topic, b"%d b" % number, 1)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    assert read_all(bootstrap, topic, COMMITTED, 2) == [b"0 a", b"2 a", b"0 b", b"2 b"]
    everything = [b"%d %s" % (number, name) for name in (b"a", b"b") for number in range(4)]
    assert read_all(bootstrap, topic, UNCOMMITTED, 2) == everything


def test_empty_transactions_end(make: Make, bootstrap: str, topic: str) -> None:
    producer = make(topic)
    producer.init()
    for _ in range(2):
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()
    producer.begin()
    producer.send(topic, b"a", 0)
    producer.commit()
    assert read_all(bootstrap, topic, COMMITTED) == [b"a"]


def test_an_open_transaction_holds_back_later_records(
    make: Make, bootstrap: str, topic: str
) -> None:
    first, second = make(f"{topic}-1"), make(f"{topic}-2")
    first.init()
    second.init()
    first.begin()
    first.send(topic, b"first")
    second.begin()
    second.send(topic, b"second")
    second.commit()
    assert read_all(bootstrap, topic, COMMITTED) == []
    assert read_all(bootstrap, topic, UNCOMMITTED) == [b"first", b"second"]
    first.commit()
    assert read_all(bootstrap, topic, COMMITTED) == [b"first", b"second"]


def test_a_newer_producer_fences_the_older(make: Make, bootstrap: str, topic: str) -> None:
    older = make(topic)
    older.init()
    older.begin()
    older.send(topic, b"never")
    newer = make(topic)
    newer.init()
    with pytest.raises(Exception) as failure:
        older.send(topic, b"late")
        older.commit()
    # An error that confluent-kafka's callback meets in `produce` is the cause of a SystemError.
    told = f"{failure.value} {failure.value.__cause__}"
    assert re.search("(?i)fenced|epoch", told), told
    newer.begin()
    newer.send(topic, b"newer")
    newer.commit()
    assert read_all(bootstrap, topic, COMMITTED) == [b"newer"]


def test_transactions_that_take_too_long_are_aborted(
    make_of: Make, bootstrap: str, unique: str
) -> None:
    """KIP-98, KIP-664. SIGKILL would look the same to the broker: nothing more is heard of them.

    The transactions of all libraries expire side by side.
    """
    topics = {library: f"{unique}-{library.name}" for library in LIBRARIES}
    with closing(own_admin(bootstrap)) as admin:
        for topic in topics.values():
            admin.create_topic(topic, 1)
    for library, topic in topics.items():
        silent, other = make_of(library, topic, timeout_ms=SHORT_MS), make_of(library, f"{topic}-2")
        for producer, value in ((silent, b"never"), (other, b"other")):
            producer.init()
            producer.begin()
            producer.send(topic, value)
        other.commit()

    def await_abort(topic: str) -> None:
        eventually(lambda: read_all(bootstrap, topic, COMMITTED) == [b"other"], TIMEOUT_S, topic)

    for topic in topics.values():
        await_abort(topic)


@pytest.mark.moving
def test_consume_transform_produce(make: Make, library: Any, bootstrap: str, topic: str) -> None:
    """Each record once, although the first try of every batch is aborted."""
    source = make(f"{topic}-source")
    source.init()
    source.begin()
    for number in range(6):
        source.send(topic, b"%d" % number, number % 2)
    source.commit()
    target = f"{topic}-out"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(target, 1)
    producer = make(topic)
    producer.init()
    with leaving(reading(library, bootstrap, topic), topic, bootstrap) as consumer:
        done: dict[int, int] = {}
        while sum(done.values()) < 6:
            rows = eventually(consumer.poll, TIMEOUT_S, f"only {done} came: more")
            offsets = {partition: offset + 1 for partition, offset, _ in rows}
            for commits in (False, True):
                producer.begin()
                for _, _, value in rows:
                    producer.send(target, value * 2)
                producer.send_offsets(consumer, offsets)
                if commits:
                    producer.commit()
                else:
                    producer.abort()
            for partition, _, _ in rows:
                done[partition] = done.get(partition, 0) + 1
    assert sorted(read_all(bootstrap, target, COMMITTED)) == [b"%d%d" % (n, n) for n in range(6)]
    with Admin(bootstrap) as admin:
        found = {key: committed.offset for key, committed in admin.groups.offsets(topic).items()}
    assert found.keys() == {(topic, 0), (topic, 1)}
    assert all(offset >= 3 for offset in found.values())


def test_an_aborted_read_leaves_the_groups_offsets(
    make: Make, library: Any, bootstrap: str, topic: str
) -> None:
    source = make(f"{topic}-source")
    source.init()
    source.begin()
    source.send(topic, b"again")
    source.commit()
    producer = make(topic)
    producer.init()
    for _ in range(2):
        with leaving(reading(library, bootstrap, topic), topic, bootstrap) as consumer:
            rows = eventually(consumer.poll, TIMEOUT_S)
            assert [value for *_, value in rows] == [b"again"]
            producer.begin()
            producer.send_offsets(consumer, {0: rows[0][1] + 1})
            producer.abort()
