from __future__ import annotations

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.metadata.errors import MetadataCorrupt, MetadataUnsupported
from lakelog.metadata.features import OFFLINE_SINCE
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerFencedV0,
    BrokerLost,
    BrokerRecord,
    BrokerUnregistered,
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
    decode_records,
    encode_record,
    encode_records,
    metadata_version_of,
)

ID = bytes(range(16))

GOLDEN: list[tuple[Record, bytes]] = [
    (ClusterRecord("MkU3OEVBNTcwNTJENDM2Qg"), b'["cluster",0,"MkU3OEVBNTcwNTJENDM2Qg"]\n'),
    (
        BrokerRecord(1, ID, 3, (Endpoint("PLAINTEXT", "::1", 9092),), None),
        b'["broker",0,1,"AAECAwQFBgcICQoLDA0ODw",3,[["PLAINTEXT","::1",9092]],null]\n',
    ),
    (BrokerUnregistered(3, 5), b'["broker-unregistered",0,3,5]\n'),
    (
        BrokerRecord(1, ID, 3, (), "r", ID),
        b'["broker",1,1,"AAECAwQFBgcICQoLDA0ODw",3,[],"r","AAECAwQFBgcICQoLDA0ODw"]\n',
    ),
    (BrokerFencedV0(3, 5), b'["broker-fenced",0,3,5]\n'),
    (BrokerFenced(3, 5), b'["broker-fenced",1,3,5]\n'),
    (BrokerLost(3, 5, keeps_folder=True), b'["broker-lost",0,3,5,true]\n'),
    (
        BrokerLost(3, 5, True, (ID,)),
        b'["broker-lost",1,3,5,true,["AAECAwQFBgcICQoLDA0ODw"]]\n',
    ),
    (TopicRecord("a.b", ID), b'["topic",0,"a.b","AAECAwQFBgcICQoLDA0ODw"]\n'),
    (
        PartitionRecord(ID, 7, (1, 2), (2,), 2, 5, 6),
        b'["partition",0,"AAECAwQFBgcICQoLDA0ODw",7,[1,2],[2],2,5,6]\n',
    ),
    (
        PartitionRecord(ID, 7, (1, 2, 3), (), -1, 5, 6, (2,), (1,)),
        b'["partition",1,"AAECAwQFBgcICQoLDA0ODw",7,[1,2,3],[],-1,5,6,[2],[1]]\n',
    ),
    (
        PartitionRecord(ID, 7, (1, 2, 3), (), -1, 5, 6, (2,), (), (1, 2)),
        b'["partition",2,"AAECAwQFBgcICQoLDA0ODw",7,[1,2,3],[],-1,5,6,[2],[],[1,2]]\n',
    ),
    (LeadersReviewed(), b'["leaders-reviewed",0]\n'),
    (TopicRemoved(ID), b'["topic-removed",0,"AAECAwQFBgcICQoLDA0ODw"]\n'),
    (
        ConfigRecord(ResourceType.TOPIC, "t", "k", 'line\n"é'),
        '["config",0,2,"t","k","line\\n\\"é"]\n'.encode(),
    ),
    (ConfigRecord(ResourceType.BROKER, "", "k", None), b'["config",0,4,"","k",null]\n'),
    (ProducerIdBlock(1, 1 << 62), b'["producer-ids",0,1,4611686018427387904]\n'),
    (ForgottenEpochs(3000), b'["forgotten-epochs",0,3000]\n'),
]


@pytest.mark.parametrize(("record", "stored"), GOLDEN, ids=lambda item: type(item).__name__)
def test_the_stored_form_does_not_change(record: Record, stored: bytes) -> None:
    assert encode_record(record) == stored
    assert decode_records(stored) == [record]


def test_only_a_record_with_offline_replicas_needs_the_level_that_has_them() -> None:
    state = PartitionRecord(ID, 7, (1, 2, 3), (2,), 2, 5, 6, (3,))
    assert metadata_version_of(state) == 1
    assert metadata_version_of(state._replace(offline=(1,))) == OFFLINE_SINCE


def test_a_batch_is_its_records_in_order() -> None:
    records = [record for record, _ in GOLDEN]
    assert decode_records(encode_records(records)) == records
    assert decode_records(b"") == []


@pytest.mark.parametrize("stored", [b'["topic",1,"t","x"]\n', b'["later",0]\n'])
def test_records_of_a_newer_version_are_rejected(stored: bytes) -> None:
    with pytest.raises(MetadataUnsupported, match="newer version"):
        decode_records(stored)


@pytest.mark.parametrize(
    "stored",
    [
        b'["topic",0,"t"]\n',
        b'["topic",0,1,"AAECAwQFBgcICQoLDA0ODw"]\n',
        b'["topic",0,"t","short"]\n',
        b'["topic",0,"t","AAECAwQFBgcICQoLDA0ODw"]',
        b'["producer-ids",0,1,1.5]\n',
        b'["producer-ids",0,1,true]\n',
        b'["partition",0,"AAECAwQFBgcICQoLDA0ODw",7,["1"],[1],1,0,0]\n',
        b'["broker",0,1,"AAECAwQFBgcICQoLDA0ODw",3,[1],null]\n',
        b'"topic"\n',
        b"[]\n",
        b'[["topic"],0]\n',
        b"{\n",
        b"\xff\n",
    ],
)
def test_malformed_payloads_are_corrupt(stored: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        decode_records(stored)
