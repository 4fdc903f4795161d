"""A client program of the endurance test, on confluent-kafka; it knows nothing of the kills.

    python client_process.py <kind> <bootstrap> <name> <journal> <seed> <life>

It works until SIGTERM, completes its requests, and ends. It writes every response to its journal
(see `endurance.history`) line by line, so that its own death loses nothing. A restarted program has
another life, and other numbers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from delivered import delivered
from endurance.history import Stored
from endurance.judge import COPIES, transformed

NUMBERS, LEDGER, TRANSFORMED = "numbers", "ledger", "transformed"
PARTITIONS = 4
READERS, TRANSFORMERS = "readers", "transform"
_TIMEOUT_S = 30.0
_SETTLE_S = 90.0
_NUMBERS_OF_A_LIFE = 1_000_000
_ABORTED = 0.3
_ABORTED_TRANSFORMATIONS = 0.1


class Client:
    """Configuration, journal and signals, shared by all programs."""

    def __init__(self, bootstrap: str, name: str, journal: str, seed: str, life: str) -> None:
        self.name = name
        self.first_number = int(life) * _NUMBERS_OF_A_LIFE
        self.random = random.Random(f"{seed} {name} {life}")
        self.stopping = threading.Event()
        self._has_aborted = False
        self._settings = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "error_cb": self._on_error,
            "log_level": 0,
            # To bootstrap again (KIP-899) lets librdkafka 2.16 wait for ever on a coordinator's
            # connection that it has given up itself.
            "metadata.recovery.strategy": "none",
        }
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())

    def note(self, **line: object) -> None:
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def aborts(self, share: float) -> bool:
        """Whether this transaction is to be aborted. The first of a life is: there must be some."""
        is_first, self._has_aborted = not self._has_aborted, True
        return is_first or self.random.random() < share

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.note(violation=f"fatal: {error}")

    def producer(self, **settings: Any) -> Producer:
        return Producer({**self._settings, "linger.ms": 2, **settings})

    def transactional(self) -> Producer:
        settings = {"transactional.id": self.name, "transaction.timeout.ms": 10_000}
        producer = self.producer(**settings)
        _until_done(lambda: producer.init_transactions(_TIMEOUT_S))
        return producer

    def consumer(self, group: str) -> Consumer:
        """The groups have committed offsets from the start, so a reset is a violation."""
        consumer = Consumer(
            {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.subscribe([NUMBERS])
        return consumer

    def received(self, consumer: Consumer) -> list[Stored]:
        found = []
        for message in consumer.consume(100, 0.2):
            error = message.error()
            if error is None:
                partition, offset, value = delivered(message)
                found.append(Stored(partition, offset, value.decode()))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.note(violation=f"reset: {error}")
            else:
                print(f"{self.name}: {error}", file=sys.stderr)
        return found


def _until_done(call: Callable[[], object]) -> None:
    """Again as long as the library says that this is the thing to do."""
    while True:
        try:
            call()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
        else:
            return


def _commit(producer: Producer) -> str:
    try:
        _until_done(lambda: producer.commit_transaction(_TIMEOUT_S))
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        return _abort(producer)
    return "committed"


def _abort(producer: Producer) -> str:
    _until_done(lambda: producer.abort_transaction(_TIMEOUT_S))
    return "aborted"


def produce_numbers(client: Client) -> None:
    """An idempotent producer of keyed records."""

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        if error is None:
            position = message.partition(), message.offset()
            client.note(acknowledged=[*position, message.value().decode()])
        else:
            client.note(violation=f"not delivered: {error}")

    producer = client.producer(**{"enable.idempotence": True, "message.timeout.ms": 120_000})
    number = client.first_number
    while not client.stopping.is_set():
        for _ in range(client.random.randrange(1, 20)):
            key, value = f"key {number % 23}", f"{client.name}/{number}"
            producer.produce(NUMBERS, value, key, on_delivery=on_delivery)
            number += 1
        producer.poll(0)
        client.stopping.wait(0.05)
    if left := producer.flush(_SETTLE_S):
        client.note(violation=f"{left} records without a verdict")


def keep_ledger(client: Client) -> None:
    """Transactions over several partitions, some of them aborted."""
    number = client.first_number
    while not client.stopping.is_set():
        try:
            producer = client.transactional()
            while not client.stopping.is_set():
                number += 1
                _enter(client, producer, number)
        except KafkaException as failure:
            # The next producer with this id fences it, and the broker ends its transaction.
            print(f"{client.name} {number}: {failure}", file=sys.stderr)


def _enter(client: Client, producer: Producer, number: int) -> None:
    producer.begin_transaction()
    client.note(began=number)
    first = client.random.randrange(PARTITIONS)
    for copy in range(COPIES):
        value = f"{client.name}/{number}"
        producer.produce(LEDGER, value, partition=(first + copy) % PARTITIONS)
    client.stopping.wait(client.random.uniform(0, 0.1))
    if client.aborts(_ABORTED):
        producer.flush(_TIMEOUT_S)
        client.note(ended=[number, _abort(producer)])
    else:
        client.note(ended=[number, _commit(producer)])


def transform(client: Client) -> None:
    """Consumes, transforms and produces, exactly once."""
    while not client.stopping.is_set():
        consumer = client.consumer(TRANSFORMERS)
        try:
            producer = client.transactional()
            while not client.stopping.is_set():
                records = client.received(consumer)
                if records and not _transform(client, consumer, producer, records):
                    break  # another consumer continues from the committed offsets
        except KafkaException as failure:
            print(f"{client.name}: {failure}", file=sys.stderr)
        finally:
            consumer.close()


def _transform(
    client: Client, consumer: Consumer, producer: Producer, records: list[Stored]
) -> bool:
    """Whether it was committed."""
    producer.begin_transaction()
    for record in records:
        producer.produce(TRANSFORMED, transformed(record))
    ends = {record.partition: record.offset + 1 for record in records}
    offsets = [TopicPartition(NUMBERS, index, end) for index, end in ends.items()]
    if client.aborts(_ABORTED_TRANSFORMATIONS):
        producer.flush(_TIMEOUT_S)
        _abort(producer)
        return False
    group = consumer.consumer_group_metadata()
    try:
        _until_done(lambda: producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_S))
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        _abort(producer)
        return False
    if _commit(producer) != "committed":
        return False
    client.note(commit=ends)
    return True


def read_numbers(client: Client) -> None:
    """A member of a group that commits the offsets of its records."""
    consumer = client.consumer(READERS)
    while not client.stopping.is_set():
        ends: dict[int, int] = {}
        for record in client.received(consumer):
            client.note(read=[record.partition, record.offset, record.offset])
            ends[record.partition] = record.offset + 1
        if not ends:
            continue
        offsets = [TopicPartition(NUMBERS, index, end) for index, end in ends.items()]
        try:
            committed = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:
            print(f"{client.name}: {failure}", file=sys.stderr)
            continue
        done = {entry.partition: entry.offset for entry in committed if entry.error is None}
        client.note(commit=done)
    consumer.close()


KINDS = {"numbers": produce_numbers, "ledger": keep_ledger, "transform": transform}
KINDS["readers"] = read_numbers


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    KINDS[kind](Client(*arguments))
