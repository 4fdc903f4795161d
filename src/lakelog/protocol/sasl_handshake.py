"""SaslHandshake (key 17): a client chooses the mechanism of its authentication."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, versions="0-1"):
    """Names a mechanism.

    Versions: after 1 the tokens are in SaslAuthenticate requests (KIP-152), after 0 in none.
    """

    mechanism: str = string()


class SaslHandshakeResponse(Message, versions="0-1"):
    """The result, and the mechanisms that the broker has."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


API = Api(17, SaslHandshakeRequest, SaslHandshakeResponse)
