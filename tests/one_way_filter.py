"""A firewall in the simulated network that lets one broker open no connection to another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from lakelog.replica.partition import Partition
from lakelog.server.app import Server
from simulator.network.network import Network


def refuse(network: Network, caller: str, callee: str) -> Callable[[], None]:
    """Break and refuse connections that the caller opens; return how to end that."""
    network.filter(caller, callee)
    return partial(network.filtered.discard, (caller, callee))


def led(server: Server) -> Iterator[Partition]:
    return (
        each for each in server.broker.partitions if each.role.is_leader and each.role.followers
    )
