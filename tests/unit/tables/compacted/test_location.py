from __future__ import annotations

from typing import cast

from lakelog.tables.compacted.location import CompactedTableLocation, find_compacted
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from unit.tables.archive_log import Log

ARCHIVE = TableAddress({"uri": "sqlite:///x"}, ("lakelog", "sales"))
SETTINGS = {"table.latest.buckets": "16", "table.latest.interval.ms": "1500"}


def found(**keys: str) -> CompactedTableLocation | None:
    log = Log({0: 0})
    log.keys = {f"table.{name.replace('_', '.')}": value for name, value in keys.items()}
    log.keys |= SETTINGS
    return find_compacted(cast(TopicClient, log), "orders", ARCHIVE)


def test_the_table_is_beside_the_archive() -> None:
    place = found(latest="true")
    assert place is not None
    assert place.address == TableAddress(ARCHIVE.catalog, ("lakelog", "sales_latest"))
    assert (place.buckets, place.interval_s) == (16, 1.5)
    named = found(latest="true", latest_name="customers")
    assert named is not None
    assert named.address.identifier == ("lakelog", "customers")


def test_topics_have_no_such_table_unless_it_is_enabled() -> None:
    assert found() is None
    assert found(latest="false", latest_name="x") is None


def test_a_table_may_have_stayed_after_its_key_was_reset() -> None:
    log = Log({0: 0})
    log.keys = {"table.latest": "false", **SETTINGS}
    client = cast(TopicClient, log)
    place = find_compacted(client, "orders", ARCHIVE, also_disabled=True)
    assert place is not None
    assert place.address.identifier == ("lakelog", "sales_latest")
    log.keys = {}
    assert find_compacted(client, "orders", ARCHIVE, also_disabled=True) is None
