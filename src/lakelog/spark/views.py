"""Topics as temporary views: SQL names a topic as it names a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.client.admin import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attach(
    spark: SparkSession,
    bootstrap: str = "127.0.0.1:9092",
    *,
    topics: Sequence[str] | None = None,
    **options: Any,
) -> list[str]:
    """Create or replace a temporary view for each topic, with the topic's name; return the names.

    A view reads the topic from its first record to the end at the view's first query, because Spark
    plans a Python source once. Call this again for newer records, and for topics that are created
    later. A name with other characters than letters, digits and `_` needs backticks in SQL.

    Args:
        spark: a classic session or one of Spark Connect.
        bootstrap: brokers, reachable from this process and from Spark's workers.
        topics: by default all topics without internal ones.
        options: of the views' reads, for example `includeHeaders=True`.

    Raises `ValueError` if the names of two topics differ in case only, which Spark does not
    distinguish, and `KafkaError`.
    """
    if topics is None:
        with Admin(bootstrap) as admin:
            topics = [topic.name for topic in admin.topics.list()]
    _check_distinct(topics)
    reader = spark.read.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    for topic in topics:
        frame = reader.options(**options).option("subscribe", topic).load()
        frame.createOrReplaceTempView(f"`{topic}`")
    return list(topics)


def _check_distinct(topics: Iterable[str]) -> None:
    by_view: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        by_view[topic.lower()].append(topic)
    for same in by_view.values():
        if len(same) > 1:
            raise ValueError(
                f"the topics {' and '.join(same)} would be the same view, because Spark ignores "
                "case: pass some of the names as topics=[...]"
            )
