from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.spark.sink.writers import batch_writer, stream_writer
from lakelog.tables.topic.errors import OptionError

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
SCHEMA = StructType([StructField("value", StringType())])


def test_a_writer_is_made_without_a_broker_and_can_be_sent_to_tasks() -> None:
    assert pickle.loads(pickle.dumps(stream_writer(OPTIONS, SCHEMA))) is not None
    assert pickle.loads(pickle.dumps(batch_writer(OPTIONS, SCHEMA, overwrite=False))) is not None


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(OptionError, match=r'use \.mode\("append"\)'):
        batch_writer(OPTIONS, SCHEMA, overwrite=True)
