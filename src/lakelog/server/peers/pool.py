"""The other brokers of the cluster, each with one outgoing connection."""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.dialogue.dialogue import Identity
from lakelog.metadata.image import BrokerImage, MetadataImage
from lakelog.server.auth.broker_proof import Ends, Process
from lakelog.server.peers.exchange import DEFAULT_LIMITS, PeerLimits
from lakelog.server.peers.peer import Peer, PeerSeams


class Peers:
    """A peer for each registered broker with an address, except this one."""

    def __init__(
        self,
        own: Process,
        listener_name: str,
        seams: PeerSeams,
        limits: PeerLimits = DEFAULT_LIMITS,
    ) -> None:
        """
        own: this process.
        listener_name: the listener of other brokers that is called if they have it.
        """
        self._own = own
        self._listener_name = listener_name
        self._seams = seams
        self._limits = limits
        self._peers: dict[int, tuple[BrokerImage, Peer]] = {}

    def __iter__(self) -> Iterator[Peer]:
        return (peer for _, peer in self._peers.values())

    def get(self, node_id: int) -> Peer | None:
        """Return the peer of this node id, or None if no such broker can be called."""
        found = self._peers.get(node_id)
        return None if found is None else found[1]

    def follow(self, image: MetadataImage) -> None:
        """Adopt the registered brokers of an image.

        A broker that has started again gets a new peer: requests to its former process fail, and no
        pause delays the first attempt.
        """
        for node_id, (broker, _) in list(self._peers.items()):
            if _process(image, node_id) != broker:
                self._peers.pop(node_id)[1].close()
        assert image.cluster_id is not None or not image.brokers, "brokers join an existing cluster"
        for node_id, broker in sorted(image.brokers.items()):
            endpoint = broker.endpoint(self._listener_name)
            if node_id in self._peers or node_id == self._own.node_id or endpoint is None:
                continue
            identity = Identity(image.cluster_id or "", node_id)
            called = Process(node_id, broker.incarnation_id)
            ends = Ends(identity.cluster_id, self._own, called)
            self._peers[node_id] = (
                broker._replace(is_fenced=False),
                Peer(identity, endpoint, self._seams, self._limits, ends),
            )

    def close(self) -> None:
        """Close all connections and fail all requests."""
        for _, peer in self._peers.values():
            peer.close()
        self._peers.clear()


def _process(image: MetadataImage, node_id: int) -> BrokerImage | None:
    """Return the registration of a broker; being fenced does not change its connections."""
    broker = image.brokers.get(node_id)
    return None if broker is None else broker._replace(is_fenced=False)
