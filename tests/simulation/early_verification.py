"""A schedule: a verification that begins before the marker of the previous transaction.

The coordinator has decided a transaction. The network holds its marker back until the leader of a
partition asks about the next transaction of a producer, and then that question until the marker is
written. The coordinator adds the partition to the next transaction.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from lakelog.protocol.api import api_for
from lakelog.protocol.transactions import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from simulator.cluster.nemesis import ClusterNemesis
from simulator.network.network import Network
from simulator.network.sockets import Portion, SimulatedSocket

_BEGUN_S = 2.0
"""In which the producer begins its next transaction."""
_WRITTEN_S = 0.5
"""In which the marker is written, and its transaction is complete."""


def _key(portion: Portion) -> int:
    return int.from_bytes(portion[4:6], "big") if isinstance(portion, bytes) else -1


@dataclass
class EarlyVerification:
    """Holds one marker, then one question of the leader that has to write it."""

    network: Network
    marker: SimulatedSocket | None = None
    question: SimulatedSocket | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def is_late(self, source: SimulatedSocket, portion: Portion) -> bool:
        if self.marker is None and _key(portion) == api_for(WriteTxnMarkersRequest).key:
            self.marker = source
            return True
        if self.marker is None or self.question is not None:
            return False
        between = self.marker.other.process, self.marker.process
        if _key(portion) != api_for(AddPartitionsToTxnRequest).key or between != (
            source.process,
            source.other.process,
        ):
            return False
        self.question = source
        self.asked.set()
        return True

    async def run(self) -> bool:
        """Return whether the schedule came about."""
        self.network.delays.append(self.is_late)
        try:
            async with asyncio.timeout(_BEGUN_S):
                await self.asked.wait()
        except TimeoutError:
            pass
        self.network.delays.remove(self.is_late)
        if self.marker is not None:
            self.network.release(self.marker)
        if self.question is None:
            return False
        await asyncio.sleep(_WRITTEN_S)
        self.network.release(self.question)
        return True


async def run_early_verifications(nemesis: ClusterNemesis) -> int:
    """Return how often the schedule came about in a few attempts."""
    return sum([await EarlyVerification(nemesis._network).run() for _ in range(4)])
