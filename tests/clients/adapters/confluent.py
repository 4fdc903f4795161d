"""confluent-kafka, the C library librdkafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka import admin as rd

from clients.adapters.api import GroupDescription, Received, Sent, is_restarted
from waiting import eventually

TIMEOUT_S = 60.0


CLASSIC_TIMES = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300}


class ConfluentConsumer:
    """`settings` are librdkafka's; a topic that begins with ^ is a regular expression."""

    def __init__(
        self,
        bootstrap: str,
        group: str | None,
        topic: str | None,
        settings: Mapping[str, Any] = CLASSIC_TIMES,
    ) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group or "none",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        if topic:
            self._consumer.subscribe([topic])

    def member_id(self) -> str:
        return self._consumer.memberid() or ""

    def poll(self, timeout_s: float) -> list[Received]:
        return [_received(message) for message in self._consumer.consume(500, timeout_s)]

    def assign(self, topic: str, partitions: Sequence[int]) -> None:
        self._consumer.assign([TopicPartition(topic, index, 0) for index in partitions])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        def has_sought() -> bool:
            self._consumer.seek(TopicPartition(topic, partition, offset))
            return True

        # librdkafka rejects a seek before its fetcher of the partition has started.
        eventually(has_sought, passing=lambda error: "Erroneous state" in str(error))

    def assignment(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def offsets_for_time(self, topic: str, partitions: Sequence[int], at_ms: int) -> dict[int, int]:
        asked = [TopicPartition(topic, index, at_ms) for index in partitions]
        found = self._consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
        return {entry.partition: entry.offset for entry in found if entry.offset >= 0}

    def committed(self, topic: str) -> dict[int, int]:
        partitions = self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        asked = [TopicPartition(topic, index) for index in partitions]
        found = self._consumer.committed(asked, timeout=TIMEOUT_S)
        return {entry.partition: entry.offset for entry in found if entry.offset >= 0}

    def close(self) -> None:
        self._consumer.close()


class ConfluentAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = rd.AdminClient({"bootstrap.servers": bootstrap})

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        fresh = rd.NewTopic(topic, partitions, -1, config=dict(config or {}))
        self._admin.create_topics([fresh])[topic].result(TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def partition_count(self, topic: str) -> int:
        collection = confluent_kafka.TopicCollection([topic])
        described = self._admin.describe_topics(collection)[topic].result(TIMEOUT_S)
        return len(described.partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([rd.NewPartitions(topic, total)])[topic].result(TIMEOUT_S)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        resource = rd.ConfigResource(rd.ConfigResource.Type.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in entries.items()}

    def alter_topic_config(self, topic: str, changes: Mapping[str, str]) -> None:
        entries = [
            rd.ConfigEntry(name, value, incremental_operation=rd.AlterConfigOpType.SET)
            for name, value in changes.items()
        ]
        resource = rd.ConfigResource(
            rd.ConfigResource.Type.TOPIC, topic, incremental_configs=entries
        )
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def groups(self) -> set[str]:
        listed = self._admin.list_consumer_groups().result(TIMEOUT_S)
        for error in listed.errors:
            raise confluent_kafka.KafkaException(error)
        return {entry.group_id for entry in listed.valid}

    def describe_group(self, group: str) -> GroupDescription:
        found = self._admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        return GroupDescription(found.state.name.title().replace("_", ""), len(found.members))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        if is_restarted(self._bootstrap):
            # librdkafka's admin client crashes the process if a broker answers its OffsetFetch
            # with NOT_COORDINATOR (librdkafka 5040); its consumer asks the coordinator that took
            # over.
            with closing(ConfluentConsumer(self._bootstrap, group, None)) as consumer:
                return consumer.committed(topic)
        asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
        return {
            entry.partition: entry.offset
            for entry in found.topic_partitions
            if entry.topic == topic
        }

    def earliest_and_latest(self, topic: str, partition: int) -> tuple[int, int]:
        asked = TopicPartition(topic, partition)
        offsets = []
        for spec in (rd.OffsetSpec.earliest(), rd.OffsetSpec.latest()):
            offsets.append(self._admin.list_offsets({asked: spec})[asked].result(TIMEOUT_S).offset)
        return offsets[0], offsets[1]

    def cluster_nodes(self) -> set[tuple[int, str, int]]:
        cluster = self._admin.describe_cluster().result(TIMEOUT_S)
        assert cluster.cluster_id
        return {(node.id, node.host, node.port) for node in cluster.nodes}

    def close(self) -> None:
        pass


class Confluent:
    name = "confluent-kafka"
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
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": compression or "none",
                "enable.idempotence": idempotent or self._idempotent,
                "linger.ms": linger_ms,
                "message.max.bytes": 1_048_588,
            }
        )
        results: list[Any] = [None] * len(records)
        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=-1 if record.partition is None else record.partition,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
                on_delivery=_noting(results, index),
            )
        assert producer.flush(TIMEOUT_S) == 0, "records were left unsent"
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def consumer(self, group: str | None = None, topic: str | None = None) -> ConfluentConsumer:
        return ConfluentConsumer(self._bootstrap, group, topic)

    def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._bootstrap)


class ConfluentConsumerProtocol(Confluent):
    """With groups of the consumer protocol (KIP-848)."""

    name = "confluent-kafka-848"

    def consumer(self, group: str | None = None, topic: str | None = None) -> ConfluentConsumer:
        return ConfluentConsumer(self._bootstrap, group, topic, {"group.protocol": "consumer"})


def _noting(results: list[Any], index: int) -> Any:
    def on_delivery(error: confluent_kafka.KafkaError | None, message: Any) -> None:
        failed = error and confluent_kafka.KafkaException(error)
        results[index] = failed or (message.partition(), message.offset())

    return on_delivery


def _received(message: confluent_kafka.Message) -> Received:
    if error := message.error():
        raise confluent_kafka.KafkaException(error)
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers: Any = message.headers() or ()  # typed as a dict of texts, too, which it never is
    return Received(
        partition,
        offset,
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(headers),
    )
