"""The records because of which a batch is rejected (KIP-467).

A batch is accepted whole or not at all; the error names the invalid records by their places in the
batch. One bad timestamp makes the whole error one of timestamps. After a thousand errors the rest
is not checked: a batch of a kilobyte may hold millions of records.

Source: `LogValidator` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.heads import RecordHead
from lakelog.records.verify import STEP

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
