"""Consumers of confluent-kafka that note their assignments and records."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from delivered import delivered
from torture.history import COMMITTED
from torture.journal import Journal, Records

SETTINGS: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 0,
    # To bootstrap again (KIP-899) lets librdkafka 2.16 wait for ever on a coordinator's
    # connection that it has given up itself.
    "metadata.recovery.strategy": "none",
}
_BATCH = 200
_WAIT_S = 0.2
_TIMEOUT_S = 30.0


def partition_name(topic: str, index: int) -> str:
    return f"{topic}-{index}"


class NotingConsumer:
    """A consumer of a group, or of given partitions from offset 0 on.

    A group has committed offsets from the start, so a reset is an error that must never occur.
    """

    def __init__(
        self,
        journal: Journal,
        bootstrap: str,
        group: str | None = None,
        isolation: str = COMMITTED,
    ) -> None:
        self._journal = journal
        self._group = group
        self._isolation = isolation
        self._pending: Records = []
        self._failure: KafkaException | None = None
        self.consumer = Consumer(
            {
                **SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": group or "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "check.crcs": True,
                "session.timeout.ms": 4000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin at the offsets of these partitions."""
        self._flush()
        starts = {partition_name(each.topic, each.partition): each.offset for each in partitions}
        self._journal.assign(starts, self._group, self._isolation)
        self.consumer.assign(partitions)

    def rewind(self) -> None:
        """Begin again at the committed offsets."""
        self._assign_committed(self.consumer.assignment())

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            self._assign_committed(partitions)
        except KafkaException as failure:
            # `poll` would raise the error of a callback as an object that is no exception.
            self._failure = failure

    def _assign_committed(self, partitions: list[TopicPartition]) -> None:
        wanted = [TopicPartition(each.topic, each.partition) for each in partitions]
        found = self.consumer.committed(wanted, _TIMEOUT_S) if wanted else []
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
            if each.offset < 0:
                text = f"{self._group} has no committed offset of {each.topic}-{each.partition}"
                self._journal.note("error", text=text)
        self.assign(found)

    def _on_revoke(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._flush()
        consumer.unassign()

    def receive(self) -> Records:
        """Return the next records, all of one assignment, and note them.

        Raises `KafkaException` if the committed offsets of a new assignment cannot be read.
        """
        self._pending = []
        wait_s = _WAIT_S
        # Not `consume`: it may return records of two assignments.
        while len(self._pending) < _BATCH and (message := self.consumer.poll(wait_s)) is not None:
            wait_s = 0
            if self._failure is not None:
                break
            self._take(message)
        received = self._pending
        self._flush()
        if self._failure is not None:
            raise self._failure
        return received

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            index, offset, value = delivered(message)
            topic = message.topic()
            assert topic is not None
            self._pending.append((partition_name(topic, index), offset, value.decode()))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._journal.note("error", text=f"reset: {error}")
        else:
            print(f"{self._journal.process}: {error}", file=sys.stderr)

    def _flush(self) -> None:
        """Note the records of the assignment so far. Callbacks of `poll` do so before another."""
        self._journal.poll(self._pending)
        self._pending = []

    def close(self) -> None:
        self.consumer.close()
