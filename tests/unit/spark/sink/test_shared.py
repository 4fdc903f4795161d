from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.spark import write_to
from lakelog.tables.topic.errors import OptionError

OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}
SCHEMA = StructType([StructField("value", StringType())])


def frame(conf: dict[str, str], properties: dict[str, str]) -> Any:
    """A frame of a session with these settings and local properties."""
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(get=conf.get), getLocalProperty=properties.get
    )
    return SimpleNamespace(schema=SCHEMA, sparkSession=SimpleNamespace(sparkContext=context))


def test_options_are_checked_before_the_query_starts() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'sinkidd'.*did you mean 'sinkId'"):
        write_to("t", OPTIONS | {"sinkidd": "a"})
    with pytest.raises(OptionError, match=r"'kafka.bootstrap.servers' is required"):
        write_to("t", {})


def test_speculation_is_refused() -> None:
    with pytest.raises(OptionError, match=r"spark.speculation=false"):
        write_to("t", OPTIONS)(frame({"spark.speculation": "true"}, {}), 0)


def test_a_call_outside_of_a_query_is_refused() -> None:
    with pytest.raises(OptionError, match="within foreachBatch only"):
        write_to("t", OPTIONS)(frame({}, {}), 0)


def test_wrong_columns_are_refused_before_the_broker_is_asked() -> None:
    with pytest.raises(OptionError, match="set the option 'topic'"):
        write_to(None, OPTIONS)(frame({}, {}), 0)
