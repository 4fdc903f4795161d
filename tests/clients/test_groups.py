"""Consumer groups: assignments and start positions."""

from __future__ import annotations

import uuid
from contextlib import closing

import kafka
import pytest
from kafka.errors import OffsetMetadataTooLargeError

from clients.adapters.aio import AioAdmin
from clients.adapters.api import Admin, Client, Sent
from clients.adapters.patient import own_admin, patiently
from clients.group_member import GroupMember
from clients.reading import poll_count
from waiting import eventually


def _shares(members: list[GroupMember]) -> list[list[int]]:
    """The members' partitions, the idle ones first."""
    return sorted(sorted(member.partitions) for member in members)


def test_a_third_member_on_two_partitions_stays_idle_until_another_leaves(
    client: Client, admin: Admin, name: str
) -> None:
    admin.create_topic(name, 2)
    first, second, third = (GroupMember(client, name, name) for _ in range(3))
    with first:
        eventually(lambda: first.partitions == {0, 1})
        with second:
            eventually(lambda: _shares([first, second]) == [[0], [1]])
            with third:
                members = [first, second, third]
                eventually(lambda: admin.describe_group(name) == ("Stable", 3))
                client.produce(name, [Sent(b"%d" % i, partition=i % 2) for i in range(40)])
                eventually(lambda: sum(len(m.received) for m in members) >= 40)
                eventually(lambda: _shares(members) == [[], [0], [1]])

                busy = [member for member in members if member.partitions]
                (idle,) = (member for member in members if not member.partitions)
                assert idle.received == []
                for member in busy:
                    assert {record.partition for record in member.received} == member.partitions
                    assert [record.offset for record in member.received] == list(range(20))

                busy[0].close()
                eventually(lambda: _shares([idle, busy[1]]) == [[0], [1]])
    eventually(lambda: admin.describe_group(name) == ("Empty", 0))


@pytest.mark.moving
def test_a_group_resumes_where_it_committed(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    client.produce(name, [Sent(b"%d" % i) for i in range(10)])
    with closing(client.consumer(name, name)) as consumer:
        assert [record.offset for record in poll_count(consumer, 10)] == list(range(10))
        consumer.commit()
    assert admin.committed(name, name) == {0: 10}

    client.produce(name, [Sent(b"%d" % i) for i in range(10, 15)])
    for _ in range(2):  # uncommitted records are delivered again
        with closing(client.consumer(name, name)) as consumer:
            assert [record.offset for record in poll_count(consumer, 5)] == list(range(10, 15))
    assert admin.committed(name, name) == {0: 10}


def test_groups_do_not_share_their_positions(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    client.produce(name, [Sent(b"%d" % i) for i in range(3)])
    groups = {f"{name}-a", f"{name}-b"}
    for group in groups:
        with closing(client.consumer(group, name)) as consumer:
            poll_count(consumer, 3)
            consumer.commit()
    eventually(lambda: groups <= admin.groups())
    assert [admin.committed(group, name) for group in groups] == [{0: 3}, {0: 3}]


def test_the_note_beside_an_offset_comes_back(bootstrap: str) -> None:
    """librdkafka 0099 and 0140: up to 4,096 characters (`offset.metadata.max.bytes`)."""
    name = f"note-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, 1)
    longest = "n" * 4095 + "\u00e9"
    topic_partition = kafka.TopicPartition(name, 0)
    writer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)
    with closing(writer), closing(AioAdmin(bootstrap)) as reader:
        for offset, note in enumerate(("short", "", longest)):
            writer.commit({topic_partition: kafka.OffsetAndMetadata(offset, note, -1)})
            assert writer.committed(topic_partition, metadata=True).metadata == note
            assert patiently(lambda: reader.note(name, name, 0)) == note
        with pytest.raises(OffsetMetadataTooLargeError):
            writer.commit({topic_partition: kafka.OffsetAndMetadata(3, longest + "x", -1)})
        assert patiently(lambda: reader.note(name, name, 0)) == longest


def test_a_committed_offset_is_deleted(bootstrap: str) -> None:
    """KIP-496; Apache Kafka's tool does so in `test_java_tools`."""
    name = f"deleted-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, 2)
        topic_partitions = [kafka.TopicPartition(name, index) for index in range(2)]
        with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)) as writer:
            writer.commit(
                {
                    topic_partition: kafka.OffsetAndMetadata(5, "", -1)
                    for topic_partition in topic_partitions
                }
            )
        with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as python:
            python.delete_group_offsets(name, topic_partitions[:1])
        assert admin.committed(name, name) == {1: 5}
