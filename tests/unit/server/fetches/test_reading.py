from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.divergence import DivergedLog
from lakelog.replica.fetch_session import FetchTarget
from lakelog.server.fetches.reading import read_one
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction


def target(
    offset: int, *, max_bytes: int = 1 << 20, epoch: int = -1, last_epoch: int = -1
) -> FetchTarget:
    return FetchTarget("orders", 0, offset, max_bytes, epoch, last_epoch)


def size(
    world: MemoryBroker, wanted: FetchTarget, left: int = 1 << 20, *, committed: bool = False
) -> int:
    """Return the bytes of the records that were found."""
    _, found, _ = read_one(world.broker, wanted, left, committed=committed, min_one=False)
    if found is None:
        return 0
    found.release()
    return found.size


@pytest.fixture
def filled(world: MemoryBroker) -> MemoryBroker:
    """`orders` with two equal batches of three records."""
    world.create("orders")
    for _ in range(2):
        world.append("orders", count=3)
    return world


def test_the_smaller_limit_counts(filled: MemoryBroker) -> None:
    whole = size(filled, target(0))
    assert size(filled, target(0, max_bytes=whole - 1)) == whole // 2
    assert size(filled, target(0), whole - 1) == whole // 2
    assert size(filled, target(0), 10) == 0


def test_read_committed_ends_before_an_open_transaction(filled: MemoryBroker) -> None:
    before = size(filled, target(0))
    log = filled.partition("orders").log
    append_in_transaction(log, (7, 0, 0), now_ms=filled.clock.wall_ms())
    filled.partition("orders").note_flush()
    assert size(filled, target(0), committed=True) == before < size(filled, target(0))


def test_epochs_of_leader_and_reader_are_compared(filled: MemoryBroker) -> None:
    epoch = filled.partition("orders").leader_epoch
    assert size(filled, target(0, epoch=epoch, last_epoch=epoch)) > 0
    with pytest.raises(KafkaError) as error:
        size(filled, target(0, epoch=epoch + 1))
    assert error.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    filled.partition("orders").leader_epoch = epoch + 2
    filled.append("orders")
    with pytest.raises(DivergedLog):
        size(filled, target(7, last_epoch=epoch))
