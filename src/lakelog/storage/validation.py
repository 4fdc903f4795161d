"""Validation of a batch before it is appended, from its header and checksum.

The records are walked only if the topic's configuration requires it: a compacted topic needs keys,
a limit on old timestamps needs the smallest timestamp, and `records.verify` verifies the records of
all batches or of a sample. A record count that the batch cannot hold is always rejected.

A batch is accepted whole or not at all; the error names the invalid records by their places in the
batch (KIP-467). One bad timestamp makes the whole error one of timestamps. After a thousand errors
the rest is not checked: a batch of a kilobyte may hold millions of records.

Source: `UnifiedLog.analyzeAndValidateRecords` and `LogValidator` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import product
from math import inf
from typing import Literal

from lakelog.base.config.keys.topics import VERIFY_ALL, VERIFY_SAMPLED
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records import crc as checksums
from lakelog.records.batch import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP,
    RECORDS_COUNT,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecord,
    HeaderFields,
    RecordsTooLarge,
    check_crc,
    clear_append_time,
    read_header,
)
from lakelog.records.compression import EXPANSION_MAX, Codec
from lakelog.records.record import MIN_RECORD_SIZE, RecordHead, iter_heads, record_view
from lakelog.records.verify import STEP, verifying
from lakelog.runtime.api import Buffer

_SHOWN_MAX = 3
_NAMED_MAX = 1000
RecordError = tuple[int, str]
"""The record's place in its batch, from 0, and the reason."""


class RecordsRefusedError(KafkaError):
    """`errors` names the first thousand invalid records; nothing was appended."""

    def __init__(self, code: ErrorCode, message: str, errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.errors = errors


def checking_records(
    records: Iterable[RecordHead], config: LogConfig, now_ms: int
) -> Iterator[None]:
    """Check `STEP` records at each step. The last step raises `RecordsRefusedError`.

    That is 87 for records without a key in a compacted topic, and 32 for timestamps out of bounds.
    A record has one error at most, first that of its key.
    """
    keys: list[RecordError] = []
    times: list[RecordError] = []
    needs_key = "compact" in config.cleanup_policy
    bounds = _bounds(config, now_ms)
    for index, (_, timestamp, has_key) in enumerate(records):
        if not index % STEP and index:
            yield
        if needs_key and not has_key:
            keys.append((index, "a compacted topic accepts no record without a key"))
        elif bounds is not None and not (timestamp < 0 or bounds[0] <= timestamp <= bounds[1]):
            times.append((index, f"timestamp {timestamp} is not in {_range(bounds)}"))
        if len(keys) + len(times) == _NAMED_MAX:
            break
    errors = tuple(sorted(keys + times))
    if times:
        have = "1 record has" if len(times) == 1 else f"{len(times)} records have"
        text = f"{have} a timestamp that is not in {_range(bounds)}"
        raise RecordsRefusedError(ErrorCode.INVALID_TIMESTAMP, text, errors)
    if keys:
        shown = "; ".join(_texts(errors))
        were = "1 record was" if len(errors) == 1 else f"{len(errors)} records were"
        text = f"{were} refused; the first: {shown}"
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, text, errors)


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int] | None:
    if config.message_timestamp_type != "CreateTime":
        return None
    return (
        now_ms - config.message_timestamp_before_max_ms,
        now_ms + config.message_timestamp_after_max_ms,
    )


def _range(bounds: tuple[int, int] | None) -> str:
    assert bounds is not None
    return f"{max(bounds[0], 0)} to {bounds[1]}"


def _texts(errors: tuple[RecordError, ...]) -> Iterator[str]:
    for index, text in errors[:_SHOWN_MAX]:
        yield f"record {index}: {text}"


Origin = Literal["client", "coordinator"]
_CODEC_MAX = 4
_TIME_MAX = (1 << 63) - 1
CRC_START = 21
DECODED_BYTES_MAX = 64 << 20
"""Limit of the decompressed records of one batch, whatever its topic allows."""
WALKED_MAX = 1_000_000
"""Limit of the records of one batch if each has to be walked."""
SAMPLED_MAX = 100_000
"""Limit of the records that are verified in a sampled batch."""
_STEPS_AT_ONCE = 2
WALKED_AT_ONCE = _STEPS_AT_ONCE * STEP
"""Records of a batch that is walked in one iteration of the loop: at most a millisecond."""
DECODED_AT_ONCE = 64 << 10
"""Decompressed records of such a batch: 0.2 ms with the slowest codec."""


class LeastSizes(dict[int, float]):
    """Least bytes of a record in a batch, by the batch's attributes.

    Known attributes are a codec, with or without the bits `also`. For all others the size is
    infinite, so that the quick check fails.
    """

    def __init__(self, also: int) -> None:
        super().__init__(
            (codec | bits, MIN_RECORD_SIZE / EXPANSION_MAX[codec])
            for codec, bits in product(Codec, (0, also))
        )

    def __missing__(self, attributes: int) -> float:
        return inf


_LEAST_SIZES = LeastSizes(TRANSACTIONAL)


def decoded_bytes_max(config: LogConfig, codec: int) -> int:
    """Return the limit, in bytes, of the decompressed records of a batch with this codec."""
    if not codec:
        return DECODED_BYTES_MAX
    return min(config.max_decompressed_message_bytes, DECODED_BYTES_MAX)


class SlowBatchError(Exception):
    """Walking the records of the batch takes too long for one iteration of the loop.

    Nothing was done. The caller may walk them in slices and append the batch as a `WalkedBatch`.
    `sampled` is true if its records have to be verified.
    """

    def __init__(self, *, sampled: bool) -> None:
        self.sampled = sampled


class WalkedBatch(bytearray):
    """A batch whose records have passed `read_records` and `walking` with `config`."""

    config: LogConfig


def check_incoming(
    batch: bytearray | memoryview,
    config: LogConfig,
    now_ms: int,
    origin: Origin,
    known_producers: Container[int],
    *,
    sampled: bool = False,
) -> HeaderFields:
    """Return the header's fields if the batch may be appended.

    known_producers: ids of the producers that have written to the log.
    sampled: whether to verify the records if the topic verifies samples. The records of the
        first batch of each producer are verified then, too.

    Raises `KafkaError` (CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD) and
    `SlowBatchError`.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _invalid(f"{size} bytes are too few for a batch")
    fields: HeaderFields = HEADER.unpack_from(batch)
    base, length, _, magic, crc, attributes, delta, _, timestamp, producer, epoch, first, count = (
        fields
    )
    if not (
        length + LENGTH_OVERHEAD == size <= config.max_message_bytes
        and magic == MAGIC
        and checksums.crc32c(memoryview(batch)[CRC_START:]) == crc
    ):
        read_batch(batch, config)
    # The usual case is one expression, because every produced batch passes here. A batch that fails
    # it is checked again, by functions that find the reason or accept it after all.
    if origin == "client" and not (
        base == 0
        and delta + 1 == count > 0
        and count * _LEAST_SIZES[attributes] <= size - HEADER_SIZE
        and not sampled
        and config.records_verify != VERIFY_ALL
        and (producer < 0 or (first >= 0 and epoch >= 0 and producer in known_producers))
        and timestamp - now_ms <= config.message_timestamp_after_max_ms
        and config.message_timestamp_before_max_ms == _TIME_MAX
        and "compact" not in config.cleanup_policy
    ):
        sampled = sampled or (producer >= 0 and producer not in known_producers)
        check_batch(batch, fields, config, now_ms, sampled=sampled)
        if attributes & LOG_APPEND_TIME:
            clear_append_time(batch, 0, BatchHeader(*fields))
            fields = HEADER.unpack_from(batch)
    return fields


def read_batch(batch: bytearray | memoryview, config: LogConfig) -> BatchHeader:
    """Return the header of exactly one intact batch.

    Raises `KafkaError`: INVALID_RECORD, also for a truncated batch, MESSAGE_TOO_LARGE or
    CORRUPT_MESSAGE.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _invalid(f"{size} bytes are too few for a batch")
    try:
        header = read_header(batch)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not 0 <= header.magic <= MAGIC:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"unknown magic {header.magic}; expected {MAGIC}"
        )
    if header.magic != MAGIC:
        raise _invalid(f"unsupported magic {header.magic}; expected {MAGIC}")
    if header.size != size:
        raise _invalid(f"expected one batch of {size} bytes, but its header says {header.size}")
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    if not check_crc(batch, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum does not match")
    return header


def check_batch(
    batch: bytearray | memoryview,
    fields: HeaderFields,
    config: LogConfig,
    now_ms: int,
    *,
    sampled: bool,
) -> None:
    """Check a client's batch from its header's fields, and its records where the topic requires it.

    Raises `KafkaError` (INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE) or `SlowBatchError`.
    As in Apache Kafka, a delete horizon and unknown attributes are accepted. So is LogAppendTime if
    the topic has CreateTime and the batch has a timestamp. now_ms: milliseconds since the epoch.
    """
    base, length, _, _, _, attributes, delta, _, timestamp, producer, epoch, first, count = fields
    codec = attributes & CODEC_MASK
    if count <= 0 or delta != count - 1:
        raise _invalid(f"{count} records with a last offset delta of {delta}")
    if base != 0:
        raise _invalid(f"base offset {base}; a producer must send 0")
    if attributes & CONTROL or codec > _CODEC_MAX:
        raise _invalid(f"attributes {attributes:#x}: a control batch or an unknown codec")
    size = length + LENGTH_OVERHEAD - HEADER_SIZE
    if count * _LEAST_SIZES[codec] > size:
        name = Codec(codec).name.lower()
        raise _invalid(f"{count} records cannot be in {size} bytes (compression: {name})")
    if producer >= 0 and (first < 0 or epoch < 0):
        raise _invalid(f"negative epoch {epoch} or sequence {first} of producer {producer}")
    if attributes & LOG_APPEND_TIME and (
        config.message_timestamp_type != "CreateTime" or timestamp < 0
    ):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not send LogAppendTime")
    verifies = must_verify(config, sampled=sampled)
    if verifies or needs_records(timestamp, config, now_ms):
        _walk_at_once(batch, fields, config, now_ms, verifies=verifies)


def must_verify(config: LogConfig, *, sampled: bool) -> bool:
    """Return whether the records of a batch, `sampled` or not, are verified."""
    which = config.records_verify
    return which == VERIFY_ALL or (sampled and which == VERIFY_SAMPLED)


def _is_walked(batch: Buffer, config: LogConfig) -> bool:
    return isinstance(batch, WalkedBatch) and batch.config is config


def _walk_at_once(
    batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int, *, verifies: bool
) -> None:
    if _is_walked(batch, config):
        return
    timestamp, count = fields[MAX_TIMESTAMP], fields[RECORDS_COUNT]
    codec = fields[ATTRIBUTES] & CODEC_MASK
    if count > WALKED_MAX and _must_walk(timestamp, config, now_ms):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{count} records in a batch; a topic that validates each record, "
            f"such as a compacted one, accepts at most {WALKED_MAX}",
        )
    if count > WALKED_AT_ONCE:
        raise SlowBatchError(sampled=verifies)
    most = decoded_bytes_max(config, codec)
    header = BatchHeader(*fields)
    try:
        data = record_view(batch, header, min(most, DECODED_AT_ONCE) if codec else most)
    except RecordsTooLarge as error:
        if codec:
            raise SlowBatchError(sampled=verifies) from error
        raise _invalid(str(error)) from error
    except CorruptRecord as error:
        raise _invalid(str(error)) from error
    steps = walking(data, header, config, now_ms, verifies=verifies)
    for number, _ in enumerate(steps, 1):
        if number == _STEPS_AT_ONCE:  # a record may have a million headers
            raise SlowBatchError(sampled=verifies)


def read_records(
    batch: Buffer, header: BatchHeader, config: LogConfig, bytes_max: int = DECODED_BYTES_MAX
) -> bytes | memoryview:
    """Return the records of a batch, decompressed: at most `bytes_max` if they are compressed.

    Raises `RecordsTooLarge` if there are more and the topic allows it, and `KafkaError`
    (INVALID_RECORD).
    """
    most = decoded_bytes_max(config, header.codec)
    try:
        return record_view(batch, header, min(most, bytes_max) if header.codec else most)
    except RecordsTooLarge as error:
        if header.codec and bytes_max < most:
            raise
        raise _invalid(str(error)) from error
    except CorruptRecord as error:
        raise _invalid(str(error)) from error


def walking(
    data: bytes | memoryview, header: BatchHeader, config: LogConfig, now_ms: int, *, verifies: bool
) -> Iterator[None]:
    """Walk some of the records at each step.

    With `verifies`, also verify the encoding of all records if the topic requires it, else of the
    first `SAMPLED_MAX`. The last step raises `KafkaError` (INVALID_RECORD, INVALID_TIMESTAMP) for
    a faulty record.
    """
    try:
        if verifies:
            most = WALKED_MAX if _must_walk(header.max_timestamp, config, now_ms) else SAMPLED_MAX
            extremes = yield from verifying(data, header, most)
            lacks_key = extremes.has_null_key and "compact" in config.cleanup_policy
            is_out_of_time = config.message_timestamp_type == "CreateTime" and (
                extremes.newest_ms - now_ms > config.message_timestamp_after_max_ms
                or now_ms - extremes.oldest_ms > config.message_timestamp_before_max_ms
            )
            if not (lacks_key or is_out_of_time):
                return
            # Some record is to be rejected: `checking_records` names it.
        yield from checking_records(iter_heads(data, header), config, now_ms)
    except CorruptRecord as error:
        raise _invalid(str(error)) from error


def _must_walk(timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether every record has to be walked."""
    return config.records_verify == VERIFY_ALL or needs_records(timestamp, config, now_ms)


def needs_records(timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether the header is not enough to accept the batch.

    timestamp: the greatest of the batch, by its header. Both are milliseconds since the epoch.
    """
    if "compact" in config.cleanup_policy:
        return True
    return config.message_timestamp_type == "CreateTime" and (
        timestamp - now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != _TIME_MAX
    )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
