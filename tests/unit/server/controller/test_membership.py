"""How a broker joins a cluster, stays in it, and leaves it."""

from __future__ import annotations

import errno

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.brokers import plan_fence
from lakelog.metadata.errors import RegistrationLost
from lakelog.metadata.failover import AT_START, NO_LEADER, Failure
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import NO_DIRECTORY, BrokerFenced, BrokerRecord, BrokerUnregistered
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.server.controller import controller
from lakelog.server.controller.membership import KeptTopics
from memory_broker import MemoryBroker

OWN = 1


def start_again(world: MemoryBroker) -> None:
    """Register another process of the broker, with the complete folder of the former one."""
    membership, metadata = world._server._control.membership, world.broker.metadata
    metadata.incarnation_id = world.metadata._brokers[OWN] = b"n" * 16
    world.run(
        membership.register(
            (Endpoint("PLAINTEXT", "h", 9092),),
            "r",
            directory_id=bytes(16),
            previous_epoch=membership.epoch,
            kept=KeptTopics(),
        )
    )


def test_a_broker_registers_is_unfenced_and_leaves() -> None:
    with MemoryBroker() as world:
        membership = world._server._control.membership
        before = membership.epoch
        start_again(world)
        own = world.broker.image.brokers[OWN]
        endpoint = Endpoint("PLAINTEXT", "h", 9092)
        assert (own.epoch, own.endpoints, own.rack) == (before + 1, (endpoint,), "r")
        assert own.is_fenced
        membership.serve()
        world.pass_time(0.01)
        assert not world.broker.image.brokers[OWN].is_fenced
        world.run(membership.leave())
        assert world.broker.image.brokers[OWN].is_fenced


def test_a_broker_that_was_fenced_by_mistake_comes_back() -> None:
    with MemoryBroker() as world:
        membership, metadata = world._server._control.membership, world.broker.metadata
        membership.serve()
        world.run(metadata.submit(lambda image: plan_fence(image, {OWN: membership.epoch})))
        world.pass_time(0.01)
        assert not world.broker.image.brokers[OWN].is_fenced


def test_a_fenced_broker_comes_back_after_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with MemoryBroker() as world:
        membership, metadata = world._server._control.membership, world.broker.metadata

        async def fail() -> None:
            raise RuntimeError("planted")

        with monkeypatch.context() as planted:
            planted.setattr(metadata, "refresh", fail)
            membership.serve()
            world.run(metadata.submit(lambda image: plan_fence(image, {OWN: membership.epoch})))
            world.pass_time(2.0)
            assert world.broker.image.brokers[OWN].is_fenced
        world.pass_time(2.0)
        assert not world.broker.image.brokers[OWN].is_fenced
        assert [each.__dict__.get("event") for each in caplog.records] == ["task_failed"]


def test_the_controller_knows_whether_the_broker_can_write() -> None:
    with MemoryBroker() as world:
        membership, noted = world._server._control.membership, []
        membership.serve()
        for is_read_only in (True, False):
            membership.note_folder(is_read_only=is_read_only)
            world.pass_time(0.01)
            noted.append(world.broker.image.read_only)
        assert noted == [{OWN}, frozenset()]


def test_blocks_of_producer_ids_are_this_brokers_own() -> None:
    with MemoryBroker() as world:
        reserve = world._server._control.membership.reserve_producer_ids
        assert not set(world.run(reserve())) & set(world.run(reserve()))


def test_a_broker_that_lacks_records_is_not_eligible_and_unfenced_afterwards() -> None:
    with MemoryBroker() as world:
        world.create("orders")
        membership, metadata = world._server._control.membership, world.broker.metadata
        topic = world.broker.image.topic("orders")
        assert topic is not None
        world.run(metadata.submit(lambda image: plan_fence(image, {OWN: membership.epoch})))
        world.run(membership.report_loss(bytes(16), [("orders", topic.topic_id, 0)]))
        topic = world.broker.image.topic("orders")
        assert topic is not None
        assert (topic.partitions[0].elr, topic.partitions[0].last_known_elr) == ((), (OWN,))
        membership.serve()
        world.pass_time(0.01)
        assert not world.broker.image.brokers[OWN].is_fenced


def test_a_partition_whose_only_log_is_offline_has_no_leader_until_a_start() -> None:
    with MemoryBroker() as world:
        key = world.create("orders"), 0
        membership, metadata = world._server._control.membership, world.broker.metadata
        membership.note_failed(key, Failure(AT_START, is_offline=True))
        world.run(metadata.submit(lambda image: plan_fence(image, {OWN: membership.epoch})))
        world.run(membership.report_loss(bytes(16), [("orders", *key)]))
        membership.serve()
        world.pass_time(1.0)
        offline = world.broker.image.partition("orders", 0)
        assert offline is not None
        assert (offline.leader, offline.isr, offline.offline) == (NO_LEADER, (), (OWN,))
        world.run(metadata.submit(lambda image: plan_fence(image, {OWN: membership.epoch})))
        world.pass_time(1.0)
        assert world.broker.image.partition("orders", 0) == offline
        membership.note_failed(key, None)  # as in a new process
        start_again(world)
        world.pass_time(1.0)
        mended = world.broker.image.partition("orders", 0)
        assert mended is not None
        assert (mended.leader, mended.isr) == (OWN, (OWN,))


def test_a_log_that_fails_during_the_report_of_a_loss_is_reported_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with MemoryBroker() as world:
        lost, failed = (world.create("orders"), 0), (world.create("payments"), 0)
        control, metadata = world._server._control, world.broker.metadata
        membership, heartbeat = control.membership, control.controller.heartbeat

        async def failing(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
            membership.note_failed(failed, Failure(0, is_offline=True))
            return await heartbeat(request)

        world.run(metadata.submit(lambda image: plan_fence(image, {OWN: membership.epoch})))
        with monkeypatch.context() as planted:
            planted.setattr(control.controller, "heartbeat", failing)
            world.run(membership.report_loss(bytes(16), [("orders", *lost)]))
        membership.serve()
        world.pass_time(1.0)
        offline = world.broker.image.partition("payments", 0)
        assert offline is not None
        assert (offline.leader, offline.elr) == (NO_LEADER, (OWN,))


def test_a_report_on_which_the_controller_changes_nothing_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller of another version may not elect the leader that this broker would elect."""
    with MemoryBroker() as world:
        keys = [(world.create(name), 0) for name in ("orders", "payments")]
        control = world._server._control
        membership, heartbeat = control.membership, control.controller.heartbeat
        reported: list[int] = []

        async def counted(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
            reported.append(len(request.failed_replicas))
            return await heartbeat(request)

        monkeypatch.setattr(control.controller, "heartbeat", counted)
        with monkeypatch.context() as older:
            older.setattr(controller, "plan_failed_replicas", lambda *_: Plan((), None))
            membership.serve()
            membership.note_failed(keys[0], Failure(0, is_offline=True))
            world.pass_time(10.0)
            assert reported == [1]
            membership.note_failed(keys[1], Failure(0, is_offline=True))
            world.pass_time(10.0)
            assert reported == [1, 2], "it says more than the former one"
        world.create("events")
        world.pass_time(10.0)
        assert reported == [1, 2, 2], "the metadata is another one"
        for name in ("orders", "payments"):
            partition = world.broker.image.partition(name, 0)
            assert partition is not None
            assert partition.leader == NO_LEADER


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "in a read that ends later"])
def test_the_failure_of_a_log_is_not_reported_after_the_deletion_of_its_topic(
    is_late: bool,
) -> None:
    with MemoryBroker() as world:
        kept, _ = world.create("kept"), world.create("orders")
        membership, partition = world._server._control.membership, world.partition("orders")
        membership.serve()

        def fail() -> None:
            world.disk.fail("write", errno.EIO, suffix=".log", times=2)
            for topic in ("kept",) if is_late else ("kept", "orders"):
                with pytest.raises(KafkaError):
                    world.append(topic)

        def reported() -> list[bytes]:
            request = membership.heartbeat()
            assert request is not None
            return [replica.topic_id for replica in request.failed_replicas]

        fail()
        assert reported() == ([kept] if is_late else [kept, partition.topic_id])
        world.delete("orders")
        if is_late:
            partition.take_offline("a read of another thread has failed")
        world.pass_time(1.0)
        assert reported() == [kept]


def test_a_living_broker_that_was_unregistered_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with MemoryBroker() as world:
        membership, metadata = world._server._control.membership, world.broker.metadata
        stopped: list[str] = []
        world._server.watch_failure(lambda: stopped.append(str(world._server.failure)))
        membership.serve()
        epoch = membership.epoch
        records = BrokerFenced(OWN, epoch), BrokerUnregistered(OWN, epoch)
        world.run(metadata.submit(lambda image: Plan(records, None)))
        world.pass_time(1)
        assert membership.epoch == -1
        (line,) = [each for each in caplog.records if "unregistered" in each.getMessage()]
        assert stopped == [line.getMessage()]
        assert "it registers again" in stopped[0]


def test_a_living_broker_that_was_replaced_stops_before_it_acts_on_the_image() -> None:
    with MemoryBroker() as world:
        membership, metadata = world._server._control.membership, world.broker.metadata
        stopped: list[str] = []
        world._server.watch_failure(lambda: stopped.append(str(world._server.failure)))
        membership.serve()
        epoch = membership.epoch
        records = (
            BrokerFenced(OWN, epoch),
            BrokerRecord(OWN, b"n" * 16, epoch + 1, (), None, NO_DIRECTORY, ()),
        )
        with pytest.raises(KafkaError, match="another process has registered as broker 1"):
            world.run(metadata.submit(lambda image: Plan(records, None)))
        assert (membership.epoch, len(stopped)) == (epoch, 1)
        assert isinstance(world._server.failure, RegistrationLost)
