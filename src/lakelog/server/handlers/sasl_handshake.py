"""SaslHandshake (17): begins the proof that the caller is a broker of this cluster.

Clients are not authenticated yet: with any other mechanism they get ILLEGAL_SASL_STATE, as from
Apache Kafka on a listener without SASL.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.connections import SaslHandshakeRequest, SaslHandshakeResponse
from lakelog.server.auth.authentication import AuthenticationState
from lakelog.server.auth.broker_proof import MECHANISM, NONCE_BYTES, Process, ProofCheck
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_TOKENS_IN_REQUESTS_SINCE = 1


def handle(
    broker: Broker, context: Context, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    authentication = context.connection.session.authentication
    is_for_brokers = (
        request.mechanism == MECHANISM
        and context.version >= _TOKENS_IN_REQUESTS_SINCE
        and authentication.state is AuthenticationState.NOT_REQUIRED
    )
    if not is_for_brokers:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    own = Process(broker.node_id, broker.metadata.incarnation_id)
    nonce = broker.random.bytes(NONCE_BYTES)
    authentication.broker_check = ProofCheck(broker.image.cluster_id or "", own, nonce)
    authentication.begin()
    return SaslHandshakeResponse(mechanisms=[MECHANISM])


API = ServedApi(SaslHandshakeRequest, handle, done="Between brokers.", missing="Clients.")
