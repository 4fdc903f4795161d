from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import sink as client
from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.protocol.commit_sets import SinkState
from lakelog.spark.sink import errors
from lakelog.spark.sink.options import SinkOptions
from lakelog.spark.sink.refusals import named_refusals

OPTIONS = SinkOptions(bootstrap="h:1", transaction_timeout_ms=5000)
CODE = ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("refusal", "kind", "option"),
    [
        (client.AnotherQueryError, errors.OtherQueryError, "'sinkId'.*'sinkGeneration'"),
        (client.BatchAheadError, errors.BatchOrderError, "'sinkGeneration'"),
        (client.RunFencedError, errors.FencedError, "'sinkId'"),
        (
            client.TransactionNotOpenError,
            errors.FencedError,
            r"'kafka.transaction.timeout.ms' \(5000\).*'maxOffsetsPerTrigger'",
        ),
        (client.BatchCommittedError, errors.BatchOrderError, "'sinkGeneration'"),
        (client.RunLimitError, errors.SinkError, "lakelog txn remove"),
        (client.RecordsLostError, errors.LostRecordsError, "start the query again.*fsync"),
        (client.SinkLimitError, errors.SinkError, "fewer tasks"),
        (client.NotASinkError, errors.SinkError, "another 'sinkId'"),
    ],
)
def test_a_refusal_names_the_option(
    refusal: type[client.SinkError], kind: type[Exception], option: str
) -> None:
    with pytest.raises(kind, match=f"(?s)the reason.*{option}"), named_refusals(OPTIONS):
        raise refusal(CODE, "the reason")


def test_a_query_that_a_full_refresh_replaced_is_named() -> None:
    record = SinkState(query_id="generation 3", run_id="generation 3")
    text = "at generation 3, this query at 0.*'sinkGeneration'"
    with pytest.raises(errors.OldGenerationError, match=text), named_refusals(OPTIONS):
        raise client.AnotherQueryError(CODE, "the reason", record)


def test_a_broker_without_commit_sets_is_named() -> None:
    text = r"'delivery': broker 1 does not.*at-least-once.*foreachBatch"
    with pytest.raises(errors.UnsupportedDeliveryError, match=text), named_refusals(OPTIONS):
        raise UnsupportedError("broker 1 does not support commit sets")


def test_other_errors_pass() -> None:
    with pytest.raises(ClientError, match="moved"), named_refusals(OPTIONS):
        raise ClientError(ErrorCode.NOT_COORDINATOR, "moved")
