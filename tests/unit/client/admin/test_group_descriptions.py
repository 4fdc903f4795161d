from __future__ import annotations

import pytest

from lakelog.client.admin.groups import classic_group, consumer_group
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    encode_versioned,
)
from lakelog.protocol.groups import (
    Assignment,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    Member,
)
from lakelog.protocol.groups import TopicPartitions as AssignedTopic

ASSIGNED = encode_versioned(
    ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="orders", partitions=[2, 0])]
    ),
    0,
)


def classic(protocol_type: str, assignment: bytes) -> DescribedGroup:
    member = DescribedGroupMember(member_id="m", client_id="app", member_assignment=assignment)
    return DescribedGroup(
        group_id="g", group_state="Stable", protocol_type=protocol_type, members=[member]
    )


@pytest.mark.parametrize(
    ("protocol_type", "assignment", "partitions"),
    [
        ("consumer", ASSIGNED, (("orders", 0), ("orders", 2))),
        ("consumer", b"", ()),
        ("consumer", b"\0\0garbage", ()),
        ("connect", ASSIGNED, ()),
    ],
)
def test_assignments_of_consumers_are_decoded_and_others_are_left_alone(
    protocol_type: str, assignment: bytes, partitions: tuple[tuple[str, int], ...]
) -> None:
    """An assignment is bytes of a client: malformed bytes must not hide the group."""
    group = classic_group(classic(protocol_type, assignment))
    assert group.members[0].partitions == partitions
    assert (group.group_type, group.epoch, group.members[0].epoch) == ("classic", -1, -1)


@pytest.mark.parametrize(("member_type", "protocol"), [(0, "classic"), (1, "consumer")])
def test_members_of_a_consumer_group_have_their_own_protocol(
    member_type: int, protocol: str
) -> None:
    """KIP-848: a group has members of both while it is upgraded."""
    topics = [AssignedTopic(topic_name="orders", partitions=[1, 0])]
    row = Member(
        member_id="m",
        member_epoch=7,
        member_type=member_type,
        assignment=Assignment(topic_partitions=topics),
    )
    group = consumer_group(DescribedConsumerGroup(group_id="g", group_epoch=8, members=[row]))
    (member,) = group.members
    assert (member.protocol, member.epoch, group.epoch) == (protocol, 7, 8)
    assert member.partitions == (("orders", 0), ("orders", 1))
