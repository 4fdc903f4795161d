from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import (
    plan_cluster_id,
    plan_producer_ids,
    plan_register_broker,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ClusterRecord, ForgottenEpochs, ProducerIdBlock


def test_each_start_has_a_new_epoch_and_raises_leader_epochs(image: MetadataImage) -> None:
    plan = plan_register_broker(image, 1, b"n" * 16, clean=True, rack="r")
    assert plan.result == 2
    image = image.apply_all(plan.records, 2)
    topic = image.topic("orders")
    assert topic is not None
    assert [topic.partitions[n].leader_epoch for n in (0, 1)] == [1, 0]
    assert image.brokers[1].rack == "r"


def test_registering_twice_in_one_life_is_once(image: MetadataImage) -> None:
    image = image.apply_all(plan_register_broker(image, 7, b"n" * 16, clean=False).records, 2)
    again = plan_register_broker(image, 7, b"n" * 16, clean=False)
    assert (again.records, again.result) == ((), 1)


def test_which_epochs_may_be_forgotten_is_known_beyond_the_next_clean_stop(
    image: MetadataImage,
) -> None:
    image = image.apply(ProducerIdBlock(1, 2000))
    marks = []
    for serial, (clean, used) in enumerate(
        [(True, 0), (False, 0), (True, 0), (False, 7), (True, 0)]
    ):
        if used:
            image = image.apply(ProducerIdBlock(1, 2000 + used))
        plan = plan_register_broker(image, 1, bytes([serial]) * 16, clean=clean)
        image = image.apply_all(plan.records, 3)
        marks.append(image.forgotten_epochs_end)
    assert marks == [0, 2000, 2000, 2007, 2007]
    again = plan_register_broker(image, 1, b"z" * 16, clean=False)
    assert not any(isinstance(record, ForgottenEpochs) for record in again.records)


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
    with pytest.raises(KafkaError, match="used"):
        plan_producer_ids(image, 1)
