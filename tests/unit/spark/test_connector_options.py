"""Options of Spark's Kafka connector: which have no effect, and why others are refused."""

from __future__ import annotations

import pytest

from lakelog.spark.connector_options import WITHOUT_EFFECT, refusal


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
