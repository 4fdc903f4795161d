"""The producers of partitions on all brokers, for this broker's transaction coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, LastSequences, WrittenTo
from lakelog.protocol.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.api import Tasks
from lakelog.server.coordinators.leaders import PartitionLeaders


class ClusterProducerLogs:
    """The leaders of all partitions; a `ProducerLogs`.

    Only this broker's own metadata image states that a topic is deleted, as for markers.
    """

    def __init__(
        self, leaders: PartitionLeaders, partitions: PartitionRegistry, tasks: Tasks
    ) -> None:
        self._leaders = leaders
        self._partitions = partitions
        self._tasks = tasks

    async def last_sequences(self, targets: Sequence[WrittenTo]) -> LastSequences:
        """Return the last sequence of each open transaction; raises as `ProducerLogs`."""
        sequences = dict.fromkeys(targets, NO_SEQUENCE)
        by_leader: dict[int, list[WrittenTo]] = {}
        for target in sequences:
            if (leader := self._leaders.of(target.topic, target.partition)) is not None:
                by_leader.setdefault(leader, []).append(target)
        own = by_leader.pop(self._leaders.node_id, [])
        sequences.update((target, self._own(target)) for target in own)
        asked = [
            self._tasks.spawn(self._ask(leader, led), name=f"producers on {leader}")
            for leader, led in by_leader.items()
        ]
        answers = [await task for task in asked]
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
            sequences.update(answer)
        return sequences

    def _own(self, target: WrittenTo) -> int:
        partition = self._partitions.leader(target.topic, target.partition)
        entry = partition.log.producers.entries.get(target.producer_id)
        if entry is None or entry.txn_first_offset < 0 or entry.epoch != target.producer_epoch:
            return NO_SEQUENCE
        return entry.last_sequence

    async def _ask(self, leader: int, targets: list[WrittenTo]) -> LastSequences | KafkaError:
        """Ask another broker; return its error, also for a partition that it does not lead."""
        try:
            response = await self._leaders.request(leader, _request(targets))
        except KafkaError as error:
            return error
        assert isinstance(response, DescribeProducersResponse)
        sequences: dict[WrittenTo, int] = {}
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code != ErrorCode.NONE:
                    return KafkaError(ErrorCode(row.error_code))
                for producer in row.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        identity = producer.producer_id, producer.producer_epoch
                        target = WrittenTo(topic.name, row.partition_index, *identity)
                        sequences[target] = producer.last_sequence
        return {target: sequences.get(target, NO_SEQUENCE) for target in targets}


def _request(targets: list[WrittenTo]) -> DescribeProducersRequest:
    by_topic = groupby(sorted(targets), key=lambda target: target.topic)
    return DescribeProducersRequest(
        topics=[
            TopicRequest(
                name=name, partition_indexes=sorted({target.partition for target in of_topic})
            )
            for name, of_topic in by_topic
        ],
        producer_ids=sorted({target.producer_id for target in targets}),
    )
