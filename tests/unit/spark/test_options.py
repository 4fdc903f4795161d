"""Typed options of a query, and the errors that name them.

Options of Spark's Kafka connector: which have no effect, and why others are refused.
"""

from __future__ import annotations

import pytest

from lakelog.spark.options import WITHOUT_EFFECT, OptionReader, parsed, refusal
from lakelog.tables.topic.errors import OptionError

NAMES = ("subscribe", "includeHeaders", "minPartitions")


def read(**values: str) -> OptionReader:
    return OptionReader(values, NAMES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.sasl.mechanism", "no encryption or authentication"),
        ("kafka.ssl.truststore.location", "no encryption or authentication"),
        ("path", "accept no path"),
        (
            "subscribed",
            r"^unknown option 'subscribed' \(.* lower case\); did you mean 'subscribe'\?$",
        ),
        ("nonsense", r"^unknown option 'nonsense' \(Spark passes names in lower case\)$"),
    ],
)
def test_an_option_that_changes_the_records_is_rejected(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read(**{name: "1"})


@pytest.mark.parametrize("name", ["KAFKA.Fetch.Min.Bytes", "checkpointLocation", "queryName"])
def test_options_of_the_official_client_and_of_spark_are_ignored(name: str) -> None:
    assert read(**{name: "1", "SUBSCRIBE": " a "}).text("subscribe") == "a"


def test_a_missing_and_a_blank_required_option_are_named() -> None:
    for reader in (read(), read(subscribe="  ")):
        with pytest.raises(OptionError, match="option 'subscribe' is required"):
            reader.required("subscribe")
    assert read(subscribe="a").required("subscribe") == "a"


@pytest.mark.parametrize(("text", "flag"), [("TRUE", True), (" false ", False), ("", True)])
def test_a_flag_accepts_any_case_and_a_blank_is_the_default(text: str, flag: bool) -> None:
    assert read(includeHeaders=text).flag("includeHeaders", True) is flag


@pytest.mark.parametrize("text", ["1", "yes", "truthy"])
def test_a_flag_of_another_text_is_an_error(text: str) -> None:
    with pytest.raises(OptionError, match=f"'includeHeaders' must be true or false, not '{text}'"):
        read(includeHeaders=text).flag("includeHeaders", False)


@pytest.mark.parametrize("text", ["2", "1.5", "", "many"])
def test_a_number_below_the_minimum_or_not_whole_is_an_error(text: str) -> None:
    with pytest.raises(OptionError, match=f"at least 3, not '{text}'"):
        read(minPartitions=text).number("minPartitions", minimum=3)


def test_a_number_is_read_from_its_minimum_on_and_may_be_absent() -> None:
    assert read(minPartitions="3").number("minPartitions", minimum=3) == 3
    assert read().number("minPartitions", minimum=3) is None


def test_an_error_of_a_parser_names_the_option() -> None:
    with pytest.raises(OptionError, match="option 'minPartitions': invalid literal"):
        parsed(int, "minPartitions", "x")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kafka.auto.offset.reset", "Set startingOffsets"),
        ("kafka.enable.auto.commit", r"publish_progress\(spark\)"),
        ("kafka.group.instance.id", "never joins a group"),
        ("kafka.interceptor.classes", "Java class"),
        ("kafka.key.deserializer", "binary columns"),
        ("kafka.value.serializer", "binary columns"),
        ("kafka.partitioner.class", "Set the column partition"),
        ("kafka.sasl.jaas.config", "no encryption or authentication"),
        ("kafka.ssl.truststore.location", "no encryption or authentication"),
        ("kafka.exclude.internal.topics", "never matches internal topics"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_with_the_reason(
    name: str, reason: str
) -> None:
    assert reason.replace("\\", "") in refusal(name, "x")


def test_the_only_value_that_is_true_anyway_is_accepted() -> None:
    assert refusal("kafka.security.protocol", "SASL_SSL")
    assert not refusal("kafka.security.protocol", " PLAINTEXT ")
    assert not refusal("kafka.exclude.internal.topics", "true")


def test_no_option_without_effect_is_refused_for_every_value() -> None:
    values = ("plaintext", "true")
    assert all(any(not refusal(name, value) for value in values) for name in WITHOUT_EFFECT)
    assert all(name == name.lower() for name in WITHOUT_EFFECT)
