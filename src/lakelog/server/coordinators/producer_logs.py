"""The producers of partitions on all brokers, for this broker's transaction coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, LastSequences, WrittenTo
from lakelog.protocol.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from lakelog.replica.partitions import Partitions
from lakelog.runtime.api import Tasks
from lakelog.server.coordinators.leaders import PartitionLeaders


class ClusterProducerLogs:
    """The leaders of all partitions; a `ProducerLogs`.

    Only this broker's own metadata image states that a topic is deleted, as for markers.
    """

    def __init__(self, leaders: PartitionLeaders, partitions: Partitions, tasks: Tasks) -> None:
        self._leaders = leaders
        self._partitions = partitions
        self._tasks = tasks

    async def last_sequences(self, targets: Sequence[WrittenTo]) -> LastSequences:
        """Return the last sequence of each open transaction; raises as `ProducerLogs`."""
        found = dict.fromkeys(targets, NO_SEQUENCE)
        by_leader: dict[int, list[WrittenTo]] = {}
        for place in found:
            if (leader := self._leaders.of(place.topic, place.partition)) is not None:
                by_leader.setdefault(leader, []).append(place)
        own = by_leader.pop(self._leaders.node_id, [])
        found.update((place, self._own(place)) for place in own)
        asked = [
            self._tasks.spawn(self._ask(leader, wanted), name=f"producers on {leader}")
            for leader, wanted in by_leader.items()
        ]
        answers = [await each for each in asked]
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
            found.update(answer)
        return found

    def _own(self, place: WrittenTo) -> int:
        partition = self._partitions.leader(place.topic, place.partition)
        entry = partition.log.producers.entries.get(place.producer_id)
        if entry is None or entry.txn_first_offset < 0 or entry.epoch != place.producer_epoch:
            return NO_SEQUENCE
        return entry.last_sequence

    async def _ask(self, leader: int, wanted: list[WrittenTo]) -> LastSequences | KafkaError:
        """Ask another broker; return its error, also for a partition that it does not lead."""
        try:
            response = await self._leaders.request(leader, _request(wanted))
        except KafkaError as error:
            return error
        assert isinstance(response, DescribeProducersResponse)
        found: dict[WrittenTo, int] = {}
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code != ErrorCode.NONE:
                    return KafkaError(ErrorCode(row.error_code))
                for each in row.active_producers:
                    if each.current_txn_start_offset >= 0:
                        identity = each.producer_id, each.producer_epoch
                        place = WrittenTo(topic.name, row.partition_index, *identity)
                        found[place] = each.last_sequence
        return {place: found.get(place, NO_SEQUENCE) for place in wanted}


def _request(wanted: list[WrittenTo]) -> DescribeProducersRequest:
    by_topic = groupby(sorted(wanted), key=lambda place: place.topic)
    return DescribeProducersRequest(
        topics=[
            TopicRequest(
                name=name, partition_indexes=sorted({place.partition for place in of_topic})
            )
            for name, of_topic in by_topic
        ],
        producer_ids=sorted({place.producer_id for place in wanted}),
    )
