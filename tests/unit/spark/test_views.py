"""Views of topics, in a session that only records requests."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.spark.views import attach


class Session:
    """A stand-in for a Spark session, its reader and its data frames."""

    def __init__(self) -> None:
        self.views: dict[str, dict[str, Any]] = {}
        self.options_given: dict[str, Any] = {}
        self.read = self

    def format(self, name: str) -> Session:
        assert name == "lakelog"
        return self

    def option(self, name: str, value: Any) -> Session:
        self.options_given[name] = value
        return self

    def options(self, **given: Any) -> Session:
        self.options_given |= given
        return self

    def load(self) -> Session:
        return self

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802
        self.views[name] = dict(self.options_given)


def test_each_topic_is_a_view_of_its_name() -> None:
    spark: Any = Session()
    assert attach(spark, "h:1", topics=["a", "b-c.d"], includeHeaders=True) == ["a", "b-c.d"]
    assert spark.views == {
        f"`{topic}`": {
            "kafka.bootstrap.servers": "h:1",
            "includeHeaders": True,
            "subscribe": topic,
        }
        for topic in ("a", "b-c.d")
    }


def test_topics_that_would_be_one_view_are_named() -> None:
    spark: Any = Session()
    with pytest.raises(ValueError, match="the topics Orders and orders would be the same view"):
        attach(spark, "h:1", topics=["Orders", "a", "orders"])
    assert spark.views == {}
