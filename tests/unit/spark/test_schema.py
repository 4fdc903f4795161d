from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.spark.schema import SCHEMA_WITH_HEADERS, check_schema, source_schema
from lakelog.tables.topic.errors import OptionError


def test_columns_are_chosen_by_name_without_case() -> None:
    assert source_schema(
        ("VALUE", "timestamptype"), include_headers=False, null_timestamps=False
    ).fieldNames() == [
        "value",
        "timestampType",
    ]
    with pytest.raises(OptionError, match="unknown column 'size'"):
        source_schema(("size",), include_headers=False, null_timestamps=False)


def test_a_schema_may_only_choose() -> None:
    check_schema(StructType([SCHEMA_WITH_HEADERS["offset"], SCHEMA_WITH_HEADERS["value"]]))
    with pytest.raises(OptionError, match="column value string"):
        check_schema(StructType([StructField("value", StringType())]))
