"""The replicas of a broker follow the metadata image."""

from __future__ import annotations

from memory_broker import MemoryBroker


class Wait:
    tried = 0

    def try_complete(self) -> bool:
        self.tried += 1
        return True

    def expire(self) -> None:
        raise AssertionError("not expected to expire")

    def fail(self, error: Exception) -> None:
        raise error


def test_a_deletion_wakes_requests_that_wait_on_the_topic() -> None:
    with MemoryBroker() as world:
        topic_id = world.create("orders", 2)
        world.create("others")
        partitions = world._server._replicas.partitions
        waits = [Wait(), Wait()]
        deadline = world.clock.monotonic() + 3600
        for wait, name in zip(waits, ("orders", "others"), strict=True):
            world.broker.purgatory.park(wait, [partitions.leader(name, 0).key], deadline)
        world.delete("orders")
        world.pass_time(0.01)
        assert [wait.tried for wait in waits] == [1, 0]
        assert partitions.get(topic_id, 1) is None


def test_a_new_partition_is_announced_to_coordinators() -> None:
    with MemoryBroker() as world:
        world.start_coordinators()
        assert world.broker.groups.partitions != []


def test_a_single_broker_changes_no_isr() -> None:
    with MemoryBroker() as world:
        world._server._replicas.serve()
        assert world._server._replicas.isr_manager._timer is None
