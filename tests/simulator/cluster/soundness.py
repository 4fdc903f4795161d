"""The brokers that can work at a moment of a world, and reach each other, by the faults so far.

It is read from the simulated machines and their network. No broker is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import NamedTuple

from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.network.network import Network

Pair = tuple[int, int]
"""The node ids of two brokers, the smaller one first."""


class Soundness(NamedTuple):
    """The brokers of a cluster at one moment, by node id."""

    runs: tuple[int, ...]
    """The number of starts of each broker."""
    able: frozenset[int]
    """Brokers that run, reach the metadata store and the client, and have a disk that works.

    A broker in a slow recovery is not able: it may need longer than the law allows to serve.
    """
    pairs: frozenset[Pair]
    """Pairs of able brokers that reach each other; none while the network is slow."""
    untouched: frozenset[int]
    """Able brokers that reach every able broker which may commit; none while it is slow.

    An able broker commits if another one reaches it.
    """

    def is_worse_than(self, before: Soundness) -> bool:
        """Return whether a broker, or a way between two, was lost since then."""
        return not (
            before.able <= self.able and before.pairs <= self.pairs and before.runs == self.runs
        )


def soundness_of(hosts: Sequence[BrokerHost], network: Network, client: str) -> Soundness:
    """Return the present state of the brokers.

    client: the host of the client whose acknowledgements are awaited.
    """
    able = {
        host.node_id: host
        for host in hosts
        if _runs(host, network)
        and host.has_sound_disk
        and not host.has_slow_threads
        and all(are_joined(network, host.name, other) for other in (STORE, client))
    }
    pairs = frozenset(
        (one, other)
        for one, other in combinations(sorted(able), 2)
        if not network.is_slow and are_joined(network, able[one].name, able[other].name)
    )
    return Soundness(
        tuple(host.starts for host in hosts),
        frozenset(able),
        pairs,
        frozenset() if network.is_slow else _untouched(frozenset(able), pairs),
    )


def _untouched(able: frozenset[int], pairs: frozenset[Pair]) -> frozenset[int]:
    committing = frozenset(chain.from_iterable(pairs))
    return frozenset(
        one
        for one in able
        if all((min(one, other), max(one, other)) in pairs for other in committing - {one})
    )


def _runs(host: BrokerHost, network: Network) -> bool:
    process = host.process
    return process is not None and not process.is_paused and host.name not in network.down


def are_joined(network: Network, one: str, other: str) -> bool:
    """Return whether two hosts reach each other."""
    return not (network.is_cut(one, other) or network.is_cut(other, one))
