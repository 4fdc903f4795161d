"""Which brokers can be called, as the metadata image changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable, Iterator

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, BrokerRecord, ClusterRecord
from lakelog.protocol.metadata import MetadataRequest
from lakelog.server.authentication import Process
from lakelog.server.inter_broker.exchange import PeerUnreachableError
from lakelog.server.inter_broker.peer import Peers, PeerSeams
from memory_broker import MemoryNet
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.engine.tasks import SimulatedTasks, StreamRandom

OWN = 1
INSIDE, OUTSIDE = Endpoint("INSIDE", "b", 1), Endpoint("OUTSIDE", "b.example.org", 2)


def record(node_id: int, epoch: int, endpoints: Iterable[Endpoint] = (INSIDE,)) -> BrokerRecord:
    return BrokerRecord(node_id, bytes([epoch]) * 16, epoch, tuple(endpoints), None)


def image_of(*records: BrokerRecord) -> MetadataImage:
    return MetadataImage().apply_all([ClusterRecord("cluster"), *records], 1)


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    with contextlib.closing(SimulatedLoop(None)) as loop:
        yield loop


@pytest.fixture
def peers(loop: SimulatedLoop) -> Peers:
    rng = random.Random(7)
    tasks = SimulatedTasks(loop, rng)
    seams = PeerSeams(OWN, MemoryNet(), tasks, SimulatedClock(loop), StreamRandom(rng))
    return Peers(Process(OWN, b"own" + bytes(13)), "OUTSIDE", seams)


def test_every_registered_broker_but_this_one_can_be_called(peers: Peers) -> None:
    peers.follow(image_of(record(OWN, 1), record(3, 1), record(2, 1)))
    assert [peer.node_id for peer in peers] == [2, 3]
    assert peers.get(OWN) is None
    assert peers.get(4) is None


def test_a_broker_without_an_address_cannot_be_called(peers: Peers) -> None:
    peers.follow(image_of(record(2, 1, endpoints=())))
    assert peers.get(2) is None


def test_the_listener_of_the_same_name_is_called(peers: Peers) -> None:
    peers.follow(image_of(record(2, 1, (INSIDE, OUTSIDE)), record(3, 1, (INSIDE,))))
    assert [peer.endpoint for peer in peers] == [OUTSIDE, INSIDE]


def test_a_broker_keeps_its_connection_when_it_is_fenced(peers: Peers) -> None:
    first = image_of(record(2, 1))
    peers.follow(first)
    peer = peers.get(2)
    fenced = first.apply_all([BrokerFenced(2, 1)], 2)
    assert fenced.brokers[2].is_fenced
    peers.follow(fenced)
    assert peers.get(2) is peer


def test_other_changes_keep_a_peer_and_a_new_start_replaces_it(
    peers: Peers, loop: SimulatedLoop
) -> None:
    first = image_of(record(2, 1))
    peers.follow(first)
    before = peers.get(2)
    peers.follow(first.apply(record(3, 1)))
    assert peers.get(2) is before
    peers.follow(first.apply(record(2, 2)))
    assert before is not None
    assert peers.get(2) is not before
    with pytest.raises(PeerUnreachableError, match="closed"):
        loop.run_until_complete(before.request(MetadataRequest(), timeout_s=1.0))


def test_requests_to_a_former_process_fail_at_once(peers: Peers, loop: SimulatedLoop) -> None:
    async def scenario() -> None:
        peers.follow(image_of(record(2, 1)))
        peer = peers.get(2)
        assert peer is not None
        call = asyncio.ensure_future(peer.request(MetadataRequest(), timeout_s=3600.0))
        await asyncio.sleep(0)
        peers.close()
        with pytest.raises(PeerUnreachableError, match="closed"):
            await call
        assert list(peers) == []

    loop.run_until_complete(scenario())
