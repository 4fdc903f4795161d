"""Requests of brokers to the controller, and the fencing of dead ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.features import SUPPORTED
from lakelog.metadata.plan import Planner
from lakelog.protocol.brokers import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from lakelog.server.authentication import Process
from lakelog.server.controller.lease_grants import GRANT_PER_SESSION
from lakelog.server.inter_broker.silence import LEASE_PERCENT
from memory_broker import MemoryBroker

OTHER = 2


class Cluster:
    """A controller, and the requests of a second broker."""

    def __init__(self, world: MemoryBroker) -> None:
        self.world = world
        self.controller = world.broker.controller

    def register(
        self,
        incarnation: bytes = b"a" * 16,
        *,
        cluster_id: str | None = None,
        previous_epoch: int = -1,
        folder: bytes = b"d" * 16,
        is_late: bool = False,
    ) -> BrokerRegistrationResponse:
        """Register a process, which is in the store before; a late request outlives its sender."""
        if not is_late:
            self.world.metadata._brokers[OTHER] = incarnation
        request = self.registration(
            incarnation, cluster_id=cluster_id, previous_epoch=previous_epoch, folder=folder
        )
        return self.world.run(self.controller.register(request))

    def registration(
        self,
        incarnation: bytes,
        *,
        cluster_id: str | None = None,
        previous_epoch: int = -1,
        folder: bytes = b"d" * 16,
    ) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=OTHER,
            cluster_id=cluster_id or self.world.broker.cluster_id,
            incarnation_id=incarnation,
            listeners=[Listener(name="PLAINTEXT", host="h", port=9093)],
            features=[
                Feature(name=n, min_supported_version=a, max_supported_version=b)
                for n, a, b in SUPPORTED
            ],
            log_dirs=[folder],
            previous_broker_epoch=previous_epoch,
        )

    def beat(self, epoch: int, *, behind: int = 0, stop: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=OTHER,
            broker_epoch=epoch,
            current_metadata_offset=self.world.broker.image.end - 1 - behind,
            want_shut_down=stop,
        )
        return self.world.run(self.controller.heartbeat(request))

    @property
    def is_fenced(self) -> bool:
        return self.world.broker.image.brokers[OTHER].is_fenced


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MemoryBroker() as world:
        yield Cluster(world)


def test_a_new_broker_is_fenced_until_it_has_caught_up(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch
    assert cluster.is_fenced
    response = cluster.beat(epoch, behind=1)
    assert (response.is_caught_up, response.is_fenced, cluster.is_fenced) == (False, True, True)
    response = cluster.beat(epoch)
    assert (response.is_caught_up, response.is_fenced, cluster.is_fenced) == (True, False, False)


def test_a_repeated_registration_of_one_process_has_one_epoch(cluster: Cluster) -> None:
    epochs = [cluster.register().broker_epoch for _ in range(2)]
    cluster.beat(epochs[0])
    assert epochs[0] == epochs[1]
    assert cluster.register(b"b" * 16).broker_epoch == epochs[0] + 1
    assert cluster.is_fenced, "the former process led, and the new one has not caught up"
    assert cluster.beat(epochs[0]).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_of_another_cluster_is_refused(cluster: Cluster) -> None:
    response = cluster.register(cluster_id="another")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert OTHER not in cluster.world.broker.image.brokers


def test_a_stopping_broker_is_fenced_and_may_stop(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    assert cluster.beat(epoch, stop=True).should_shut_down
    assert cluster.is_fenced


def test_blocks_of_producer_ids_are_for_registered_brokers(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch

    def ask(epoch: int) -> tuple[int, range]:
        request = AllocateProducerIdsRequest(broker_id=OTHER, broker_epoch=epoch)
        found = cluster.world.run(cluster.controller.allocate_producer_ids(request))
        first = found.producer_id_start
        return found.error_code, range(first, first + found.producer_id_len)

    (_, first), (_, second) = ask(epoch), ask(epoch)
    assert len(first) == len(second) == 1000
    assert not set(first) & set(second)
    assert ask(epoch + 1)[0] == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("live", [b"b" * 16, None], ids=["another process lives", "none lives"])
def test_a_late_registration_replaces_no_process(cluster: Cluster, live: bytes | None) -> None:
    epoch = cluster.register(b"b" * 16).broker_epoch
    cluster.beat(epoch)
    if live is None:
        cluster.world.metadata._brokers.pop(OTHER)
    assert cluster.register(b"a" * 16, is_late=True).error_code == (
        ErrorCode.BROKER_NOT_AVAILABLE if live is None else ErrorCode.DUPLICATE_BROKER_REGISTRATION
    )
    known = cluster.world.broker.image.brokers[OTHER]
    assert (known.incarnation_id, known.epoch, known.is_fenced) == (b"b" * 16, epoch, False)


def test_a_registration_that_was_overtaken_replaces_no_process(cluster: Cluster) -> None:
    """The sender dies after the controller has read that it lives, and its successor registers."""
    world, metadata = cluster.world, cluster.world.broker.metadata
    world.metadata._brokers[OTHER] = b"a" * 16
    submit = metadata.submit

    async def submit_later(plan: Planner[Any], *, from_reserve: bool = False) -> Any:
        metadata.submit = submit  # type: ignore[method-assign]
        world.metadata._brokers[OTHER] = b"b" * 16
        successor = cluster.registration(b"b" * 16)
        assert not (await cluster.controller.register(successor)).error_code
        return await submit(plan, from_reserve=from_reserve)

    metadata.submit = submit_later  # type: ignore[method-assign]
    response = world.run(cluster.controller.register(cluster.registration(b"a" * 16)))
    assert response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert world.broker.image.brokers[OTHER].incarnation_id == b"b" * 16


def test_a_late_heartbeat_unfences_no_dead_process(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch
    cluster.world.metadata._brokers.pop(OTHER)
    response = cluster.beat(epoch)
    assert (response.error_code, response.is_fenced, cluster.is_fenced) == (0, True, True)


def test_a_process_that_dies_while_it_is_unfenced_is_fenced_again(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch
    cluster.controller.start()
    cluster.world.pass_time(0.01)

    class DyingAfterTheLook(dict[int, bytes]):
        """The live brokers of one read, after which the process is gone."""

        def get(self, broker_id: int, default: Any = None) -> Any:
            found = super().get(broker_id, default)
            cluster.world.metadata._brokers = {1: self[1]}
            return found

    cluster.world.metadata._brokers = DyingAfterTheLook(cluster.world.metadata._brokers)
    cluster.beat(epoch)
    cluster.world.pass_time(0.01)
    assert cluster.is_fenced


def test_a_dead_broker_is_fenced_and_a_live_one_is_not(cluster: Cluster) -> None:
    cluster.beat(cluster.register().broker_epoch)
    cluster.world.metadata._brokers[OTHER] = b"a" * 16
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    fenced = [cluster.is_fenced]
    cluster.world.metadata._brokers[OTHER] = b"n" * 16  # the next process, not registered yet
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    assert [*fenced, cluster.is_fenced] == [False, True]
    cluster.controller.elections.fold()
    assert cluster.controller.elections.count == 1
    cluster.world.metadata._brokers.pop(OTHER)


def test_a_dead_broker_is_fenced_after_a_bug(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.beat(cluster.register().broker_epoch)
    cluster.world.metadata._brokers.pop(OTHER)

    def fail(dead: object) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(cluster.controller.lease_grants, "divide", fail)
        cluster.controller.start()
        cluster.world.pass_time(10.0)
        fenced = [cluster.is_fenced]
    cluster.world.pass_time(10.0)
    assert [*fenced, cluster.is_fenced] == [False, True]
    failures = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [each.__dict__["event"] for each in failures] == ["task_failed"]


def test_an_ended_broker_is_fenced_without_delay(cluster: Cluster) -> None:
    cluster.beat(cluster.register().broker_epoch)
    cluster.world.metadata._brokers.pop(OTHER)
    cluster.controller.lease_grants.give(OTHER)
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    fenced = [cluster.is_fenced]
    cluster.controller.note_end(OTHER)
    cluster.world.pass_time(0.01)
    assert [*fenced, cluster.is_fenced] == [False, True]


def test_a_dead_broker_is_fenced_after_its_lease_grant(cluster: Cluster) -> None:
    cluster.beat(cluster.register().broker_epoch)
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    cluster.world.metadata._brokers.pop(OTHER)
    cluster.controller.lease_grants.give(OTHER)
    cluster.controller.start()
    cluster.world.pass_time(session_s * GRANT_PER_SESSION)
    fenced = [cluster.is_fenced]
    cluster.world.pass_time(session_s * 0.1)
    assert [*fenced, cluster.is_fenced] == [False, True]


def test_a_live_broker_that_does_not_answer_is_fenced_until_it_is_steady(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    silence = cluster.controller._silence
    silence.follow([Process(OTHER, b"a" * 16)], 0.0)
    cluster.controller.start()
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    cluster.world.pass_time(session_s)
    fenced = [cluster.is_fenced]
    for _ in range(36):
        silence.tick(session_s / 36)
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    assert [*fenced, cluster.is_fenced] == [False, True]
    assert cluster.beat(epoch).is_fenced, "it may be silent again at once"
    for _ in range(18):
        silence.tick(session_s / 36)
        silence.note_request(OTHER)
    assert not cluster.beat(epoch).is_fenced


@pytest.mark.parametrize("runs", [True, False], ids=["runs", "paused"])
def test_a_broker_that_is_cut_off_is_fenced_before_its_session_ends_if_it_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    silence = cluster.controller._silence
    silence.follow([Process(OTHER, b"a" * 16)], 0.0)
    silence.note_lease(OTHER, LEASE_PERCENT)
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    running, asked = {1: b"1" * 16}, []
    if runs:
        running[OTHER] = b"a" * 16

    async def beating(within_s: float) -> dict[int, bytes]:
        asked.append(within_s / session_s)
        return running

    monkeypatch.setattr(cluster.world.metadata, "beating_brokers", beating)
    cluster.controller.start()
    for _ in range(8):
        cluster.world.pass_time(session_s / 8)
        silence.note_request(OTHER)
    for _ in range(26):
        silence.tick(session_s / 36)
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    assert cluster.is_fenced is runs
    assert silence.deafness.is_denied(OTHER) is runs, "its lease is not renewed meanwhile"
    assert min(asked) == max(asked) == pytest.approx(0.3)
    running[OTHER] = b"a" * 16
    cluster.world.pass_time(session_s / 12)
    assert cluster.is_fenced, "looked at again"


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "outcome unknown"])
def test_a_broker_gets_no_lease_while_its_fencing_is_pending(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The store takes longer than half a session for the fencing, and the broker returns."""
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    world, metadata = cluster.world, cluster.world.broker.metadata
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    world.pass_time(session_s)
    submit = metadata.submit

    async def submit_late(plan: Planner[Any], *, from_reserve: bool = False) -> Any:
        await asyncio.sleep(0.6 * session_s)
        result = await submit(plan, from_reserve=from_reserve)
        if fails:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "planted")
        return result

    def gets_lease(parts: int) -> bool:
        """Let the broker call for some 36ths of a session."""
        for _ in range(parts):
            world.pass_time(session_s / 36)
            answered_by = cluster.beat(epoch).answered_by
        return answered_by != -1

    monkeypatch.setattr(metadata, "submit", submit_late)
    cluster.controller.start()
    found = [(gets_lease(20), cluster.is_fenced)]
    monkeypatch.undo()
    found.append((gets_lease(18), cluster.is_fenced))
    assert found == [(False, False), (False, True)]
    assert gets_lease(4), "half a session after its fencing"


def test_a_late_heartbeat_is_no_contact_with_the_present_process(cluster: Cluster) -> None:
    former = cluster.register().broker_epoch
    present = cluster.register(b"b" * 16).broker_epoch
    silence = cluster.controller._silence
    silence.follow([Process(OTHER, b"b" * 16)], 0.0)
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    for _ in range(36):
        silence.tick(session_s / 36)
    assert silence.unheard() == {OTHER}
    assert cluster.beat(former).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert silence.unheard() == {OTHER}
    cluster.beat(present)
    assert not silence.unheard()


def test_a_heartbeat_through_another_broker_shows_that_its_sender_lives(cluster: Cluster) -> None:
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    silence = cluster.controller._silence
    silence.follow([Process(OTHER, b"a" * 16)], 0.0)
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    cluster.world.pass_time(session_s)
    request = BrokerHeartbeatRequest(broker_id=OTHER, broker_epoch=epoch, via_broker=3)
    late = BrokerHeartbeatRequest(broker_id=OTHER, broker_epoch=epoch - 1, via_broker=3)

    def pass_a_session(sent: BrokerHeartbeatRequest) -> bool:
        for _ in range(40):
            silence.tick(session_s / 36)
            response = cluster.world.run(cluster.controller.heartbeat(sent))
        assert response.answered_by == (1 if sent is request else -1)
        cluster.controller.start()
        cluster.world.pass_time(0.01)
        return cluster.is_fenced

    assert not pass_a_session(request)
    assert silence.unheard() == {OTHER}, "leaders see that it does not call them"
    assert pass_a_session(late), "a request of a former process shows nothing"


def test_a_deaf_broker_is_fenced_and_gets_no_lease(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    deafness = cluster.controller._silence.deafness
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    assert cluster.beat(epoch).answered_by == 1
    monkeypatch.setattr(deafness, "is_denied", lambda node_id: True)
    monkeypatch.setattr(deafness, "denial", lambda node_id, is_controller: 5)
    assert cluster.beat(epoch).answered_by == -1
    monkeypatch.setattr(deafness, "deaf", lambda: frozenset({OTHER}))
    cluster.controller.start()
    cluster.world.pass_time(0.01)
    assert cluster.is_fenced, "not only after the begin of a term"
    assert cluster.beat(epoch).is_fenced


def test_silence_fences_no_broker_at_the_begin_of_a_term(cluster: Cluster) -> None:
    cluster.beat(cluster.register().broker_epoch)
    silence = cluster.controller._silence
    silence.follow([Process(OTHER, b"a" * 16)], 0.0)
    session_s = cluster.controller._config.get_int("broker.session.timeout.ms") / 1000
    cluster.world.pass_time(session_s)
    for _ in range(36):
        silence.tick(session_s / 36)
    cluster.world.broker.metadata._learn(cluster.world.metadata._term._replace(epoch=50))
    cluster.controller.start()
    cluster.world.pass_time(session_s / 2)
    fenced = [cluster.is_fenced]
    cluster.world.pass_time(session_s / 10)
    assert [*fenced, cluster.is_fenced] == [False, True]


def test_a_later_look_at_one_broker_postpones_no_look_at_another(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker seems paused and runs again, while another dead one has a lease grant."""
    cluster.beat(cluster.register().broker_epoch)
    silence, controller = cluster.controller._silence, cluster.controller
    session_s = controller._config.get_int("broker.session.timeout.ms") / 1000
    cluster.world.pass_time(session_s)
    silence.note_request(OTHER)
    running = {1: b"1" * 16}

    async def beating(within_s: float) -> dict[int, bytes]:
        return running

    monkeypatch.setattr(cluster.world.metadata, "beating_brokers", beating)
    monkeypatch.setattr(silence, "cut_off", lambda: frozenset({OTHER}))
    monkeypatch.setattr(
        controller.lease_grants, "divide", lambda lost: (lost, session_s * GRANT_PER_SESSION)
    )
    controller.start()
    cluster.world.pass_time(0.01)
    running[OTHER] = b"a" * 16
    fenced = [cluster.is_fenced]
    cluster.world.pass_time(session_s / 12)
    assert [*fenced, cluster.is_fenced] == [False, True]
    controller.stop()


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_controller_that_stops_does_not_report_that_it_fences_no_brokers(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, is_stopping: bool
) -> None:
    cluster.beat(cluster.register().broker_epoch)
    cluster.world.metadata._brokers.pop(OTHER)
    cluster.world.metadata.fault = MetadataUnavailable("planted")
    cluster.controller.start()
    if is_stopping:
        cluster.world.tasks.call_soon(cluster.controller.stop)
    cluster.world.pass_time(0.01)
    events = [record.__dict__.get("event") for record in caplog.records]
    assert ("fencing_failed" in events) is not is_stopping
    cluster.world.metadata.fault = None


def test_only_a_broker_whose_process_has_ended_is_unregistered(cluster: Cluster) -> None:
    def unregister() -> int:
        try:
            cluster.world.run(cluster.controller.unregister(OTHER))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    epoch = cluster.register().broker_epoch
    cluster.world.metadata._brokers[OTHER] = b"a" * 16
    assert unregister() == ErrorCode.INVALID_REQUEST, "it is starting"
    cluster.beat(epoch)
    cluster.world.metadata._brokers.pop(OTHER)
    assert unregister() == ErrorCode.INVALID_REQUEST, "it has just died, and is not fenced yet"
    cluster.beat(epoch, stop=True)
    assert unregister() == ErrorCode.NONE
    assert OTHER not in cluster.world.broker.image.brokers
    assert unregister() == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.register(b"b" * 16).broker_epoch == epoch + 1


@pytest.mark.parametrize(
    ("previous_epoch", "folder", "elr", "last_known"),
    [(1, b"d" * 16, (OTHER,), ()), (-1, b"d" * 16, (), (OTHER,)), (-1, b"e" * 16, (), ())],
    ids=["killed", "power failure", "new folder"],
)
def test_a_broker_that_lost_records_is_not_eligible_when_it_returns(
    cluster: Cluster, previous_epoch: int, folder: bytes, elr: tuple[int], last_known: tuple[int]
) -> None:
    world = cluster.world
    world.create("orders")
    cluster.beat(cluster.register().broker_epoch)
    world.change_leader("orders", OTHER, (OTHER,))
    epoch = cluster.register(b"b" * 16, previous_epoch=previous_epoch, folder=folder).broker_epoch
    topic = world.broker.image.topic("orders")
    assert topic is not None
    state = topic.partitions[0]
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), elr, last_known)
    cluster.beat(epoch)
    topic = world.broker.image.topic("orders")
    assert topic is not None
    assert topic.partitions[0].leader == (OTHER if elr else -1)


@pytest.mark.parametrize("eligible", [(OTHER,), (1, OTHER)], ids=["alone", "with another"])
def test_producer_epochs_are_forgotten_with_the_last_eligible_replica(
    cluster: Cluster, eligible: tuple[int, ...]
) -> None:
    world = cluster.world
    world.create("__transaction_state")
    cluster.beat(cluster.register().broker_epoch)
    world.run(world.broker.producer_ids.next())
    world.change_leader("__transaction_state", OTHER, eligible)
    cluster.register(b"b" * 16, previous_epoch=-1)
    assert bool(world.broker.image.forgotten_epochs_end) == (eligible == (OTHER,))


def test_the_controllers_settings_about_elections_count_for_the_cluster() -> None:
    with MemoryBroker(min_insync_replicas="2") as world:
        Cluster(world).register()
        assert world.broker.image.min_isr("orders") == 2


def test_a_broker_with_an_offline_folder_is_fenced_and_not_eligible(cluster: Cluster) -> None:
    world = cluster.world
    world.create("orders")
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    world.change_leader("orders", OTHER, (OTHER,))
    request = BrokerHeartbeatRequest(
        broker_id=OTHER,
        broker_epoch=epoch,
        current_metadata_offset=world.broker.image.end,
        want_fence=True,
        offline_log_dirs=[b"d" * 16],
    )
    for _ in range(2):
        assert world.run(cluster.controller.heartbeat(request)).is_fenced
        topic = world.broker.image.topic("orders")
        assert topic is not None
        state = topic.partitions[0]
        assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), (OTHER,))
    request.broker_epoch -= 1
    assert world.run(cluster.controller.heartbeat(request)).error_code


def test_a_broker_that_cannot_write_hands_over_and_is_noted_until_it_can(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    world = cluster.world
    world.create("orders")
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    world.change_leader("orders", OTHER, (OTHER, 1))
    states = []
    with caplog.at_level("INFO"):
        for is_read_only in (True, True, False):
            request = BrokerHeartbeatRequest(
                broker_id=OTHER,
                broker_epoch=epoch,
                current_metadata_offset=world.broker.image.end,
                is_read_only=is_read_only,
            )
            assert not world.run(cluster.controller.heartbeat(request)).error_code
            state = world.broker.image.partition("orders", 0)
            assert state is not None
            states.append((world.broker.image.read_only, state.leader, state.isr))
    assert states == [({OTHER}, 1, (1,)), ({OTHER}, 1, (1,)), (frozenset(), 1, (1,))]
    events = [getattr(each, "event", "") for each in caplog.records]
    assert [events.count(each) for each in ("broker_read_only", "broker_writable")] == [1, 1]


def test_a_broker_that_sends_heartbeats_can_be_in_sync_at_once(cluster: Cluster) -> None:
    reachable_brokers = cluster.world._server._control.peers.reachable_brokers
    epoch = cluster.register().broker_epoch
    cluster.beat(epoch)
    assert not cluster.is_fenced
    assert reachable_brokers.lacking(cluster.world.broker.image) == frozenset()
    again = cluster.register(b"b" * 16).broker_epoch
    assert not cluster.beat(again).is_fenced
    assert reachable_brokers.lacking(cluster.world.broker.image) == frozenset()
