"""Images of several brokers: equal at equal index, with current members in each ISR."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.image_history import ImageHistory

TOPIC = bytes(15) + b"t"
RECORDS: tuple[Record, ...] = (
    BrokerRecord(1, b"1" * 16, 1, (), None),
    BrokerRecord(2, b"2" * 16, 1, (), None),
    TopicRecord("orders", TOPIC),
    PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 1, 0, 0),
)


def image_of(*records: Record) -> MetadataImage:
    return MetadataImage().apply_all(records, 5)


def history() -> ImageHistory:
    return ImageHistory(Findings(), lambda topic_id, state: None)


def test_equal_images_at_an_index_are_sound() -> None:
    images = history()
    for broker in ("broker-1", "broker-2"):
        images.note(broker, image_of(*RECORDS))
    assert images._findings.violations == []
    assert images.lacking == []


def test_other_contents_at_an_index_break_a_law() -> None:
    images = history()
    images.note("broker-1", image_of(*RECORDS))
    images.note("broker-2", image_of(*RECORDS[:2]))
    assert images._findings.broken == {Law.SAME_IMAGE}


def test_a_replica_out_of_sync_is_named() -> None:
    images = history()
    images.note("broker-1", image_of(*RECORDS, BrokerFenced(2, 1)))
    assert images.lacking == ["orders-0: (1,) of (1, 2)"]
    images.removed = {2}
    assert images.lacking == []


def test_a_fenced_broker_in_an_isr_breaks_a_law() -> None:
    """The last one, too: it is eligible instead (KIP-966)."""
    images = history()
    alone = PartitionRecord(TOPIC, 0, (1, 2), (2,), -1, 1, 2, elr=())
    images.note("broker-1", image_of(*RECORDS, BrokerFenced(2, 1), alone))
    assert images._findings.broken == {Law.CURRENT_MEMBERS}


def joined(*after: Record) -> Findings:
    """Return the findings when the leader, broker 1, has not heard of broker 2's process."""
    followers = {2: SimpleNamespace(broker_epoch=-1)}
    leader: Any = SimpleNamespace(followers=followers)
    images = ImageHistory(Findings(), lambda topic_id, state: leader)
    alone = PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, 1, 1, elr=(2,))
    images.note("broker-1", image_of(*RECORDS, alone))
    images.note("broker-1", image_of(*RECORDS, alone)._replace(end=5).apply_all(after, 6))
    return images._findings


def test_a_replica_that_the_leader_takes_back_has_its_current_process() -> None:
    found = joined(PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 1, 1, 2))
    assert found.broken == {Law.CURRENT_MEMBERS}


def test_an_eligible_replica_is_elected_without_the_former_leader() -> None:
    found = joined(PartitionRecord(TOPIC, 0, (1, 2), (2,), 2, 2, 2, elr=(1,)))
    assert found.violations == []
