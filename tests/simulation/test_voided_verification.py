"""A late marker of the previous transaction, as of a coordinator that does not number decisions.

The leader of a partition asks about the next transaction of a classic producer, and the network
holds the question back until another marker for the producer is written. The leader asks again, and
the producer gets no error.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from lakelog.storage.producers.beginnings import VerificationVoidedError
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header
from simulator.brokers.host import BrokerHost
from simulator.clients.producers.transactional import TransactionalProducer
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.engine.process import Process
from simulator.execution import run_world
from simulator.network.connection import ClientConnection
from simulator.network.sockets import Portion, SimulatedSocket

_ADD_PARTITIONS = api_for(AddPartitionsToTxnRequest)
_FRAME_SIZE = 4
_BETWEEN_BROKERS_SINCE = 4
_FOUND_S = 4.0
_SETTLED_S = 1.0
SEEDS = range(1, 6)


class LateMarkers:
    """Holds a question of a leader back until a marker for its producer is written there."""

    def __init__(self, nemesis: ClusterNemesis) -> None:
        self._nemesis = nemesis
        self._held: SimulatedSocket | None = None
        self._asked: asyncio.Future[AddPartitionsToTxnTransaction] = asyncio.Future()

    def is_late(self, source: SimulatedSocket, portion: Portion) -> bool:
        if self._held is not None or not isinstance(portion, bytes):
            return False
        version = int.from_bytes(portion[6:8], "big")
        if (
            int.from_bytes(portion[4:6], "big") != _ADD_PARTITIONS.key
            or version < _BETWEEN_BROKERS_SINCE
        ):
            return False
        _, _, start = decode_request_header(portion, _FRAME_SIZE, len(portion), True)
        request = decode(AddPartitionsToTxnRequest, portion, version, start)
        (transaction, *_) = request.transactions
        if not transaction.verify_only or self._leader(source) is None:
            return False
        self._held = source
        self._asked.set_result(transaction)
        return True

    def _leader(self, source: SimulatedSocket) -> BrokerHost | None:
        hosts = self._nemesis._hosts
        return next((host for host in hosts if host.process is source.process), None)

    async def run(self) -> bool:
        """Return whether the schedule came about."""
        network = self._nemesis._network
        network.delays.append(self.is_late)
        try:
            async with asyncio.timeout(_FOUND_S):
                transaction = await self._asked
        except TimeoutError:
            return False
        finally:
            network.delays.remove(self.is_late)
        assert self._held is not None
        await self._mark(self._held, transaction)
        network.release(self._held)
        await asyncio.sleep(_SETTLED_S)
        return True

    async def _mark(
        self, leader: SimulatedSocket, transaction: AddPartitionsToTxnTransaction
    ) -> None:
        """Send the marker of a transaction that the producer has ended."""
        host = self._leader(leader)
        assert host is not None and host.server is not None
        (topic, *_) = transaction.topics
        partition = host.server.broker.partitions.leader(topic.name, topic.partitions[0])
        known = partition.log.producers.entries.get(transaction.producer_id)
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=topic.partitions)],
            coordinator_epoch=0 if known is None else max(known.coordinator_epoch, 0),
        )
        address = host.address
        connection = ClientConnection(self._nemesis._network, Process("late"), address)
        answer = await connection.call(WriteTxnMarkersRequest(markers=[marker]), 1)
        connection.close()
        (result,) = answer.markers
        assert {each.error_code for each in result.topics[0].partitions} == {0}


def test_a_late_marker_is_no_error_of_the_next_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    voided: list[int] = []
    codes: list[ErrorCode] = []
    note, is_done = VerificationVoidedError.__init__, TransactionalProducer._is_done

    def note_voided(self: VerificationVoidedError, producer_id: int) -> None:
        voided.append(producer_id)
        note(self, producer_id)

    async def note_code(self: TransactionalProducer, what: str, code: int) -> Any:
        if what == "Produce":
            codes.append(ErrorCode(code))
        return await is_done(self, what, code)

    async def run(nemesis: ClusterNemesis) -> int:
        return sum([await LateMarkers(nemesis).run() for _ in range(3)])

    monkeypatch.setattr(VerificationVoidedError, "__init__", note_voided)
    monkeypatch.setattr(TransactionalProducer, "_is_done", note_code)
    monkeypatch.setattr(ClusterNemesis, "_cut_store", run)
    plan = ClusterPlan(10.0, frozenset({"classic transactions"}), frozenset({"cut store"}))
    for seed in SEEDS:
        codes.clear()
        assert run_world(ClusterWorld(seed, plan)).violations == ()
        if voided:
            assert ErrorCode.NOT_ENOUGH_REPLICAS not in codes, f"seed {seed}"
            return
    raise AssertionError("no marker came during a verification")
