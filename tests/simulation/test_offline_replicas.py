"""Replicas whose logs failed or are damaged: the metadata remembers them; none is elected."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import NewTopic
from lakelog.metadata.failover import NO_LEADER, PartitionImage
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.api import File
from simulation.fetching import fetch_code
from simulator.brokers.host import DATA, BrokerHost
from simulator.clients.producers.batches import answer_of, produce_request
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.engine.process import Process
from simulator.execution import run_world
from simulator.network.connection import ClientConnection
from simulator.network.sockets import SimulatedNet, SimulatedSocket
from waiting import until

PLACE = "spare", 0
LOG = DATA / "spare-0" / "00000000000000000000.log"
FIRST_VALUE_BIT = 8 * 70
"""Within the only record of the first batch."""
SENT_AS_A_FILE = bytes(60_000)
"""A value with which a response is not copied from the file."""
SETTINGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
PRODUCE_VERSION = 9
HANDOVER_S = 5.0
BACK_S = 40.0
Scene = Callable[[ClusterNemesis], Awaitable[None]]


def in_a_world(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    """Run a world in which `scene` happens once; its topic accepts the loss of records."""
    calls: list[ClusterNemesis] = []

    async def once(nemesis: ClusterNemesis) -> None:
        if not calls:
            calls.append(nemesis)
            await scene(nemesis)

    monkeypatch.setattr(ClusterNemesis, "_cut_store", once)
    plan = ClusterPlan(20.0, frozenset({"idempotent"}), frozenset({"cut store"}))
    found = run_world(ClusterWorld(1, plan)).violations
    assert [text for text in found if not text.startswith("spare-0 ")] == []
    assert calls


def state(nemesis: ClusterNemesis) -> PartitionImage:
    found = nemesis._cluster.image.partition(*PLACE)
    assert found is not None
    return found


async def create(nemesis: ClusterNemesis) -> BrokerHost:
    """Create the topic with a replica on each broker; return its leader."""

    async def is_created() -> bool:
        topic = NewTopic(PLACE[0], 1, len(nemesis._hosts), configs=tuple(SETTINGS.items()))
        controller = nemesis._controller()
        assert controller is not None
        assert controller.server is not None
        (result,) = await controller.server.broker.topics.create([topic])
        return not result.error

    await until(is_created, passing=lambda error: isinstance(error, KafkaError), every_s=0.01)
    return nemesis._hosts[state(nemesis).leader - 1]


async def produce(
    nemesis: ClusterNemesis, host: BrokerHost, value: bytes = b"a value that may be damaged"
) -> None:
    """Write one batch of one record, as soon as the broker leads the partition."""
    builder = BatchBuilder(0)
    builder.append(nemesis._simulator.wall_ms(), None, value)
    request = produce_request(PLACE, bytes(builder.build()))
    connection = ClientConnection(nemesis._network, Process("writer"), host.address)

    async def is_written() -> bool:
        return not answer_of(await connection.call(request, PRODUCE_VERSION)).error_code

    await until(is_written, HANDOVER_S)
    connection.close()


async def leave_alone(nemesis: ClusterNemesis, host: BrokerHost) -> None:
    """Stop the other brokers."""
    for other in nemesis._hosts:
        if other is not host:
            await other.stop()
    await until(lambda: state(nemesis).isr == (host.node_id,), HANDOVER_S)


async def bring_back_others(nemesis: ClusterNemesis, host: BrokerHost) -> None:
    """Start the other brokers; the first one leads, and no replica has led in between."""
    before = state(nemesis)
    assert before.leader == NO_LEADER
    for other in nemesis._hosts:
        if other is not host:
            await other.bring_back()
    await until(lambda: state(nemesis).leader not in (NO_LEADER, host.node_id), HANDOVER_S)
    assert state(nemesis).leader_epoch == before.leader_epoch + 1
    await until(lambda: is_readable(nemesis), HANDOVER_S)


def leader(nemesis: ClusterNemesis) -> BrokerHost:
    return nemesis._hosts[state(nemesis).leader - 1]


async def return_whole(nemesis: ClusterNemesis, host: BrokerHost) -> None:
    """Start the broker again after a kill, and wait until every replica is in the ISR."""
    host.kill()
    await host.bring_back()
    await until(lambda: len(state(nemesis).isr) == len(nemesis._hosts), BACK_S)


async def is_readable(nemesis: ClusterNemesis) -> bool:
    """Ask the leader, which may not have followed its election yet."""
    return await fetch_code(nemesis, leader(nemesis), PLACE) is ErrorCode.NONE


def test_an_unclean_election_passes_over_a_log_that_failed_at_run_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(nemesis: ClusterNemesis) -> None:
        host = await create(nemesis)
        await produce(nemesis, host)
        await leave_alone(nemesis, host)
        await host.stop()
        await host.bring_back()  # it has not read its records yet
        await until(lambda: state(nemesis).leader == host.node_id, BACK_S)
        host.disk.fail("read", errno.EIO, suffix=".log", times=100_000)
        assert await fetch_code(nemesis, host, PLACE) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: state(nemesis).leader == NO_LEADER, HANDOVER_S)
        await bring_back_others(nemesis, host)
        host.disk.forget_faults()
        await return_whole(nemesis, host)

    in_a_world(monkeypatch, fail)


def test_an_unclean_election_passes_over_a_log_that_a_start_found_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def damage(nemesis: ClusterNemesis) -> None:
        host = await create(nemesis)
        await produce(nemesis, host)
        await leave_alone(nemesis, host)
        await host.stop()  # with a recovery point above the first record
        await host.bring_back()
        await until(lambda: state(nemesis).leader == host.node_id, BACK_S)
        await produce(nemesis, host)
        host.kill()
        host.disk.flip(LOG, FIRST_VALUE_BIT)
        await host.bring_back()
        assert await fetch_code(nemesis, host, PLACE) is ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: state(nemesis).leader == NO_LEADER, HANDOVER_S)
        await bring_back_others(nemesis, host)
        host.disk.flip(LOG, FIRST_VALUE_BIT)
        await return_whole(nemesis, host)

    in_a_world(monkeypatch, damage)


def test_a_failed_log_hands_over_uncleanly_to_a_live_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(nemesis: ClusterNemesis) -> None:
        host = await create(nemesis)
        await produce(nemesis, host)
        await leave_alone(nemesis, host)
        await produce(nemesis, host)
        await host.stop()
        await host.bring_back()
        await until(lambda: state(nemesis).leader == host.node_id, BACK_S)
        host.disk.fail("read", errno.EIO, suffix=".log", times=100_000)
        # They cannot copy the second record, and stay out of the ISR.
        for other in nemesis._hosts:
            if other is not host:
                await other.bring_back()
        await until(lambda: state(nemesis).leader not in (NO_LEADER, host.node_id), BACK_S)
        await until(lambda: is_readable(nemesis), HANDOVER_S)
        host.disk.forget_faults()
        await return_whole(nemesis, host)

    in_a_world(monkeypatch, fail)


def test_a_leader_that_cannot_send_its_log_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    send_file = SimulatedNet.send_file
    failing: list[str] = []

    def send_or_fail(
        net: SimulatedNet, sock: SimulatedSocket, file: File, offset: int, count: int
    ) -> int:
        if file.path == LOG and net._process.host in failing:
            raise OSError(errno.EIO, "Input/output error")
        return send_file(net, sock, file, offset, count)

    monkeypatch.setattr(SimulatedNet, "send_file", send_or_fail)

    async def fail(nemesis: ClusterNemesis) -> None:
        host = await create(nemesis)
        await produce(nemesis, host, SENT_AS_A_FILE)
        await until(lambda: len(state(nemesis).isr) == len(nemesis._hosts), BACK_S)
        failing.append(host.name)
        assert await fetch_code(nemesis, host, PLACE) is None, "the connection is closed"
        await until(lambda: state(nemesis).leader not in (NO_LEADER, host.node_id), HANDOVER_S)
        assert host.node_id in state(nemesis).offline
        await until(lambda: is_readable(nemesis), HANDOVER_S)
        failing.clear()
        await return_whole(nemesis, host)

    in_a_world(monkeypatch, fail)
