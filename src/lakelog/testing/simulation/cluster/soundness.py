"""The brokers that can work at a moment of a world, and reach each other, by the faults so far.

It is read from the simulated machines and their network. No broker is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from lakelog.testing.simulation.brokers.host import BrokerHost
from lakelog.testing.simulation.cluster.ensemble import STORE
from lakelog.testing.simulation.network.network import Network

Pair = tuple[int, int]
"""The node ids of two brokers, the smaller one first."""


class Soundness(NamedTuple):
    """The brokers of a cluster at one moment, by node id."""

    runs: tuple[int, ...]
    """The number of starts of each broker."""
    able: frozenset[int]
    """Brokers that run, reach the metadata store, and have a disk that works."""
    pairs: frozenset[Pair]
    """Pairs of able brokers; none while a way between two machines of brokers is cut or slow."""
    untouched: frozenset[int]
    """Able brokers; none while a way between two machines of brokers is cut or slow."""

    def is_worse_than(self, before: Soundness) -> bool:
        """Return whether a broker, or a way between two, was lost since then."""
        return not (
            before.able <= self.able and before.pairs <= self.pairs and before.runs == self.runs
        )


def soundness_of(hosts: Sequence[BrokerHost], network: Network) -> Soundness:
    """Return the present state of the brokers."""
    able = {
        host.node_id
        for host in hosts
        if _runs(host, network) and host.has_sound_disk and _is_joined(network, host.name, STORE)
    }
    are_joined = not network.is_slow and all(
        _is_joined(network, one.name, other.name) for one, other in combinations(hosts, 2)
    )
    return Soundness(
        tuple(host.starts for host in hosts),
        frozenset(able),
        frozenset(combinations(sorted(able), 2)) if are_joined else frozenset(),
        frozenset(able) if are_joined else frozenset(),
    )


def _runs(host: BrokerHost, network: Network) -> bool:
    process = host.process
    return process is not None and not process.is_paused and host.name not in network.down


def _is_joined(network: Network, one: str, other: str) -> bool:
    return not (network.is_cut(one, other) or network.is_cut(other, one))
