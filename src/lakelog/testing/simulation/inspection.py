"""The last look: each partition from beginning to end, before and after a clean restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.testing.simulation.clients.groups import GroupClient
from lakelog.testing.simulation.clients.reading import read_all
from lakelog.testing.simulation.ledger import Place

if TYPE_CHECKING:
    from lakelog.testing.simulation.broker import BrokerHost
    from lakelog.testing.simulation.world import World


class _Inspector(GroupClient):
    def __init__(self, world: World, name: str, places: list[Place]) -> None:
        super().__init__(world, name, "", places)

    async def run(self) -> None:
        committed: set[bytes] = set()
        for place in self.places:
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
