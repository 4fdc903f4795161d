"""One batch of a Produce request: its checks against the request, and its error result."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from lakelog.records.batch import TRANSACTIONAL
from lakelog.records.compression import Codec
from lakelog.replica.partition import Partition
from lakelog.replica.role import current_leader
from lakelog.runtime.api import Buffer
from lakelog.server.appends.transaction_verification import ProduceCheck
from lakelog.server.topics.topics import INTERNAL_TOPICS
from lakelog.storage.validation import RecordsRefusedError

ACKS_ALL = -1
_ZSTD_SINCE = 7
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 7
_NO_ID = "a transactional batch in a request without a transactional id"


def check_entry(
    partition: Partition, batch: Buffer | None, version: int, check: ProduceCheck | None
) -> None:
    """Raise `KafkaError` for a batch that this request may not append to this partition.

    `check` is that of the request's transaction; without one the batch must not be transactional.
    The codes are INVALID_RECORD without a batch, UNSUPPORTED_COMPRESSION_TYPE for zstd before
    version 7 (KIP-110), INVALID_TOPIC_EXCEPTION for an internal topic, and
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if batch is None or len(batch) <= _ATTRIBUTES_LOW_BYTE:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "the request has no record batch for this partition"
        )
    attributes = batch[_ATTRIBUTES_LOW_BYTE]
    if version < _ZSTD_SINCE and attributes & _CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer"
        )
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")
    if check is None and attributes & TRANSACTIONAL:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_ID)


def rejected_result(index: int, error: KafkaError) -> PartitionProduceResponse:
    """Return the result of a batch that was not appended, with rejected records (KIP-467)."""
    records = error.errors if isinstance(error, RecordsRefusedError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=text)
            for batch_index, text in records
        ],
        error_message=error.message or None,
        current_leader=current_leader(error),
    )
