"""Batches that a follower accepts from its leader."""

from __future__ import annotations

import pytest

from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.errors import CorruptRecord
from lakelog.storage.validation.fetched import read_fetched
from storage_kit import make_batch

END, EPOCH = 10, 5


def batch(offset: int = END, epoch: int = EPOCH, count: int = 3) -> bytearray:
    built = make_batch(count)
    patch_offset_and_epoch(built, 0, offset, epoch)
    return built


@pytest.mark.parametrize(("offset", "epoch"), [(END, EPOCH), (END + 7, EPOCH), (END, EPOCH + 3)])
def test_the_next_batch_is_accepted(offset: int, epoch: int) -> None:
    """Compaction leaves gaps between offsets; a new leader has a new epoch."""
    header = read_fetched(batch(offset, epoch), END, EPOCH)
    assert (header.base_offset, header.last_offset) == (offset, offset + 2)


def test_the_first_batch_of_an_empty_log_has_any_epoch() -> None:
    assert read_fetched(batch(0, 0), 0, -1).base_offset == 0


def test_a_batch_below_the_end_is_rejected() -> None:
    with pytest.raises(CorruptRecord, match="offsets 9 to 11 where the log ends at 10"):
        read_fetched(batch(END - 1), END, EPOCH)


def test_a_batch_of_an_older_leader_is_rejected() -> None:
    with pytest.raises(CorruptRecord, match="of leader epoch 4, after records of epoch 5"):
        read_fetched(batch(epoch=EPOCH - 1), END, EPOCH)


@pytest.mark.parametrize("place", [16, 21, 61, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    damaged = batch()
    damaged[place] ^= 0x10
    with pytest.raises(CorruptRecord, match="at offset 10 arrived damaged"):
        read_fetched(damaged, END, EPOCH)


@pytest.mark.parametrize("size", [0, 60, 61, 100])
def test_a_torn_batch_is_noticed(size: int) -> None:
    with pytest.raises(CorruptRecord):
        read_fetched(batch()[:size], END, EPOCH)
