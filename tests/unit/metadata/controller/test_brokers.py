from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import (
    plan_cluster_id,
    plan_forget_epochs,
    plan_producer_ids,
    plan_register_broker,
    plan_unregister,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerUnregistered,
    ClusterRecord,
    ForgottenEpochs,
    ProducerIdBlock,
)


def test_each_start_has_a_new_epoch_and_raises_leader_epochs(image: MetadataImage) -> None:
    plan = plan_register_broker(image, 1, b"n" * 16, rack="r")
    assert plan.result == 2
    image = image.apply_all(plan.records, 2)
    topic = image.topic("orders")
    assert topic is not None
    assert [topic.partitions[n].leader_epoch for n in (0, 1)] == [1, 0]
    assert image.brokers[1].rack == "r"


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
    assert plan_cluster_id(image, None, "fresh").records == (ClusterRecord("fresh"),)
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
    restarted = image.apply_all(
        plan_register_broker(image, 3, b"n" * 16, starts_fenced=True).records, 2
    )
    for present in (unfenced, restarted):
        with pytest.raises(KafkaError, match="running") as caught:
            plan_unregister(present, 3, ended_epoch)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_returning_broker_has_a_higher_epoch_than_before_its_removal(
    image: MetadataImage,
) -> None:
    image = image.apply(BrokerFenced(3, 1)).apply(BrokerUnregistered(3, 1))
    plan = plan_register_broker(image, 3, b"n" * 16, starts_fenced=True)
    assert plan.result == 2
    image = image.apply_all(plan.records, 2)
    assert image.brokers[3].is_fenced
    assert not image.unregistered
