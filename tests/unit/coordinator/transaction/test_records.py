from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.coordinator.transaction.records import (
    TransactionLogValue,
    TransactionRecord,
    decode_record,
    encode_record,
)
from lakelog.coordinator.transaction.state import (
    Child,
    Sink,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from lakelog.wire.codec import encode
from lakelog.wire.primitives import WireError

EMPTY = Transaction(
    producer_id=7, producer_epoch=3, timeout_ms=60_000, last_update_ms=99, previous_producer_id=7
)
ONGOING = replace(
    EMPTY,
    state=TransactionState.ONGOING,
    partitions=frozenset({("b", 1), ("a", 2), ("a", 0)}),
    start_ms=98,
    client_version=TransactionVersion.BUMPING,
)


def test_a_transaction_is_written_as_version_1_with_its_topics_in_order() -> None:
    key, value = encode_record(TransactionRecord("id", ONGOING))
    assert key == b"\0\0\0\x02id"
    assert value is not None
    assert value.hex(" ") == (
        "00 01 00 00 00 00 00 00 00 07 00 03 00 00 ea 60 01 "
        "03 02 61 03 00 00 00 00 00 00 00 02 00 02 62 02 00 00 00 01 00 "
        "00 00 00 00 00 00 00 63 00 00 00 00 00 00 00 62 "
        "02 00 08 00 00 00 00 00 00 00 07 02 02 00 02"
    )
    assert decode_record(key, value) == TransactionRecord("id", ONGOING)


def test_before_the_first_transaction_its_partitions_are_null() -> None:
    key, value = encode_record(TransactionRecord("id", EMPTY))
    assert value is not None
    assert value[17] == 0
    assert decode_record(key, value) == TransactionRecord("id", EMPTY)


def test_the_older_version_is_read() -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=99,
        transaction_start_timestamp_ms=-1,
    )
    decoded = decode_record(b"\0\0\0\x02id", b"\0\0" + encode(value, 0))
    assert decoded == TransactionRecord("id", replace(EMPTY, previous_producer_id=-1))


def test_a_tombstone_deletes_the_id() -> None:
    key, value = encode_record(TransactionRecord("id", None))
    assert value is None
    assert decode_record(key, None) == TransactionRecord("id", None)


@pytest.mark.parametrize(
    ("state", "epoch", "last"),
    [
        (TransactionState.PREPARE_COMMIT, 4, 3),
        (TransactionState.COMPLETE_ABORT, 4, 3),
        (TransactionState.COMPLETE_COMMIT, 0, 32_766),
        (TransactionState.COMPLETE_ABORT, 32_767, -1),
        (TransactionState.ONGOING, 4, -1),
    ],
)
def test_the_epoch_before_the_end_is_derived_when_loading(
    state: TransactionState, epoch: int, last: int
) -> None:
    written = encode_record(
        TransactionRecord("id", replace(ONGOING, state=state, producer_epoch=epoch))
    )
    decoded = decode_record(*written)
    assert decoded is not None
    assert decoded.transaction is not None
    assert decoded.transaction.last_epoch == last


def test_types_from_the_future_are_passed_over() -> None:
    assert decode_record(b"\0\x01whatever", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\0\0\0\x05x", None), (b"\0\0\0\x01x", b"\0\x63"), (b"\0\0\0\x01x", b"\0")],
)
def test_malformed_ones_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        decode_record(key, value)


def test_an_unknown_state_is_rejected() -> None:
    value = TransactionLogValue(transaction_status=9, transaction_partitions=None)
    with pytest.raises(WireError, match="9"):
        decode_record(b"\0\0\0\x02id", b"\0\x01" + encode(value, 1))


SINK = Sink(
    query_id="q",
    run_id="r",
    next_batch=5,
    expires=True,
    last_set=b"12345678",
    former_runs=b"abcdefgh",
    earlier_runs=b"12345678abcdefgh",
)


PARTS = [SINK, replace(SINK, content=b"rows"), Sink(query_id="q", run_id="r"), Child(7, 3)]


@pytest.mark.parametrize("part", PARTS)
def test_the_part_in_commit_sets_survives_the_log(part: Sink | Child) -> None:
    transaction = replace(ONGOING, part=part)
    decoded = decode_record(*encode_record(TransactionRecord("id", transaction)))
    assert decoded is not None
    assert decoded.transaction == transaction


def test_sinks_and_children_are_tagged_fields_after_the_fields_of_kafka() -> None:
    """The layout in docs/formats/commit-sets.md."""
    _, plain = encode_record(TransactionRecord("id", ONGOING))
    _, sink = encode_record(TransactionRecord("id", replace(ONGOING, part=SINK)))
    _, child = encode_record(TransactionRecord("id", replace(ONGOING, part=Child(7, 3))))
    assert plain is not None
    assert sink is not None
    assert child is not None
    control = b"\x01" + b"\x02q" + b"\x02r" + (5).to_bytes(8, "big") + b"\x01"
    control += b"\x0912345678" + b"\x09abcdefgh" + b"\x1112345678abcdefgh" + b"\x00"
    named = replace(ONGOING, part=replace(SINK, content=b"rows"))
    _, named_sink = encode_record(TransactionRecord("id", named))
    assert named_sink is not None
    assert named_sink.endswith(control[:-1] + b"\x01\x00\x05\x05rows")
    tag_10000, tag_10001 = b"\x90\x4e", b"\x91\x4e"
    assert sink.endswith(tag_10000 + bytes([len(control)]) + control)
    parent = b"\x01" + (7).to_bytes(8, "big") + b"\x00\x03" + b"\x00"
    assert child.endswith(tag_10001 + bytes([len(parent)]) + parent)
