"""The last look: each partition from beginning to end, before and after a clean restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.testing.simulation.clients.groups import GroupClient
from lakelog.testing.simulation.clients.reading import LATEST, list_offset, read_all
from lakelog.testing.simulation.clients.transaction_requests import TIMEOUT_MS
from lakelog.testing.simulation.ledger import Place

if TYPE_CHECKING:
    from lakelog.testing.simulation.broker_host import BrokerHost
    from lakelog.testing.simulation.world import World

_PATIENCE_S = 2 * TIMEOUT_MS / 1000
"""Before a decided transaction may lie another one, which its coordinator has yet to end."""


class _Inspector(GroupClient):
    def __init__(self, world: World, name: str, places: list[Place]) -> None:
        super().__init__(world, name, "", places)

    async def run(self) -> None:
        committed: set[bytes] = set()
        for place in self.places:
            await self._await_markers(place)
            for only_committed in (False, True):
                found = await read_all(self, place, committed=only_committed)
                self.ledger.check_all(place, found, committed=only_committed)
                if only_committed:
                    committed.update(found.values())
                self.note("read all", place, only_committed, len(found))
        self.ledger.check_transactions(committed, self.places)
        for group, place in self.world.offsets.groups():
            if self.world.home_of(group) is self.home:
                self.group = group
                await self.fetch_offset(place, insist=True)

    async def _await_markers(self, place: Place) -> None:
        """Until what its producers know to be committed can be read as such, or never will be.

        EndTxn is answered with the decision; the markers follow, and have to become durable.
        """
        end = self.ledger.committed_end(place)
        until = self.world.loop.time() + _PATIENCE_S
        while await list_offset(self, place, LATEST, committed=True) < end:
            if self.world.loop.time() >= until:
                return
            await self.pause(0.1, 0.3)


class Inspection:
    """`places` are the partitions of a broker that clients wrote to."""

    def __init__(self, world: World, name: str, places: list[Place], host: BrokerHost) -> None:
        self._world = world
        self._name = name
        self._host = host
        self._places = places

    async def run(self) -> None:
        await _Inspector(self._world, self._name, self._places).start()
        await self._host.stop()
        await self._world.bring_back(self._host)
        await _Inspector(self._world, self._name, self._places).start()
