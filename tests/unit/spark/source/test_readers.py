from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType

import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from lakelog.spark.source.batch import PushdownReader
from lakelog.spark.source.readers import batch_reader, schema_of, stream_reader
from lakelog.tables.topic.errors import OptionError

PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
OPTIONS = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"}
OFFICIAL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, OFFICIAL),
        ({"includeHeaders": "true"}, [*OFFICIAL, "headers"]),
        ({"impossibleTimestamps": "null"}, [*OFFICIAL, "rawTimestamp"]),
        ({"columns": "VALUE, offset"}, ["value", "offset"]),
    ],
)
def test_the_options_decide_the_columns(given: dict[str, str], names: list[str]) -> None:
    assert schema_of({**OPTIONS, **given}).fieldNames() == names


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(OptionError, match="unknown column 'valeu'; expected some of key, value"):
        schema_of({**OPTIONS, "columns": "valeu"})


@pytest.mark.parametrize("reader", [batch_reader, stream_reader])
@pytest.mark.parametrize("field", [("value", StringType()), ("price", LongType())])
def test_a_schema_of_other_columns_is_rejected_before_the_query_runs(
    reader: Callable[[Mapping[str, str], StructType], object], field: tuple[str, DataType]
) -> None:
    schema = StructType([StructField(*field)])
    with pytest.raises(OptionError, match=f"unsupported column {field[0]} "):
        reader(OPTIONS, schema)


def test_a_stream_rejects_the_end_that_a_batch_accepts() -> None:
    """Spark asks for the schema before it is known whether the query streams."""
    given = {**OPTIONS, "endingOffsets": '{"a": {"0": 3}}'}
    schema = schema_of(given)
    batch_reader(given, schema)
    with pytest.raises(OptionError, match="a stream has no end"):
        stream_reader(given, schema)


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("plans_filters", [True, False])
def test_filters_bound_a_query_that_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, is_asked: bool, plans_filters: bool
) -> None:
    """Spark fails each read of a reader with `pushFilters` while its own setting is off."""
    if plans_filters:
        monkeypatch.setitem(sys.modules, PUSHDOWN, ModuleType(PUSHDOWN))
    given = {**OPTIONS, "filterPushdown": str(is_asked)}
    reader = batch_reader(given, schema_of(given))
    assert isinstance(reader, PushdownReader) is (is_asked and plans_filters)
