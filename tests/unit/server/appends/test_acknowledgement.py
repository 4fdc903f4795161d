from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.server.appends.acknowledgement import Acknowledgement, Appended, committed
from memory_broker import MemoryBroker
from storage_kit import make_batch


@pytest.fixture
def appended(world: MemoryBroker) -> Appended:
    """An append that waits for a flush."""
    world.create("orders", durability="fsync")
    world.append("orders", count=3)
    partition = world.partition("orders")
    return Appended(partition, 3, partition.leader_epoch)


def test_an_append_is_settled_by_the_flush(world: MemoryBroker, appended: Appended) -> None:
    with pytest.raises(KafkaError) as error:
        appended.check()
    assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
    world.run(committed(appended, world.broker.purgatory, world.tasks))
    assert appended.is_complete
    appended.check()


def test_an_append_to_a_deleted_topic_fails(world: MemoryBroker, appended: Appended) -> None:
    world.broker.partitions.remove(appended.partition)
    with pytest.raises(KafkaError) as error:
        world.run(committed(appended, world.broker.purgatory, world.tasks))
    assert error.value.code is not ErrorCode.REQUEST_TIMED_OUT


def test_all_appends_are_waited_for(world: MemoryBroker, appended: Appended) -> None:
    world.create("clicks", durability="fsync")
    partition = world.partition("clicks")
    partition.append(make_batch(), world.clock.wall_ms())
    completed: list[int] = []
    wait = Acknowledgement(
        [appended, Appended(partition, 1, partition.leader_epoch)],
        lambda: completed.append(1),
        lambda _: None,
    )
    assert not wait.try_complete() and not completed
    world.pass_time(1)
    assert wait.try_complete() and completed == [1]


def test_at_the_deadline_the_answer_does_not_wait_any_longer(appended: Appended) -> None:
    completed: list[int] = []
    Acknowledgement([appended], lambda: completed.append(1), lambda _: None).expire()
    assert completed == [1]


def test_a_new_leader_epoch_ends_the_wait(appended: Appended) -> None:
    """Whether the new leader has the records is unknown here."""
    appended.partition.leader_epoch += 1
    assert appended.is_complete
    with pytest.raises(KafkaError):
        appended.check()
