"""SaslAuthenticate (36): the tokens with which a broker proves that it is one (`broker_proof`).

A connection with a failed proof is of no more use: every further request closes it or fails.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.connections import SaslAuthenticateRequest, SaslAuthenticateResponse
from lakelog.server.auth.authentication import AuthenticationState
from lakelog.server.auth.principal import broker_principal
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answer a token. A wrong one has SASL_AUTHENTICATION_FAILED."""
    authentication = context.connection.session.authentication
    check = authentication.broker_check
    if authentication.state is not AuthenticationState.AUTHENTICATING:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate must follow a successful SaslHandshake",
        )
    if check is None:
        return _failed("an earlier token of this connection was wrong")
    is_first = check.node_id < 0
    authentication.broker_check = None  # a failure is final
    token = bytes(request.auth_bytes)
    answer = check.begin(token) if is_first else await broker.registered.answer(check, token)
    if answer is None:
        return _failed(f"the caller is not a registered process of broker {check.node_id}")
    if is_first:
        authentication.broker_check = check
    else:
        authentication.succeed(broker_principal(check.node_id))
    return SaslAuthenticateResponse(auth_bytes=answer)


API = ServedApi(SaslAuthenticateRequest, handle, done="Between brokers.", missing="Clients.")


def _failed(reason: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=reason
    )
