"""The records of `__transaction_state`, in Kafka's formats.

    key    int16 type 0, then the transactional id      (never flexible)
    value  int16 version, then the state                (null: a tombstone)

Written as Apache Kafka 4.4 does with `transaction.version` 2: value v1, without partitions in the
Empty state. Versions 0 and 1 are read. Sources: `TransactionLogKey.json`,
`TransactionLogValue.json` and `TransactionLog` of the jar kafka-transaction-coordinator 4.3.1.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import NamedTuple

from lakelog.coordinator.transaction.state import (
    NO_BATCH,
    Child,
    Sink,
    Transaction,
    TransactionState,
    TransactionVersion,
    last_epoch_of,
)
from lakelog.protocol.api import OWN_TAGS
from lakelog.protocol.commit_sets import SinkParent
from lakelog.wire import schema as wire
from lakelog.wire.codec import decode, encode
from lakelog.wire.primitives import WireError

_INT16 = Format(">h")
_TRANSACTION_LOG = 0
_VALUE_VERSION = 1
_PARTITIONS_MAX = 1_000_000
_SINK_BYTES = ("last_set", "former_runs", "earlier_runs", "content")
_SINK_FIELDS = ("query_id", "run_id", "next_batch", "expires", *_SINK_BYTES)


class TransactionLogKey(wire.Message, versions="0"):
    """The key of a record: a transactional id."""

    transactional_id: str = wire.string("0")


class PartitionsSchema(wire.Struct):
    """The partitions of one topic in a transaction."""

    topic: str = wire.string()
    partition_ids: list[int] = wire.array(wire.int32)


class SinkSchema(wire.Struct):
    """The control record of a sink (docs/formats/commit-sets.md)."""

    query_id: str = wire.string()
    run_id: str = wire.string()
    next_batch: int = wire.int64(default=NO_BATCH)
    expires: bool = wire.boolean()
    last_set: wire.Buffer = wire.binary()
    former_runs: wire.Buffer = wire.binary()
    earlier_runs: wire.Buffer = wire.binary()
    content: wire.Buffer = wire.binary(tag=0)


class TransactionLogValue(wire.Message, versions="0-1", flexible="1+"):
    """The state of a transactional id. Times are milliseconds since the epoch."""

    producer_id: int = wire.int64()
    previous_producer_id: int = wire.int64("1+", tag=0, default=-1)
    next_producer_id: int = wire.int64("1+", tag=1, default=-1)
    producer_epoch: int = wire.int16()
    next_producer_epoch: int = wire.int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = wire.int32()
    transaction_status: int = wire.int8()
    transaction_partitions: list[PartitionsSchema] | None = wire.array(
        PartitionsSchema, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = wire.int64()
    transaction_start_timestamp_ms: int = wire.int64()
    client_transaction_version: int = wire.int16("1+", tag=2)
    sink: SinkSchema | None = wire.struct(
        SinkSchema, "1+", nullable="1+", tag=OWN_TAGS, default=None
    )
    parent: SinkParent | None = wire.struct(
        SinkParent, "1+", nullable="1+", tag=OWN_TAGS + 1, default=None
    )


class TransactionRecord(NamedTuple):
    """The new state of a transactional id; None is a tombstone."""

    transactional_id: str
    transaction: Transaction | None


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    value = None
    if record.transaction is not None:
        fields = _to_value(record.transaction)
        value = _INT16.pack(_VALUE_VERSION) + encode(fields, _VALUE_VERSION)
    key = TransactionLogKey(transactional_id=record.transactional_id)
    return _INT16.pack(_TRANSACTION_LOG) + encode(key, 0), value


def _to_value(transaction: Transaction) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    is_empty = transaction.state is TransactionState.EMPTY
    assert not (is_empty and topics), "an empty transaction has partitions"
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if is_empty
        else [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()],
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    if transaction.part is not None:
        _add_part(value, transaction.part)
    return value


def _add_part(value: TransactionLogValue, part: Sink | Child) -> None:
    if isinstance(part, Child):
        value.parent = SinkParent(producer_id=part.parent_id, producer_epoch=part.parent_epoch)
        return
    value.sink = SinkSchema(**{name: getattr(part, name) for name in _SINK_FIELDS})


def _part(value: TransactionLogValue) -> Sink | Child | None:
    if value.parent is not None:
        return Child(value.parent.producer_id, value.parent.producer_epoch)
    sink = value.sink
    if sink is None:
        return None
    values = {name: getattr(sink, name) for name in _SINK_FIELDS}
    # Not views of the batch that is read, which they would keep in memory.
    values |= {name: bytes(values[name]) for name in _SINK_BYTES}
    return Sink(**values)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record, or None if its type is unknown. Raises `WireError` if it is malformed."""
    if _version(key) != _TRANSACTION_LOG:
        return None
    transactional_id = decode(TransactionLogKey, key, 0, 2).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    return TransactionRecord(transactional_id, _decode_value(value))


def _decode_value(data: bytes) -> Transaction:
    value = decode(TransactionLogValue, data, _version(data), 2, max_elements=_PARTITIONS_MAX)
    try:
        state = TransactionState(value.transaction_status)
        client_version = TransactionVersion(value.client_transaction_version)
    except ValueError as error:
        raise WireError(f"malformed transaction record: {error}") from None
    partitions = frozenset(
        (topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=partitions,
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=client_version,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_epoch=last_epoch_of(value.producer_epoch, state, client_version),
        part=_part(value),
    )


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise WireError(f"transaction record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version
