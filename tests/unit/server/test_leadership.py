"""Responses to clients while the metadata moves a partition between this broker and another.

The other broker is a record in the metadata log; nothing runs for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord, PartitionRecord
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import SocketlessBroker
from storage_kit import make_batch
from wire_client import fetch_request, produce_request

OWN, OTHER = 1, 2
ALL, LEADER = -1, 1
PRODUCE, FETCH = 12, 16
TOPIC_ID_FETCH = 13
BOTH = (OWN, OTHER)
Scenario = Callable[["Node"], Awaitable[None]]


class Node:
    """A broker, one topic of one partition, and the changes of the partition in the metadata."""

    def __init__(self, data: Path) -> None:
        self.broker = SocketlessBroker(data)

    async def start(self, **configs: str) -> None:
        await self.broker.start()
        entries = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=entries)
        await self.answer(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        other = Endpoint("PLAINTEXT", "other.example", 9093)
        record = BrokerRecord(OTHER, b"i" * 16, 1, (other,), None)
        await self._submit(lambda image: Plan((record,), None))
        self.broker.connect()

    async def _submit(self, plan: Callable[[MetadataImage], Plan[None]]) -> None:
        await self.broker.server._control.metadata.submit(plan)

    async def change(
        self,
        leader: int,
        isr: tuple[int, ...] = (OWN,),
        *,
        replicas: tuple[int, ...] = BOTH,
        same_epoch: bool = False,
    ) -> int:
        """Give the partition a leader and an ISR; return its leader epoch."""

        def plan(image: MetadataImage) -> Plan[None]:
            topic = image.topic("t")
            assert topic is not None
            old = topic.partitions[0]
            epoch = old.leader_epoch + (not same_epoch)
            partition = (0, replicas, isr, leader, epoch, old.partition_epoch + 1)
            return Plan((PartitionRecord(topic.topic_id, *partition),), None)

        await self._submit(plan)
        topic = self.broker.server.broker.image.topic("t")
        assert topic is not None
        self.topic_id = topic.topic_id
        return topic.partitions[0].leader_epoch

    def send(self, message: Any, version: int) -> Any:
        """Send a request; return the response if there is one at once."""
        api = api_for(type(message))
        answer = self.broker.ask(b"".join(encode_request(api, version, 1, "test", message)))
        return self.decoded(answer, message, version) if answer else None

    def decoded(self, answer: bytes, message: Any, version: int) -> Any:
        return decode_response(api_for(type(message)), version, memoryview(answer)[4:])[1]

    async def answer(self, message: Any, version: int) -> Any:
        """Send a request and wait for its response."""
        self.broker.socket.was_sent.clear()
        response = self.send(message, version)
        return await self.late(message, version) if response is None else response

    async def late(self, message: Any, version: int) -> Any:
        await asyncio.wait_for(self.broker.socket.was_sent.wait(), 20)
        return self.decoded(self.broker.take_answer(), message, version)

    def produce(self, acks: int = ALL) -> Any:
        self.broker.socket.was_sent.clear()
        response = self.send(produce_of(acks), PRODUCE)
        return response and response.responses[0].partition_responses[0]

    async def produced_late(self) -> Any:
        response = await self.late(produce_of(ALL), PRODUCE)
        return response.responses[0].partition_responses[0]

    def fetch(self, offset: int = 0) -> Any:
        return self.send(fetch_request("t", offset), 12)

    @property
    def partition(self) -> Any:
        return self.broker.server.broker.partitions.get("t", 0)


def produce_of(acks: int) -> Any:
    return produce_request("t", bytes(make_batch(2)), acks=acks)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Scenario, **configs: str) -> None:
        async def whole() -> None:
            node = Node(tmp_path)
            await node.start(**configs)
            try:
                await scenario(node)
            finally:
                await node.broker.stop()

        asyncio.run(whole())

    return run


def test_a_follower_names_the_leader_and_its_address(run: Callable[..., None]) -> None:
    """KIP-951."""

    async def scenario(node: Node) -> None:
        assert node.produce().error_code == 0
        epoch = await node.change(OTHER, BOTH)
        response = node.send(produce_of(ALL), PRODUCE)
        result = response.responses[0].partition_responses[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (
            OTHER,
            epoch,
        )
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (OTHER, "other.example", 9093)
        assert node.partition.log.log_end_offset == 2

        request = fetch_request("t", 0)
        request.topics[0].topic_id = node.topic_id
        response = node.send(request, FETCH)
        result = response.responses[0].partitions[0]
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader.leader_id == OTHER and not result.records
        assert [each.host for each in response.node_endpoints] == ["other.example"]

    run(scenario)


def test_a_follower_rejects_requests_for_the_leader(run: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        await node.change(OTHER, BOTH)
        listed = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsTopic(name="t", partitions=[listed])
        response = node.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 6)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        asked = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        epochs = OffsetForLeaderTopic(topic="t", partitions=[asked])
        response = node.send(OffsetForLeaderEpochRequest(replica_id=-1, topics=[epochs]), 4)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        deleted = DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
        )
        response = await node.answer(DeleteRecordsRequest(topics=[deleted], timeout_ms=1000), 2)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_partition_of_other_brokers_is_not_unknown(run: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        await node.change(OTHER, (OTHER,), replicas=(OTHER,))
        node.broker.server._replicas.partitions.remove(node.partition)
        result = node.produce()
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader.leader_id == OTHER

    run(scenario)


@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_a_cached_request_is_forgotten_with_the_leadership(
    run: Callable[..., None], acks: int
) -> None:
    async def scenario(node: Node) -> None:
        for _ in range(3):
            assert node.produce(acks).error_code == 0
        assert node.broker.connection.cached_request is not None
        await node.change(OTHER, BOTH)
        assert node.produce(acks).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await node.change(OWN)
        result = node.produce(acks)
        assert (result.error_code, result.base_offset) == (0, 6)
        assert node.partition.log.leader_epochs.latest == node.partition.leader_epoch

    run(scenario)


def test_only_acks_all_waits_for_the_other_replicas(run: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        await node.change(OWN, BOTH)
        for offset in (0, 2, 4):
            assert node.produce(LEADER).base_offset == offset
        assert node.partition.watermark.offset == 0
        assert not node.fetch().responses[0].partitions[0].records, "they are not committed"
        assert node.produce(ALL) is None, "the other replica has nothing of it"
        await node.change(OWN, (OWN,), same_epoch=True)
        result = await node.produced_late()
        assert (result.error_code, result.base_offset) == (0, 6)
        assert node.fetch().responses[0].partitions[0].high_watermark == 8

    run(scenario)


def test_a_cached_request_waits_for_a_replica_that_joins(run: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        for _ in range(3):
            assert node.produce(ALL).error_code == 0
        assert node.broker.connection.cached_request is not None
        await node.change(OWN, BOTH, same_epoch=True)
        for _ in range(3):
            assert node.produce(ALL) is None
        assert node.partition.watermark.offset == 6

    run(scenario)


def test_an_acknowledgement_does_not_outlive_its_leader_epoch(run: Callable[..., None]) -> None:
    """The next leader may have another record at that offset."""

    async def scenario(node: Node) -> None:
        await node.change(OWN, BOTH)
        assert node.produce(ALL) is None
        epoch = await node.change(OTHER, BOTH)
        result = await node.produced_late()
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader.leader_epoch == epoch

        await node.change(OWN, BOTH)
        assert node.produce(ALL) is None
        await node.change(OWN, (OWN,))
        result = await node.produced_late()
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch, same leader"

    run(scenario)


def test_acks_all_needs_enough_replicas_in_sync(run: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        assert node.produce(ALL).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert node.produce(LEADER).error_code == 0
        await node.change(OWN, BOTH)
        assert node.produce(ALL) is None

    run(scenario, min_insync_replicas="2")


def test_acks_1_waits_for_the_flush_of_a_durable_topic(run: Callable[..., None]) -> None:
    async def scenario(node: Node) -> None:
        await node.change(OWN, BOTH)
        assert node.produce(LEADER) is None
        result = await node.produced_late()
        assert (result.error_code, result.base_offset) == (0, 0)
        assert node.partition.log.recovery_point == 2
        assert node.partition.watermark.offset == 0

    run(scenario, durability="fsync")
