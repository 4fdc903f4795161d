from __future__ import annotations

from collections.abc import Mapping

import pytest

from lakelog.spark.source.options import (
    AtTimestamp,
    AtTimestamps,
    Boundary,
    SourceOptions,
    Subscription,
    parse_source_options,
)
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.topic.offsets import StreamOffset

BASE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a, b"}


def parse(given: Mapping[str, str] | None = None, *, streaming: bool = False) -> SourceOptions:
    return parse_source_options({**BASE, **(given or {})}, streaming=streaming)


def test_defaults_are_the_official_connectors() -> None:
    assert parse() == SourceOptions(
        bootstrap="h:9092",
        subscription=Subscription(topics=("a", "b")),
        starting=Boundary.EARLIEST,
        ending=Boundary.LATEST,
    )
    assert parse(streaming=True).starting is Boundary.LATEST


def test_names_are_compared_without_case() -> None:
    found = parse_source_options(
        {"KAFKA.bootstrap.SERVERS": "h:1", "subscribepattern": "a.*", "MAXOFFSETSPERTRIGGER": "9"},
        streaming=True,
    )

    assert found.subscription == Subscription(pattern="a.*")
    assert found.offsets_per_trigger_max == 9


def test_positions_in_the_official_order_of_precedence() -> None:
    everything = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a": {"0": 6}}',
        "startingOffsets": '{"a": {"0": -2}}',
    }
    assert parse(everything).starting == AtTimestamp(5)
    del everything["startingTimestamp"]
    assert parse(everything).starting == AtTimestamps({"a": {0: 6}})
    del everything["startingOffsetsByTimestamp"]
    assert parse(everything).starting == StreamOffset({"a": {0: -2}})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"assign": '{"a": [0]}'}, "subscribe and assign are set"),
        ({"subscribe": ""}, "'subscribe' is required"),
        ({"startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"nonsense": "1"}, "unknown option 'nonsense'"),
        ({"path": "x"}, "accept no path"),
        ({"kafka.security.protocol": "SSL"}, "no encryption"),
        ({"startingOffsets": "newest"}, "not valid JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "offset -3 of a-0"),
        ({"endingOffsets": "earliest"}, "not earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "is not an end"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1, not '0'"),
        ({"minPartitions": "many"}, "at least 1, not 'many'"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
    ],
)
def test_an_invalid_option_is_named_in_the_error(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse(given)


def test_the_brokers_are_required_and_so_is_one_way_to_choose_topics() -> None:
    with pytest.raises(OptionError, match=r"kafka.bootstrap.servers"):
        parse_source_options({"subscribe": "a"}, streaming=False)
    with pytest.raises(OptionError, match="none is set"):
        parse_source_options({"kafka.bootstrap.servers": "h:1"}, streaming=False)


def test_a_bad_pattern_is_named_with_its_fault() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "orders-[0-9"}
    with pytest.raises(OptionError, match=r"'subscribePattern': 'orders-\[0-9' .* unterminated"):
        parse_source_options(given, streaming=True)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        parse({"endingTimestamp": "5"}, streaming=True)


def test_tuning_of_the_official_consumer_changes_nothing() -> None:
    assert parse({"kafka.fetch.min.bytes": "5", "fetchOffset.numRetries": "3"}) == parse()
