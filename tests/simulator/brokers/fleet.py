"""All brokers of a world, and which of them a client or a group belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from simulator.brokers.host import BrokerHost
from simulator.checkers.observations import Place


class Fleet:
    """Brokers in the order of their ids."""

    removed: Collection[int] = ()

    def __init__(self, hosts: Iterable[BrokerHost]) -> None:
        self.hosts = list(hosts)
        assert self.hosts[0].suffix == "", "the first broker takes all names without a suffix"

    def home_of(self, name: str) -> BrokerHost:
        """Return the broker that a client, a group or a topic of this name belongs to.

        The suffix of the name decides. A client that replaces a crashed one has an apostrophe and a
        number after the suffix.
        """
        base = name.partition("'")[0]
        return next(host for host in reversed(self.hosts) if base.endswith(host.suffix))

    @property
    def starts(self) -> int:
        """How many times brokers were started so far."""
        return sum(host.starts for host in self.hosts)

    def forgets_producers(self, partition: Place, since: float) -> bool:
        """Return whether a producer of a partition may have expired since this time."""
        host = self.home_of(partition[0])
        return host.clock.spread_ms(since) >= host.producer_expiration_ms
