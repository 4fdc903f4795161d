from __future__ import annotations

import json

import pytest

from lakelog.spark.source.identity import Identity
from lakelog.tables.topic.offsets import StreamOffset

OFFSETS = {"t": {"0": 4}, "t@id@0:2": {}}


def test_a_listener_reads_the_report_of_the_source() -> None:
    about = Identity("h:1,h:2", group="g", prefix="p")
    reported = about.add_to(OFFSETS)
    assert Identity.of(json.dumps(reported)) == about
    assert StreamOffset.from_json(reported) == StreamOffset.from_json(OFFSETS)


@pytest.mark.parametrize(
    "reported", [None, "", "null", "[]", "{", '{"t": {"0": 4}}', '{"@": 3}', '"text"']
)
def test_a_report_of_another_source_has_no_entry(reported: str | None) -> None:
    assert Identity.of(reported) is None
