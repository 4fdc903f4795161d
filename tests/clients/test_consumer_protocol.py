"""Groups of the consumer protocol (KIP-848), and of both protocols at once, with real clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import admin as rd
from confluent_kafka.admin import ConsumerGroupDescription

from broker_process import BrokerProcess
from clients.adapters.aio import Aio
from clients.adapters.api import Client, Sent
from clients.adapters.confluent import TIMEOUT_S, Confluent, ConfluentConsumerProtocol
from clients.adapters.kafka_python import KafkaPython
from clients.group_member import GroupMember
from clients.reading import poll_count
from waiting import eventually

PARTITIONS = 6
QUICK = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data: Path = tmp_path_factory.mktemp("consumer-protocol") / "data"
    with BrokerProcess(data, settings=QUICK) as broker:
        yield broker


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    with closing(Confluent(broker.bootstrap).admin()) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


def _produce(client: Client, topic: str, count: int) -> set[bytes]:
    values = [f"{uuid.uuid4().hex}".encode() for _ in range(count)]
    client.produce(topic, [Sent(v, partition=i % PARTITIONS) for i, v in enumerate(values)])
    return set(values)


def _shared(members: list[GroupMember], each: set[int]) -> bool:
    """Whether every partition has one owner, and so many have each member."""
    owned = [partition for member in members for partition in member.partitions]
    counts = {len(member.partitions) for member in members}
    return sorted(owned) == list(range(PARTITIONS)) and counts == each


def _received(members: list[GroupMember]) -> set[bytes | None]:
    return {record.value for member in members for record in member.received}


def _describe(broker: BrokerProcess, group: str) -> rd.ConsumerGroupDescription:
    admin = rd.AdminClient({"bootstrap.servers": broker.bootstrap})
    described: ConsumerGroupDescription
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    return described


def test_members_come_and_go_and_a_killed_broker_changes_nothing(
    broker: BrokerProcess, topic: str
) -> None:
    client = ConfluentConsumerProtocol(broker.bootstrap)
    first, second = (GroupMember(client, topic, topic) for _ in range(2))
    third = GroupMember(client, topic, f"^{topic[:-1]}.$")
    with first:
        eventually(lambda: _shared([first], {6}))
        with second, third:
            members = [first, second, third]
            eventually(lambda: _shared(members, {2}))
            described = _describe(broker, topic)
            assert described.state is confluent_kafka.ConsumerGroupState.STABLE
            assert described.type is confluent_kafka.ConsumerGroupType.CONSUMER
            assert described.partition_assignor == "uniform"
            owned = {
                member.member_id: {each.partition for each in member.assignment.topic_partitions}
                for member in described.members
            }
            assert sorted(map(len, owned.values())) == [2, 2, 2]

            sent = _produce(client, topic, 60)
            eventually(lambda: _received(members) >= sent)
            broker.kill()
            broker.restart()
            again = _describe(broker, topic)
            assert {member.member_id for member in again.members} == owned.keys()
            sent = _produce(client, topic, 60)
            eventually(lambda: _received(members) >= sent)
            assert _shared(members, {2}), "no member lost a partition"
        eventually(lambda: _shared([first], {6}))


def test_offsets_are_committed_and_taken_up_again(broker: BrokerProcess, topic: str) -> None:
    client = ConfluentConsumerProtocol(broker.bootstrap)
    sent = _produce(client, topic, 30)
    with closing(client.consumer(topic, topic)) as consumer:
        assert {record.value for record in poll_count(consumer, 30)} == sent
        consumer.commit()
    more = _produce(client, topic, 12)
    with closing(client.consumer(topic, topic)) as consumer:
        assert {record.value for record in poll_count(consumer, 12)} == more
    admin = rd.AdminClient({"bootstrap.servers": broker.bootstrap})
    eventually(lambda: not _describe(broker, topic).members)
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert topic not in {g.group_id for g in admin.list_consumer_groups().result().valid}


@pytest.mark.parametrize("old", [Aio, KafkaPython, Confluent], ids=lambda make: make.name)
def test_a_group_moves_to_the_new_protocol_and_back(
    broker: BrokerProcess, topic: str, old: type[Client]
) -> None:
    """KIP-848's rolling upgrade, and its reverse: members of both protocols in one group."""
    classic = old(broker.bootstrap)  # type: ignore[call-arg]
    modern = ConfluentConsumerProtocol(broker.bootstrap)
    with ExitStack() as stack:
        members = [stack.enter_context(GroupMember(classic, topic, topic))]
        eventually(lambda: _shared(members, {6}))
        members.append(stack.enter_context(GroupMember(classic, topic, topic)))
        eventually(lambda: _shared(members, {3}))
        assert _describe(broker, topic).type is confluent_kafka.ConsumerGroupType.CLASSIC

        new = GroupMember(modern, topic, topic)
        with new:
            both = [*members, new]
            eventually(lambda: _shared(both, {2}))
            described = _describe(broker, topic)
            assert described.type is confluent_kafka.ConsumerGroupType.CONSUMER
            sent = _produce(modern, topic, 60)
            eventually(lambda: _received(both) >= sent)
        eventually(lambda: _shared(members, {3}))
        assert _describe(broker, topic).type is confluent_kafka.ConsumerGroupType.CLASSIC
        sent = _produce(modern, topic, 60)
        eventually(lambda: _received(members) >= sent)
