"""Bad requests of authentication, on a listener without SASL."""

from __future__ import annotations

from conformance.case import Case, made

CASES = [
    Case(
        "SaslHandshake",
        "listener without SASL",
        lambda world: made("connections", "SaslHandshakeRequest", mechanism="PLAIN"),
    ),
    Case(
        "SaslAuthenticate",
        "listener without SASL",
        lambda world: made("connections", "SaslAuthenticateRequest", auth_bytes=b"x"),
    ),
]
