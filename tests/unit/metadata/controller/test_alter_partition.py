"""Proposals of ISRs to the controller."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.leadership import AlteredIsr, ProposedIsr, plan_alter_partitions
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerReadOnly,
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    ResourceType,
    TopicRecord,
)

TOPIC = b"t" * 16
LEADER, FOLLOWER, OTHER, STRANGER = 2, 1, 3, 4
EPOCH = 7


@pytest.fixture
def image() -> MetadataImage:
    """A partition that broker 2 leads alone; broker 1 is preferred, and broker 4 no replica."""
    brokers = [BrokerRecord(each, bytes([each]) * 16, EPOCH, (), None) for each in range(1, 5)]
    topic = TopicRecord("t", TOPIC)
    state = PartitionRecord(TOPIC, 0, (1, 2, 3), (LEADER,), LEADER, 5, 8)
    return MetadataImage().apply_all([*brokers, topic, state], 1)


def proposal(*members: int, **changes: Any) -> ProposedIsr:
    found = ProposedIsr(TOPIC, 0, 5, 8, tuple((each, EPOCH) for each in members))
    return found._replace(**changes)


def alter(image: MetadataImage, wanted: ProposedIsr, **options: Any) -> AlteredIsr:
    plan = plan_alter_partitions(image, LEADER, EPOCH, [wanted], **options)
    assert bool(plan.records) == (plan.result[0].state is not None)
    image.apply_all(plan.records, 2)
    return plan.result[0]


def test_a_follower_joins_in_the_same_leader_epoch(image: MetadataImage) -> None:
    found = alter(image, proposal(LEADER, OTHER))
    assert found.error is ErrorCode.NONE
    assert found.state is not None
    assert (found.state.isr, found.state.leader) == ((2, 3), LEADER)
    assert (found.state.leader_epoch, found.state.partition_epoch) == (5, 9)


def test_a_broker_that_cannot_write_does_not_join(image: MetadataImage) -> None:
    image = image.apply(BrokerReadOnly(OTHER, EPOCH))
    assert alter(image, proposal(LEADER, OTHER)).error is ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_whose_log_is_offline_does_not_join(image: MetadataImage) -> None:
    image = image.apply(PartitionRecord(TOPIC, 0, (1, 2, 3), (2,), LEADER, 5, 8 + 1, (), (), (3,)))
    wanted = proposal(LEADER, OTHER, partition_epoch=9)
    assert alter(image, wanted).error is ErrorCode.INELIGIBLE_REPLICA
    image = image.apply(BrokerRecord(OTHER, b"n" * 16, EPOCH + 1, (), None))
    wanted = proposal(partition_epoch=10, isr=((LEADER, EPOCH), (OTHER, EPOCH + 1)))
    assert alter(image, wanted).error is ErrorCode.NONE


def test_a_leader_that_cannot_write_hands_over_to_the_first_new_member(
    image: MetadataImage,
) -> None:
    image = image.apply(BrokerReadOnly(LEADER, EPOCH))
    found = alter(image, proposal(LEADER, OTHER))
    assert found.error is ErrorCode.NEW_LEADER_ELECTED
    assert found.state is not None
    assert (found.state.isr, found.state.leader, found.state.leader_epoch) == ((3,), OTHER, 6)


def test_the_preferred_replica_leads_once_its_leader_hands_over(image: MetadataImage) -> None:
    joined = alter(image, proposal(LEADER, FOLLOWER))
    assert joined.state is not None
    assert (joined.error, joined.state.leader) == (ErrorCode.NONE, LEADER)
    found = alter(image, proposal(LEADER, FOLLOWER, new_leader=FOLLOWER))
    assert found.error is ErrorCode.NEW_LEADER_ELECTED
    assert found.state is not None
    assert (found.state.isr, found.state.leader, found.state.leader_epoch) == ((1, 2), 1, 6)
    stays = alter(image, proposal(LEADER, FOLLOWER, new_leader=FOLLOWER), prefers_first=False)
    assert stays.state is not None
    assert (stays.error, stays.state.leader) == (ErrorCode.NONE, LEADER)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (proposal(LEADER, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(LEADER, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (proposal(LEADER, partition_epoch=7), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(LEADER, partition_epoch=9), ErrorCode.NOT_CONTROLLER),
        (proposal(LEADER, STRANGER), ErrorCode.INVALID_REQUEST),
        (proposal(FOLLOWER), ErrorCode.INVALID_REQUEST),
        (proposal(LEADER, LEADER), ErrorCode.INVALID_REQUEST),
        (proposal(LEADER, topic_id=b"u" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (proposal(LEADER, partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(isr=((LEADER, EPOCH), (OTHER, 6))), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused(
    image: MetadataImage, wanted: ProposedIsr, code: ErrorCode
) -> None:
    assert alter(image, wanted).error is code


def test_the_first_of_two_proposals_for_a_partition_counts(image: MetadataImage) -> None:
    wanted = [proposal(LEADER, OTHER), proposal(LEADER)]
    plan = plan_alter_partitions(image, LEADER, EPOCH, wanted)
    codes = [each.error for each in plan.result]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    state = image.apply_all(plan.records, 2).partition(TOPIC, 0)
    assert state is not None
    assert state.isr == (LEADER, OTHER)


def test_a_fenced_broker_does_not_join(image: MetadataImage) -> None:
    image = image.apply(BrokerFenced(OTHER, EPOCH))
    assert alter(image, proposal(LEADER, OTHER)).error is ErrorCode.INELIGIBLE_REPLICA


def test_only_the_present_process_of_the_leader_is_heard(image: MetadataImage) -> None:
    with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
        plan_alter_partitions(image, LEADER, EPOCH - 1, [proposal(LEADER)])


def test_a_follower_that_lags_is_eligible_while_the_isr_is_short(image: MetadataImage) -> None:
    image = image.apply(ConfigRecord(ResourceType.TOPIC, "t", "min.insync.replicas", "2"))
    image = image.apply(PartitionRecord(TOPIC, 0, (1, 2, 3), (LEADER, OTHER), LEADER, 5, 9))
    shrunk = alter(image, proposal(LEADER, partition_epoch=9))
    assert shrunk.state is not None
    assert (shrunk.state.isr, shrunk.state.elr) == ((LEADER,), (OTHER,))
    image = image.apply(PartitionRecord(TOPIC, *shrunk.state))
    grown = alter(image, proposal(LEADER, FOLLOWER, partition_epoch=10), prefers_first=False)
    assert grown.state is not None
    assert (grown.state.isr, grown.state.elr) == ((FOLLOWER, LEADER), ())
