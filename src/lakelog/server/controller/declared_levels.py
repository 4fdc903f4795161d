"""The feature levels of brokers whose registrations do not have them.

A registration has the levels that its broker supports only from `LEVELS_SINCE` on: before, brokers
of an older version may have to read it. Until then the controller asks the brokers.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog import __version__
from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.brokers import undeclared
from lakelog.metadata.features import SUPPORTED, UNDECLARED, SupportedLevels
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.server.inter_broker.peer import Peer

_PATIENCE_S = 5.0


class DeclaredLevels:
    """Asks running brokers for their levels.

    Args:
        node_id: of this broker.
        peer: returns the connection to a broker, None without an address.
    """

    def __init__(self, node_id: int, peer: Callable[[int], Peer | None]) -> None:
        self._node_id = node_id
        self._peer = peer

    async def of(self, image: MetadataImage) -> dict[tuple[int, int], tuple[SupportedLevels, ...]]:
        """Return the levels of registered brokers that answer, by broker id and broker epoch."""
        declared: dict[tuple[int, int], tuple[SupportedLevels, ...]] = {}
        for broker in undeclared(image):
            key = broker.broker_id, broker.epoch
            if broker.broker_id == self._node_id:
                declared[key] = SUPPORTED
            elif not broker.is_fenced and (peer := self._peer(broker.broker_id)) is not None:
                levels = await _ask(peer)
                if levels:
                    declared[key] = levels
        return declared


async def _ask(peer: Peer) -> tuple[SupportedLevels, ...]:
    request = ApiVersionsRequest(
        client_software_name="lakelog", client_software_version=__version__
    )
    try:
        response = await peer.request(request, timeout_s=_PATIENCE_S)
    except KafkaError:
        return ()
    assert isinstance(response, ApiVersionsResponse)
    levels = {feature.name: feature for feature in UNDECLARED}
    for row in response.supported_features:
        levels[row.name] = SupportedLevels(row.name, row.min_version, row.max_version)
    return tuple(levels.values())
