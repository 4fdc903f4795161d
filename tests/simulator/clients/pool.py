"""The running clients of a world: start, crash and replacement."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from simulator.clients.client import Client
from simulator.clients.groups.member import GroupClient
from simulator.network.network import Network

_STAYS_AWAY = 0.4
"""Chance that a crashed member of a group is not replaced."""


class ClientPool:
    """Clients and their tasks, in one order."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self._network = network
        self._rng = rng
        self.clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.dead_members: list[GroupClient] = []
        """Crashed members of groups without a replacement."""

    def start(self, clients: Iterable[Client]) -> None:
        """Start clients; may be called once."""
        assert not self.clients
        self.clients = list(clients)
        self._tasks = [client.start() for client in self.clients]

    @property
    def unfinished(self) -> list[str]:
        """Names of clients that have not finished."""
        return [task.get_name() for task in self._tasks if not task.done()]

    @property
    def members(self) -> list[GroupClient]:
        return [client for client in self.clients if isinstance(client, GroupClient)]

    async def wait(self) -> None:
        """Wait until every client has finished."""
        for task in self._tasks:
            await asyncio.wait({task})

    def crash(self, number: int) -> None:
        """Kill a client's process and replace the client, unless it is a member that stays away."""
        client = self.clients[number]
        if self._tasks[number].done():
            return
        client.process.kill()
        # The kernel resets connections of a dead process; only a power failure is silent.
        self._network.disconnect(client.process, silently=False)
        client.process.close_coroutines()
        if isinstance(client, GroupClient) and self._may_stay_away(client):
            self.dead_members.append(client)
            del self.clients[number], self._tasks[number]
            return
        successor = self.clients[number] = client.replaced()
        self._tasks[number] = successor.start()

    def _may_stay_away(self, client: GroupClient) -> bool:
        """Return whether other members remain that have to take over the client's partitions."""
        others = [one for one in self.members if one is not client]
        is_alone = all(one.group != client.group for one in others)
        return not is_alone and client.may_stay_away and self._rng.random() < _STAYS_AWAY

    def reset_dead_connections(self) -> None:
        """Reset connections to dead processes: responses under way no longer arrive."""
        for client in self.clients:
            for socket in list(client.process.sockets):
                if not socket.other.process.alive:
                    self._network.reset(socket)

    def kill(self) -> None:
        """Kill every client's process."""
        for client in self.clients:
            client.process.kill()
            client.process.close_coroutines()
