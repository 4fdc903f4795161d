from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from lakelog.client.offsets import EpochEnd
from lakelog.spark.source.continuation import continue_from, report_loss
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import StreamOffset, TopicPartition


class Log:
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

    found = continue_from(cast("TopicClient", Log()), begin, target, fail_on_data_loss=False)

    assert found.end == target


def test_a_loss_fails_the_query_and_names_the_option_that_accepts_it() -> None:
    with pytest.raises(DataLossError, match=r"^t-0 \[0, 5\)\. Set the option failOnDataLoss=false"):
        report_loss("t-0 [0, 5)", fail=True)


def test_an_accepted_loss_is_logged_with_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lakelog.spark"):
        report_loss("t-0 [0, 5)", fail=False)
    assert caplog.messages == ["records are lost: t-0 [0, 5)"]
