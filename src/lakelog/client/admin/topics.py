"""Creates, lists, changes and deletes topics, and deletes the first records of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
    UnreachableError,
    UnsupportedError,
    check,
    check_change,
)
from lakelog.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
from lakelog.client.view import Topic
from lakelog.protocol import topics as messages
from lakelog.protocol.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

HIGH_WATERMARK = -1
"""Stands for the end of the readable part, in place of an offset to delete before."""


def check_reached(cluster: Cluster, before: Mapping[TopicPartition, int]) -> None:
    """Raise `OffsetOutOfRangeError` for the first partition that ends before its offset."""
    ends = list_offsets(cluster, dict.fromkeys(before, LATEST))
    for key, offset in sorted(before.items()):
        if not HIGH_WATERMARK <= offset <= ends[key].offset:
            start = list_offsets(cluster, {key: EARLIEST})[key].offset
            raise OffsetOutOfRangeError(*key, offset, start, ends[key].offset)


def delete_before(
    cluster: Cluster, key: TopicPartition, offset: int, *, force: bool = False
) -> int:
    """Ask the leader once; return the new start of the partition. Safe to repeat.

    force: delete records that the topic's table does not have yet, too; ignored by Apache Kafka.

    Raises `UnreachableError`, OFFSET_OUT_OF_RANGE if `offset` is beyond the high watermark, and
    other errors of the leader as `ClientError` (KIP-107).
    """
    topic, partition = key
    request = messages.DeleteRecordsRequest(
        topics=[
            messages.DeleteRecordsTopic(
                name=topic,
                partitions=[
                    messages.DeleteRecordsPartition(partition_index=partition, offset=offset)
                ],
            )
        ],
        timeout_ms=int(cluster.request_timeout_s * 1000),
        force=force,
    )
    node = cluster.leader(topic, partition).node_id
    try:
        response = cluster.ask(node, request, messages.DeleteRecordsResponse)
    except ConnectionLostError as error:
        raise UnreachableError.after(error) from error
    (row,) = (row for answer in response.topics for row in answer.partitions)
    check(row.error_code, f"{topic}-{partition}{_reason(row.error_code, offset)}")
    low: int = row.low_watermark
    return low


def _reason(code: int, offset: int) -> str:
    """Return the description of an error, because the response has no text."""
    if code == ErrorCode.POLICY_VIOLATION:
        return (
            " is only compacted: its records are removed by key, not by offset. Or its table lacks "
            f"records before offset {offset}: archive them first, or force the deletion"
        )
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return (
            ": the broker could not make the deletion durable (its disk is full or has failed); "
            "the records may or may not be deleted: free space and retry"
        )
    return f" has no offset {offset}" if code == ErrorCode.OFFSET_OUT_OF_RANGE else ""


BROKER_DEFAULT = -1


class EligibleReplicas(NamedTuple):
    """Replicas of a partition outside of the ISR that may lead it (KIP-966)."""

    elr: tuple[int, ...]
    """Replicas that have every acknowledged record."""
    last_known_elr: tuple[int, ...]
    """Replicas that had every acknowledged record until a failure."""


class Topics:
    """`Admin.topics`.

    Methods that change topics raise `OutcomeUnknownError` if the connection broke before the
    response, or if the broker does not know the outcome: check the topic before a retry.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self, *, internal: bool = False) -> list[Topic]:
        """Return all topics by name; internal topics only with `internal`.

        Raises `UnreachableError`.
        """
        topics = self._cluster.refresh().topics.values()
        shown = [topic for topic in topics if internal or not topic.is_internal]
        return sorted(shown, key=lambda topic: topic.name)

    def describe(self, name: str) -> Topic:
        """Return the present state of a topic. Raises `TopicNotFoundError`."""
        self._cluster.refresh([name])
        return self._cluster.topic(name)

    def eligible(self, name: str) -> dict[int, EligibleReplicas]:
        """Return the eligible leader replicas of the partitions that have any (KIP-966).

        Empty for a broker that does not know them. Raises `UnreachableError`.
        """
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        eligible: dict[int, EligibleReplicas] = {}
        while True:
            try:
                page = self._cluster.ask_any(request, DescribeTopicPartitionsResponse)
            except UnsupportedError:
                return {}
            for row in (row for topic in page.topics for row in topic.partitions):
                elr, last_known = row.eligible_leader_replicas or (), row.last_known_elr or ()
                if elr or last_known:
                    eligible[row.partition_index] = EligibleReplicas(tuple(elr), tuple(last_known))
            if page.next_cursor is None:
                return eligible
            request.cursor = page.next_cursor

    def create(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        validate_only: bool = False,
        wait: bool = True,
    ) -> bool:
        """Create a topic and return True, or False if it exists and `exist_ok`.

        partitions, replication_factor: -1 selects the broker's default. wait: return only when all
        partitions have leaders. Raises TOPIC_ALREADY_EXISTS unless `exist_ok`, and the broker's
        error for invalid settings.
        """
        items = (configs or {}).items()
        topic = messages.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[messages.CreatableTopicConfig(name=key, value=value) for key, value in items],
        )
        request = messages.CreateTopicsRequest(
            topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only
        )

        def work() -> bool:
            response = self._cluster.change(
                request, messages.CreateTopicsResponse, f"creating topic {name!r}"
            )
            for row in response.topics:
                if exist_ok and row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    return False
                check_change(row.error_code, f"topic {name!r}", row.error_message)
            return True

        created = self._cluster.retrying(work)
        if wait and not validate_only:
            self._cluster.retrying(lambda: self._check_led(name))
        return created

    def delete(self, name: str) -> None:
        """Delete a topic and its records permanently. Raises `TopicNotFoundError`."""
        request = messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicState(name=name)],
            topic_names=[name],
            timeout_ms=self._timeout_ms,
        )

        what = f"deleting topic {name!r}"

        def work() -> None:
            response = self._cluster.change(request, messages.DeleteTopicsResponse, what)
            _check_existing(name, response.responses)

        self._cluster.retrying(work)

    def create_partitions(self, name: str, count: int) -> None:
        """Increase the number of partitions to `count`. This changes the partitions of keys.

        Raises `TopicNotFoundError`, and `ClientError` with INVALID_PARTITIONS if there are as many
        already (KIP-195).
        """
        topic = messages.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = messages.CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)

        what = f"adding partitions to topic {name!r}"

        def work() -> None:
            response = self._cluster.change(request, messages.CreatePartitionsResponse, what)
            _check_existing(name, response.results)

        self._cluster.retrying(work)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, force: bool = False
    ) -> dict[TopicPartition, int]:
        """Delete the records before each offset permanently; return the new start offsets.

        `HIGH_WATERMARK` deletes all readable records. force: delete records that the topic's table
        does not have yet, too. Raises `OffsetOutOfRangeError` for an offset beyond the end of a
        partition, before any record is deleted. Raises POLICY_VIOLATION for a topic that is only
        compacted and, without `force`, for records that are not archived; records of earlier
        partitions are deleted then.
        """
        check_reached(self._cluster, before)
        log_starts: dict[TopicPartition, int] = {}

        def work() -> dict[TopicPartition, int]:
            left = {key: offset for key, offset in before.items() if key not in log_starts}
            try:
                for key, offset in left.items():
                    log_starts[key] = delete_before(self._cluster, key, offset, force=force)
            except Exception:
                self._cluster.refresh({topic for topic, _ in left})
                raise
            return log_starts

        return self._cluster.retrying(work)

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.request_timeout_s * 1000)

    def _check_led(self, name: str) -> None:
        """Raise a retriable error if a partition has no known leader."""
        topic = self._cluster.refresh([name]).topics.get(name)
        if topic is None:
            raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} is being created")
        for partition in topic.partitions:
            if partition.leader not in self._cluster.view.brokers:
                where = f"{name}-{partition.partition}"
                raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader yet")


def _check_existing(
    name: str, rows: Iterable[messages.CreatePartitionsTopicResult | messages.DeletableTopicResult]
) -> None:
    """Check the result of a change of an existing topic. Raises as the methods of `Topics`."""
    for row in rows:
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicNotFoundError(name)
        check_change(row.error_code, f"topic {name!r}", row.error_message)
