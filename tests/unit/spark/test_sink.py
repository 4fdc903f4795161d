from __future__ import annotations

import pytest

from lakelog.spark.sink import parse_sink_options
from lakelog.tables.topic.errors import OptionError


def test_the_sink_is_idempotent_unless_acks_forbid_it() -> None:
    base = {"kafka.bootstrap.servers": "h:1", "checkpointLocation": "/x"}

    assert parse_sink_options(base | {"topic": "t"}).acks == -1
    assert parse_sink_options(base | {"kafka.acks": "1"}).acks == 1
    with pytest.raises(OptionError, match=r"kafka.acks"):
        parse_sink_options(base | {"kafka.acks": "0"})
    with pytest.raises(OptionError, match="unknown option"):
        parse_sink_options(base | {"subscribe": "t"})
