"""SaslAuthenticate (key 36): one token of the mechanism that SaslHandshake has chosen (KIP-152)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Buffer, Message, binary, error_text, int16, int64


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+"):
    """A token of the client. Versions: 1 has the session's lifetime, 2 is flexible."""

    auth_bytes: Buffer = binary()


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+"):
    """A token of the broker, or the reason why the authentication failed."""

    error_code: int = int16()
    error_message: str | None = error_text()
    auth_bytes: Buffer = binary()
    session_lifetime_ms: int = int64("1+")
    """After which the client must authenticate again (KIP-368); 0 for no limit."""


API = Api(36, SaslAuthenticateRequest, SaslAuthenticateResponse)
