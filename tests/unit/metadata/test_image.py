from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.metadata.controller.leadership import ElectionType, plan_elect_leaders
from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerFencedV0,
    BrokerLost,
    BrokerReadOnly,
    BrokerRecord,
    BrokerUnfenced,
    BrokerUnregistered,
    BrokerWritable,
    ClusterRecord,
    ConfigRecord,
    ForgottenEpochs,
    LeadersReviewed,
    PartitionRecord,
    ProducerIdBlock,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)

A, B = b"a" * 16, b"b" * 16


def _image(records: Iterable[Record]) -> MetadataImage:
    return MetadataImage().apply_all(records, 1)


def _topic(name: str, topic_id: bytes, leaders: list[int]) -> list[Record]:
    return [
        TopicRecord(name, topic_id),
        *(
            PartitionRecord(topic_id, number, (leader,), (leader,), leader, 0, 0)
            for number, leader in enumerate(leaders)
        ),
    ]


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = _image(_topic("t", A, [1, 1]))
    topic = image.topic("t")
    assert topic is not None
    assert topic is image.topic_by_id(A)
    assert len(topic) == image.partition_count == 2
    assert topic.partition(1) == PartitionImage(1, (1,), (1,), 1, 0, 0)
    assert topic.partition(2) is None
    assert image.partition("t", 1) is image.partition(A, 1) is topic.partition(1)
    assert image.partition("u", 0) is image.partition(B, 0) is None
    assert image.topic("u") is None


def test_a_removed_topic_takes_its_configuration_along() -> None:
    image = _image(_topic("t", A, [1]))
    image = image.apply(ConfigRecord(ResourceType.TOPIC, "t", "retention.ms", "1"))
    image = image.apply(TopicRemoved(A))
    assert image.topic("t") is None
    assert image.topic_by_id(A) is None
    assert not image.configs(ResourceType.TOPIC, "t")
    assert image.partition_count == 0


def test_a_brokers_start_raises_the_epochs_of_its_partitions() -> None:
    image = _image(_topic("t", A, [1, 2]) + _topic("u", B, [2]))
    before = image.topic("u")
    image = image.apply(BrokerRecord(1, A, 1, (), None))
    topic = image.topic("t")
    assert topic is not None
    assert [topic.partitions[n].leader_epoch for n in (0, 1)] == [1, 0]
    assert [topic.partitions[n].partition_epoch for n in (0, 1)] == [1, 0]
    assert image.topic("u") is before


def test_a_broker_that_starts_hands_over_to_a_replica_that_is_not_fenced() -> None:
    brokers = [BrokerRecord(each, bytes([each]) * 16, each, (), None) for each in (1, 2, 3)]
    state = PartitionRecord(A, 0, (1, 2, 3), (1, 2, 3), 1, 0, 0)
    image = _image([*brokers, BrokerFenced(2, 2), TopicRecord("t", A), state])
    topic = image.apply(BrokerRecord(1, b"n" * 16, 4, (), None)).topic("t")
    assert topic is not None
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (3, (2, 3))


def test_the_older_image_does_not_change() -> None:
    old = _image(_topic("t", A, [1, 1]))
    new = old.apply(PartitionRecord(A, 1, (1,), (), -1, 9, 9))
    assert old.topic("t") != new.topic("t")
    assert old == _image(_topic("t", A, [1, 1]))


def test_a_config_is_set_and_removed() -> None:
    image = _image([ConfigRecord(ResourceType.BROKER, "", "k", "v")])
    assert dict(image.configs(ResourceType.BROKER, "")) == {"k": "v"}
    image = image.apply(ConfigRecord(ResourceType.BROKER, "", "k", None))
    assert not image.config_map


@pytest.mark.parametrize(
    "records",
    [
        [TopicRemoved(A)],
        [PartitionRecord(A, 0, (1,), (1,), 1, 0, 0)],
        [TopicRecord("t", A), TopicRecord("t", B)],
        [ProducerIdBlock(1, 2000), ProducerIdBlock(1, 1000)],
    ],
)
def test_records_that_cannot_follow_one_another_are_corrupt(records: list[Record]) -> None:
    with pytest.raises(MetadataCorrupt):
        _image(records)


_STEPS = st.lists(
    st.one_of(
        st.builds(BrokerRecord, st.integers(1, 3), st.just(A), st.integers(1, 9), st.just(()),
                  st.none(), st.sampled_from([bytes(16), B])),
        st.builds(ConfigRecord, st.just(4), st.sampled_from(["", "1"]), st.sampled_from("kl"),
                  st.sampled_from([None, "v", "w"])),
        st.builds(PartitionRecord, st.sampled_from([A, B]), st.integers(0, 1), st.just((1, 2)),
                  st.sampled_from([(1,), (2, 1)]), st.sampled_from([-1, 1]), st.just(0),
                  st.just(0), st.just(()), st.sampled_from([(), (2,)]), st.just(())),
        st.builds(PartitionRecord, st.sampled_from([A, B]), st.integers(0, 1), st.just((1, 2)),
                  st.just((1,)), st.sampled_from([-1, 1]), st.just(0), st.just(0), st.just(()),
                  st.just(()), st.just((2,))),
    ),
    max_size=30,
).map(lambda steps: [_later(record, number) for number, record in enumerate(steps, 1)])  # fmt: skip


def _later(record: Record, number: int) -> Record:
    """Return the record with higher epochs than the previous records."""
    if isinstance(record, BrokerRecord):
        return record._replace(epoch=number)
    if isinstance(record, PartitionRecord):
        return record._replace(leader_epoch=100 * number, partition_epoch=100 * number)
    return record


_GOOD = PartitionRecord(A, 0, (1, 2), (1, 2), 1, 5, 5)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (_GOOD._replace(isr=(1, 3)), "subset"),
        (_GOOD._replace(isr=(2,)), "leader is in the ISR"),
        (_GOOD._replace(leader_epoch=3, partition_epoch=6), "leader epoch"),
        (_GOOD._replace(leader_epoch=6, partition_epoch=4), "partition epoch"),
        (_GOOD._replace(partition=2), "without gaps"),
        (BrokerRecord(1, B, 4, (), None), "broker's epoch"),
        (ForgottenEpochs(2000), None),
        (ForgottenEpochs(500), None),
    ],
)
def test_a_record_that_only_a_wrong_plan_makes_is_not_applied(
    record: Record, problem: str | None
) -> None:
    image = _image(
        [
            BrokerRecord(1, A, 4, (), None),
            TopicRecord("t", A),
            _GOOD._replace(leader_epoch=4, partition_epoch=4),
            ProducerIdBlock(1, 1000),
            ForgottenEpochs(900),
        ]
    ).apply(_GOOD)
    with pytest.raises(AssertionError, match=problem):
        image.apply(record)


def test_the_index_of_an_image_never_falls() -> None:
    with pytest.raises(AssertionError, match="never falls"):
        _image([]).apply_all([], 0)


@given(_STEPS)
def test_a_snapshot_leads_to_the_same_image(steps: list[Record]) -> None:
    start: list[Record] = [ClusterRecord("c"), *_topic("t", A, [1]), *_topic("u", B, [2])]
    image = _image([*start, *steps, ProducerIdBlock(2, 3000), ForgottenEpochs(2000)])
    assert _image(image.to_records()) == image


@given(_STEPS)
def test_one_by_one_is_the_same_as_together(steps: list[Record]) -> None:
    start = _image(_topic("t", A, [1]) + _topic("u", B, [2]))
    image = start
    for record in steps:
        image = image.apply(record)
    assert image == start.apply_all(steps, start.end)


def _with_unregistered(unclean: str) -> MetadataImage:
    """Two brokers; broker 2 alone was in sync with the only partition, and was unregistered."""
    return _image(
        [
            *(BrokerRecord(n, bytes([n]) * 16, 4, (), None) for n in (1, 2)),
            TopicRecord("t", A),
            PartitionRecord(A, 0, (2, 1), (2,), 2, 0, 0),
            ConfigRecord(ResourceType.TOPIC, "t", "unclean.leader.election.enable", unclean),
            BrokerFenced(1, 4),
            BrokerFenced(2, 4),
            BrokerUnregistered(2, 4),
        ]
    )


def test_an_unregistered_broker_keeps_its_replicas_and_leads_nothing() -> None:
    image = _with_unregistered("false").apply(BrokerUnfenced(1, 4))
    topic = image.topic_by_id(A)
    assert topic is not None
    partition = topic.partitions[0]
    assert (partition.replicas, partition.elr, partition.leader) == ((2, 1), (2,), -1)
    assert image.fenced == {2}


def test_an_unclean_election_passes_over_an_unregistered_broker() -> None:
    topic = _with_unregistered("true").apply(BrokerUnfenced(1, 4)).topic_by_id(A)
    assert topic is not None
    assert topic.partitions[0].leader == 1


def test_a_returning_broker_leads_partitions_that_no_other_replica_can() -> None:
    image = _with_unregistered("false").apply_all(
        [
            BrokerRecord(2, b"n" * 16, 5, (), None),
            BrokerFenced(2, 5),
            BrokerUnfenced(2, 5),
        ],
        2,
    )
    topic = image.topic_by_id(A)
    assert topic is not None
    assert topic.partitions[0].leader == 2
    assert not image.unregistered


def test_a_snapshot_keeps_the_epochs_of_unregistered_brokers() -> None:
    image = _with_unregistered("false")
    assert MetadataImage().apply_all(image.to_records(), 1) == image
    with pytest.raises(AssertionError, match="epoch rises"):
        image.apply(BrokerRecord(2, b"n" * 16, 4, (), None))


def test_a_log_that_unregisters_a_broker_in_service_is_damaged() -> None:
    image = _image([BrokerRecord(1, A, 1, (), None)])
    with pytest.raises(MetadataCorrupt, match="not fenced"):
        image.apply(BrokerUnregistered(1, 1))


def _state(image: MetadataImage) -> PartitionImage:
    topic = image.topic_by_id(A)
    assert topic is not None
    return topic.partitions[0]


def _three(**settings: str) -> MetadataImage:
    """Three brokers in sync with one partition; keys of settings have "_" for "."."""
    return _image(
        [
            *(BrokerRecord(n, bytes([n]) * 16, 4, (), None, bytes([n]) * 16) for n in (1, 2, 3)),
            TopicRecord("t", A),
            PartitionRecord(A, 0, (1, 2, 3), (1, 2, 3), 1, 0, 0),
            *(
                ConfigRecord(ResourceType.TOPIC, "t", key.replace("_", "."), value)
                for key, value in settings.items()
            ),
        ]
    )


def test_replicas_of_kept_topics_stay_eligible() -> None:
    image = _three(min_insync_replicas="2")
    for node_id in (2, 3, 1):
        image = image.apply(BrokerFenced(node_id, 4))
    for node_id in (1, 2, 3):
        image = image.apply(BrokerLost(node_id, 4, True, (A,)))
    assert _state(image).elr == (1, 3)
    image = image.apply(BrokerUnfenced(1, 4))
    assert (_state(image).leader, _state(image).elr) == (1, (3,))
    others = image.apply(BrokerFenced(1, 4)).apply(BrokerLost(1, 4, True, (b"x" * 16,)))
    assert 1 not in _state(others).elr


def test_the_last_eligible_replicas_are_waited_for() -> None:
    image = _three(min_insync_replicas="2")
    for node_id in (2, 3, 1):
        image = image.apply(BrokerFenced(node_id, 4))
    assert (_state(image).isr, _state(image).elr, _state(image).leader) == ((), (1, 3), -1)
    lost = image.apply(BrokerLost(1, 4, keeps_folder=False)).apply(BrokerUnfenced(1, 4))
    assert (_state(lost).elr, _state(lost).leader) == ((3,), -1)
    assert _state(lost.apply(BrokerUnfenced(2, 4))).leader == -1, "records were committed without"
    found = _state(lost.apply(BrokerUnfenced(3, 4)))
    assert (found.leader, found.isr) == (3, (3,))
    assert _image(lost.to_records())._replace(end=lost.end) == lost


def test_a_read_only_broker_leads_again_once_no_other_can_and_a_snapshot_knows_it() -> None:
    image = _three(min_insync_replicas="2").apply(BrokerReadOnly(1, 4))
    assert (_state(image).leader, _state(image).isr) == (2, (2, 3))
    assert image.read_only == {1}
    assert _image(image.to_records())._replace(end=image.end) == image
    for node_id in (2, 3):
        image = image.apply(BrokerFenced(node_id, 4))
    assert (_state(image).leader, _state(image).elr) == (-1, (2, 3)), "it left a full ISR"
    restarted = image.apply(BrokerRecord(1, b"n" * 16, 5, (), None))
    assert image.apply(BrokerWritable(1, 4)).read_only == restarted.read_only == frozenset()


def test_every_election_prefers_writable_replicas() -> None:
    image = _three(min_insync_replicas="2")
    for node_id in (2, 3):
        image = image.apply(BrokerFenced(node_id, 4))
    image = image.apply(BrokerReadOnly(1, 4))
    assert (_state(image).leader, _state(image).elr) == (1, (3,))
    image = image.apply(BrokerUnfenced(3, 4))
    assert (_state(image).leader, _state(image).isr, _state(image).elr) == (3, (3,), (1,))


def test_the_default_of_all_brokers_counts_unless_the_topic_has_a_setting() -> None:
    default = ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "3")
    assert _three().apply(default).min_isr("t") == 3
    assert _three(min_insync_replicas="2").apply(default).min_isr("t") == 2
    assert _three().min_isr("t") == 1


def test_a_setting_of_one_broker_decides_nothing() -> None:
    own = ConfigRecord(ResourceType.BROKER, "1", "min.insync.replicas", "3")
    unclean = ConfigRecord(ResourceType.BROKER, "2", "unclean.leader.election.enable", "true")
    image = _three().apply(own).apply(unclean)
    assert image.min_isr("t") == 1
    for node_id in (3, 2, 1):
        image = image.apply(BrokerFenced(node_id, 4))
    assert _state(image.apply(BrokerUnfenced(2, 4))).leader == -1


def test_partitions_follow_changed_settings_when_a_record_says_so() -> None:
    image = _three(min_insync_replicas="2")
    for node_id in (2, 3):
        image = image.apply(BrokerFenced(node_id, 4))
    alone = ConfigRecord(ResourceType.TOPIC, "t", "min.insync.replicas", "1")
    image = image.apply(alone)
    assert _state(image).elr == (3,)
    assert _state(image.apply(LeadersReviewed())).elr == ()
    unclean = ConfigRecord(ResourceType.TOPIC, "t", "unclean.leader.election.enable", "true")
    image = image.apply(BrokerUnfenced(2, 4)).apply(BrokerFenced(1, 4)).apply(unclean)
    assert _state(image).leader == -1
    assert _state(image.apply(LeadersReviewed())).leader == 2


def test_an_older_entry_keeps_the_last_replica_in_the_isr() -> None:
    image = _three(min_insync_replicas="2")
    for node_id in (2, 3, 1):
        image = image.apply(BrokerFencedV0(node_id, 4))
    assert (_state(image).isr, _state(image).elr, _state(image).leader) == ((1,), (), -1)
    assert _state(image.apply(BrokerUnfenced(2, 4))).leader == -1
    assert _state(image.apply(BrokerUnfenced(1, 4))).leader == 1
    assert _state(image.apply(BrokerLost(1, 4, keeps_folder=True))).isr == ()


def _coordinators(
    replicas: tuple[int, ...] = (1, 2), *, name: str = "__transaction_state"
) -> MetadataImage:
    """Brokers 1 and 2, of which 1 leads the only partition with the whole ISR."""
    topic_id = b"c" * 16
    return _image(
        [
            *(BrokerRecord(n, bytes([n]) * 16, 1, (), None) for n in (1, 2)),
            TopicRecord(name, topic_id),
            PartitionRecord(topic_id, 0, replicas, (1,), 1, 0, 0),
            ConfigRecord(ResourceType.TOPIC, name, "min.insync.replicas", "1"),
            ProducerIdBlock(1, 3000),
        ]
    )


def _accept_losses(name: str = "__transaction_state") -> list[Record]:
    key = "unclean.leader.election.enable"
    return [ConfigRecord(ResourceType.TOPIC, name, key, "true"), LeadersReviewed()]


def test_an_unclean_election_of_a_coordinator_forgets_all_epochs() -> None:
    image = _coordinators().apply(BrokerFenced(1, 1))
    assert image.forgotten_epochs_end == 0, "the partition waits for broker 1"
    image = image.apply_all(_accept_losses(), image.end + 1)
    assert _leader(image) == 2
    assert image.forgotten_epochs_end == 3000
    assert _image(image.to_records()).forgotten_epochs_end == 3000, "a snapshot keeps it"


def test_an_unclean_election_at_once_forgets_them_too() -> None:
    image = _coordinators().apply_all(_accept_losses(), 20).apply(BrokerFenced(1, 1))
    assert (_leader(image), image.forgotten_epochs_end) == (2, 3000)


def test_an_election_by_an_operator_forgets_them_too() -> None:
    image = _coordinators().apply(BrokerFenced(1, 1))
    plan = plan_elect_leaders(image, ElectionType.UNCLEAN, [("__transaction_state", [0])])
    image = image.apply_all(plan.records, image.end + 1)
    assert (_leader(image), image.forgotten_epochs_end) == (2, 3000)


def test_a_sole_coordinator_after_a_power_failure_forgets_them_too() -> None:
    lost: list[Record] = [BrokerFenced(1, 1), BrokerLost(1, 1, keeps_folder=True)]
    image = _coordinators((1,)).apply_all(lost, 20)
    assert (_leader(image), image.forgotten_epochs_end) == (-1, 0)
    image = image.apply(BrokerUnfenced(1, 1))
    assert (_leader(image), image.forgotten_epochs_end) == (1, 3000)


def test_an_eligible_coordinator_forgets_nothing() -> None:
    image = _coordinators().apply(BrokerFenced(1, 1)).apply(BrokerUnfenced(1, 1))
    assert (_leader(image), image.forgotten_epochs_end) == (1, 0)


def test_a_replica_that_joins_the_isr_and_leads_at_once_forgets_nothing() -> None:
    joined = PartitionRecord(b"c" * 16, 0, (1, 2), (1, 2), 2, 1, 1)
    alone = PartitionRecord(b"c" * 16, 0, (1, 2), (2,), 2, 1, 2)
    for records in ([joined], [joined, alone]):
        image = _coordinators().apply_all(records, 20)
        assert (_leader(image), image.forgotten_epochs_end) == (2, 0)


def test_an_unclean_election_of_another_topic_forgets_nothing() -> None:
    image = _coordinators(name="orders").apply(BrokerFenced(1, 1))
    image = image.apply_all(_accept_losses("orders"), image.end + 1)
    assert (_leader(image), image.forgotten_epochs_end) == (2, 0)


def _leader(image: MetadataImage) -> int:
    (topic,) = image.topics
    return topic.partitions[0].leader
