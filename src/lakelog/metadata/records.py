"""The records of the metadata log and their stored form (docs/formats/metadata.md).

A batch is UTF-8 text with one JSON array per line, `["<type>",<version>,<field>,...]`, which has
the fields in the order of their declaration. When the fields of a type or their meaning change, its
version rises; older versions are still read. An unknown type or version is an error, because
ignoring a record would lead to a different cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from lakelog.base.endpoint import Endpoint
from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.metadata.errors import MetadataCorrupt, MetadataUnsupported
from lakelog.metadata.features import (
    LEVELS_SINCE,
    OFFLINE_SINCE,
    READ_ONLY_SINCE,
    TRANSACTIONS_SINCE,
    SupportedLevels,
)

_SHOWN_CHARS_MAX = 100

NO_DIRECTORY = bytes(16)


class ResourceType(IntEnum):
    """The kind of resource that a configuration belongs to (`ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ClusterRecord(NamedTuple):
    """The id of the cluster: 22 characters of base64, written once."""

    cluster_id: str


class BrokerRecord(NamedTuple):
    """The start of a broker. It raises the leader epoch of every partition that the broker leads.

    Its replicas are not offline any more, until the new process reports that they are.
    One record stands for all these partitions: a start must not cost one record per partition.
    """

    broker_id: int
    incarnation_id: bytes
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directory_id: bytes = NO_DIRECTORY
    """The id of its data folder; zeros if it is not recorded."""
    features: tuple[SupportedLevels, ...] = ()
    """Empty if the broker declared none."""


class BrokerFencedV0(NamedTuple):
    """Version 0 of `BrokerFenced`: the last in-sync replica stays in the ISR, and there is no ELR.

    It is only read, so that an older log leads to the image that its writer had.
    """

    broker_id: int
    epoch: int


class BrokerFenced(NamedTuple):
    """A broker stopped, died, or starts: it leads nothing and leaves all ISRs.

    One record stands for the changes of all its partitions (`failover.py`), so that a failover of
    any size is one entry.
    """

    broker_id: int
    epoch: int


class BrokerLost(NamedTuple):
    """A broker started without all that its former process had written: it leaves ISRs and ELRs.

    keeps_folder: whether its logs lack their ends at most, as after a power failure.
    kept_topics: topics whose replicas lack nothing (`durability=fsync`); they stay.
    """

    broker_id: int
    epoch: int
    keeps_folder: bool
    kept_topics: tuple[bytes, ...] = ()


class BrokerUnfenced(NamedTuple):
    """A broker serves: it leads the partitions without a leader for which it is eligible."""

    broker_id: int
    epoch: int


class BrokerReadOnly(NamedTuple):
    """A broker cannot write to its data folder: it leads only partitions that no other can.

    One record stands for the changes of all its partitions (`failover.without_read_only`).
    """

    broker_id: int
    epoch: int


class BrokerWritable(NamedTuple):
    """A read-only broker can write again: it may join the ISRs when it has caught up."""

    broker_id: int
    epoch: int


class BrokerUnregistered(NamedTuple):
    """A fenced broker will not return; its replicas stay assigned to it, and offline.

    `epoch` is that of its last registration. A later registration of the id has a higher one.
    """

    broker_id: int
    epoch: int


class TopicRecord(NamedTuple):
    """A new topic, still without partitions."""

    name: str
    topic_id: bytes


class PartitionRecord(NamedTuple):
    """The complete new state of one partition; `leader` is -1 if there is none."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class LeadersReviewed(NamedTuple):
    """ELRs and leaders of all partitions follow changed settings."""


class TopicRemoved(NamedTuple):
    """The deletion of a topic with its partitions and its configuration."""

    topic_id: bytes


class ConfigRecord(NamedTuple):
    """A new value of a key; None removes the key.

    `resource_name` "" of the type BROKER stands for the default of all brokers.
    """

    resource_type: int
    resource_name: str
    key: str
    value: str | None


class ProducerIdBlock(NamedTuple):
    """An allocation of producer ids.

    All ids below `next_id` are allocated, the last block to the broker `broker_id`.
    """

    broker_id: int
    next_id: int


class ForgottenEpochs(NamedTuple):
    """A start after a possible power failure, which may have lost the end of `__transaction_state`.

    Epochs of producer ids below `end_id` may have been used that no log contains any more.
    """

    end_id: int


class FeatureRecord(NamedTuple):
    """The finalized level of a feature (`features.py`)."""

    name: str
    level: int


class BeginTransaction(NamedTuple):
    """The start of a change that is larger than one entry (KIP-868).

    The records after it, in this entry and later ones, stay pending until the end.
    """


class EndTransaction(NamedTuple):
    """All records of the pending transaction take effect at once."""


class AbortTransaction(NamedTuple):
    """The controller that wrote the pending records is gone: they never take effect."""


Record = (
    ClusterRecord
    | BrokerRecord
    | BrokerFencedV0
    | BrokerFenced
    | BrokerLost
    | BrokerUnfenced
    | BrokerReadOnly
    | BrokerWritable
    | BrokerUnregistered
    | TopicRecord
    | PartitionRecord
    | LeadersReviewed
    | TopicRemoved
    | ConfigRecord
    | ProducerIdBlock
    | ForgottenEpochs
    | FeatureRecord
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)

OF_MANY_PARTITIONS = (
    BrokerRecord
    | BrokerFencedV0
    | BrokerFenced
    | BrokerLost
    | BrokerUnfenced
    | BrokerReadOnly
    | LeadersReviewed
)
"""Records without the names of partitions: each may change all of them."""


class _Kind(NamedTuple):
    """The stored form of one field: its JSON types and its conversions.

    `load` raises `ValueError` or `TypeError` for a value that `dump` cannot produce.
    """

    types: tuple[type, ...]
    dump: Callable[[Any], object] | None = None
    load: Callable[[Any], object] | None = None


def _load_ints(value: list[Any]) -> object:
    if any(type(item) is not int for item in value):
        raise ValueError(value)
    return tuple(value)


def _load_features(value: list[Any]) -> object:
    return tuple([SupportedLevels(str(name), int(low), int(high)) for name, low, high in value])


def _load_endpoints(value: list[Any]) -> object:
    return tuple([Endpoint(str(name), str(host), int(port)) for name, host, port in value])


_INT = _Kind((int,))
_BOOL = _Kind((bool,))
_TEXT = _Kind((str,))
_OPTIONAL_TEXT = _Kind((str, type(None)))
_UUID = _Kind((str,), encode_uuid, lru_cache(decode_uuid))
_INTS = _Kind((list,), None, _load_ints)
_UUIDS = _Kind(
    (list,),
    lambda uuids: [encode_uuid(uuid) for uuid in uuids],
    lambda value: tuple([decode_uuid(uuid) for uuid in value]),
)
_FEATURES = _Kind((list,), None, _load_features)
_ENDPOINTS = _Kind((list,), None, _load_endpoints)


class _Form(NamedTuple):
    """One version of the stored form of a type of record.

    `loads` are the conversions with their positions, `omitted` the values of fields that this
    version does not have.
    """

    record: Callable[..., Record]
    name: str
    version: int
    kinds: tuple[_Kind, ...]
    types: frozenset[tuple[type, ...]]
    loads: tuple[tuple[int, Callable[[Any], object]], ...]
    omitted: tuple[object, ...]
    since: int
    """The lowest `lakelog.metadata.version` with this form."""


def _form(record: type[Any], name: str, *kinds: _Kind, version: int = 0, since: int = 1) -> _Form:
    types = frozenset(product(*[kind.types for kind in kinds]))
    loads = tuple((i, kind.load) for i, kind in enumerate(kinds) if kind.load is not None)
    omitted = tuple(record._field_defaults[field] for field in record._fields[len(kinds) :])
    return _Form(record, name, version, kinds, types, loads, omitted, since)


_BROKER = (_INT, _UUID, _INT, _ENDPOINTS, _OPTIONAL_TEXT)
_PARTITION = (_UUID, _INT, _INTS, _INTS, _INT, _INT, _INT)
_PARTITION_V1 = (*_PARTITION, _INTS, _INTS)
_FORMS: tuple[_Form, ...] = (
    _form(ClusterRecord, "cluster", _TEXT),
    _form(BrokerRecord, "broker", *_BROKER),
    _form(BrokerRecord, "broker", *_BROKER, _UUID, version=1),
    _form(BrokerRecord, "broker", *_BROKER, _UUID, _FEATURES, version=2, since=LEVELS_SINCE),
    _form(BrokerFencedV0, "broker-fenced", _INT, _INT),
    _form(BrokerFenced, "broker-fenced", _INT, _INT, version=1),
    _form(BrokerLost, "broker-lost", _INT, _INT, _BOOL),
    _form(BrokerLost, "broker-lost", _INT, _INT, _BOOL, _UUIDS, version=1),
    _form(BrokerUnfenced, "broker-unfenced", _INT, _INT),
    _form(BrokerReadOnly, "broker-read-only", _INT, _INT, since=READ_ONLY_SINCE),
    _form(BrokerWritable, "broker-writable", _INT, _INT, since=READ_ONLY_SINCE),
    _form(BrokerUnregistered, "broker-unregistered", _INT, _INT),
    _form(TopicRecord, "topic", _TEXT, _UUID),
    _form(PartitionRecord, "partition", *_PARTITION),
    _form(PartitionRecord, "partition", *_PARTITION_V1, version=1),
    _form(PartitionRecord, "partition", *_PARTITION_V1, _INTS, version=2, since=OFFLINE_SINCE),
    _form(LeadersReviewed, "leaders-reviewed"),
    _form(TopicRemoved, "topic-removed", _UUID),
    _form(ConfigRecord, "config", _INT, _TEXT, _TEXT, _OPTIONAL_TEXT),
    _form(ProducerIdBlock, "producer-ids", _INT, _INT),
    _form(ForgottenEpochs, "forgotten-epochs", _INT),
    _form(FeatureRecord, "feature", _TEXT, _INT, since=LEVELS_SINCE),
    _form(BeginTransaction, "begin-transaction", since=TRANSACTIONS_SINCE),
    _form(EndTransaction, "end-transaction", since=TRANSACTIONS_SINCE),
    _form(AbortTransaction, "abort-transaction", since=TRANSACTIONS_SINCE),
)
_FORM_OF_NAME = {(form.name, form.version): form for form in _FORMS}
_FORMS_OF_CLASS: dict[object, list[_Form]] = {}
for _record_form in _FORMS:
    _FORMS_OF_CLASS.setdefault(_record_form.record, []).append(_record_form)
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_record(record: Record) -> bytes:
    """Return one line, including its end, in the oldest version that has all of the record."""
    form = _form_of(record)
    fields: list[object] = [form.name, form.version]
    for kind, value in zip(form.kinds, record, strict=False):
        fields.append(value if kind.dump is None else kind.dump(value))
    return _encode_json(fields).encode("utf-8") + b"\n"


def metadata_version_of(record: Record) -> int:
    """Return the lowest `lakelog.metadata.version` at which brokers can read the record."""
    return _form_of(record).since


def _form_of(record: Record) -> _Form:
    forms = _FORMS_OF_CLASS[type(record)]
    return next(form for form in forms if record[len(form.kinds) :] == form.omitted)


def encode_records(records: Iterable[Record]) -> bytes:
    """Return the payload of a batch or a snapshot."""
    return b"".join([encode_record(record) for record in records])


def decode_records(payload: bytes) -> list[Record]:
    """Return the records of a payload.

    Raises `MetadataCorrupt`, and `MetadataUnsupported` for records of a newer version of lakelog.
    """
    if payload and not payload.endswith(b"\n"):
        raise MetadataCorrupt("a metadata batch is incomplete")
    try:
        rows = json.loads(b"[" + payload[:-1].replace(b"\n", b",") + b"]")
    except ValueError as error:
        raise MetadataCorrupt(f"a metadata batch is not JSON: {error}") from None
    return [_decode_row(row) for row in rows]


def _decode_row(row: Any) -> Record:
    name, version = row[:2] if type(row) is list and len(row) > 1 else (None, None)
    if type(name) is not str or type(version) is not int:
        raise MetadataCorrupt(f"not a metadata record: {str(row)[:_SHOWN_CHARS_MAX]}")
    form = _FORM_OF_NAME.get((name, version))
    if form is None:
        raise MetadataUnsupported(
            f"metadata record {name!r} version {version} was written by a newer version of "
            "lakelog; start that version"
        )
    fields = row[2:]
    try:
        if tuple(map(type, fields)) not in form.types:
            raise ValueError(fields)
        for index, load in form.loads:
            fields[index] = load(fields[index])
    except (ValueError, TypeError):
        raise MetadataCorrupt(f"not a {name} record: {str(row)[:_SHOWN_CHARS_MAX]}") from None
    return form.record(*fields)
