from __future__ import annotations

from collections.abc import Mapping

from lakelog.client.offsets import EpochEnd
from lakelog.tables.topic.divergence import find_divergences
from lakelog.tables.topic.offsets import StreamOffset, TopicPartition


class Log:
    """Epoch 5 has offsets up to 90, epoch 8 those from there to 150."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {key: self._end(epoch) for key, epoch in epochs.items()}

    def _end(self, epoch: int) -> EpochEnd:
        if epoch > 8:
            return EpochEnd(-1, -1)
        return EpochEnd(8, 150) if epoch == 8 else EpochEnd(5, 90)


def point(offset: int, epoch: int) -> StreamOffset:
    return StreamOffset({"t": {0: offset}}, {"t": "id"}, {"t": {0: epoch}})


def test_an_offset_below_the_cut_or_at_it_is_fine() -> None:
    assert find_divergences(Log(), point(90, 7)) == []
    assert find_divergences(Log(), point(150, 8)) == []


def test_a_log_that_was_cut_and_grew_again_is_named() -> None:
    (found,) = find_divergences(Log(), point(100, 7))

    assert found.restart == 90
    assert str(found) == (
        "the log of t-0 was cut and grew again: read up to offset 100 in leader epoch 7, but "
        "epoch 5 ends at 90. The records from there on were lost or replaced"
    )


def test_an_epoch_that_the_log_never_had_is_named() -> None:
    (found,) = find_divergences(Log(), point(100, 9))

    assert found.restart is None
    assert "leader epoch 9, an epoch that it no longer has" in str(found)


def test_offsets_without_epochs_are_not_asked_about() -> None:
    assert find_divergences(Log(), StreamOffset({"t": {0: 100}}, {"t": "id"})) == []
