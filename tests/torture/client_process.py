"""A client program on confluent-kafka, which knows nothing of the faults.

    python client_process.py <role>.<number> <life> <bootstrap> <journal> <seed>

It works until SIGTERM, completes its requests, and ends. A restarted program has another life.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from torture.consuming import SETTINGS, NotingConsumer, partition_name
from torture.history import COMMITTED, FAIL, INFO, OK
from torture.journal import Journal, Records
from torture.servers import LEDGER, NUMBERS, OUTPUTS, PARTITIONS, PULSES, TOPICS

READERS, TRANSFORM = "readers", "transform"
UNCOMMITTED = "read_uncommitted"
_TIMEOUT_S = 30.0
_SETTLE_S = 120.0
_OUTSTANDING_MAX = 1000
_SENDS_MAX = 5
_PAUSE_S = 0.04
_PULSE_S = 0.2
_COPIES = 3
_ABORTED = 0.25
_ABORTED_TRANSFORMATIONS = 0.05


class Client:
    """Journal, randomness and signals, shared by all programs."""

    def __init__(self, name: str, life: str, bootstrap: str, journal: str, seed: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.journal = Journal(Path(journal), f"{name}:{life}")
        self.random = random.Random(f"{seed} {name} {life}")
        self.stopping = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())

    def print(self, text: object) -> None:
        print(f"{self.journal.process}: {text}", file=sys.stderr, flush=True)

    def producer(self, **settings: Any) -> Producer:
        # Longer than any fault: an outcome is unknown only if the client dies.
        timeouts = {"message.timeout.ms": 180_000, "request.timeout.ms": 10_000}
        connection = {"bootstrap.servers": self.bootstrap, "linger.ms": 2}
        return Producer(
            {**SETTINGS, **connection, **timeouts, "enable.idempotence": True, **settings}
        )

    def transactional(self) -> Producer:
        settings = {"transactional.id": self.name, "transaction.timeout.ms": 30_000}
        producer = self.producer(**settings, **{"message.timeout.ms": 30_000})
        _until_done(lambda: producer.init_transactions(_TIMEOUT_S))
        return producer

    def consumer(self, group: str) -> NotingConsumer:
        consumer = NotingConsumer(self.journal, self.bootstrap, group)
        consumer.subscribe(NUMBERS)
        return consumer


def _until_done(call: Callable[[], object]) -> None:
    """Call again as long as the library asks for it."""
    while True:
        try:
            call()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
        else:
            return


class NumbersProducer:
    """An idempotent producer, with many records on their way."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._journal = client.journal
        self._outstanding = 0
        self._sent = 0
        # With several requests in flight, librdkafka 2.16 answers OUT_OF_ORDER_SEQUENCE_NUMBER of
        # one partition with a new epoch, in which it sends records of other partitions twice
        # (librdkafka's issue 4953).
        one_request = {"max.in.flight.requests.per.connection": 1}
        self._producer = client.producer(error_cb=self._on_error, **one_request)

    def run(self) -> None:
        client = self._client
        while not client.stopping.wait(_PAUSE_S):
            for _ in range(client.random.randrange(1, _SENDS_MAX)):
                if self._outstanding < _OUTSTANDING_MAX:
                    self._send()
            self._producer.poll(0)
        if left := self._producer.flush(_SETTLE_S):
            self._journal.note("error", text=f"{left} records without a response")

    def _send(self) -> None:
        self._sent += 1
        index = self._client.random.randrange(PARTITIONS)
        value = f"{self._journal.process}/{self._sent}"
        number = self._journal.invoke("send", records=[(partition_name(NUMBERS, index), value)])
        self._outstanding += 1

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._outstanding -= 1
            if error is None:
                self._journal.end(number, OK, offsets=[message.offset()])
            else:
                self._journal.note("error", text=f"{value}: {error}")
                self._journal.end(number, INFO)

        self._producer.produce(NUMBERS, value, partition=index, on_delivery=on_delivery)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._journal.note("error", text=f"fatal: {error}")


class Pulse:
    """A producer that gives up each record soon, and so sees which partitions accept writes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._journal = client.journal
        self._sent = 0
        self._waiting: set[int] = set()
        """Partitions with a record on its way."""
        settings = {"enable.idempotence": False, "acks": "all"}
        timeouts = {"message.timeout.ms": 1500, "request.timeout.ms": 1000}
        network = {"socket.timeout.ms": 1500, "reconnect.backoff.max.ms": 200}
        metadata = {"topic.metadata.refresh.interval.ms": 500}
        self._producer = client.producer(**settings, **timeouts, **network, **metadata)

    def run(self) -> None:
        client = self._client
        while not client.stopping.wait(_PULSE_S):
            for index in range(PARTITIONS):
                if index not in self._waiting:
                    self._send(index)
            self._producer.poll(0)
        self._producer.flush(_SETTLE_S)

    def _send(self, index: int) -> None:
        self._sent += 1
        value = f"{self._journal.process}/{self._sent}"
        number = self._journal.invoke("pulse", records=[(partition_name(PULSES, index), value)])
        self._waiting.add(index)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._waiting.discard(index)
            if error is None:
                self._journal.end(number, OK, offsets=[message.offset()])
            else:
                self._journal.end(number, INFO)

        self._producer.produce(PULSES, value, partition=index, on_delivery=on_delivery)


class Transaction:
    """One transaction: all of its records are known before it begins."""

    def __init__(self, client: Client, producer: Producer, records: list[tuple[str, int]]) -> None:
        """Begin with records of `(topic, partition)`."""
        self._client = client
        self._journal = client.journal
        self._producer = producer
        self._places = records
        self._offsets: list[int | None] = [None] * len(records)
        self._number = 0

    def send(self, **keys: Any) -> None:
        names = [partition_name(topic, index) for topic, index in self._places]
        values = [self._client.random.randbytes(8).hex() for _ in names]
        values = [f"{self._journal.process}/{value}" for value in values]
        records = list(zip(names, values, strict=True))
        self._producer.begin_transaction()
        self._number = self._journal.invoke("txn", records=records, **keys)
        for position, ((topic, index), value) in enumerate(zip(self._places, values, strict=True)):
            self._producer.produce(
                topic, value, partition=index, on_delivery=self._note_of(position)
            )

    def _note_of(self, position: int) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._offsets[position] = message.offset()

        return on_delivery

    def commit(self) -> bool:
        """Return whether it was committed, otherwise it was aborted. Raises `KafkaException`."""
        self._journal.end(self._number, "ending")
        try:
            _until_done(lambda: self._producer.commit_transaction(_TIMEOUT_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                self._journal.end(self._number, INFO, offsets=self._offsets)
                raise
            self._client.print(f"operation {self._number}: {failure}")
            self.abort()
            return False
        self._journal.end(self._number, OK, offsets=self._offsets)
        return True

    def flush_and_abort(self) -> None:
        """Deliver all records first, so that the partitions contain an aborted transaction."""
        self._producer.flush(_TIMEOUT_S)
        self.abort()

    def abort(self) -> None:
        """Abort at once: after a failure, librdkafka sends no more records that it could flush."""
        _until_done(lambda: self._producer.abort_transaction(_TIMEOUT_S))
        self._journal.end(self._number, FAIL, offsets=self._offsets)


def keep_ledger(client: Client) -> None:
    """Transactions over several partitions, some of them aborted."""
    while not client.stopping.is_set():
        try:
            producer = client.transactional()
            while not client.stopping.is_set():
                first = client.random.randrange(PARTITIONS)
                partitions = [(LEDGER, (first + copy) % PARTITIONS) for copy in range(_COPIES)]
                transaction = Transaction(client, producer, partitions)
                transaction.send()
                client.stopping.wait(client.random.uniform(0, 0.1))
                if client.random.random() < _ABORTED:
                    transaction.flush_and_abort()
                else:
                    transaction.commit()
        except KafkaException as failure:
            # The next producer with this id fences it, and the broker ends its transaction.
            client.print(failure)


def transform(client: Client) -> None:
    """Consume, transform and produce, exactly once."""
    while not client.stopping.is_set():
        consumer = client.consumer(TRANSFORM)
        try:
            producer = client.transactional()
            while not client.stopping.is_set():
                records = consumer.receive()
                if records and not _transform(client, consumer, producer, records):
                    consumer.rewind()
        except KafkaException as failure:
            client.print(failure)
        finally:
            consumer.close()


def _transform(
    client: Client, consumer: NotingConsumer, producer: Producer, records: Records
) -> bool:
    """Return whether the transaction was committed."""
    ends = {name: offset + 1 for name, offset, _ in records}
    partitions = [(OUTPUTS, int(name.rpartition("-")[2])) for name, _, _ in records]
    inputs = [(name, offset) for name, offset, _ in records]
    transaction = Transaction(client, producer, partitions)
    transaction.send(inputs=inputs, group=TRANSFORM, commits=ends)
    if client.random.random() < _ABORTED_TRANSFORMATIONS:
        transaction.flush_and_abort()
        return False
    group = consumer.consumer.consumer_group_metadata()
    offsets = _offsets(ends)
    try:
        _until_done(lambda: producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_S))
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        client.print(failure)
        transaction.abort()
        return False
    return transaction.commit()


def _offsets(ends: dict[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(NUMBERS, int(name.rpartition("-")[2]), end) for name, end in ends.items()
    ]


def read_numbers(client: Client) -> None:
    """A member of a group that commits the offsets of its records."""
    while not client.stopping.is_set():
        consumer = client.consumer(READERS)
        try:
            while not client.stopping.is_set():
                if records := consumer.receive():
                    _commit(client, consumer, records)
        except KafkaException as failure:
            client.print(failure)
        finally:
            consumer.close()


def _commit(client: Client, consumer: NotingConsumer, records: Records) -> None:
    ends = {name: offset + 1 for name, offset, _ in records}
    number = client.journal.invoke("commit", group=READERS, commits=ends)
    try:
        committed = consumer.consumer.commit(offsets=_offsets(ends), asynchronous=False)
    except KafkaException as failure:
        client.print(failure)
        client.journal.end(number, INFO)
        return
    done = {
        partition_name(NUMBERS, each.partition): each.offset
        for each in committed
        if each.error is None
    }
    client.journal.end(number, OK if done else INFO, commits=done)


def watch(client: Client) -> None:
    """Consume all topics from the start; the first watcher at `read_committed`."""
    isolation = COMMITTED if client.name.endswith(".0") else UNCOMMITTED
    consumer = NotingConsumer(client.journal, client.bootstrap, isolation=isolation)
    everything = [TopicPartition(topic, at, 0) for topic in TOPICS for at in range(PARTITIONS)]
    consumer.assign(everything)
    while not client.stopping.is_set():
        consumer.receive()
    consumer.close()


ROLES: dict[str, Callable[[Client], None]] = {
    "numbers": lambda client: NumbersProducer(client).run(),
    "pulse": lambda client: Pulse(client).run(),
    "ledger": keep_ledger,
    TRANSFORM: transform,
    READERS: read_numbers,
    "watch": watch,
}


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    ROLES[name.partition(".")[0]](Client(name, *arguments))
