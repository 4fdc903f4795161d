"""Losses of records that name many topics."""

from __future__ import annotations

import pytest

from lakelog.metadata.features import METADATA_VERSION
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.losses import divided
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerLost,
    BrokerRecord,
    ConfigRecord,
    FeatureRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    encode_record,
)

ENTRY_BYTES_MAX = 300
TOPICS = tuple(bytes([number]) * 16 for number in range(1, 21))
KEPT = TOPICS[:15]


def _cluster(level: int = 2) -> MetadataImage:
    """Three brokers, of which the first is fenced, with 20 topics of two partitions."""
    records: list[Record] = [
        FeatureRecord(METADATA_VERSION, 2),
        *(BrokerRecord(n, bytes([n]) * 16, 1, (), None, bytes([n]) * 16) for n in (1, 2, 3)),
    ]
    for number, topic_id in enumerate(TOPICS):
        records.append(TopicRecord(f"t{number}", topic_id))
        records += [PartitionRecord(topic_id, p, (1, 2, 3), (1, 2, 3), 1, 0, 0) for p in (0, 1)]
    records += [
        ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "3"),
        BrokerFenced(1, 1),
        FeatureRecord(METADATA_VERSION, level),
    ]
    return MetadataImage().apply_all(records, 1)


def _joined(kept: tuple[bytes, ...]) -> tuple[Record, ...]:
    return BrokerRecord(1, b"n" * 16, 2, (), None), BrokerLost(1, 2, True, kept)


def test_a_loss_that_is_too_large_becomes_the_states_that_it_leads_to() -> None:
    image = _cluster()
    records = _joined(KEPT)
    smaller = divided(image, records, ENTRY_BYTES_MAX)
    assert max(len(encode_record(record)) for record in smaller) < ENTRY_BYTES_MAX
    assert smaller[0] == records[0]
    changed = {record.topic_id for record in smaller[1:] if isinstance(record, PartitionRecord)}
    assert changed == set(TOPICS[15:])
    assert len(smaller) == 1 + 2 * 5
    assert image.apply_all(smaller, 2) == image.apply_all(records, 2)


def test_a_loss_that_fits_an_entry_stays_one_record() -> None:
    records = _joined(KEPT[:2])
    assert divided(_cluster(), records, ENTRY_BYTES_MAX) == records


@pytest.mark.parametrize("room", range(300, 330))
def test_without_transactions_a_loss_names_as_many_topics_as_one_entry_has_room_for(
    room: int,
) -> None:
    image = _cluster(level=1)
    broker, lost = divided(image, _joined(KEPT), room)
    assert isinstance(lost, BrokerLost)
    size = len(encode_record(broker)) + len(encode_record(lost))
    assert room - len(',"AAAAAAAAAAAAAAAAAAAAAA"') < size <= room
    assert lost.kept_topics == KEPT[: len(lost.kept_topics)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_loss_names_no_topics_without_any_room(count: int) -> None:
    assert divided(_cluster(level=1), _joined(KEPT[:count]), 0) == _joined(())


def test_a_loss_with_too_many_states_names_fewer_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.metadata.transactions.TRANSACTION_BYTES_MAX", 700)
    broker, lost = divided(_cluster(), _joined(KEPT), ENTRY_BYTES_MAX)
    assert broker == _joined(KEPT)[0]
    assert isinstance(lost, BrokerLost)
    assert 0 < len(lost.kept_topics) < len(KEPT)
