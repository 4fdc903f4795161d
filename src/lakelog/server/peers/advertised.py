"""Calls this broker at its own advertised addresses, once after a start.

A wrong advertised address lets clients connect to the bootstrap address and then fail. The broker's
host is not the client's: an address that only clients can reach is reported without alarm, one at
which another broker answers is a mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakelog.base.endpoint import Endpoint
from lakelog.base.events import event
from lakelog.dialogue.dialogue import Identity
from lakelog.protocol.describe_cluster import DescribeClusterRequest
from lakelog.server.peers.errors import PeerError, PeerRefusedError
from lakelog.server.peers.exchange import PeerLimits
from lakelog.server.peers.peer import Peer, PeerSeams

logger = logging.getLogger(__name__)

_PATIENCE_S = 30.0
_LIMITS = PeerLimits(connect_timeout_s=_PATIENCE_S)


async def check_advertised(
    identity: Identity, endpoints: Iterable[Endpoint], seams: PeerSeams
) -> None:
    """Log the endpoints at which the broker `identity` does not answer."""
    for endpoint in endpoints:
        peer = Peer(identity, endpoint, seams, _LIMITS)
        try:
            await peer.request(DescribeClusterRequest(), timeout_s=_PATIENCE_S)
        except PeerRefusedError:
            logger.warning(
                "Another broker answers at the advertised address %s of listener %s",
                endpoint.address,
                endpoint.name,
                extra=event("advertised_address_wrong", address=endpoint.address),
            )
        except PeerError as error:
            logger.info(
                "This host cannot reach the advertised address of listener %s: %s",
                endpoint.name,
                error.message,
                extra=event("advertised_address_unreachable", address=endpoint.address),
            )
        finally:
            peer.close()
