"""Transactions that wait for one coordinator share a request between two brokers (KIP-890)."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.transactions import AddPartitionsToTxnRequest
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from simulator.network.sockets import Portion, SimulatedSocket

_HELD_S = 1.0
_ADD_PARTITIONS = api_for(AddPartitionsToTxnRequest)
_FRAME_SIZE = 4
SEEDS = (5, 4, 3, 6)
"""Two transactions wait in the worlds of the first two."""


class Questions:
    """Holds one question at a time back, and counts the transactions of each one."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._held: SimulatedSocket | None = None

    def is_late(self, source: SimulatedSocket, portion: Portion) -> bool:
        if not isinstance(portion, bytes) or portion[4:6] != _ADD_PARTITIONS.key.to_bytes(2, "big"):
            return False
        version = int.from_bytes(portion[6:8], "big")
        if version < 4:
            return False  # of a client
        _, _, start = decode_request_header(portion, _FRAME_SIZE, len(portion), True)
        self.sizes.append(
            len(decode(AddPartitionsToTxnRequest, portion, version, start).transactions)
        )
        if self._held is not None:
            return False
        self._held = source
        return True

    async def run(self, nemesis: ClusterNemesis) -> int:
        nemesis._network.delays.append(self.is_late)
        for _ in range(8):
            await asyncio.sleep(_HELD_S)
            if self._held is not None:
                nemesis._network.release(self._held)
                self._held = None
        nemesis._network.delays.remove(self.is_late)
        return len(self.sizes)


def test_transactions_that_wait_for_a_coordinator_share_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = ClusterPlan(12.0, frozenset({"transactions", "sinks"}), frozenset({"cut store"}))
    sizes: list[int] = []
    for seed in SEEDS:
        questions = Questions()
        monkeypatch.setattr(
            ClusterNemesis, "_cut_store", lambda nemesis, held=questions: held.run(nemesis)
        )
        assert run_world(ClusterWorld(seed, plan)).violations == ()
        sizes += questions.sizes
        if max(sizes, default=0) > 1:
            return
    raise AssertionError(f"each of {len(sizes)} requests had one transaction")
