"""aiokafka, in asyncio: a loop in a thread runs it for scenarios that are written plainly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from clients.adapters.api import GroupDescription, Received, Sent

T = TypeVar("T")
TIMEOUT_S = 60.0


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * TIMEOUT_S)


LOOP = LoopThread()


class AioConsumer:
    def __init__(self, bootstrap: str, group: str | None, topic: str | None) -> None:
        LOOP.run(self._start(bootstrap, group, topic))

    async def _start(self, bootstrap: str, group: str | None, topic: str | None) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            *([topic] if topic else []),
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        await self._consumer.start()

    def member_id(self) -> str:
        return getattr(self._consumer._coordinator, "member_id", "")

    def poll(self, timeout_s: float) -> list[Received]:
        polled = LOOP.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [
            Received(
                record.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for records in polled.values()
            for record in records
        ]

    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        async def assign() -> None:
            self._consumer.assign([TopicPartition(topic, index) for index in partitions])

        LOOP.run(assign())

    def seek(self, topic: str, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(TopicPartition(topic, partition), offset)

        LOOP.run(seek())

    def assignment(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def commit(self) -> None:
        LOOP.run(self._consumer.commit())

    def offsets_for_time(self, topic: str, partitions: Sequence[int], at_ms: int) -> dict[int, int]:
        asked = {TopicPartition(topic, index): at_ms for index in partitions}
        found = LOOP.run(self._consumer.offsets_for_times(asked))
        return {
            topic_partition.partition: entry.offset
            for topic_partition, entry in found.items()
            if entry
        }

    def close(self) -> None:
        LOOP.run(self._consumer.stop())


class AioAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        LOOP.run(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> None:
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await self._admin.start()

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        fresh = NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        fresh.replication_factor = -1  # the broker's default, which the constructor rejects
        for _, code, *_ in LOOP.run(self._admin.create_topics([fresh])).topic_errors:
            if code:
                raise for_code(code)(topic)

    def delete_topic(self, topic: str) -> None:
        for _, code in LOOP.run(self._admin.delete_topics([topic])).topic_error_codes:
            if code:
                raise for_code(code)(topic)

    def topics(self) -> set[str]:
        return set(LOOP.run(self._admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        (described,) = LOOP.run(self._admin.describe_topics([topic]))
        if described["error_code"]:
            raise for_code(described["error_code"])(topic)
        return len(described["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        LOOP.run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def topic_config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = LOOP.run(self._admin.describe_configs([resource]))
        (described,) = response.resources
        assert described[0] == 0
        return {entry[0]: entry[1] for entry in described[-1]}

    def alter_topic_config(self, topic: str, changes: Mapping[str, str]) -> None:
        raise NotImplementedError("aiokafka has AlterConfigs only, which is not incremental")

    def groups(self) -> set[str]:
        return {group for group, *_ in LOOP.run(self._admin.list_consumer_groups())}

    def describe_group(self, group: str) -> GroupDescription:
        (response,) = LOOP.run(self._admin.describe_consumer_groups([group]))
        (found,) = response.to_object()["groups"]
        if found["error_code"]:
            raise for_code(found["error_code"])(group)
        return GroupDescription(found["state"], len(found["members"]))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        # aiokafka 0.14 notices errors of named partitions only.
        topic_partitions = [
            TopicPartition(topic, index) for index in range(self.partition_count(topic))
        ]
        found = LOOP.run(
            self._admin.list_consumer_group_offsets(group, partitions=topic_partitions)
        )
        return {
            topic_partition.partition: entry.offset
            for topic_partition, entry in found.items()
            if entry.offset >= 0
        }

    def note(self, group: str, topic: str, partition: int) -> str:
        """Return the metadata stored with the offset."""
        topic_partition = TopicPartition(topic, partition)
        found = LOOP.run(
            self._admin.list_consumer_group_offsets(group, partitions=[topic_partition])
        )
        metadata: str = found[topic_partition].metadata
        return metadata

    def earliest_and_latest(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = AioConsumer(self._bootstrap, None, None)
        topic_partition = TopicPartition(topic, partition)
        earliest = LOOP.run(consumer._consumer.beginning_offsets([topic_partition]))[
            topic_partition
        ]
        latest = LOOP.run(consumer._consumer.end_offsets([topic_partition]))[topic_partition]
        consumer.close()
        return earliest, latest

    def cluster_nodes(self) -> set[tuple[int, str, int]]:
        cluster = LOOP.run(self._admin.describe_cluster())
        assert cluster["cluster_id"]
        return {(node["node_id"], node["host"], node["port"]) for node in cluster["brokers"]}

    def close(self) -> None:
        LOOP.run(self._admin.close())


class Aio:
    name = "aiokafka"
    alters_configs = False
    sends_null_headers = True

    def __init__(self, bootstrap: str, *, idempotent: bool = False) -> None:
        self._bootstrap = bootstrap
        self._idempotent = idempotent

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        compression: str | None = None,
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        is_idempotent = idempotent or self._idempotent
        return LOOP.run(self._produce(topic, records, compression, is_idempotent, linger_ms))

    async def _produce(
        self,
        topic: str,
        records: Sequence[Sent],
        compression: str | None,
        idempotent: bool,
        linger_ms: int,
    ) -> list[tuple[int, int]]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=compression,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=linger_ms,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            sent = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        finally:
            await producer.stop()
        return [(entry.partition, entry.offset) for entry in sent]

    def consumer(self, group: str | None = None, topic: str | None = None) -> AioConsumer:
        return AioConsumer(self._bootstrap, group, topic)

    def admin(self) -> AioAdmin:
        return AioAdmin(self._bootstrap)
