from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import sink as client
from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.client.sink import AnotherQueryError, SinkStatus
from lakelog.protocol.commit_sets import SinkState
from lakelog.spark.sink import errors
from lakelog.spark.sink.options import SinkOptions
from lakelog.spark.sink.refusals import named_refusals, retire_lower, retired_by

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


class FakeSink:
    """The control record of one generation; `racing` queries begin after its removal."""

    def __init__(self, query_id: str | None, racing: int = 0) -> None:
        self.query_id = query_id
        self.racing = racing
        self.calls: list[str] = []

    def __enter__(self) -> FakeSink:
        return self

    def __exit__(self, *error: object) -> None: ...

    def read(self) -> SinkStatus | None:
        return None if self.query_id is None else SinkStatus("s", self.query_id, "r", 7, ())

    def remove(self) -> None:
        self.calls.append("remove")
        self.query_id = None

    def begin(self, query_id: str, run_id: str, batch: int) -> None:
        if self.racing:
            self.racing -= 1
            self.query_id = "old"
            raise AnotherQueryError(ErrorCode.INVALID_TXN_STATE, "meanwhile")
        self.query_id = query_id


def retire(generation: int, sinks: dict[int, FakeSink]) -> None:
    def open_sink(lower: int) -> Any:
        return sinks.setdefault(lower, FakeSink(None))

    retire_lower(open_sink, generation)


def test_lower_generations_are_claimed_once() -> None:
    sinks = {0: FakeSink("q"), 2: FakeSink("p")}
    for _ in range(2):
        retire(3, sinks)
    assert sorted(sinks) == [0, 1, 2]
    assert (sinks[0].query_id, sinks[0].calls) == ("generation 3", ["remove"])
    assert (sinks[1].query_id, sinks[1].calls) == (None, [])
    assert retired_by(str(sinks[2].query_id)) == "3"
    assert retired_by("q") is None


def test_a_query_that_begins_meanwhile_is_retired_too() -> None:
    sinks = {0: FakeSink("q", racing=2)}
    retire(1, sinks)
    assert sinks[0].query_id == "generation 1"
    assert sinks[0].calls == ["remove"] * 3


def test_the_first_generation_retires_nothing() -> None:
    sinks: dict[int, FakeSink] = {}
    retire(0, sinks)
    assert sinks == {}


def test_the_number_of_retired_generations_is_bounded() -> None:
    sinks: dict[int, FakeSink] = {}
    retire(1_000_000, sinks)
    assert len(sinks) == 100
