from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from lakelog.client.offsets import EpochEnd
from lakelog.spark.source.continuation import (
    Subscribed,
    continue_from,
    find_topics,
    report_loss,
    resolve,
)
from lakelog.spark.source.options import AtTimestamp, AtTimestamps, Boundary, Position, Subscription
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import DataLossError, OptionError, TopicMissingError
from lakelog.tables.topic.offsets import StreamOffset, TopicPartition
from unit.spark.source.source_log import EPOCH, Log


class EmptyLog:
    """One empty partition, of a topic that was created a moment ago."""

    def find(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        return {name: TopicMeta(name, "new", (0,)) for name in names}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return dict.fromkeys(epochs, EpochEnd(-1, -1))


def test_an_empty_topic_created_again_does_not_keep_the_epoch_of_the_old_one() -> None:
    """The next batch would ask for it and find a loss that is none."""
    begin = StreamOffset({"t": {0: 0}}, {"t": "old"}, {"t": {0: 7}})
    target = StreamOffset({"t": {0: 0}}, {"t": "new"}, {"t": {0: 1}})

    found = continue_from(cast("TopicClient", EmptyLog()), begin, target, fail_on_data_loss=False)

    assert found.end == target


def test_a_loss_fails_the_query_and_names_the_option_that_accepts_it() -> None:
    with pytest.raises(DataLossError, match=r"^t-0 \[0, 5\)\. Set the option failOnDataLoss=false"):
        report_loss("t-0 [0, 5)", fail=True)


def test_an_accepted_loss_is_logged_with_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lakelog.spark"):
        report_loss("t-0 [0, 5)", fail=False)
    assert caplog.messages == ["records are lost: t-0 [0, 5)"]


LOG = Log(orders=[10, 5], orders_old=[7])
IDS = {"orders": "orders-id"}


def find(
    *topics: str, pattern: str = "", partitions: tuple[TopicPartition, ...] = ()
) -> Subscribed:
    return find_topics(cast("TopicClient", LOG), Subscription(topics, pattern, partitions))


def point(position: Position, *, latest_if_no_timestamp: bool = True) -> StreamOffset:
    return resolve(
        cast("TopicClient", LOG),
        position,
        find("orders"),
        latest_if_no_timestamp=latest_if_no_timestamp,
    )


def test_a_pattern_matches_whole_names() -> None:
    assert find(pattern="orders").partitions == [("orders", 0), ("orders", 1)]
    assert find(pattern="orders.*").topic_ids == {**IDS, "orders_old": "orders_old-id"}
    assert find(pattern="order").complete() == Subscribed({}, [], {})


def test_assigned_partitions_are_read_alone() -> None:
    assert find(partitions=(("orders", 1),)).partitions == [("orders", 1)]


def test_a_missing_topic_is_an_error_only_for_a_query_that_needs_all() -> None:
    found = find("orders", "payments")
    assert found.partitions == [("orders", 0), ("orders", 1)]
    with pytest.raises(TopicMissingError, match="topic 'payments' does not exist"):
        found.complete()


def test_a_missing_partition_is_named() -> None:
    with pytest.raises(TopicMissingError, match="topic 'orders' has no partition 2"):
        find(partitions=(("orders", 0), ("orders", 2))).complete()


@pytest.mark.parametrize(
    ("position", "first", "second"),
    [
        (Boundary.EARLIEST, 0, 0),
        (Boundary.LATEST, 10, 5),
        (AtTimestamp(3), 3, 3),
        (AtTimestamps({"orders": {0: 9, 1: 2}}), 9, 2),
    ],
)
def test_a_position_is_an_offset_with_its_epoch(
    position: Position, first: int, second: int
) -> None:
    expected = StreamOffset(
        {"orders": {0: first, 1: second}}, IDS, {"orders": {0: EPOCH, 1: EPOCH}}
    )
    assert point(position) == expected


def test_a_partition_without_a_record_at_the_time_starts_at_its_end_or_is_an_error() -> None:
    assert point(AtTimestamp(7)).offsets == {"orders": {0: 7, 1: 5}}
    with pytest.raises(OptionError, match=r"given time in orders-1\. Set the option"):
        point(AtTimestamp(7), latest_if_no_timestamp=False)


def test_given_offsets_keep_their_epochs_and_special_ones_are_resolved() -> None:
    given = StreamOffset({"orders": {0: 6, 1: -1}}, {}, {"orders": {0: 2, 1: 2}})
    expected = StreamOffset({"orders": {0: 6, 1: 5}}, IDS, {"orders": {0: 2, 1: EPOCH}})
    assert point(given) == expected


def test_the_topic_id_of_a_checkpoint_is_kept() -> None:
    """Continuation compares it with the present topic's."""
    given = StreamOffset({"orders": {0: 6, 1: 2}}, {"orders": "old-id"})
    assert point(given).topic_ids == {"orders": "old-id"}


@pytest.mark.parametrize(
    ("offsets", "differing"),
    [
        ({"orders": {0: 1}}, "orders-1$"),
        ({"orders": {0: 1, 1: 1, 2: 1}}, "orders-2$"),
        ({"orders": {0: 1}, "x": {0: 1}}, "orders-1, x-0$"),
    ],
)
def test_offsets_of_other_partitions_are_an_error(
    offsets: dict[str, dict[int, int]], differing: str
) -> None:
    for position in (StreamOffset(offsets), AtTimestamps(offsets)):
        with pytest.raises(OptionError, match=differing):
            point(position)
