"""Admission control: decides whether a decoded request is handled, refused or closes its
connection.

`Dispatcher.on_request` is the only way in. A connection caches an `Admitted` request of which its
handler has rejected no part. It answers repetitions without calling `admit` again, at the cost of
one comparison. It drops the cached request when the `generation` of the admission or its client's
authentication changes. Its next request is then decoded and passes `admit`.

Code calls `revoke` in the same iteration of the loop in which it changes the role of a partition
(its leader, epoch, settings, online state), the broker's configuration, a quota or an
authorization. A waiting request was admitted when it was received; its partitions are looked up
again when it is answered.

`refuse` makes the response to a refused request, for APIs whose response has one error code.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.server.authentication import Authorizer, Quotas
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Message


def refuse(context: Context, request: Message, code: ErrorCode) -> Message:
    """Return a response of which `error_code` is `code`.

    Raises `ProtocolViolation` for a response that has no such field in the request's version:
    without a code the client would take the request for done.
    """
    api = context.api
    fields = (field for field in api.response.__fields__ if field.name == "error_code")
    if not any(context.version in field.versions for field in fields):
        raise ProtocolViolation(f"{api.name} v{context.version} is refused with {code.name}")
    return api.response(error_code=code)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request is handled, and the connection may cache it."""


@dataclass(frozen=True, slots=True)
class Metered:
    """The request is handled and was charged to a quota, as each repetition must be.

    After it the connection is muted for `throttle_ms`, which the response states (KIP-219).
    """

    throttle_ms: int


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The request is answered with `code`."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed without an answer."""

    reason: str


Verdict = Admitted | Metered | RefusedRequest | Close

ADMITTED = Admitted()


class Admission:
    """The admission control of one broker."""

    __slots__ = ("authorizer", "generation", "quotas")

    def __init__(self, authorizer: Authorizer, quotas: Quotas) -> None:
        self.authorizer = authorizer
        self.quotas = quotas
        self.generation = 1
        """Higher than the `admitted` of a new connection."""

    def admit(self, context: Context, size_bytes: int) -> Verdict:
        """Return the verdict on a request of `size_bytes`; only its header has been decoded.

        An API that the state of the client's authentication does not allow closes the connection,
        as Kafka's `SaslServerAuthenticator` does. A refused request is not charged to the quota.
        """
        api, authentication = context.api, context.connection.session.authentication
        # Authentication comes first: before it, the principal has no meaning to the authorizer.
        if not authentication.allows(api.key):
            return Close(f"{api.name} in the state {authentication.state.name} of authentication")
        principal = authentication.principal
        code = self.authorizer.authorize(principal, api)
        if code:
            return RefusedRequest(code)
        throttle_ms = self.quotas.charge(principal, context.client_id, api, size_bytes)
        return ADMITTED if throttle_ms is None else Metered(throttle_ms)

    def renew(self, connection: Connection) -> None:
        """Drop the cached request of a connection; the next one is valid until `revoke`."""
        connection.cached_request = None
        connection.admitted = self.generation

    def release(self, connection: Connection) -> None:
        """Drop the cached request of a connection if it was revoked.

        Otherwise an idle connection would keep a deleted partition in memory.
        """
        if connection.admitted != self.generation:
            connection.cached_request = None

    def revoke(self) -> None:
        """Have every connection drop its cached request before its next request is answered."""
        self.generation += 1
