"""kafka-python, in pure Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import kafka
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from clients.adapters.api import GroupDescription, Received, Sent

TIMEOUT_S = 60.0
_EARLIEST, _LATEST = -2, -1
JOINING_MS = 1_500
"""The least that a member of a group polls for. If the time is up between JoinGroup and SyncGroup,
kafka-python 3.0 ends up in the group without sending heartbeats, and is dropped from it without
noticing; so it does with Apache Kafka 4.3.1."""


class KafkaPythonConsumer:
    def __init__(self, bootstrap: str, group: str | None, topic: str | None) -> None:
        self._least_ms = JOINING_MS if group else 0
        self._consumer = kafka.KafkaConsumer(
            *([topic] if topic else []),
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )

    def member_id(self) -> str:
        coordinator = self._consumer._coordinator
        return coordinator._generation.member_id if coordinator else ""

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._consumer.poll(max(int(timeout_s * 1000), self._least_ms))
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
        self._consumer.assign([TopicPartition(topic, index) for index in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition), offset)

    def assignment(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def offsets_for_time(self, topic: str, partitions: Sequence[int], at_ms: int) -> dict[int, int]:
        asked = {TopicPartition(topic, index): at_ms for index in partitions}
        found = self._consumer.offsets_for_times(asked)
        return {
            topic_partition.partition: entry.offset
            for topic_partition, entry in found.items()
            if entry
        }

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": -1,
            "configs": dict(config or {}),
        }
        self._admin.create_topics({topic: options})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partition_count(self, topic: str) -> int:
        (described,) = self._admin.describe_topics([topic])
        return len(described["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions({topic: total})

    def topic_config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in described["topic"][topic].items()}

    def alter_topic_config(self, topic: str, changes: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(changes))
        outcome = self._admin.alter_configs([resource], incremental=True)["topic"][topic]
        if outcome != "OK":
            raise ValueError(outcome)

    def groups(self) -> set[str]:
        return {entry["group_id"] for entry in self._admin.list_groups()}

    def describe_group(self, group: str) -> GroupDescription:
        found = self._admin.describe_groups([group])[group]
        return GroupDescription(found["group_state"], len(found["members"]))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._admin.list_group_offsets(group)[group]
        return {
            topic_partition.partition: entry.offset
            for topic_partition, entry in found.items()
            if topic_partition.topic == topic
        }

    def earliest_and_latest(self, topic: str, partition: int) -> tuple[int, int]:
        topic_partition = TopicPartition(topic, partition)
        earliest, latest = (
            self._admin.list_partition_offsets({topic_partition: spec})[topic_partition].offset
            for spec in (_EARLIEST, _LATEST)
        )
        return earliest, latest

    def cluster_nodes(self) -> set[tuple[int, str, int]]:
        cluster = self._admin.describe_cluster()
        assert cluster["cluster_id"]
        return {(node["broker_id"], node["host"], node["port"]) for node in cluster["brokers"]}

    def close(self) -> None:
        self._admin.close()


class KafkaPython:
    name = "kafka-python"
    alters_configs = True
    sends_null_headers = False

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
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=compression,
            enable_idempotence=idempotent or self._idempotent,
            acks="all",
            linger_ms=linger_ms,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            sent = [future.get(TIMEOUT_S) for future in futures]
        finally:
            producer.close()
        return [(entry.partition, entry.offset) for entry in sent]

    def consumer(self, group: str | None = None, topic: str | None = None) -> KafkaPythonConsumer:
        return KafkaPythonConsumer(self._bootstrap, group, topic)

    def admin(self) -> KafkaPythonAdmin:
        return KafkaPythonAdmin(self._bootstrap)
