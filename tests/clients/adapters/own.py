"""lakelog's own client, held to the same scenarios as the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clients.adapters.api import GroupDescription, Received, Sent
from lakelog.client import consumer as own
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.offsets import EARLIEST, LATEST
from lakelog.client.producer import Producer

TIMEOUT_S = 60.0


class OwnConsumer:
    def __init__(self, bootstrap: str, group: str | None, topic: str | None) -> None:
        self._bootstrap = bootstrap
        self._consumer = own.Consumer(
            bootstrap,
            group=group,
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        if topic is not None:
            self._consumer.subscribe([topic])

    def member_id(self) -> str:
        return self._consumer.membership.member_id

    def poll(self, timeout_s: float) -> list[Received]:
        return [
            Received(
                record.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for record in self._consumer.poll(timeout_s)
        ]

    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        self._consumer.assign([(topic, index) for index in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek((topic, partition), offset)

    def assignment(self) -> set[int]:
        return {partition for _, partition in self._consumer.assignment}

    def commit(self) -> None:
        self._consumer.commit()

    def offsets_for_time(self, topic: str, partitions: Sequence[int], at_ms: int) -> dict[int, int]:
        with Admin(self._bootstrap) as admin:
            found = admin.list_offsets({(topic, index): at_ms for index in partitions})
        return {
            index: committed.offset
            for (_, index), committed in found.items()
            if committed.offset >= 0
        }

    def close(self) -> None:
        self._consumer.close()


class OwnAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._admin = Admin(bootstrap)

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        self._admin.topics.create(topic, partitions=partitions, configs=config)

    def delete_topic(self, topic: str) -> None:
        self._admin.topics.delete(topic)

    def topics(self) -> set[str]:
        return {topic.name for topic in self._admin.topics.list()}

    def partition_count(self, topic: str) -> int:
        return len(self._admin.topics.describe(topic).partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.topics.create_partitions(topic, total)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        described = self._admin.configs.describe(ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in described.items()}

    def alter_topic_config(self, topic: str, changes: Mapping[str, str]) -> None:
        self._admin.configs.alter(ResourceType.TOPIC, topic, changes)

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.groups.list()}

    def describe_group(self, group: str) -> GroupDescription:
        found = self._admin.groups.describe(group)
        return GroupDescription(found.state, len(found.members))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._admin.groups.offsets(group)
        return {index: entry.offset for (name, index), entry in found.items() if name == topic}

    def earliest_and_latest(self, topic: str, partition: int) -> tuple[int, int]:
        key = (topic, partition)
        earliest = self._admin.list_offsets({key: EARLIEST})[key].offset
        return earliest, self._admin.list_offsets({key: LATEST})[key].offset

    def cluster_nodes(self) -> set[tuple[int, str, int]]:
        view = self._admin.describe_cluster()
        assert view.cluster_id
        return {(node, broker.host, broker.port) for node, broker in view.brokers.items()}

    def close(self) -> None:
        self._admin.close()


class Own:
    name = "lakelog"
    alters_configs = True
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
        with Producer(
            self._bootstrap,
            compression=compression or "none",
            idempotent=idempotent or self._idempotent,
            linger_ms=linger_ms,
        ) as producer:
            deliveries = [
                producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            sent = [delivery.result(TIMEOUT_S) for delivery in deliveries]
        return [(entry.partition, entry.offset) for entry in sent]

    def consumer(self, group: str | None = None, topic: str | None = None) -> OwnConsumer:
        return OwnConsumer(self._bootstrap, group, topic)

    def admin(self) -> OwnAdmin:
        return OwnAdmin(self._bootstrap)
