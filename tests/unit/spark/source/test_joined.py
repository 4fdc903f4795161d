from __future__ import annotations

from lakelog.spark.source.joined import open_planner, planned
from lakelog.spark.source.options import parse_source_options
from lakelog.tables.joined.client import JoinedClient
from lakelog.tables.joined.plan import PlannedRange
from lakelog.tables.topic.ranges import OffsetRange

OPTIONS = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}


def test_tables_are_read_unless_an_option_excludes_them() -> None:
    with open_planner(parse_source_options(OPTIONS, streaming=False)) as client:
        assert isinstance(client, JoinedClient)
    without = parse_source_options({**OPTIONS, "archive": "none"}, streaming=False)
    with open_planner(without) as client:
        assert not isinstance(client, JoinedClient)
        found = planned(client, [OffsetRange("t", 0, 0, 5)])
    assert found == [PlannedRange(OffsetRange("t", 0, 0, 5))]
