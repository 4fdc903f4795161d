"""Transactional producers of each library behind the same verbs, and readers by isolation level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import TopicPartition as RdPartition

from clients.adapters.aio import LOOP
from clients.adapters.api import Member, is_restarted
from clients.adapters.kafka_python import JOINING_MS
from clients.adapters.patient import patiently
from delivered import delivered
from lakelog.client.aio import AsyncTransactionalProducer
from lakelog.client.consumer import Consumer as OwnConsumer
from lakelog.client.producer import TransactionalProducer
from lakelog.protocol.transactions import ListTransactionsRequest
from waiting import eventually
from wire_client import WireClient

TIMEOUT_S = 180.0
"""kafka-python waits 30 s for each connection to a coordinator that has stopped."""
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


class Transactional(Protocol):
    """One producer. Errors are the library's own."""

    name: str

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Returns when the broker has it."""
        ...

    def send_offsets(self, consumer: Reading, offsets: dict[int, int]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Reading(Member, Protocol):
    """A member of a group, of the same library, that shares one topic."""

    topic: str
    group: str

    def poll(self) -> list[tuple[int, int, bytes]]:
        """Return partition, offset and value of new records."""
        ...


class ConfluentTransactional:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )

    def init(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        errors: list[Any] = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
        self._producer.flush(TIMEOUT_S)
        if errors != [None]:
            raise confluent_kafka.KafkaException(errors[0] if errors else "not delivered")

    def send_offsets(self, consumer: Any, offsets: dict[int, int]) -> None:
        rows = [RdPartition(consumer.topic, index, offset) for index, offset in offsets.items()]
        metadata = consumer.consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(rows, metadata, TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()

    class Reading:
        def __init__(self, bootstrap: str, group: str, topic: str, isolation: str) -> None:
            self.topic, self.group = topic, group
            self.consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": isolation,
                }
            )
            self.consumer.subscribe([topic])

        def poll(self) -> list[tuple[int, int, bytes]]:
            return [delivered(message) for message in self.consumer.consume(100, 0.2)]

        def member_id(self) -> str:
            return self.consumer.memberid() or ""

        def close(self) -> None:
            self.consumer.close()


def _keep_requests(producer: Any) -> None:
    """Have a kafka-python producer send a request again whose coordinator refused the connection.

    kafka-python 3.0.12 forgets it, whichever the broker: its sender expects False from
    `await_ready`, which raises instead. A commit or abort would wait forever for its answer.
    """
    client = producer._sender._client
    await_ready = client.await_ready

    def is_ready(*arguments: Any, **settings: Any) -> bool:
        try:
            return bool(await_ready(*arguments, **settings))
        except kafka.errors.KafkaConnectionError:
            return False

    client.await_ready = is_ready


class KafkaPythonTransactional:
    name = "kafka-python"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        if is_restarted(bootstrap):
            _keep_requests(self._producer)

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(TIMEOUT_S)

    def send_offsets(self, consumer: Any, offsets: dict[int, int]) -> None:
        rows = {
            kafka.TopicPartition(consumer.topic, index): kafka.OffsetAndMetadata(offset, "", -1)
            for index, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(rows, consumer.consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(0)

    class Reading:
        def __init__(self, bootstrap: str, group: str, topic: str, isolation: str) -> None:
            self.topic, self.group = topic, group
            self.consumer = kafka.KafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=isolation,
            )
            self._restarts = is_restarted(bootstrap)
            # A leader that does not know the topic yet would share out nothing.
            eventually(lambda: self._read(lambda: self.consumer.partitions_for_topic(topic)))
            self.consumer.subscribe([topic])

        def _read(self, call: Callable[[], Any]) -> Any:
            """Repeat a call that a restart of one of several brokers has broken off."""
            return patiently(call) if self._restarts else call()

        def poll(self) -> list[tuple[int, int, bytes]]:
            polled = self._read(lambda: self.consumer.poll(JOINING_MS))
            return [(r.partition, r.offset, r.value) for rows in polled.values() for r in rows]

        def member_id(self) -> str:
            return str(self.consumer.group_metadata().member_id)

        def close(self) -> None:
            self.consumer.close()


class AioTransactional:
    name = "aiokafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        async def make() -> aiokafka.AIOKafkaProducer:
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )

        self._producer = LOOP.run(make())

    def init(self) -> None:
        LOOP.run(self._producer.start())

    def begin(self) -> None:
        LOOP.run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        LOOP.run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, consumer: Any, offsets: dict[int, int]) -> None:
        rows = {AioPartition(consumer.topic, index): offset for index, offset in offsets.items()}
        LOOP.run(self._producer.send_offsets_to_transaction(rows, consumer.group))

    def commit(self) -> None:
        LOOP.run(self._producer.commit_transaction())

    def abort(self) -> None:
        LOOP.run(self._producer.abort_transaction())

    def close(self) -> None:
        LOOP.run(self._producer.stop())

    class Reading:
        def __init__(self, bootstrap: str, group: str, topic: str, isolation: str) -> None:
            self.topic, self.group = topic, group

            async def start() -> aiokafka.AIOKafkaConsumer:
                consumer = aiokafka.AIOKafkaConsumer(
                    topic,
                    bootstrap_servers=bootstrap,
                    group_id=group,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    isolation_level=isolation,
                )
                await consumer.start()
                return consumer

            self.consumer = LOOP.run(start())

        def poll(self) -> list[tuple[int, int, bytes]]:
            polled = LOOP.run(self.consumer.getmany(timeout_ms=200))
            return [(r.partition, r.offset, r.value) for rows in polled.values() for r in rows]

        def member_id(self) -> str:
            return str(self.consumer._coordinator.member_id)

        def close(self) -> None:
            LOOP.run(self.consumer.stop())


class OwnTransactional:
    name = "lakelog"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = TransactionalProducer(
            bootstrap, transactional_id, transaction_timeout_ms=timeout_ms
        )

    def init(self) -> None:
        """Comes with the first transaction; an abort of nothing costs nothing."""
        self._producer.begin()
        self._producer.abort()

    def begin(self) -> None:
        self._producer.begin()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).result(TIMEOUT_S)

    def send_offsets(self, consumer: Any, offsets: dict[int, int]) -> None:
        rows = {(consumer.topic, index): offset for index, offset in offsets.items()}
        self._producer.send_offsets(consumer.group, rows, consumer.consumer.membership)

    def commit(self) -> None:
        self._producer.commit()

    def abort(self) -> None:
        self._producer.abort()

    def close(self) -> None:
        self._producer.close(5.0)

    class Reading:
        def __init__(self, bootstrap: str, group: str, topic: str, isolation: str) -> None:
            self.topic, self.group = topic, group
            self.consumer = OwnConsumer(
                bootstrap, group=group, auto_offset_reset="earliest", isolation_level=isolation
            )
            self.consumer.subscribe([topic])

        def poll(self) -> list[tuple[int, int, bytes]]:
            return [(r.partition, r.offset, r.value or b"") for r in self.consumer.poll(0.2)]

        def member_id(self) -> str:
            return self.consumer.membership.member_id

        def close(self) -> None:
            self.consumer.close()


class OwnAsyncTransactional:
    name = "lakelog-aio"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = AsyncTransactionalProducer(
            bootstrap, transactional_id, transaction_timeout_ms=timeout_ms
        )

    def init(self) -> None:
        """Comes with the first transaction; an abort of nothing costs nothing."""
        LOOP.run(self._producer.begin())
        LOOP.run(self._producer.abort())

    def begin(self) -> None:
        LOOP.run(self._producer.begin())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        LOOP.run(self._producer.send(topic, value, partition=partition))

    def send_offsets(self, consumer: Any, offsets: dict[int, int]) -> None:
        rows = {(consumer.topic, index): offset for index, offset in offsets.items()}
        member = consumer.consumer.membership
        LOOP.run(self._producer.send_offsets(consumer.group, rows, member))

    def commit(self) -> None:
        LOOP.run(self._producer.commit())

    def abort(self) -> None:
        LOOP.run(self._producer.abort())

    def close(self) -> None:
        LOOP.run(self._producer.close(5.0))

    Reading = OwnTransactional.Reading


LIBRARIES: Sequence[Any] = (
    ConfluentTransactional,
    KafkaPythonTransactional,
    AioTransactional,
    OwnTransactional,
    OwnAsyncTransactional,
)


def _none_is_ending(bootstrap: str) -> bool:
    """Return whether every decided transaction of every coordinator has all its markers."""
    request = ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"])
    try:
        for address in bootstrap.split(","):
            with WireClient(address) as wire:
                listed = wire.call(request, 0)
            if listed.error_code or listed.transaction_states:
                return False
    except (OSError, EOFError):  # a broker that is restarted
        return False
    return True


def read_all(bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> list[bytes]:
    """Whole partitions up to their ends as they are now, by partition and offset.

    A commit is acknowledged once it is decided (KIP-98); it is seen a moment later.
    """
    eventually(lambda: _none_is_ending(bootstrap), what="the markers")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([RdPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    ended: set[int] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the partitions did not come to their ends"
            error, partition = message.error(), message.partition()
            if error is None:
                record = delivered(message)
                found[record.partition].append(record.value)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                assert partition is not None
                ended.add(partition)
            else:
                raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()
    return [value for index in range(partitions) for value in found[index]]
