from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import (
    FeatureUpdate,
    Joined,
    UpgradeType,
    check_supported,
    plan_cluster_id,
    plan_forget_epochs,
    plan_join,
    plan_lose,
    plan_producer_ids,
    plan_read_only,
    plan_register_broker,
    plan_unregister,
    plan_update_features,
)
from lakelog.metadata.features import METADATA_VERSION, READ_ONLY_SINCE, SUPPORTED, SupportedLevels
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerLost,
    BrokerReadOnly,
    BrokerRecord,
    BrokerUnregistered,
    BrokerWritable,
    ClusterRecord,
    FeatureRecord,
    ForgottenEpochs,
    PartitionRecord,
    ProducerIdBlock,
    Record,
    metadata_version_of,
)


def _join(
    image: MetadataImage, broker_id: int, previous_epoch: int = -1, folder: bytes = b"d" * 16
) -> Plan[Joined]:
    return plan_join(
        image,
        broker_id,
        b"n" * 16,
        endpoints=(),
        rack=None,
        directory_id=folder,
        previous_epoch=previous_epoch,
    )


def test_a_broker_joins_fenced_and_leads_nothing(image: MetadataImage) -> None:
    plan = _join(image, 1, previous_epoch=1)
    assert plan.result == Joined(2, has_lost=False)
    image = image.apply_all(plan.records, 2)
    assert (image.brokers[1].is_fenced, image.brokers[1].directory_id) == (True, b"d" * 16)
    topic = image.topic("orders")
    assert topic is not None
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (2, (2,))
    again = plan_join(
        image, 1, b"n" * 16, endpoints=(), rack=None, directory_id=bytes(16), previous_epoch=-1
    )
    assert again == Plan((), Joined(2, has_lost=False)), "the same process"


def test_a_registration_has_the_levels_of_its_broker_once_all_brokers_can_read_them() -> None:
    """An older broker, which the cluster may still have below level 2, would stop at them."""

    def registered(image: MetadataImage) -> Record:
        plan = plan_join(
            image,
            1,
            b"n" * 16,
            endpoints=(),
            rack=None,
            directory_id=b"d" * 16,
            previous_epoch=-1,
            features=SUPPORTED,
        )
        return next(each for each in plan.records if isinstance(each, BrokerRecord))

    image = MetadataImage()
    below = registered(image)
    assert metadata_version_of(below) == image.feature_level(METADATA_VERSION) == 1
    above = registered(image.apply(FeatureRecord(METADATA_VERSION, 2)))
    assert isinstance(above, BrokerRecord)
    assert above.features == SUPPORTED
    alone = plan_register_broker(image, 1, b"n" * 16).records
    assert {metadata_version_of(each) for each in alone} == {1}


@pytest.mark.parametrize("previous_epoch", [-1, 0, 2], ids=["power", "backup", "newer"])
@pytest.mark.parametrize(("folder", "keeps"), [(b"d" * 16, True), (b"e" * 16, False)])
def test_a_folder_that_is_not_complete_for_the_last_epoch_has_lost_records(
    image: MetadataImage, previous_epoch: int, folder: bytes, keeps: bool
) -> None:
    start = BrokerRecord(1, b"o" * 16, 2, (), None, b"d" * 16)
    epoch = previous_epoch + 1 if previous_epoch >= 0 else -1
    plan = _join(image.apply(start), 1, epoch, folder)
    assert plan.result == Joined(3, has_lost=True)
    assert plan.records[-1] == BrokerLost(1, 3, keeps_folder=keeps)


@pytest.mark.parametrize(("epoch", "is_kept"), [(1, True), (0, False), (2, False)])
def test_topics_that_a_power_failure_left_complete_are_kept(
    image: MetadataImage, epoch: int, is_kept: bool
) -> None:
    topic = image.topic("orders")
    assert topic is not None
    plan = plan_join(
        image,
        1,
        b"n" * 16,
        endpoints=(),
        rack=None,
        directory_id=b"d" * 16,
        previous_epoch=-1,
        kept_topics=[topic.topic_id, b"gone" * 4],
        kept_topics_epoch=epoch,
    )
    assert plan.result.has_lost
    lost = plan.records[-1]
    assert isinstance(lost, BrokerLost)
    assert lost.kept_topics == ((topic.topic_id,) if is_kept else ())


def test_a_new_broker_has_nothing_to_lose(image: MetadataImage) -> None:
    assert _join(image, 9).result == Joined(1, has_lost=False)
    image = image.apply(BrokerFenced(3, 1)).apply(BrokerUnregistered(3, 1))
    assert _join(image, 3).records[-1] == BrokerLost(3, 2, keeps_folder=False)


def test_each_start_has_a_new_epoch_and_raises_leader_epochs(image: MetadataImage) -> None:
    plan = plan_register_broker(image, 1, b"n" * 16, rack="r")
    assert plan.result == 2
    image = image.apply_all(plan.records, 2)
    topic = image.topic("orders")
    assert topic is not None
    assert [topic.partitions[n].leader_epoch for n in (0, 1)] == [1, 0]
    assert image.brokers[1].rack == "r"


def test_a_broker_that_is_alone_leads_its_offline_replica_again(image: MetadataImage) -> None:
    topic = image.topic("orders")
    assert topic is not None
    state = PartitionRecord(topic.topic_id, 0, (1,), (), -1, 5, 8, (1,), (), (1,))
    image = image.apply(state)
    image = image.apply_all(plan_register_broker(image, 1, b"n" * 16).records, 2)
    led = image.partition("orders", 0)
    assert led is not None
    assert (led.leader, led.offline) == (1, ())


def test_registering_twice_in_one_life_is_once(image: MetadataImage) -> None:
    image = image.apply_all(plan_register_broker(image, 7, b"n" * 16).records, 2)
    again = plan_register_broker(image, 7, b"n" * 16)
    assert (again.records, again.result) == ((), 1)


def test_epochs_of_all_producer_ids_there_are_may_be_forgotten(image: MetadataImage) -> None:
    for end in (2000, 2007):
        image = image.apply(ProducerIdBlock(1, end))
        plan = plan_forget_epochs(image)
        assert plan.records == (ForgottenEpochs(end),)
        image = image.apply_all(plan.records, 3)
        assert image.forgotten_epochs_end == end
        assert plan_forget_epochs(image).records == (), "once is enough"


def test_a_start_keeps_the_record_of_forgotten_epochs(image: MetadataImage) -> None:
    image = image.apply(ProducerIdBlock(1, 2000))
    image = image.apply_all(plan_forget_epochs(image).records, 3)
    image = image.apply_all(plan_register_broker(image, 1, b"z" * 16).records, 4)
    assert image.forgotten_epochs_end == 2000


def test_a_cluster_keeps_its_id(image: MetadataImage) -> None:
    records = plan_cluster_id(image, None, "fresh").records
    assert records[0] == ClusterRecord("fresh")
    levels = {each.name: each.highest for each in SUPPORTED}
    assert image.apply_all(records, 2).feature_levels == levels
    assert plan_cluster_id(image, "wanted", "fresh").result == "wanted"
    image = image.apply(ClusterRecord("mine"))
    for wanted in (None, "mine"):
        plan = plan_cluster_id(image, wanted, "fresh")
        assert (plan.records, plan.result) == ((), "mine")
    with pytest.raises(KafkaError) as caught:
        plan_cluster_id(image, "other", "fresh")
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_blocks_of_producer_ids_follow_one_another(image: MetadataImage) -> None:
    first = plan_producer_ids(image, 1)
    second = plan_producer_ids(image.apply_all(first.records, 2), 2)
    assert (first.result, second.result) == (range(1000), range(1000, 2000))


def test_producer_ids_do_not_wrap(image: MetadataImage) -> None:
    image = image.apply(ProducerIdBlock(1, (1 << 63) - 1000))
    with pytest.raises(KafkaError, match="all producer ids are allocated"):
        plan_producer_ids(image, 1)


def test_the_last_block_of_producer_ids_is_handed_out(image: MetadataImage) -> None:
    last = (1 << 63) - 1
    image = image.apply(ProducerIdBlock(1, last - 1000))
    plan = plan_producer_ids(image, 1)
    assert plan.result == range(last - 1000, last)
    with pytest.raises(KafkaError, match="all producer ids are allocated"):
        plan_producer_ids(image.apply_all(plan.records, 2), 1)


def test_a_fenced_broker_whose_process_has_ended_is_unregistered(image: MetadataImage) -> None:
    image = image.apply(BrokerFenced(3, 1))
    plan = plan_unregister(image, 3, 1)
    assert plan.records == (BrokerUnregistered(3, 1),)
    image = image.apply_all(plan.records, 2)
    assert sorted(image.brokers) == [1, 2]
    with pytest.raises(KafkaError) as caught:
        plan_unregister(image, 3, 1)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("ended_epoch", [None, 1])
def test_a_broker_that_may_be_running_is_not_unregistered(
    image: MetadataImage, ended_epoch: int | None
) -> None:
    unfenced = image
    restarted = image.apply_all(_join(image, 3).records, 2)
    for present in (unfenced, restarted):
        with pytest.raises(KafkaError, match="running") as caught:
            plan_unregister(present, 3, ended_epoch)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_returning_broker_has_a_higher_epoch_than_before_its_removal(
    image: MetadataImage,
) -> None:
    image = image.apply(BrokerFenced(3, 1)).apply(BrokerUnregistered(3, 1))
    plan = _join(image, 3, previous_epoch=1)
    assert plan.result == Joined(2, has_lost=False)
    image = image.apply_all(plan.records, 2)
    assert image.brokers[3].is_fenced
    assert not image.unregistered


def test_a_broker_that_cannot_write_is_noted_once_and_from_a_level_on(
    image: MetadataImage,
) -> None:
    older = image.apply(FeatureRecord(METADATA_VERSION, READ_ONLY_SINCE - 1))
    assert plan_read_only(older, 1, 1, is_read_only=True) == Plan((), False)
    image = image.apply(FeatureRecord(METADATA_VERSION, READ_ONLY_SINCE))
    for is_read_only, record in ((True, BrokerReadOnly(1, 1)), (False, BrokerWritable(1, 1))):
        plan = plan_read_only(image, 1, 1, is_read_only=is_read_only)
        assert plan == Plan((record,), True)
        image = image.apply(record)
        assert plan_read_only(image, 1, 1, is_read_only=is_read_only) == Plan((), False)
    with pytest.raises(KafkaError, match="not registered in epoch"):
        plan_read_only(image, 1, 2, is_read_only=True)


def test_a_broker_that_lacks_records_is_fenced_first(image: MetadataImage) -> None:
    plan = plan_lose(image, 1, 1)
    assert plan.records == (BrokerFenced(1, 1), BrokerLost(1, 1, keeps_folder=True))
    image = image.apply_all(plan.records, 2)
    assert plan_lose(image, 1, 1).records == (BrokerLost(1, 1, keeps_folder=True),)
    with pytest.raises(KafkaError, match="not registered in epoch"):
        plan_lose(image, 1, 2)


UP, SAFE, UNSAFE = UpgradeType
TV = "transaction.version"


def _image(*brokers: tuple[SupportedLevels, ...]) -> MetadataImage:
    records = [
        BrokerRecord(number, bytes([number]) * 16, 1, (), None, features=features)
        for number, features in enumerate(brokers, 1)
    ]
    return MetadataImage().apply_all(records, 1)


def test_a_level_that_all_brokers_support_is_finalized() -> None:
    image = _image(SUPPORTED, SUPPORTED)
    updates = [FeatureUpdate(METADATA_VERSION, 2, UP), FeatureUpdate(TV, 1, SAFE)]
    plan = plan_update_features(image, updates)
    image = image.apply_all(plan.records, 2)
    assert image.feature_levels == {"group.version": 1, METADATA_VERSION: 2, TV: 1}
    assert plan_update_features(image, updates).records == ()
    assert MetadataImage().apply_all(image.to_records(), 2) == image


def test_a_validation_changes_nothing() -> None:
    update = FeatureUpdate(METADATA_VERSION, 2, UP)
    assert plan_update_features(_image(SUPPORTED), [update], validate_only=True).records == ()


E = ErrorCode


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (FeatureUpdate("metadata.version", 25, UP), "is no feature"),
        (FeatureUpdate(METADATA_VERSION, 5, UP), "supported: 1 to 4"),
        (FeatureUpdate(TV, -1, UNSAFE), "supported: 0 to 2"),
        (FeatureUpdate("group.version", 0, SAFE), "supported: 1 to 1"),
        (FeatureUpdate(TV, 1, UP), "a downgrade"),
        (FeatureUpdate(TV, 1, 4), "unknown upgrade type 4"),
        (FeatureUpdate(METADATA_VERSION, 1, UNSAFE), "cannot be lowered"),
    ],
)
def test_a_level_that_cannot_be_finalized_is_rejected(update: FeatureUpdate, text: str) -> None:
    image = _image(SUPPORTED).apply(FeatureRecord(METADATA_VERSION, 2))
    with pytest.raises(KafkaError, match=text) as caught:
        plan_update_features(image, [update])
    assert caught.value.code is E.INVALID_UPDATE_VERSION


def test_a_registered_broker_without_support_is_named() -> None:
    """It registered by an older version of lakelog, which declares no levels."""
    with pytest.raises(KafkaError, match="broker 2 does not support") as caught:
        plan_update_features(_image(SUPPORTED, ()), [FeatureUpdate(METADATA_VERSION, 2, UP)])
    assert caught.value.code is E.INVALID_UPDATE_VERSION


def test_a_broker_that_has_declared_its_levels_since_counts() -> None:
    """Its registration could not have them before `lakelog.metadata.version` 2."""
    image, update = _image(SUPPORTED, ()), [FeatureUpdate(METADATA_VERSION, 2, UP)]
    assert plan_update_features(image, update, {(2, 1): SUPPORTED}).records
    with pytest.raises(KafkaError, match="broker 2 does not support"):
        plan_update_features(image, update, {(2, 0): SUPPORTED})  # an earlier process


def test_a_broker_that_is_down_has_to_be_started_or_unregistered() -> None:
    image = _image(SUPPORTED, ()).apply(BrokerFenced(2, 1))
    with pytest.raises(KafkaError, match=r"broker 2 does not .* it does not run; start it"):
        plan_update_features(image, [FeatureUpdate(METADATA_VERSION, 2, UP)])


def test_levels_are_recorded_only_where_brokers_can_read_them() -> None:
    image = _image(SUPPORTED)
    lower = FeatureUpdate(TV, 1, SAFE)
    with pytest.raises(KafkaError, match=r"levels need lakelog.metadata.version=2") as caught:
        plan_update_features(image, [lower])
    assert caught.value.code is E.INVALID_UPDATE_VERSION
    assert plan_update_features(image, [lower, FeatureUpdate(METADATA_VERSION, 2, UP)]).records


def test_a_request_without_features_changes_nothing() -> None:
    assert plan_update_features(_image(SUPPORTED), []).records == ()


def test_of_several_levels_of_a_feature_the_last_one_counts() -> None:
    image = _image(SUPPORTED).apply(FeatureRecord(METADATA_VERSION, 1))
    levels = [FeatureUpdate(METADATA_VERSION, 9, UP), FeatureUpdate(METADATA_VERSION, 2, UP)]
    assert plan_update_features(image, levels).records == (FeatureRecord(METADATA_VERSION, 2),)


def test_a_broker_that_lacks_a_finalized_level_may_not_join() -> None:
    image = _image(SUPPORTED)
    check_supported(image, 2, ())
    image = image.apply(FeatureRecord(METADATA_VERSION, 2))
    check_supported(image, 2, SUPPORTED)
    with pytest.raises(KafkaError, match="broker 2 does not support") as caught:
        check_supported(image, 2, ())
    assert caught.value.code is E.UNSUPPORTED_VERSION
