"""A firewall in the simulated network that lets one broker open no connection to another one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator

from lakelog.replica.partition import Partition
from lakelog.server.app import Server
from simulator.engine.process import Process
from simulator.network.network import Network
from simulator.network.sockets import Address, SimulatedSocket


def refuse(network: Network, caller: str, callee: str) -> Callable[[], None]:
    """Break and refuse connections that the caller opens, as a firewall does."""
    connect, opened = (
        network.connect,
        [
            sock
            for listener in network._listeners.values()
            if listener.address[0] == callee
            for sock in listener.process.sockets
            if sock.other.process.host == caller and sock.getsockname() == listener.address
        ],
    )
    for sock in opened:
        network.reset(sock)

    async def connect_if_allowed(process: Process, address: Address) -> SimulatedSocket:
        if (process.host, address[0]) == (caller, callee):
            await asyncio.sleep(0.01)
            raise OSError(errno.EHOSTUNREACH, "filtered")
        return await connect(process, address)

    network.connect = connect_if_allowed  # type: ignore[method-assign]

    def mend() -> None:
        network.connect = connect  # type: ignore[method-assign]

    return mend


def led(server: Server) -> Iterator[Partition]:
    return (
        each for each in server.broker.partitions if each.role.is_leader and each.role.followers
    )
