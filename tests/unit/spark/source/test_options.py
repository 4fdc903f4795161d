from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakelog.spark.source.options import (
    NAMES,
    AtTimestamp,
    AtTimestamps,
    BatchLimits,
    Boundary,
    ClientOptions,
    Identity,
    Pace,
    SourceOptions,
    Subscription,
    parse_source_options,
    waiting_offsets,
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
        identity=Identity("h:9092"),
    )
    assert parse(streaming=True).starting is Boundary.LATEST


def test_names_are_compared_without_case() -> None:
    found = parse_source_options(
        {"KAFKA.bootstrap.SERVERS": "h:1", "subscribepattern": "a.*", "MAXOFFSETSPERTRIGGER": "9"},
        streaming=True,
    )

    assert found.subscription == Subscription(pattern="a.*")
    assert found.limits == BatchLimits(offsets_max=9)


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
        ({"startingOffsets": "newest"}, "must be earliest, latest or JSON like .*, not 'newest'"),
        ({"endingOffsets": "newest"}, "must be latest or JSON like .*, not 'newest'"),
        ({"startingOffsets": "{newest}"}, "not valid JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "offset -3 of a-0"),
        ({"endingOffsets": "earliest"}, "not earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "is not an end"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1, not '0'"),
        ({"minPartitions": "many"}, "at least 1, not 'many'"),
        ({"maxRecordsPerPartition": "0"}, "at least 1, not '0'"),
        ({"maxBytesPerTrigger": "1MB"}, "at least 1, not '1MB'"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            r"'minOffsetsPerTrigger' \(9\)",
        ),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' must be a duration .* not 'soon'"),
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


def test_limits_of_a_batch() -> None:
    given = {
        "minOffsetsPerTrigger": "5",
        "maxOffsetsPerTrigger": "5",
        "maxTriggerDelay": "2m",
        "maxBytesPerTrigger": "1048576",
    }
    assert parse(given).limits == BatchLimits(
        offsets_max=5, offsets_min=5, bytes_max=1 << 20, delay_max_s=120.0
    )
    assert parse().limits == BatchLimits(delay_max_s=15 * 60.0), "as in the official connector"
    assert parse({"maxRecordsPerPartition": "7"}).records_per_partition_max == 7


def test_settings_of_the_connections() -> None:
    given = {
        "kafka.client.id": "report",
        "kafka.max.partition.fetch.bytes": "2000",
        "kafka.fetch.max.bytes": "1000",
        "kafka.fetch.max.wait.ms": "0",
        "kafka.request.timeout.ms": "1500",
        "kafka.default.api.timeout.ms": "2500",
        "kafkaConsumer.pollTimeoutMs": "3500",
    }
    assert parse(given).client == ClientOptions("report", 1000, 0, 1.5, 2.5, 3.5)


def test_the_group_that_shows_the_progress() -> None:
    assert parse({"kafka.group.id": "report"}).identity == Identity("h:9092", "report")
    assert parse({"groupIdPrefix": "team"}).identity == Identity("h:9092", prefix="team")


@pytest.mark.parametrize("name", [*NAMES, "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"])
def test_each_option_is_on_the_page(name: str) -> None:
    """The last two are options of the official connector that have no effect here."""
    page = Path(__file__).parents[4] / "docs" / "spark.md"
    assert f"`{name}`" in page.read_text(encoding="utf-8")


def test_options_of_the_official_connector_are_accepted() -> None:
    everything = {
        "startingOffsets": "earliest",
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"a": {"0": 6}}',
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "maxOffsetsPerTrigger": "10",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "1m",
        "minPartitions": "2",
        "maxRecordsPerPartition": "7",
        "groupIdPrefix": "team",
        "kafka.group.id": "report",
        "includeHeaders": "true",
        "kafka.max.poll.records": "100",
    }
    assert parse(everything, streaming=True).identity == Identity("h:9092", "report", "team")
    endings = {
        "endingOffsets": "latest",
        "endingTimestamp": "5",
        "endingOffsetsByTimestamp": '{"a": {"0": 6}}',
    }
    assert parse(everything | endings).ending == AtTimestamp(5)


@pytest.mark.parametrize("name", ["offsets_max", "offsets_min", "bytes_max"])
def test_each_limit_makes_a_query_limited(name: str) -> None:
    assert not BatchLimits().are_set
    assert not BatchLimits(delay_max_s=1.0).are_set, "a delay without a minimum limits nothing"
    assert BatchLimits(**{name: 1}).are_set


def test_without_a_minimum_no_batch_is_delayed() -> None:
    pace = Pace(BatchLimits(offsets_max=5))
    assert not any(pace.delays(waiting, 0.0) for waiting in (0, 1, 9))


def test_the_delay_counts_from_the_last_batch_with_records() -> None:
    pace = Pace(BatchLimits(offsets_min=5, delay_max_s=10.0))
    assert not pace.delays(5, 0.0)
    assert pace.delays(4, 9.0)
    assert not pace.delays(0, 10.0), "nothing waits, so no batch begins"
    assert not pace.delays(1, 11.0), "the delay is over"
    assert pace.delays(1, 20.9)
    assert not pace.delays(1, 21.0)


def test_offsets_of_partitions_that_shrank_do_not_count() -> None:
    start = {"t": {0: 10, 1: 5}}
    assert waiting_offsets(start, {"t": {0: 3, 1: 9, 2: 6}}) == 10


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
