"""The brokers that can work at a moment of a world, and reach each other, by the faults so far.

It is read from the simulated machines and their network. No broker is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.network.network import Network

Pair = tuple[int, int]
"""The node ids of two brokers, the smaller one first."""


class Soundness(NamedTuple):
    """The brokers of a cluster at one moment, by node id."""

    runs: Mapping[int, int]
    """The number of starts of each broker of the cluster."""
    able: frozenset[int]
    """Brokers that run, reach the metadata store and the client, and have a disk that works.

    A broker in a slow recovery is not able: it may need longer than the law allows to serve.
    """
    pairs: frozenset[Pair]
    """Pairs of able brokers that reach each other; none while the network is slow.

    With brokers that both reach they are more than half of the cluster. Otherwise a controller may
    keep its term that reaches the other half.
    """
    untouched: frozenset[int]
    """Able brokers that reach every able broker which may commit; none while it is slow.

    An able broker commits if another one reaches it.
    """

    def is_worse_than(self, before: Soundness) -> bool:
        """Return whether a broker, or a way between two, was lost since then."""
        return bool(
            not (before.able <= self.able and before.pairs <= self.pairs)
            or self.restarted_since(before)
        )

    def restarted_since(self, before: Soundness) -> frozenset[int]:
        """Return the brokers whose process has changed since then. New brokers do not count."""
        return frozenset(
            node_id
            for node_id, starts in self.runs.items()
            if starts != before.runs.get(node_id, starts)
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
        {host.node_id: host.starts for host in hosts},
        frozenset(able),
        frozenset(pair for pair in pairs if 2 * len(_joined_by(pair, pairs)) > len(hosts)),
        frozenset() if network.is_slow else _untouched(frozenset(able), pairs),
    )


def _joined_by(pair: Pair, pairs: frozenset[Pair]) -> frozenset[int]:
    """Return the pair, and the brokers that both reach."""
    first, second = (
        frozenset(chain.from_iterable(each for each in pairs if one in each)) for one in pair
    )
    return first & second


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
    """Return whether two hosts reach each other, and either may open a connection."""
    return not any(
        network.is_cut(*way) or way in network.filtered for way in ((one, other), (other, one))
    )
